//! The status document: what each part of the bridge does, in one object.

mod problems;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use serde::{Deserialize, Serialize};
use tidings_log::{Damage, Damages};

use crate::{
    bridge::{
        BlockedBy, BridgeView, ConfigurationState, Gap, Latencies, OpenHead, Overflow,
        SinkCondition, SourceView, Stuck, now_ms,
    },
    event::{Cluster, timestamp},
    journal::{LetterCounts, NamespaceLetters},
};

pub use problems::Problem;
pub(crate) use problems::{counted, humane};

/// `/api/v1/status`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The version that runs.
    pub version: Cow<'static, str>,
    /// The facts that need a person, the most urgent first; empty when all is well.
    pub problems: Vec<Problem>,
    /// The configuration that is in force. Absent where none is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<ConfigurationStatus>,
    /// The cluster as far as it is known.
    pub cluster: Cluster,
    /// Each list and watch.
    pub sources: Vec<SourceStatus>,
    /// What has been read since the start of the process.
    pub ingest: IngestStatus,
    /// The log.
    pub journal: JournalStatus,
    /// Each sink.
    pub sinks: Vec<SinkStatus>,
    /// The dead letters of each sink that has or had some, also of one that is not configured any
    /// more: `deadLettered = events + overflowed + dropped - arrived`, once all of it is saved.
    pub dead_letters: BTreeMap<String, LetterCounts>,
    /// The ten namespaces whose dead letters take most. Absent where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dead_letter_namespaces: Vec<NamespaceLetters>,
    /// Each part that the watchdog looks at.
    pub parts: Vec<PartStatus>,
}

/// The configuration that is in force.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationStatus {
    /// The file.
    pub file: String,
    /// The time at which the content in force was read; RFC 3339.
    pub since: String,
    /// The same, for the metrics.
    #[serde(skip)]
    pub since_seconds: f64,
    /// The reason why the content of the file now is not in force; absent when it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<RejectedStatus>,
}

/// A configuration that is not taken.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RejectedStatus {
    /// The time of the first rejection; RFC 3339.
    pub since: String,
    /// The mistakes, and how to mend them.
    pub error: String,
}

impl From<ConfigurationState> for ConfigurationStatus {
    fn from(state: ConfigurationState) -> Self {
        let time = |ms| format!("{:.3}", timestamp(ms));
        let rejected = state.rejected.map(|rejected| RejectedStatus {
            since: time(rejected.since_ms),
            error: rejected.error,
        });
        Self {
            file: state.file,
            since: time(state.since_ms),
            since_seconds: seconds(state.since_ms),
            rejected,
        }
    }
}

/// One part that the watchdog looks at.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartStatus {
    /// Its name.
    pub part: String,
    /// For how long it has been at what should long be done; absent while it is not stuck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck_seconds: Option<f64>,
    /// What that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doing: Option<Cow<'static, str>>,
}

/// One list and watch.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// `*` or the namespace, and `?fieldSelector` where there is one.
    pub source: String,
    /// Whether a watch stream is open.
    pub stream_open: bool,
    /// Seconds since a stream was last open; 0 while one is, absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_closed_seconds: Option<f64>,
    /// Seconds since the API server last answered or sent something; an open watch is probed
    /// every 15 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch_age_seconds: Option<f64>,
    /// List requests since the start of the process.
    pub lists: u64,
    /// Watch requests since the start of the process.
    pub watches: u64,
    /// The last failure, until the next success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// What has been read since the start of the process.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IngestStatus {
    /// Changes journalled.
    pub events: u64,
    /// Those of them whose Event was cut, being larger than `journal.maxEvent`.
    pub truncated: u64,
    /// Versions that were journalled already.
    pub repeats: u64,
    /// Objects that are no Events.
    pub undecodable: u64,
    /// Heartbeats of a bridge that came by a watch; none of them is journalled.
    pub heartbeats: u64,
    /// Watches that were opened anew because they did not bring our own heartbeat in time.
    pub heartbeats_missed: u64,
    /// Gaps that hid something.
    pub gaps: u64,
    /// Their length together, with what new epochs left unseen.
    pub gap_seconds: f64,
    /// Increments seen only as part of a larger one.
    pub skipped_increments: u64,
    /// How often the API server turned out to be another one, or a restored one.
    pub epochs: u64,
    /// The newest gaps and new epochs, 16 at most, oldest first.
    pub recent_gaps: Vec<GapStatus>,
    /// The last gap or new epoch of each source, for the metrics.
    #[serde(skip)]
    pub last_gaps: Vec<GapStatus>,
    /// Requests for single objects, and for their kinds. Absent where no sink is told of objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_requests: Option<u64>,
}

