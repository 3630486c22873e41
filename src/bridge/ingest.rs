//! From what a reflector reads to what the journal holds.
//!
//! One thread owns the log, because the log has one writer, and the view `seen` with it. Reflectors
//! send it what they read over a bounded channel, so a slow disk slows the reading down and
//! nothing is held in memory beyond the channel. For each change the thread decides whether it is
//! new, computes by how much it raises the Event's occurrences, writes its envelope, and appends
//! the frame together with the resume point that covers it. Only then is the frame published.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::shared::{IngestCounters, SeenChanges, now_ms};
use crate::{
    cache::{ReplaceReason, Store, StoreClosed, WatchEvent, WatchEventType, resource_version_of},
    event::{Change, Cluster, DecodeError, EnvelopeHead, Incoming, Seen, SeenEntry, UidKey},
    journal::{Frame, FrameBuilder, Log, Resume, Staging, SyncDone, SyncJob},
    watch::Broadcaster,
};

/// A frame is closed at this many records or bytes, so that channels and readers deal in pieces of
/// a bounded size.
const FRAME_RECORDS: u32 = 500;
const FRAME_BYTES: usize = 1 << 20;
/// Waits between attempts to append while the disk does not take anything.
const APPEND_RETRY: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(5);

/// One source as ingest knows it.
#[derive(Clone, Debug)]
pub(super) struct IngestSource {
    /// `*` or the namespace, and `?fieldSelector` where there is one.
    pub(super) key: Arc<str>,
    /// Its number in the view `seen`.
    pub(super) id: u16,
    /// When it was first started, in milliseconds since the epoch.
    pub(super) first_start_ms: u64,
    /// Up to where the journal holds it; a resourceVersion of 0 means not at all.
    pub(super) resume: Resume,
    /// When earlier runs last heard of it, in milliseconds since the epoch; what a gap starts from
    /// if it opens before this process has caught up.
    pub(super) last_heard_ms: Option<u64>,
    /// Of its first list, only what occurred at most so long ago is exported.
    pub(super) first_since: Option<Duration>,
}

/// What reflectors and the clock send.
pub(super) enum Message {
    Apply {
        source: usize,
        events: Vec<WatchEvent>,
    },
    BeginReplace {
        source: usize,
        reason: ReplaceReason,
    },
    Page {
        source: usize,
        items: Vec<Bytes>,
    },
    EndReplace {
        source: usize,
        resource_version: u64,
        kept: oneshot::Sender<bool>,
    },
    Abort {
        source: usize,
    },
    StartAt {
        source: usize,
        resource_version: u64,
    },
    /// Once a second: retention.
    Tick,
    /// The keeper wants to sync the log.
    BeginSync {
        job: oneshot::Sender<Option<SyncJob>>,
    },
    /// And has.
    EndSync {
        done: SyncDone,
    },
    /// Nothing comes after this.
    Stop,
}

/// The end of the channel that a reflector of one source holds.
#[derive(Clone)]
pub(super) struct JournalStore {
    pub(super) source: usize,
    pub(super) messages: mpsc::Sender<Message>,
}

impl JournalStore {
    async fn send(&self, message: Message) -> Result<(), StoreClosed> {
        self.messages.send(message).await.map_err(|_| StoreClosed)
    }
}

impl Store for JournalStore {
    async fn begin_replace(&mut self, reason: ReplaceReason) -> Result<(), StoreClosed> {
        self.send(Message::BeginReplace { source: self.source, reason }).await
    }

    async fn replace_page(&mut self, items: Vec<Bytes>) -> Result<(), StoreClosed> {
        self.send(Message::Page { source: self.source, items }).await
    }

    async fn end_replace(&mut self, resource_version: u64) -> Result<bool, StoreClosed> {
        let (kept, answer) = oneshot::channel();
        self.send(Message::EndReplace { source: self.source, resource_version, kept }).await?;
        answer.await.map_err(|_| StoreClosed)
    }

