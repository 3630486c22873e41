//! A server as a task with a name.

use std::convert::Infallible;

use tidings_kube::text::panic_message;
use tokio::task::JoinHandle;

/// A server does not serve any longer, which is a bug.
#[derive(Debug, thiserror::Error)]
#[error("{0}; this is a bug\nhint: nothing is lost, so start again; and please report it")]
pub struct ServerEnded(String);

/// A server that is at work; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Serving {
    name: &'static str,
    task: JoinHandle<Infallible>,
}

impl Serving {
    pub(super) fn start(
        name: &'static str,
        server: impl Future<Output = Infallible> + Send + 'static,
    ) -> Self {
        Self { name, task: tokio::spawn(server) }
    }

    /// Completes when it does not serve any longer, which it does until it is told to end.
    pub(super) async fn failed(&mut self) -> ServerEnded {
        let end = match (&mut self.task).await {
            Err(error) => match error.try_into_panic() {
                Ok(panic) => format!("panicked: {}", panic_message(&*panic)),
                Err(error) => format!("has ended: {error}"),
            },
        };
        ServerEnded(format!("{} {end}", self.name))
    }

    /// Ends it where it is, which is where it waits for somebody to connect, and waits until it has.
    pub(super) async fn stop(mut self) {
        self.task.abort();
        // The end that `failed` has told is not told again.
        if !self.task.is_finished() {
            let _ = (&mut self.task).await;
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn its_end_is_told_by_its_name_and_stopping_it_after_that_does_no_harm() {
        let mut serving = Serving::start("the test server", async { panic!("of {}", "itself") });
        let said = serving.failed().await.to_string();
        assert!(said.starts_with("the test server panicked: of itself; this is a bug"), "{said}");
        serving.stop().await;
    }

    #[tokio::test]
    async fn when_it_is_stopped_what_it_held_is_gone() {
        let (held, mut gone) = oneshot::channel::<()>();
        let serving = Serving::start("the test server", async {
            let _held = held;
            pending().await
        });
        serving.stop().await;
        assert_eq!(gone.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }
}