/// What the watch of a source did not show.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GapStatus {
    /// `*` or the namespace, and `?fieldSelector` where there is one.
    pub source: String,
    /// Everything before it was shown; RFC 3339.
    pub from: String,
    /// And everything after it; RFC 3339.
    pub to: String,
    /// Events that the list at its end brought.
    pub replayed: u64,
    /// Increments seen only as part of a larger one.
    pub skipped_increments: u64,
    /// It is the end of the API server's own history, which was replaced by another one.
    pub epoch: bool,
    /// `from` and `to` in seconds since the epoch, for the metrics.
    #[serde(skip)]
    pub from_seconds: f64,
    /// See `from_seconds`.
    #[serde(skip)]
    pub to_seconds: f64,
}

impl From<Gap> for GapStatus {
    fn from(gap: Gap) -> Self {
        Self {
            from: gap.from().to_string(),
            to: gap.to().to_string(),
            source: gap.source.to_string(),
            replayed: gap.replayed,
            skipped_increments: gap.skipped,
            epoch: gap.epoch,
            from_seconds: seconds(gap.from_ms),
            to_seconds: seconds(gap.to_ms),
        }
    }
}

/// The log.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalStatus {
    /// Its size, all files told.
    pub bytes: u64,
    /// Records that it holds.
    pub records: u64,
    /// The sequence that the next record gets.
    pub next_sequence: u64,
    /// Why it cannot be written, while it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why the state beside the log cannot be saved, while it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_error: Option<String>,
    /// The sinks with `overflow: block` that intake stands still for; absent while it goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<BlockedBy>,
    /// What of it was found damaged since the start of the process. Absent while nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<DamageStatus>,
}

/// What was found damaged since the start of the process.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DamageStatus {
    /// How many places.
    pub places: u64,
    /// How many records are missing in them together, at most.
    pub records: u64,
    /// The last 16 of them, the newest last.
    pub newest: Vec<DamageEntry>,
}

/// One damage.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DamageEntry {
    /// `records`, `end` or `file`.
    pub kind: Cow<'static, str>,
    /// The file, by its name in the journal's directory.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// The time of the last record before it. Absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The time of the first record behind it, or of its discovery.
    pub to: String,
    /// How many records are missing, at most.
    pub records: u64,
    /// All of it in a sentence.
    pub message: String,
}

/// One sink. `seen = delivered + filtered + correlatedAway + deadLettered + lost + pending`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SinkStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Its transport.
    pub kind: Cow<'static, str>,
    /// How it does.
    pub state: SinkCondition,
    /// The sink takes nothing. If it is `retrying` without that, it fails for some events only.
    #[serde(default)]
    pub takes_nothing: bool,
    /// Every record that it was to have.
    pub seen: u64,
    /// The receiver has them.
    pub delivered: u64,
    /// `match` did not want them.
    pub filtered: u64,
    /// The correlator held them back for good.
    pub correlated_away: u64,
    /// The receiver refused them.
    pub dead_lettered: u64,
    /// Those of them that are parked, as the receiver fails for them alone; they are sent again by themselves.
    pub parked: u64,
    /// There is no room left in `journal.deadLetters` to park more: they wait, and hold up the position.
    pub parking_full: bool,
    /// They were gone from the journal before they had a fate.
    pub lost: u64,
    /// Without a fate yet, held ones included.
    pub pending: u64,
    /// Those of them that the journal no longer has. They are `lost` when the sink comes to them, but
    /// for those that are on their way to it.
    pub overrun: u64,
    /// Held back by the correlator, until a later version or a summary announces them.
    pub held: u64,
    /// What the journal takes from the first of the pending ones to its end, in bytes.
    pub backlog_bytes: u64,
    /// What happens when that comes to more than the journal is to hold.
    pub overflow: Overflow,
    /// Delivered again after a crash, outside the identity.
    pub redelivered: u64,
    /// How old the oldest record without a fate is that is not held, in seconds.
    pub lag_seconds: f64,
    /// The sequence after the last record with a fate.
    pub next_sequence: u64,
    /// Attempts since the start of the process.
    pub attempts: u64,
    /// How many of them failed.
    pub failed_attempts: u64,
    /// Events let through because `match` could not be evaluated for them.
    pub match_errors: u64,
    /// Events delivered that the receiver knew to have had before, since the start of the process.
    pub duplicates: u64,
    /// Events that it has had cut to its own `maxEvent`.
    pub truncated: u64,
    /// How long events took to the sink since the start of the process, for the metrics.
    #[serde(skip)]
    pub latencies: Latencies,
    /// Events since the start of the process by what the sink was told of their objects: `known`, or
    /// why it is missing. Absent where it is told nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enrichments: Option<BTreeMap<Cow<'static, str>, u64>>,
    /// Dead letters of its own that it took in the end: delivered, and dead-lettered no more.
    pub retried: u64,
    /// Dead letters of other sinks that it took since the start of the process, outside the
    /// identity.
    pub forwarded: u64,
    /// Dead letters of other sinks that it refused.
    pub forwards_refused: u64,
    /// Events that it took once more by a replay, outside the identity.
    pub replayed: u64,
    /// The last failure, until the next success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The oldest event without a fate. Absent unless it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<HeadStatus>,
}

