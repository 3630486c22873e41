//! The status document: what each part of the bridge does, in one object.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use serde::Serialize;

use crate::{
    bridge::{
        BlockedBy, Bridge, BridgeView, Gap, HeldUp, NamespaceCounts, NamespaceSetAside, Overflow,
        ResendCounts, SinkCondition, SinkProgress, SourceView, now_ms,
    },
    event::Cluster,
    journal::{
        Damage, Damages, DeadLetterCounts, LogHandle, NamespaceDeadLetters, Position, pending,
    },
    locks::lock,
};

/// `/api/v1/status`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The version that runs.
    pub version: &'static str,
    /// The cluster as far as it is known.
    pub cluster: Cluster,
    /// Each list and watch.
    pub sources: Vec<SourceStatus>,
    /// Counts of what has been read since the start of the process.
    pub ingest: IngestStatus,
    /// The log.
    pub journal: JournalStatus,
    /// Each sink.
    pub sinks: Vec<SinkStatus>,
    /// The dead letters of each sink that has or had some, also of one that is not configured any
    /// more: `deadLettered = events + overflowed + dropped - arrived`, once all of it is saved.
    pub dead_letters: BTreeMap<String, DeadLetterCounts>,
    /// The ten namespaces whose dead letters take most. Absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dead_letter_namespaces: Vec<NamespaceDeadLetters>,
    /// Each part that the watchdog looks at.
    pub parts: Vec<PartStatus>,
}

/// One part that the watchdog looks at.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartStatus {
    /// Its name.
    pub part: String,
    /// For how long it has been at what should long be done; absent while it is not stuck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck_seconds: Option<f64>,
    /// The work that it is at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doing: Option<&'static str>,
}

/// One list and watch.
#[derive(Debug, Serialize)]
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

/// Counts of what has been read since the start of the process.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IngestStatus {
    /// Changes journalled.
    pub events: u64,
    /// Those of them whose Event was cut: it was larger than `journal.maxEvent`, or its namespace had
    /// more than its share of the journal.
    pub truncated: u64,
    /// Those of them that stand in the place of an Event which was shed: lost for every sink.
    pub shed: u64,
    /// The ten namespaces of whose Events most were shed and cut. Absent where none was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<NamespaceCounts>,
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

/// A gap: a part of the history that the watch of a source did not show.
#[derive(Debug, Serialize)]
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
    /// Whether it is the end of the API server's own history, which was replaced by another one.
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
#[derive(Debug, Serialize)]
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
    /// The sinks with `overflow: block` that intake stands still for; absent while it goes on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<BlockedBy>,
    /// The damage found since the start of the process. Absent while there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<DamageStatus>,
}

