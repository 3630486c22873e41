//! The handlers of one informer: who they are, which of them a resync is for, and their tasks
//! (client-go `sharedProcessor`).

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use tokio::{runtime::Handle, task::JoinSet, time::Instant};

use super::{
    handler::ResourceEventHandler,
    listener::{Listener, ListenerTask, Notification},
    sync::HandlerRegistration,
};
use crate::object::Object;

/// A handler cannot have everything again more often than this (client-go `minimumResyncPeriod`).
const MINIMUM_RESYNC_PERIOD: Duration = Duration::from_secs(1);

/// When a handler gets everything again.
struct Resync {
    /// Zero: never.
    period: Duration,
    /// Nothing where the clock ends before.
    next: Option<Instant>,
    /// Whether updates that change nothing go to it: at first, and from a check at which it was
    /// due to the next.
    syncing: bool,
}

impl Resync {
    fn new(period: Duration, now: Instant) -> Self {
        Self { period, next: now.checked_add(period), syncing: true }
    }

    fn check(&mut self, now: Instant) -> bool {
        self.syncing = !self.period.is_zero() && self.next.is_some_and(|next| now >= next);
        if self.syncing {
            self.next = now.checked_add(self.period);
        }
        self.syncing
    }
}

enum Phase {
    /// The tasks of the handlers that were added already.
    New(Vec<ListenerTask>),
    Running(Handle),
    Stopped,
}

/// See the module.
pub(super) struct Processor<K> {
    listeners: Vec<(Listener<K>, Resync)>,
    /// How often the reflector asks whether a resync is due. Zero: never.
    check_period: Duration,
    phase: Phase,
    tasks: JoinSet<()>,
    /// Notifications that handlers panicked on.
    panics: Arc<AtomicU64>,
}

/// The informer has stopped.
pub(super) struct Stopped;

impl<K: Object> Processor<K> {
    /// Panics of handlers are counted in `panics`.
    pub(super) fn new(check_period: Duration, panics: Arc<AtomicU64>) -> Self {
        Self {
            listeners: Vec::new(),
            check_period,
            phase: Phase::New(Vec::new()),
            tasks: JoinSet::new(),
            panics,
        }
    }