/// The oldest event of a sink without a fate, which failed and is sent again.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadStatus {
    /// Its id.
    pub id: String,
    /// The object that it is about: kind, namespace and name.
    pub object: String,
    /// Its namespace.
    pub namespace: String,
    /// When it was sent first; RFC 3339.
    pub since: String,
    /// Its last failure.
    pub last_error: String,
}

impl From<OpenHead> for HeadStatus {
    fn from(head: OpenHead) -> Self {
        Self {
            id: head.id,
            object: head.object.into(),
            namespace: head.namespace.into(),
            since: format!("{:.3}", timestamp(head.since_ms)),
            last_error: head.last_error.into(),
        }
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

fn damage(damages: &Damages) -> Option<DamageStatus> {
    let entry = |damage: Damage| DamageEntry {
        kind: damage.kind.as_str().into(),
        offset: damage.offset,
        from: damage.from().map(|from| from.to_string()),
        to: damage.to().to_string(),
        records: damage.records,
        message: damage.to_string(),
        file: damage.file,
    };
    (damages.count() > 0).then(|| DamageStatus {
        places: damages.count(),
        records: damages.records(),
        newest: damages.newest().into_iter().map(entry).collect(),
    })
}

/// What the bridge does now.
pub fn status(view: &BridgeView) -> Status {
    let now = now_ms();
    let (oldest, tail) = (view.log.oldest(), view.log.tail());
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let dead_letters = view.dead_letters.counts();
    let mut status = Status {
        version: env!("CARGO_PKG_VERSION").into(),
        problems: Vec::new(),
        configuration: view.configuration.now().map(ConfigurationStatus::from),
        cluster: view.cluster.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        sources: sources(view),
        ingest: IngestStatus {
            events: load(&view.ingest.records),
            truncated: load(&view.ingest.truncated),
            repeats: load(&view.ingest.repeats),
            undecodable: load(&view.ingest.undecodable),
            heartbeats: load(&view.ingest.heartbeats),
            heartbeats_missed: load(&view.ingest.heartbeats_missed),
            gaps: load(&view.ingest.gaps),
            gap_seconds: seconds(load(&view.ingest.gap_ms)),
            skipped_increments: load(&view.ingest.skipped_increments),
            epochs: load(&view.ingest.epochs),
            recent_gaps: view.ingest.recent_gaps().into_iter().map(GapStatus::from).collect(),
            last_gaps: view.ingest.last_gaps().into_iter().map(GapStatus::from).collect(),
            object_requests: view.object_requests.as_deref().map(load),
        },
        journal: JournalStatus {
            bytes: view.log.disk_bytes(),
            records: tail.ordinal().saturating_sub(oldest.ordinal()),
            next_sequence: tail.next,
            error: view.ingest.journal_error(),
            state_error: view.state_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            blocked_by: view.ingest.blocked(),
            damage: damage(view.log.damages()),
        },
        sinks: view
            .sinks
            .now()
            .iter()
            .map(|sink| {
                let sink = sink.snapshot();
                let totals = sink.totals;
                let behind = tail.ordinal().saturating_sub(sink.standing.position.ordinal());
                let behind = behind.saturating_sub(sink.delivered_ahead);
                let overrun = oldest.ordinal().saturating_sub(sink.standing.position.ordinal());
                // The events that the receiver has ahead are the oldest behind the position.
                let overrun = overrun.saturating_sub(sink.delivered_ahead);
                let pending = behind + sink.standing.held.versions;
                let delivered = totals.delivered + sink.delivered_ahead;
                let settled = delivered
                    + totals.filtered
                    + totals.correlated_away
                    + totals.dead_lettered
                    + totals.lost;
                let lag = sink
                    .oldest_in_hand_ms
                    .or_else(|| view.log.time_of(sink.standing.position.next));
                // Saved later than the totals.
                let parked = dead_letters.get(&sink.name).map_or(0, |counts| counts.parked);
                let parked = parked.min(totals.dead_lettered);
                let backlog_bytes = view.log.bytes_from(sink.standing.unsettled_from());
                SinkStatus {
                    name: sink.name,
                    kind: sink.kind.into(),
                    state: sink.condition,
                    takes_nothing: sink.takes_nothing,
                    seen: settled + pending,
                    delivered,
                    filtered: totals.filtered,
                    correlated_away: totals.correlated_away,
                    dead_lettered: totals.dead_lettered,
                    parked,
                    parking_full: sink.parking_full,
                    lost: totals.lost,
                    pending,
                    overrun: behind.min(overrun),
                    held: sink.standing.held.versions,
                    backlog_bytes,
                    overflow: sink.overflow,
                    redelivered: totals.redelivered,
                    lag_seconds: lag.map_or(0.0, |ms| seconds(now.saturating_sub(ms))),
                    next_sequence: sink.standing.position.next,
                    attempts: sink.attempts,
                    failed_attempts: sink.failed_attempts,
                    match_errors: sink.match_errors,
                    duplicates: sink.duplicates,
                    truncated: sink.truncated,
                    latencies: sink.latencies,
                    enrichments: sink
                        .enrichments
                        .map(|counts| counts.iter().map(|(name, n)| (name.into(), n)).collect()),
                    retried: totals.retried,
                    forwarded: sink.errands.forwarded,
                    forwards_refused: sink.errands.forwards_refused,
                    replayed: sink.errands.replayed,
                    last_error: sink.last_error.map(String::from),
                    head: sink.head.map(HeadStatus::from),
                }
            })
            .collect(),
        dead_letters,
        dead_letter_namespaces: view.dead_letters.namespaces(),
        parts: parts(view),
    };
    status.problems = problems::of(&status, not_identified(view).as_deref());
    status
}

/// Why the bridge is not alive: something is at work on what should long be done, which a restart may
/// mend.
pub(super) fn stuck(view: &BridgeView) -> Vec<Problem> {
    problems::stuck(&parts(view))
}

/// Why the bridge is not ready. A sink that is down does not count: the journal keeps what it has not
/// had, until one with `overflow: block` has filled it.
pub(super) fn unready(view: &BridgeView) -> Vec<Problem> {
    let (error, blocked) = (view.ingest.journal_error(), view.ingest.blocked());
    problems::intake(error.as_deref(), &blocked, &sources(view), not_identified(view).as_deref())
}

fn sources(view: &BridgeView) -> Vec<SourceStatus> {
    let now = now_ms();
    let sources = view.sources.lock().unwrap_or_else(PoisonError::into_inner);
    let source = |source: &SourceView| {
        let health = source.health.lock().unwrap_or_else(PoisonError::into_inner).clone();
        SourceStatus {
            source: source.key.to_string(),
            stream_open: health.stream_open,
            stream_closed_seconds: health.stream_closed_for().map(|d| d.as_secs_f64()),
            // A stream that has just opened is an answer, too.
            watch_age_seconds: [
                health.last_heard_ms.map(|at| seconds(now.saturating_sub(at))),
                health
                    .stream_last_open
                    .filter(|_| health.stream_open)
                    .map(|open| open.elapsed().as_secs_f64()),
            ]
            .into_iter()
            .flatten()
            .reduce(f64::min),
            lists: health.lists,
            watches: health.watches,
            last_error: health.last_error,
        }
    };
    sources.iter().map(source).collect()
}

fn not_identified(view: &BridgeView) -> Option<String> {
    view.not_identified.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn parts(view: &BridgeView) -> Vec<PartStatus> {
    let part = |(part, stuck): (Arc<str>, Option<Stuck>)| PartStatus {
        part: part.to_string(),
        stuck_seconds: stuck.as_ref().map(|stuck| stuck.since.as_secs_f64()),
        doing: stuck.map(|stuck| stuck.doing.into()),
    };
    view.watchdog.parts().into_iter().map(part).collect()
}