/// The damage found since the start of the process.
#[derive(Debug, Serialize)]
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
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DamageEntry {
    /// `records`, `end` or `file`.
    pub kind: &'static str,
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
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SinkStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Its transport.
    pub kind: &'static str,
    /// How it does.
    pub state: SinkCondition,
    /// Every record that it was to have.
    pub seen: u64,
    /// The receiver has them.
    pub delivered: u64,
    /// `match` did not want them.
    pub filtered: u64,
    /// The correlator held them back for good.
    pub correlated_away: u64,
    /// Given up: refused, failing while others were taken, tried too often, or put away by hand.
    pub dead_lettered: u64,
    /// They were gone from the journal before they had a fate.
    pub lost: u64,
    /// Without a fate yet, held ones and those that are set aside included.
    pub pending: u64,
    /// Those of them that the journal no longer has. They are `lost` when the sink comes to them, but
    /// for those that are on their way to it.
    pub overrun: u64,
    /// Held back by the correlator, until a later version or a summary announces them.
    pub held: u64,
    /// Set aside: they fail while others are taken, and are tried now and then.
    pub set_aside: u64,
    /// The ten namespaces that have most of what is set aside. Absent where nothing is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set_aside_namespaces: Vec<NamespaceSetAside>,
    /// Waiting behind one that fails while others go on, those that are set aside included.
    pub held_up: u64,
    /// Those that most events wait behind, ten at most. Absent where nothing is held up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub heads: Vec<HeldUp>,
    /// The size of the journal from the first of the pending ones to its end, in bytes.
    pub backlog_bytes: u64,
    /// The policy when that comes to more than the journal is to hold.
    pub overflow: Overflow,
    /// Delivered again after a crash, outside the identity.
    pub redelivered: u64,
    /// How old the oldest record without a fate is that is neither held nor set aside, in seconds.
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
    /// Events without the `object` and `correlation` that they had, as there was no room for them while they waited.
    pub additions_dropped: u64,
    /// Events since the start of the process by what the sink was told of their objects: `known`, or
    /// why it is missing. Absent where it is told nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enrichments: Option<BTreeMap<&'static str, u64>>,
    /// Dead letters of its own that it took in the end: delivered, and dead-lettered no more.
    pub retried: u64,
    /// Outside the identity.
    #[serde(flatten)]
    pub resends: ResendCounts,
    /// The last failure, until the next success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

fn damage(damages: &Damages) -> Option<DamageStatus> {
    let entry = |damage: Damage| DamageEntry {
        kind: damage.kind.as_str(),
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

impl Bridge {
    /// The status of the bridge now.
    pub fn status(&self) -> Status {
        status(&self.view())
    }
}

/// The status of the bridge now.
pub fn status(view: &BridgeView) -> Status {
    let now = now_ms();
    let (oldest, tail) = (view.log.oldest(), view.log.tail());
    Status {
        version: env!("CARGO_PKG_VERSION"),
        cluster: lock(&view.cluster).clone(),
        sources: lock(&view.sources).iter().map(|source| SourceStatus::new(source, now)).collect(),
        ingest: IngestStatus::new(view),
        journal: JournalStatus {
            bytes: view.log.disk_bytes(),
            records: tail.ordinal().saturating_sub(oldest.ordinal()),
            next_sequence: tail.next,
            error: view.ingest.journal_error(),
            blocked_by: view.ingest.blocked(),
            damage: damage(view.log.damages()),
        },
        sinks: view
            .sinks
            .iter()
            .map(|sink| SinkStatus::new(sink, &view.log, [oldest, tail], now))
            .collect(),
        dead_letters: view.dead_letters.counts(),
        dead_letter_namespaces: view.dead_letters.namespaces(),
        parts: view
            .watchdog
            .parts()
            .into_iter()
            .map(|(part, stuck)| PartStatus {
                part: part.to_string(),
                stuck_seconds: stuck.as_ref().map(|stuck| stuck.since.as_secs_f64()),
                doing: stuck.map(|stuck| stuck.doing),
            })
            .collect(),
    }
}

impl SourceStatus {
    fn new(source: &SourceView, now: u64) -> Self {
        let health = lock(&source.health).clone();
        Self {
            source: source.key.to_string(),
            stream_open: health.stream_open,
            stream_closed_seconds: health.stream_closed_for().map(|d| d.as_secs_f64()),
            watch_age_seconds: health.last_heard_ms.map(|at| seconds(now.saturating_sub(at))),
            lists: health.lists,
            watches: health.watches,
            last_error: health.last_error,
        }
    }
}

impl IngestStatus {
    fn new(view: &BridgeView) -> Self {
        let ingest = &view.ingest;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            events: load(&ingest.records),
            truncated: load(&ingest.truncated),
            shed: load(&ingest.shed),
            namespaces: ingest.namespaces(),
            repeats: load(&ingest.repeats),
            undecodable: load(&ingest.undecodable),
            heartbeats: load(&ingest.heartbeats),
            heartbeats_missed: load(&ingest.heartbeats_missed),
            gaps: load(&ingest.gaps),
            gap_seconds: seconds(load(&ingest.gap_ms)),
            skipped_increments: load(&ingest.skipped_increments),
            epochs: load(&ingest.epochs),
            recent_gaps: ingest.recent_gaps().into_iter().map(GapStatus::from).collect(),
            last_gaps: ingest.last_gaps().into_iter().map(GapStatus::from).collect(),
            object_requests: view.object_requests.as_deref().map(load),
        }
    }
}

impl SinkStatus {
    /// The status of a sink beside a log that has its records from `oldest` up to `tail`.
    fn new(
        progress: &SinkProgress,
        log: &LogHandle,
        [oldest, tail]: [Position; 2],
        now: u64,
    ) -> Self {
        let sink = progress.snapshot();
        let (standing, totals) = (sink.standing, sink.totals);
        let position = standing.position;
        let behind = tail.ordinal().saturating_sub(position.ordinal());
        // Some of those that the log no longer has were delivered before others.
        let overrun = oldest.ordinal().saturating_sub(position.ordinal());
        let overrun = overrun.saturating_sub(progress.passed_before(oldest.next));
        let pending = pending(standing, tail, sink.set_aside, sink.passed);
        let settled = totals.delivered
            + totals.filtered
            + totals.correlated_away
            + totals.dead_lettered
            + totals.lost;
        let lag = sink.oldest_in_hand_ms.or_else(|| log.time_of(position.next));
        Self {
            name: sink.name,
            kind: sink.kind,
            state: sink.condition,
            seen: settled + pending,
            delivered: totals.delivered,
            filtered: totals.filtered,
            correlated_away: totals.correlated_away,
            dead_lettered: totals.dead_lettered,
            lost: totals.lost,
            pending,
            overrun: behind.min(overrun),
            held: standing.held.versions,
            set_aside: sink.set_aside,
            set_aside_namespaces: sink.set_aside_of,
            held_up: sink.held_up,
            heads: sink.heads,
            backlog_bytes: log.bytes_from(standing.unsettled_from()),
            overflow: sink.overflow,
            redelivered: totals.redelivered,
            lag_seconds: lag.map_or(0.0, |ms| seconds(now.saturating_sub(ms))),
            next_sequence: position.next,
            attempts: sink.attempts,
            failed_attempts: sink.failed_attempts,
            match_errors: sink.match_errors,
            duplicates: sink.duplicates,
            truncated: sink.truncated,
            additions_dropped: sink.additions_dropped,
            enrichments: sink.enrichments.map(|counts| counts.iter().collect()),
            retried: totals.retried,
            resends: sink.resends,
            last_error: sink.last_error.map(String::from),
        }
    }
}