    async fn abort(&mut self) -> Result<(), StoreClosed> {
        self.send(Message::Abort { source: self.source }).await
    }

    async fn apply(&mut self, events: Vec<WatchEvent>) -> Result<(), StoreClosed> {
        self.send(Message::Apply { source: self.source, events }).await
    }

    async fn start_at(&mut self, resource_version: u64) -> Result<(), StoreClosed> {
        self.send(Message::StartAt { source: self.source, resource_version }).await
    }
}

/// A list on its way into the journal.
struct Replacing {
    reason: ReplaceReason,
    staging: Staging,
    /// The uids of the list, to find what has been deleted unseen; `None` when nothing was known.
    listed: Option<HashSet<UidKey>>,
}

struct Source {
    spec: IngestSource,
    replacing: Option<Replacing>,
}

/// What others see of the thread.
pub(super) struct IngestShared {
    pub(super) counters: Arc<IngestCounters>,
    pub(super) changes: Arc<SeenChanges>,
    /// Set when the program does not wait for the disk any longer.
    pub(super) give_up: Arc<AtomicBool>,
}

/// The thread's state. See the [module](self).
pub(super) struct Ingest {
    log: Log,
    seen: Seen,
    broadcaster: Broadcaster<Arc<Frame>>,
    cluster_json: String,
    shared: IngestShared,
    sources: Vec<Source>,
}

/// The log did not take a frame before the program had to end.
struct GaveUp;

impl Ingest {
    pub(super) fn new(
        log: Log,
        seen: Seen,
        broadcaster: Broadcaster<Arc<Frame>>,
        sources: Vec<IngestSource>,
        shared: IngestShared,
    ) -> Self {
        let sources = sources.into_iter().map(|spec| Source { spec, replacing: None }).collect();
        Self { log, seen, broadcaster, cluster_json: String::new(), shared, sources }
    }

    /// Takes messages until [`Message::Stop`], on behalf of a cluster.
    pub(super) fn run(mut self, cluster: &Cluster, mut messages: mpsc::Receiver<Message>) {
        if let Some(uid) = &cluster.uid {
            self.log.set_cluster_uid(uid);
        }
        self.cluster_json = serde_json::to_string(cluster).unwrap_or_else(|_| "{}".to_owned());
        while let Some(message) = messages.blocking_recv() {
            let handled = match message {
                Message::Apply { source, events } => self.apply(source, &events),
                Message::BeginReplace { source, reason } => {
                    self.begin_replace(source, reason);
                    Ok(())
                }
                Message::Page { source, items } => {
                    self.page(source, &items);
                    Ok(())
                }
                Message::EndReplace { source, resource_version, kept } => {
                    self.end_replace(source, resource_version).map(|whole| {
                        // The reflector has been stopped if it does not wait for the answer.
                        let _ = kept.send(whole);
                    })
                }
                Message::Abort { source } => {
                    self.sources[source].replacing = None;
                    Ok(())
                }
                Message::StartAt { source, resource_version } => {
                    self.move_resume_point(source, resource_version)
                }
                Message::Tick => {
                    self.retain();
                    Ok(())
                }
                Message::BeginSync { job } => {
                    let _ = job.send(self.log.begin_sync());
                    Ok(())
                }
                Message::EndSync { done } => {
                    if let Err(error) = self.log.end_sync(done, now_ms()) {
                        tracing::error!(%error, "the journal cannot be synced: what was not is written again");
                    }
                    Ok(())
                }
                Message::Stop => break,
            };
            if handled.is_err() {
                break;
            }
        }
        // The last sync is worth waiting for, and here nobody else waits for it.
        if let Err(error) = self.log.sync(now_ms()) {
            tracing::error!(%error, "the journal could not be synced at the end");
        }
    }

    fn retain(&mut self) {
        match self.log.retain(now_ms(), None) {
            Ok(retained) if retained.segments > 0 => {
                tracing::debug!(
                    segments = retained.segments,
                    bytes = retained.bytes,
                    "old segments were dropped"
                );
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "old segments of the journal cannot be dropped"),
        }
    }

