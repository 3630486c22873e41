//! What the bridge says of itself, as Events about its own Pod.
//!
//! Once a second a look at what the sinks and ingest state, and an Event for what is news: a sink
//! that does not take events, and that does again, events lost, a journal that a sink is about to
//! overrun, intake that stands still for one, a gap in the watch, a configuration that is
//! rejected. They are recorded as any controller records its own, come back through the watch, and are
//! exported like any other.
//!
//! Two rules keep that from feeding on itself. A sink's failure with nothing but Events of its own
//! bridge in hand is not [its trouble](super::SinkSnapshot::trouble), so what becomes of such an
//! Event never causes another; which these are is known by [their answers](super::OwnWrites). And
//! there is at most one for each sink and reason a minute.

mod news;

use std::{collections::HashMap, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;
use tidings_kube::recorder::EventRecorder;
use tokio::time::{Instant, MissedTickBehavior};

use super::{BridgeView, Overflow, OwnWrites};
use crate::event::{EnvelopeParts, Record};
use news::{Facts, News, SinkFacts};

/// `source.component` of the Events that a bridge records.
pub const COMPONENT: &str = "tidings";

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where the bridge's own Events go.
pub struct OwnEvents {
    /// A recorder whose source has the [component](COMPONENT) of a bridge.
    pub recorder: EventRecorder,
    /// What they are about: the Pod that the bridge runs in.
    pub about: ObjectReference,
    /// By what they are known: the recorder writes [through](OwnWrites::through) it.
    pub writes: OwnWrites,
}

/// Whether all of these records are Events of the bridge's own.
pub(super) fn all_own(records: &[Record], writes: Option<&OwnWrites>) -> bool {
    let is_own = |record: &Record| {
        let fields = EnvelopeParts::of(&record.envelope).and_then(|parts| parts.fields());
        writes.zip(fields).is_some_and(|(writes, event)| {
            writes.has(&event.metadata.namespace, &event.metadata.uid)
        })
    };
    records.iter().all(is_own)
}

impl OwnEvents {
    /// Runs until it is dropped. With what each sink had lost when it was saved last.
    pub(super) async fn run(
        self,
        view: BridgeView,
        retention_size: u64,
        lost_before: HashMap<String, u64>,
    ) {
        let mut news = News::new(lost_before);
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            for item in news.since(&facts(&view, retention_size), Instant::now()) {
                self.recorder.event(&self.about, item.event_type, item.reason, &item.message);
            }
        }
    }
}

fn facts(view: &BridgeView, retention_size: u64) -> Facts {
    let blocked = view.ingest.blocked();
    let sink = |progress: &super::SinkProgress| {
        let sink = progress.snapshot();
        SinkFacts {
            unsettled_bytes: view.log.bytes_from(sink.standing.unsettled_from()),
            trouble: sink.trouble,
            last_error: sink.last_error.map(String::from),
            lost: sink.totals.lost,
            parked: sink.parked,
            last_parked: sink.last_parked.map(String::from),
            blocks: sink.overflow == Overflow::Block,
            blocked: blocked.iter().any(|blocked| blocked.sink == sink.name),
            name: sink.name,
        }
    };
    Facts {
        sinks: view.sinks.now().iter().map(|progress| sink(progress)).collect(),
        retention_size,
        gaps: view.ingest.take_untold_gaps(),
        damages: view.log.damages().count(),
        damage: view.log.damages().newest().pop(),
        rejected: view.configuration.now().and_then(|state| {
            // The first mistake of several, without its hint.
            Some(state.rejected?.error.lines().next()?.to_owned())
        }),
    }
}
