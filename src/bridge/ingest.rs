//! From what a reflector reads to what the journal holds.
//!
//! One thread owns the log, because the log has one writer, and the view `seen` with it. Reflectors
//! send it what they read over a bounded channel, so a slow disk slows the reading down and
//! nothing is held in memory beyond the channel. For each change the thread decides whether it is
//! new, computes by how much it raises the Event's occurrences, writes its envelope, and appends
//! the frame together with the resume point that covers it. Only then is the frame published.

mod lists;
mod store;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use self::lists::Replacing;
pub(super) use self::store::JournalStore;
use super::{
    objects::{Objects, Sighting},
    shared::{IngestCounters, SeenChanges, now_ms},
};
use crate::{
    cache::{ReplaceReason, WatchEvent, WatchEventType, resource_version_of},
    event::{Change, Cluster, DecodeError, EnvelopeHead, Incoming, Seen, SeenEntry, UidKey},
    journal::{Frame, FrameBuilder, Log, Resume, SyncDone, SyncJob},
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

struct Source {
    spec: IngestSource,
    /// When something of it was last journalled, in milliseconds since the epoch.
    journalled_ms: Option<u64>,
    replacing: Option<Replacing>,
}

/// What others see of the thread.
pub(super) struct IngestShared {
    pub(super) counters: Arc<IngestCounters>,
    pub(super) changes: Arc<SeenChanges>,
    /// Nothing where no sink asks for what is known of objects.
    pub(super) objects: Option<Arc<Objects>>,
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
        let source = |spec: IngestSource| {
            let journalled_ms = spec.last_heard_ms;
            Source { spec, journalled_ms, replacing: None }
        };
        let sources = sources.into_iter().map(source).collect();
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
                    let begun = self.log.begin_sync(now_ms()).unwrap_or_else(|error| {
                        tracing::error!(%error, "the journal cannot be synced");
                        None
                    });
                    // Without an answer the keeper goes on, and asks again in a second.
                    let _ = job.send(begun);
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
        // The Events as they came, with what an envelope adds. What is cut from them makes up for
        // the deltas of its guess.
        let mut expected: usize = events.iter().map(|event| event.object.len() + 256).sum();
        let mut frame = self.frame(source, expected);
        for event in events {
            expected = expected.saturating_sub(event.object.len() + 256);
            if matches!(event.kind, WatchEventType::Bookmark | WatchEventType::Unknown) {
                if let Some(version) = resource_version_of(&event.object) {
                    resume.resource_version = resume.resource_version.max(version);
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
            let resume_before = resume;
            resume.resource_version = resume.resource_version.max(incoming.resource_version);
            if event.kind == WatchEventType::Deleted {
                // The TTL at work, and not news: the Event itself was exported when it happened.
                frame.builder.forget(incoming.uid);
                frame.forgets = true;
                frame.changed.push((incoming.uid, None));
                self.seen.remove(incoming.uid);
                continue;
            }
            let before = self.seen.get(incoming.uid);
            if before.is_some_and(|entry| entry.resource_version >= incoming.resource_version) {
                self.shared.counters.repeats.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            // What a frame forgets it forgets after its records; an Event can come back only where
            // a field selector had let it go.
            let comes_back = frame.forgets && frame.changed.contains(&(incoming.uid, None));
            if comes_back {
                let before_it = std::mem::replace(&mut frame, self.frame(source, expected));
                self.append(source, before_it, resume_before)?;
            }
            self.record(&mut frame, source, &incoming, before, &observed, false);
            if frame.is_full() {
                let full = std::mem::replace(&mut frame, self.frame(source, expected));
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
        if let Some(objects) = &self.shared.objects {
            frame.sightings.push(objects.look(&incoming.fields));
        }
        let entry = SeenEntry {
            resource_version: incoming.resource_version,
            occurrences: u32::try_from(occurrences).unwrap_or(u32::MAX),
            source: spec.id,
        };
        self.seen.insert(incoming.uid, entry);
        frame.changed.push((incoming.uid, Some(entry)));
        delta
    }

    fn move_resume_point(&mut self, source: usize, resource_version: u64) -> Result<(), GaveUp> {
        let resume = Resume { resource_version, ..self.sources[source].spec.resume };
        let frame = self.frame(source, 0);
        self.append(source, frame, resume)
    }

    /// An empty frame with room for records of `expected` bytes.
    fn frame(&self, source: usize, expected: usize) -> Pending {
        let IngestSource { key, resume, .. } = &self.sources[source].spec;
        let mut builder = FrameBuilder::new(Arc::clone(key), *resume);
        builder.reserve(expected.min(FRAME_BYTES));
        Pending { builder, changed: Vec::new(), forgets: false, sightings: Vec::new() }
    }

    /// Appends a frame and publishes it. While the disk takes nothing, intake stands still here:
    /// the channel fills, the reflectors wait, and the API server keeps what comes.
    fn append(&mut self, source: usize, mut frame: Pending, resume: Resume) -> Result<(), GaveUp> {
        let Source { spec, journalled_ms, .. } = &mut self.sources[source];
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
        *journalled_ms = Some(written.time_ms);
        self.shared.counters.records.fetch_add(u64::from(written.count()), Ordering::Relaxed);
        self.shared.changes.add(frame.changed, written.next());
        if let Some(objects) = &self.shared.objects {
            objects.observe(&written, frame.sightings);
        }
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
}

/// A frame being built, and what it changes in the view.
struct Pending {
    builder: FrameBuilder,
    changed: Vec<(UidKey, Option<SeenEntry>)>,
    /// Whether a change of the watch is that an Event was deleted.
    forgets: bool,
    /// What is at hand of the objects that its records are about.
    sightings: Vec<Option<Sighting>>,
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
