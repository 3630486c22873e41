//! Where recorded events go, and what became of those that went nowhere.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::broadcaster::{Broadcaster, NotSent};

/// What time it is; the system's clock unless a test has another.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The system's clock.
pub(super) fn system_clock() -> Clock {
    Arc::new(Timestamp::now)
}

/// The events of the recorders of one broadcaster, by what became of them there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecorderCounts {
    /// Queued for the sinks.
    pub recorded: u64,
    /// Dropped: there was nothing that the event could be about.
    pub no_reference: u64,
    /// Dropped: a type that is neither "Normal" nor "Warning".
    pub unknown_type: u64,
    /// Dropped: the broadcaster's queue was full.
    pub queue_full: u64,
    /// Dropped: the broadcaster was shut down.
    pub stopped: u64,
}

impl RecorderCounts {
    /// All that was dropped before it reached the sinks.
    pub fn dropped(&self) -> u64 {
        self.no_reference + self.unknown_type + self.queue_full + self.stopped
    }
}

/// Where events go.
pub(super) enum Outlet {
    Broadcaster(Broadcaster<Arc<Event>>),
    /// A channel that a test reads.
    Channel(mpsc::Sender<Arc<Event>>),
}

/// Why an event went nowhere.
#[derive(Debug)]
pub(super) enum Refused {
    NoReference,
    UnknownType,
    QueueFull,
    Stopped,
}

/// The one door to an outlet, for all recorders of it.
pub(super) struct Intake {
    pub(super) outlet: Outlet,
    pub(super) clock: Clock,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    recorded: AtomicU64,
    no_reference: AtomicU64,
    unknown_type: AtomicU64,
    queue_full: AtomicU64,
    stopped: AtomicU64,
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Intake {
    pub(super) fn new(outlet: Outlet, clock: Clock) -> Self {
        Self { outlet, clock, counts: Counts::default() }
    }

    /// Queues an event if there is room at once.
    pub(super) fn put(&self, event: Event) -> Result<(), Refused> {
        let event = Arc::new(event);
        let sent = match &self.outlet {
            Outlet::Broadcaster(broadcaster) => {
                broadcaster.publish_or_drop(event).map_err(|error| match error {
                    NotSent::Full(_) => Refused::QueueFull,
                    NotSent::Stopped(_) => Refused::Stopped,
                })
            }
            Outlet::Channel(channel) => channel.try_send(event).map_err(|error| match error {
                TrySendError::Full(_) => Refused::QueueFull,
                TrySendError::Closed(_) => Refused::Stopped,
            }),
        };
        if sent.is_ok() {
            self.counts.recorded.fetch_add(1, Ordering::Relaxed);
        }
        sent
    }

    /// Counts an event that went nowhere. It is worth a line in the log if it is the first of its
    /// kind, or when their number has doubled: who floods the queue must not flood the log, too.
    pub(super) fn count(&self, refused: &Refused) -> Option<u64> {
        let place = match refused {
            Refused::NoReference => &self.counts.no_reference,
            Refused::UnknownType => &self.counts.unknown_type,
            Refused::QueueFull => &self.counts.queue_full,
            Refused::Stopped => &self.counts.stopped,
        };
        let so_far = place.fetch_add(1, Ordering::Relaxed) + 1;
        so_far.is_power_of_two().then_some(so_far)
    }

    pub(super) fn counts(&self) -> RecorderCounts {
        let of = |place: &AtomicU64| place.load(Ordering::Relaxed);
        RecorderCounts {
            recorded: of(&self.counts.recorded),
            no_reference: of(&self.counts.no_reference),
            unknown_type: of(&self.counts.unknown_type),
            queue_full: of(&self.counts.queue_full),
            stopped: of(&self.counts.stopped),
        }
    }
}