    fn apply(&mut self, source: usize, events: &[WatchEvent]) -> Result<(), GaveUp> {
        let observed = Timestamp::now().to_string();
        let mut resume = self.sources[source].spec.resume;
        let mut frame = self.frame(source);
        for event in events {
            if event.kind == WatchEventType::Bookmark {
                if let Some(version) = resource_version_of(&event.object) {
                    resume.resource_version = version;
                }
                continue;
            }
            let incoming = match Incoming::decode(&event.object) {
                Ok(incoming) => incoming,
                Err(error) => {
                    self.undecodable(source, &error);
                    continue;
                }
            };
            resume.resource_version = incoming.resource_version;
            if event.kind == WatchEventType::Deleted {
                // The TTL at work, and not news: the Event itself was exported when it happened.
                frame.builder.forget(incoming.uid);
                frame.changed.push((incoming.uid, None));
                self.seen.remove(incoming.uid);
                continue;
            }
            let before = self.seen.get(incoming.uid);
            if before.is_some_and(|entry| entry.resource_version >= incoming.resource_version) {
                self.shared.counters.repeats.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.record(&mut frame, source, &incoming, before, &observed, false);
            if frame.is_full() {
                let full = std::mem::replace(&mut frame, self.frame(source));
                self.append(source, full, resume)?;
            }
        }
        self.append(source, frame, resume)
    }

    /// Adds one change to a frame and to the view; answers its delta.
    fn record(
        &mut self,
        frame: &mut Pending,
        source: usize,
        incoming: &Incoming<'_>,
        before: Option<SeenEntry>,
        observed_time: &str,
        replayed: bool,
    ) -> u64 {
        let spec = &self.sources[source].spec;
        let occurrences = incoming.fields.occurrences();
        let delta = Seen::delta(before, occurrences, || {
            created_since(&incoming.fields.metadata.creation_timestamp, spec.first_start_ms)
        });
        let change = if before.is_some() { Change::Updated } else { Change::Created };
        let cluster_json = &self.cluster_json;
        let head = EnvelopeHead { cluster_json, change, observed_time, delta, replayed };
        frame.builder.record(|out| head.write(incoming, out));
        let entry = SeenEntry {
            resource_version: incoming.resource_version,
            occurrences: u32::try_from(occurrences).unwrap_or(u32::MAX),
            source: spec.id,
        };
        self.seen.insert(incoming.uid, entry);
        frame.changed.push((incoming.uid, Some(entry)));
        delta
    }

    fn begin_replace(&mut self, source: usize, reason: ReplaceReason) {
        match Staging::create(self.log.directory()) {
            Ok(staging) => {
                let id = self.sources[source].spec.id;
                let known = self.seen.iter().any(|(_, entry)| entry.source == id);
                let listed = known.then(HashSet::new);
                self.sources[source].replacing = Some(Replacing { reason, staging, listed });
            }
            Err(error) => self.staging_failed(source, &error),
        }
    }

    fn page(&mut self, source: usize, items: &[Bytes]) {
        let cutoff = self.sources[source].spec.first_since.map(|since| {
            Timestamp::from_millisecond(now_ms().cast_signed()).unwrap_or_default() - since
        });
        for item in items {
            let incoming = match Incoming::decode(item) {
                Ok(incoming) => incoming,
                Err(error) => {
                    self.undecodable(source, &error);
                    continue;
                }
            };
            let before = self.seen.get(incoming.uid);
            let resume = self.sources[source].spec.resume;
            let Some(replacing) = &mut self.sources[source].replacing else { return };
            if let Some(listed) = &mut replacing.listed {
                listed.insert(incoming.uid);
            }
            let version = incoming.resource_version;
            let news = match replacing.reason {
                ReplaceReason::NewEpoch => true,
                ReplaceReason::First if before.is_none() => match cutoff {
                    None => true,
                    Some(cutoff) => {
                        incoming.fields.time().parse().is_ok_and(|time: Timestamp| time >= cutoff)
                    }
                },
                // A list that was cut short by a crash has journalled some already.
                ReplaceReason::First | ReplaceReason::Gap { .. } => {
                    version > resume.resource_version
                        && before.is_none_or(|entry| entry.resource_version < version)
                }
            };
            if news && let Err(error) = replacing.staging.push(version, item) {
                self.staging_failed(source, &error);
                return;
            }
        }
    }

    /// Exports what is new of a list, oldest first, and then moves the resume point. Answers
    /// whether the list could be kept; if not, it has to be fetched again.
    fn end_replace(&mut self, source: usize, resource_version: u64) -> Result<bool, GaveUp> {
        let Some(Replacing { reason, staging, listed }) = self.sources[source].replacing.take()
        else {
            return Ok(false);
        };
        let mut sorted = match staging.into_sorted() {
            Ok(sorted) => sorted,
            Err(error) => {
                self.staging_failed(source, &error);
                return Ok(false);
            }
        };
        let replayed = reason != ReplaceReason::First;
        let observed = Timestamp::now().to_string();
        let before_list = self.sources[source].spec.resume;
        let (mut frame, mut item) = (self.frame(source), Vec::new());
        let (mut exported, mut skipped) = (0u64, 0u64);
        loop {
            match sorted.next_into(&mut item) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    self.append(source, frame, before_list)?;
                    self.staging_failed(source, &error);
                    return Ok(false);
                }
            }
            // It was decoded once already, when it was staged.
            let Ok(incoming) = Incoming::decode(&item) else { continue };
            let before = self.seen.get(incoming.uid);
            let delta = self.record(&mut frame, source, &incoming, before, &observed, replayed);
            exported += 1;
            skipped += delta.saturating_sub(1);
            if frame.is_full() {
                let full = std::mem::replace(&mut frame, self.frame(source));
                // The resume point stays where it was until the whole list is in.
                self.append(source, full, before_list)?;
            }
        }
        if let Some(listed) = listed {
            let id = self.sources[source].spec.id;
            let gone = self.seen.iter().filter(|(uid, e)| e.source == id && !listed.contains(uid));
            for uid in gone.map(|(uid, _)| uid).collect::<Vec<_>>() {
                frame.builder.forget(uid);
                frame.changed.push((uid, None));
                self.seen.remove(uid);
            }
        }
        let epoch = before_list.epoch + u32::from(reason == ReplaceReason::NewEpoch);
        self.append(source, frame, Resume { epoch, resource_version })?;
        self.state_what_was_missed(source, reason, exported, skipped);
        Ok(true)
    }

    fn state_what_was_missed(
        &self,
        source: usize,
        reason: ReplaceReason,
        exported: u64,
        skipped: u64,
    ) {
        let spec = &self.sources[source].spec;
        match reason {
            ReplaceReason::First => {
                tracing::info!(source = &*spec.key, exported, "the first list is in the journal");
            }
            ReplaceReason::NewEpoch => {
                self.shared.counters.epochs.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    source = &*spec.key,
                    exported,
                    epoch = spec.resume.epoch,
                    "a new epoch: everything that the API server lists is exported again under the same ids"
                );
            }
            ReplaceReason::Gap { .. } if exported == 0 => {
                tracing::info!(
                    source = &*spec.key,
                    "the watch could not be resumed, and nothing was missed"
                );
            }
            ReplaceReason::Gap { last_sign_of_life_ms } => {
                let now = now_ms();
                let since = last_sign_of_life_ms.or(spec.last_heard_ms).unwrap_or(now);
                let text = |ms: u64| {
                    Timestamp::from_millisecond(ms.cast_signed()).unwrap_or_default().to_string()
                };
                self.shared.counters.gap_ms.fetch_add(now.saturating_sub(since), Ordering::Relaxed);
                self.shared.counters.gaps.fetch_add(1, Ordering::Relaxed);
                self.shared.counters.skipped_increments.fetch_add(skipped, Ordering::Relaxed);
                tracing::warn!(
                    source = &*spec.key,
                    from = text(since),
                    to = text(now),
                    replayed = exported,
                    skipped_increments = skipped,
                    "a gap in the watch: the newest version of each Event was replayed; \
                     versions between, and Events that came and went, were not seen"
                );
            }
        }
    }

    fn move_resume_point(&mut self, source: usize, resource_version: u64) -> Result<(), GaveUp> {
        let resume = Resume { resource_version, ..self.sources[source].spec.resume };
        let frame = self.frame(source);
        self.append(source, frame, resume)
    }

    fn frame(&self, source: usize) -> Pending {
        let IngestSource { key, resume, .. } = &self.sources[source].spec;
        Pending { builder: FrameBuilder::new(Arc::clone(key), *resume), changed: Vec::new() }
    }

    /// Appends a frame and publishes it. While the disk takes nothing, intake stands still here:
    /// the channel fills, the reflectors wait, and the API server keeps what comes.
    fn append(&mut self, source: usize, mut frame: Pending, resume: Resume) -> Result<(), GaveUp> {
        let spec = &mut self.sources[source].spec;
        if frame.changed.is_empty() && resume == spec.resume {
            return Ok(());
        }
        frame.builder.set_resume(resume);
        let mut wait = *APPEND_RETRY.start();
        let written = loop {
            let now = now_ms();
            match self.log.append(&mut frame.builder, now) {
                Ok(written) => {
                    if self.shared.counters.set_journal_error(None) {
                        tracing::info!("the journal can be written again: intake goes on");
                    }
                    break written;
                }
                Err(error) => {
                    if !self.shared.counters.set_journal_error(Some(error.to_string())) {
                        tracing::error!(%error, "the journal cannot be written: intake stands still, delivery goes on");
                    }
                    if self.shared.give_up.load(Ordering::Relaxed) {
                        return Err(GaveUp);
                    }
                    std::thread::sleep(wait);
                    wait = (wait * 2).min(*APPEND_RETRY.end());
                }
            }
        };
        spec.resume = resume;
        self.shared.counters.records.fetch_add(u64::from(written.count()), Ordering::Relaxed);
        self.shared.changes.add(frame.changed, written.next());
        // Nobody reads after a shutdown; the frame is in the log for the next start.
        let _ = self.broadcaster.publish_blocking(written);
        Ok(())
    }

    fn undecodable(&self, source: usize, error: &DecodeError) {
        let before = self.shared.counters.undecodable.fetch_add(1, Ordering::Relaxed);
        // The first says what is wrong; a stream of them is told by the counter.
        if before.is_power_of_two() || before == 0 {
            tracing::warn!(
                source = &*self.sources[source].spec.key,
                %error,
                so_far = before + 1,
                "an object that is no Event was skipped"
            );
        }
    }

    fn staging_failed(&mut self, source: usize, error: &std::io::Error) {
        self.sources[source].replacing = None;
        tracing::error!(
            source = &*self.sources[source].spec.key,
            %error,
            "a list cannot be staged on disk: it will be fetched again"
        );
    }
}

/// A frame being built, and what it changes in the view.
struct Pending {
    builder: FrameBuilder,
    changed: Vec<(UidKey, Option<SeenEntry>)>,
}

impl Pending {
    fn is_full(&self) -> bool {
        self.builder.count() >= FRAME_RECORDS || self.builder.bytes() >= FRAME_BYTES
    }
}

/// Whether an Event was created at or after a time. Creation times are whole seconds.
fn created_since(creation_timestamp: &str, start_ms: u64) -> bool {
    creation_timestamp
        .parse::<Timestamp>()
        .is_ok_and(|created| created.as_second() >= (start_ms / 1000).cast_signed())
}