    pub(super) fn check_period(&self) -> Duration {
        self.check_period
    }

    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.phase, Phase::Stopped)
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }

    /// Starts the handlers on the runtime of the caller; `false` if they were
    /// started or stopped before.
    pub(super) fn start(&mut self) -> bool {
        let Phase::New(tasks) = &mut self.phase else { return false };
        let (tasks, runtime) = (std::mem::take(tasks), Handle::current());
        for task in tasks {
            self.tasks.spawn_on(task, &runtime);
        }
        self.phase = Phase::Running(runtime);
        true
    }

    /// Adds a handler; the listener is for what it has to be told first. A period of zero is none.
    pub(super) fn add(
        &mut self,
        handler: impl ResourceEventHandler<K>,
        period: Duration,
    ) -> Result<&Listener<K>, Stopped> {
        if self.is_stopped() {
            return Err(Stopped);
        }
        let period = self.settle_period(period);
        let (listener, task) = Listener::new(handler, Arc::clone(&self.panics));
        match &mut self.phase {
            Phase::New(tasks) => tasks.push(task),
            Phase::Running(runtime) => {
                while self.tasks.try_join_next().is_some() {}
                self.tasks.spawn_on(task, runtime);
            }
            Phase::Stopped => return Err(Stopped),
        }
        self.listeners.push((listener, Resync::new(period, Instant::now())));
        self.listeners.last().map(|(listener, _)| listener).ok_or(Stopped)
    }

    /// The period that a handler gets for the one that it asks for. Before the start the informer
    /// looks as often as its most frequent handler wants; later the handler has to do with that.
    fn settle_period(&mut self, asked: Duration) -> Duration {
        if asked.is_zero() {
            return asked;
        }
        if self.check_period.is_zero() {
            tracing::warn!(
                ?asked,
                "this informer does not resync: the handler's period is ignored"
            );
            return Duration::ZERO;
        }
        let period = asked.max(MINIMUM_RESYNC_PERIOD);
        if period < self.check_period && matches!(self.phase, Phase::New(_)) {
            self.check_period = period;
        }
        let period = period.max(self.check_period);
        if period != asked {
            tracing::warn!(?asked, ?period, "a handler's resync period is too short: it is raised");
        }
        period
    }

    /// Removes a handler: nothing is queued to it any more, and what is queued is not delivered.
    pub(super) fn remove(&mut self, registration: &HandlerRegistration) {
        self.listeners.retain(|(listener, _)| !registration.is_of(listener.state()));
    }

    /// Tells all handlers.
    pub(super) fn distribute(&self, notification: &Notification<K>) {
        for (listener, _) in &self.listeners {
            listener.add(notification.clone());
        }
    }

    /// Tells the handlers that are having everything again.
    pub(super) fn distribute_sync(&self, notification: &Notification<K>) {
        for (listener, _) in self.listeners.iter().filter(|(_, resync)| resync.syncing) {
            listener.add(notification.clone());
        }
    }

    /// Whether any handler is due to have everything again.
    pub(super) fn should_resync(&mut self, now: Instant) -> bool {
        // Each of them is asked: what goes to whom until the next check follows from it.
        self.listeners.iter_mut().fold(false, |due, (_, resync)| resync.check(now) | due)
    }

    /// Ends every handler after the call that it is in. Dropping what comes back aborts them.
    pub(super) fn stop(&mut self) -> JoinSet<()> {
        self.phase = Phase::Stopped;
        self.listeners.clear();
        std::mem::take(&mut self.tasks)
    }

    /// Ends every handler if none was started yet. What comes back drops the handlers, and these
    /// may do anything then: it is for when the processor is not locked any more.
    pub(super) fn stop_before_start(&mut self) -> Option<Vec<ListenerTask>> {
        let Phase::New(tasks) = &mut self.phase else { return None };
        let tasks = std::mem::take(tasks);
        self.stop();
        Some(tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::informer::HandlerFuncs;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn with(check: u64) -> Processor<ConfigMap> {
        Processor::new(secs(check), Arc::default())
    }

    fn periods(processor: &Processor<ConfigMap>) -> Vec<Duration> {
        processor.listeners.iter().map(|(_, resync)| resync.period).collect()
    }

    fn add(processor: &mut Processor<ConfigMap>, period: Duration) {
        assert!(processor.add(HandlerFuncs::new(), period).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn before_the_start_the_shortest_period_is_the_informers_and_later_the_least() {
        let mut processor = with(60);
        add(&mut processor, secs(90));
        add(&mut processor, secs(20));
        add(&mut processor, Duration::from_millis(1));
        assert_eq!(processor.check_period(), secs(1));
        assert!(processor.start() && !processor.start());
        add(&mut processor, Duration::from_millis(300));
        add(&mut processor, Duration::ZERO);
        assert_eq!(periods(&processor), [secs(90), secs(20), secs(1), secs(1), secs(0)]);
        assert_eq!(processor.check_period(), secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_start_a_period_is_raised_to_the_informers() {
        let mut processor = with(60);
        processor.start();
        add(&mut processor, secs(20));
        assert_eq!((processor.check_period(), periods(&processor)), (secs(60), vec![secs(60)]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_informer_that_does_not_check_has_no_resync() {
        let mut processor = with(0);
        add(&mut processor, secs(20));
        assert_eq!((processor.check_period(), periods(&processor)), (secs(0), vec![secs(0)]));
        assert!(!processor.should_resync(Instant::now() + secs(1000)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_is_due_at_the_first_check_at_or_after_its_period() {
        let mut processor = with(10);
        add(&mut processor, secs(15));
        add(&mut processor, Duration::ZERO);
        let (start, mut due) = (Instant::now(), Vec::new());
        for at in [10, 20, 30, 35, 40] {
            if processor.should_resync(start + secs(at)) {
                due.push(at);
            }
        }
        assert_eq!(due, [20, 35]);
    }

    #[tokio::test]
    async fn after_the_end_no_handler_comes() {
        let mut processor = with(10);
        processor.start();
        processor.stop();
        assert!(processor.add(HandlerFuncs::new(), Duration::ZERO).is_err());
        assert!(processor.is_stopped() && !processor.start());
    }
}
