//! Tasks by name, so that the one that ends by itself can be named.
//!
//! A bridge is whole or it ends: none of its tasks ends before it is told to, so one that does,
//! mostly by a panic, is a crash of the whole. The others are stopped in order and what is settled
//! is saved, and the error says which task it was and with what it panicked. This goes for the tasks
//! beside the way of an event, too: a bridge without its heartbeat would be one that notices no
//! dead watch, and nobody would know.

use std::{collections::HashMap, fmt, future::pending, time::Duration};

use tidings_kube::text::panic_message;
use tokio::{
    task::{Id, JoinError, JoinHandle, JoinSet},
    time::{Instant, timeout_at},
};

use super::BridgeError;

/// What a panic takes with it may end a moment earlier than the panic shows.
const PANIC_SHOWS_WITHIN: Duration = Duration::from_secs(1);

/// The end of a task that should not have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEnd {
    name: String,
    panic: Option<String>,
}

impl TaskEnd {
    /// How the task of that name ended.
    pub(super) fn new<T>(name: &str, ended: Result<T, JoinError>) -> Self {
        let panic = ended.err().and_then(|error| error.try_into_panic().ok());
        let panic = panic.map(|panic| panic_message(&*panic).to_owned());
        Self { name: name.to_owned(), panic }
    }
}

impl fmt::Display for TaskEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.panic {
            Some(message) => write!(f, "{} panicked: {message}", self.name),
            None => write!(f, "{} has ended unexpectedly", self.name),
        }
    }
}

/// One task that ends when it is told to. It goes on when this is dropped.
#[derive(Debug)]
pub(super) struct Task {
    name: &'static str,
    /// `None` once its end is known.
    running: Option<JoinHandle<Result<(), BridgeError>>>,
}

impl Task {
    pub(super) fn spawn(
        name: &'static str,
        task: impl Future<Output = Result<(), BridgeError>> + Send + 'static,
    ) -> Self {
        Self { name, running: Some(tokio::spawn(task)) }
    }

    /// Waits for the end that it was told to come to; one that was known before is none.
    pub(super) async fn ended(&mut self) -> Result<(), BridgeError> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let ended = running.await;
        self.running = None;
        ended.unwrap_or_else(|error| {
            Err(BridgeError::Task(TaskEnd::new(self.name, Err::<(), _>(error))))
        })
    }

    /// Ends it where it is.
    pub(super) fn abort(&self) {
        if let Some(running) = &self.running {
            running.abort();
        }
    }
}

impl Failing for Task {
    async fn next_failure(&mut self) -> BridgeError {
        let Some(running) = &mut self.running else { return pending().await };
        let ended = running.await;
        self.running = None;
        match ended {
            Ok(Err(error)) => error,
            ended => BridgeError::Task(TaskEnd::new(self.name, ended)),
        }
    }
}

/// Tasks that end with it.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    tasks: JoinSet<Result<(), BridgeError>>,
    names: HashMap<Id, String>,
}

impl Tasks {
    pub(super) fn spawn(
        &mut self,
        name: impl Into<String>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.spawn_failing(name, async {
            task.await;
            Ok(())
        });
    }

    /// A task that may end with an error of its own, that of another one below it.
    pub(super) fn spawn_failing(
        &mut self,
        name: impl Into<String>,
        task: impl Future<Output = Result<(), BridgeError>> + Send + 'static,
    ) {
        let handle = self.tasks.spawn(task);
        self.names.insert(handle.id(), name.into());
    }

    /// The next end of a task; nothing if none is left.
    async fn next_end(&mut self) -> Option<BridgeError> {
        let ended = self.tasks.join_next_with_id().await?;
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let name = self.names.remove(&id).unwrap_or_default();
        Some(match ended {
            Ok((_, Err(error))) => error,
            ended => BridgeError::Task(TaskEnd::new(&name, ended)),
        })
    }

    /// Waits until all have ended, and notes the first that was at fault. Dropping the future ends
    /// the waiting only.
    pub(super) async fn all_ended(&mut self, fault: &mut Option<BridgeError>) {
        while let Some(end) = self.next_end().await {
            if is_fault(&end) {
                fault.get_or_insert(end);
            }
        }
    }

    /// Those that have not ended.
    pub(super) fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.names.values().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Ends all of them where they are, and notes the first that was at fault.
    pub(super) async fn shutdown(&mut self, fault: &mut Option<BridgeError>) {
        self.tasks.abort_all();
        self.all_ended(fault).await;
    }
}

/// What fails when a task of it ends.
pub(super) trait Failing: Send {
    /// The next failure; never, while there is none.
    fn next_failure(&mut self) -> impl Future<Output = BridgeError> + Send;
}

impl Failing for Tasks {
    async fn next_failure(&mut self) -> BridgeError {
        match self.next_end().await {
            Some(end) => end,
            None => pending().await,
        }
    }
}

/// Of failures that come one after the other, the one that caused the others: a panic, if one
/// shows at once.
pub(super) async fn first_failure(failing: &mut impl Failing) -> BridgeError {
    let first = failing.next_failure().await;
    cause_of(first, failing).await
}

/// The same, when the first has come.
pub(super) async fn cause_of(first: BridgeError, failing: &mut impl Failing) -> BridgeError {
    if is_fault(&first) {
        return first;
    }
    let until = Instant::now() + PANIC_SHOWS_WITHIN;
    while let Ok(error) = timeout_at(until, failing.next_failure()).await {
        if is_fault(&error) {
            return error;
        }
    }
    first
}

/// Whether a task did not end just because another one did.
fn is_fault(error: &BridgeError) -> bool {
    !matches!(error, BridgeError::Task(TaskEnd { panic: None, .. }))
}

/// What a blocking job came to. Its panic goes on in the caller, so that it ends the caller's task
/// with the same message; a runtime that is shut down has no use for the answer.
pub(super) async fn answer_of<T>(job: impl Future<Output = Result<T, JoinError>>) -> T {
    match job.await.map_err(JoinError::try_into_panic) {
        Ok(answer) => answer,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_cancelled)) => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_one_that_panicked_is_named_and_not_the_one_that_it_took_along() {
        let mut tasks = Tasks::default();
        tasks.spawn("the victim", async {});
        tasks.spawn("the bystander", pending());
        tasks.spawn("the culprit", async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let job = tokio::task::spawn_blocking(|| panic!("of {}", "itself"));
            answer_of(job).await;
        });
        let error = first_failure(&mut tasks).await.to_string();
        assert!(error.starts_with("the culprit panicked: of itself"), "{error}");
        assert_eq!(tasks.names(), ["the bystander"]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_ends_without_a_panic_is_named_too() {
        let mut tasks = Tasks::default();
        tasks.spawn("the quiet one", async {});
        let error = first_failure(&mut tasks).await.to_string();
        assert!(error.starts_with("the quiet one has ended unexpectedly"), "{error}");
    }
}
