//! From what a reflector reads to what the journal holds.
//!
//! One thread owns the log, because the log has one writer, and changes the view `seen`. Reflectors
//! send it what they read over a bounded channel, so a slow disk slows the reading down and
//! nothing is held in memory beyond the channel. For each change the thread decides whether it is
//! new, computes by how much it raises the Event's occurrences, writes its envelope, and appends
//! the frame together with the resume point that covers it. Only then is the frame published.

mod backlog;
mod desk;
mod lists;
mod source;
mod store;
mod writer;

use std::{
    mem,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use jiff::Timestamp;
use tidings_kube::{
    broadcaster::Broadcaster,
    correlator::{KeyPrefix, Keys},
    reflector::{ReplaceReason, Replaced, WatchEvent, WatchEventType, resource_version_of},
};
use tidings_log::{FrameBuilder, Log, Resume};
use tokio::sync::{mpsc, oneshot};
use tracing::Level;

pub(super) use self::{
    desk::Desk,
    source::IngestSource,
    store::{JournalStore, NotKept},
};
use self::{
    source::Source,
    writer::{GaveUp, LOOK_EVERY, Writer},
};
use super::{
    Sinks,
    correlation::Names,
    log_lines::LogLines,
    objects::{Objects, Sighting},
    own_writes::{OwnWrites, Whose},
    published::Published,
    seen::Seen,
    shared::{IngestCounters, now_ms},
    stop::Stop,
    watchdog::Pulse,
};
use crate::event::{
    Change, Cluster, DecodeError, EnvelopeHead, EnvelopeParts, EventFields, Incoming, Metadata,
    SeenChanges, SeenEntry, UidKey,
};

/// A frame is closed at this many records or bytes, so that channels and readers deal in pieces of
/// a bounded size.
const FRAME_RECORDS: u32 = 500;
const FRAME_BYTES: usize = 1 << 20;

/// What reflectors and the clock send.
pub(super) enum Message {
    Apply {
        source: usize,
        events: Vec<WatchEvent>,
        read: Instant,
    },
    BeginReplace {
        source: usize,
        /// How many lists of it have begun.
        list: u64,
        reason: ReplaceReason,
        /// Before it was asked for, in milliseconds since the epoch.
        asked_ms: u64,
    },
    Page {
        source: usize,
        items: Vec<Bytes>,
        /// When it came, in milliseconds since the epoch.
        came_ms: u64,
        read: Instant,
    },
    EndReplace {
        source: usize,
        resource_version: u64,
        kept: oneshot::Sender<Replaced>,
    },
    Abort {
        source: usize,
    },
    StartAt {
        source: usize,
        resource_version: u64,
    },
    /// All that had happened by then has been sent.
    CaughtUp {
        source: usize,
        at_ms: u64,
    },
    /// Something may be due beside the messages: once a second, and when the [`Desk`] has news.
    Tick,
    /// Nothing comes after this.
    Stop,
}

/// What others see of the thread.
pub(super) struct IngestShared {
    pub(super) counters: Arc<IngestCounters>,
    pub(super) seen: Arc<Seen>,
    /// Nothing where no sink is told of objects.
    pub(super) objects: Option<Arc<Objects>>,
    /// What they have not had may stop intake.
    pub(super) sinks: Sinks,
    pub(super) desk: Arc<Desk>,
    pub(super) stop: Stop,
    /// Nothing where the bridge writes no Events.
    pub(super) own_writes: Option<OwnWrites>,
    /// It rests while it is known what is waited for.
    pub(super) pulse: Pulse,
}

/// The thread's state. See the [module](self).
pub(super) struct Ingest {
    writer: Writer,
    broadcaster: Broadcaster<Published>,
    /// What the keys are made with that records are correlated by, and what all of them begin with: the
    /// cluster.
    keys: (Keys, KeyPrefix),
    cluster_json: String,
    shared: IngestShared,
    sources: Vec<Source>,
    /// An envelope in the journal is no longer, in bytes.
    max_event: usize,
    /// Of Events that are cut.
    lines: LogLines,
    /// What lists that are not whole may take on disk together, in bytes.
    room: u64,
}

impl Ingest {
    pub(super) fn new(
        log: Log,
        broadcaster: Broadcaster<Published>,
        keys: &Keys,
        max_event: usize,
        sources: Vec<IngestSource>,
        shared: IngestShared,
    ) -> Self {
        let next = log.handle().tail().next;
        let sources = sources.into_iter().map(|spec| Source::new(spec, next)).collect();
        let writer = Writer::new(log, &shared);
        let keys = (keys.clone(), keys.prefix(&[]));
        let cluster_json = String::new();
        let lines = LogLines::of_ingest();
        Self { writer, broadcaster, keys, cluster_json, shared, sources, max_event, lines, room: 0 }
    }

    /// Takes messages until [`Message::Stop`], on behalf of a cluster.
    pub(super) fn run(mut self, cluster: &Cluster, mut messages: mpsc::Receiver<Message>) {
        if let Some(uid) = &cluster.uid {
            self.writer.set_cluster_uid(uid);
        }
        self.cluster_json = serde_json::to_string(cluster).unwrap_or_else(|_| "{}".to_owned());
        let (keys, first) = &mut self.keys;
        *first = keys.prefix(&[&self.cluster_json]);
        let mut gave_up = self.inherit().is_err();
        while !gave_up && let Some(message) = messages.blocking_recv() {
            self.shared.pulse.works("taking what was read");
            let handled = match message {
                Message::Apply { source, events, read } => self.apply(source, &events, read),
                Message::BeginReplace { source, list, reason, asked_ms } => {
                    self.begin_replace(source, list, reason, asked_ms)
                }
                Message::Page { source, items, came_ms, read } => {
                    self.page(source, &items, came_ms, read)
                }
                Message::EndReplace { source, resource_version, kept } => {
                    self.end_replace(source, resource_version).map(|replaced| {
                        // The reflector has been stopped if it does not wait for the answer.
                        let _ = kept.send(replaced);
                    })
                }
                Message::Abort { source } => {
                    self.sources[source].replacing = None;
                    Ok(())
                }
                Message::StartAt { source, resource_version } => {
                    self.start_at(source, resource_version)
                }
                Message::CaughtUp { source, at_ms } => {
                    self.sources[source].caught_up(at_ms);
                    Ok(())
                }
                Message::Tick => {
                    // What came last before a quiet time is shown in it.
                    self.sources.iter_mut().for_each(Source::show_witness);
                    Ok(())
                }
                Message::Stop => {
                    // The newest witnesses, too: who starts next may find a restored etcd.
                    self.sources.iter().for_each(|source| source.save(false));
                    break;
                }
            };
            gave_up = handled.is_err();
            self.writer.look_after();
            self.shared.pulse.rests();
        }
        self.shared.pulse.works("syncing the log");
        self.writer.finish();
        self.shared.pulse.rests();
    }

    /// Sources that go on where another one ended get a frame of their own that says so.
    fn inherit(&mut self) -> Result<(), GaveUp> {
        for source in 0..self.sources.len() {
            if mem::take(&mut self.sources[source].spec.inherits) {
                let resume = mem::take(&mut self.sources[source].spec.resume);
                self.sources[source].urgent = true;
                let frame = self.frame(source, 0);
                self.append(source, frame, resume)?;
            }
        }
        Ok(())
    }

    fn apply(&mut self, source: usize, events: &[WatchEvent], read: Instant) -> Result<(), GaveUp> {
        let observed = Timestamp::now().to_string();
        let mut resume = self.sources[source].spec.resume;
        // The Events as they came, with what an envelope adds. What is cut from them makes up for
        // the deltas of its guess.
        let most = self.max_event;
        let guess = |event: &WatchEvent| (event.object.len() + 256).min(most);
        let mut expected: usize = events.iter().map(guess).sum();
        let mut frame = self.frame(source, expected);
        for (left, event) in (0..events.len()).rev().zip(events) {
            expected = expected.saturating_sub(guess(event));
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
                if self.sources[source].forgets() {
                    frame.builder.forget(incoming.uid.0);
                    frame.changed.insert(incoming.uid, None);
                }
                continue;
            }
            let mut whose = self.whose(&incoming.fields, read, Duration::ZERO);
            if whose == Whose::NotKnown {
                // What was before it does not wait.
                let before_it = mem::replace(&mut frame, self.frame(source, expected));
                self.append(source, before_it, resume_before)?;
                whose = self.told_whose(&incoming.fields, read)?;
            }
            if left == 0 {
                self.sources[source].note_witness(&incoming, resume.epoch);
            }
            if whose == Whose::Heartbeat {
                self.shared.counters.heartbeats.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let before = self.before(&frame, incoming.uid)?;
            if before.is_some_and(|entry| entry.resource_version >= incoming.resource_version) {
                self.shared.counters.repeats.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            // What a frame forgets it forgets after its records; an Event can come back only where
            // a field selector had let it go.
            let comes_back = frame.changed.get(&incoming.uid) == Some(&None);
            if comes_back {
                let before_it = mem::replace(&mut frame, self.frame(source, expected));
                self.append(source, before_it, resume_before)?;
            }
            self.record(&mut frame, source, &incoming, before, &observed, false);
            if frame.is_full() {
                let full = mem::replace(&mut frame, self.frame(source, expected));
                self.append(source, full, resume)?;
            }
        }
        self.append(source, frame, resume)?;
        self.sources[source].show_witness();
        Ok(())
    }

    /// Whose an Event is that had been read by then, when it has been waited so long for an answer.
    fn whose(&self, event: &EventFields<'_>, read: Instant, most: Duration) -> Whose {
        let own_writes = self.shared.own_writes.as_ref();
        let Metadata { namespace, uid, .. } = &event.metadata;
        own_writes.map_or(Whose::Others, |own| own.whose(namespace, uid, read, most))
    }

    /// The same, when the answers that may tell have come, or have not in time. Intake stands still
    /// meanwhile: no resume point passes the Event.
    fn told_whose(&mut self, event: &EventFields<'_>, read: Instant) -> Result<Whose, GaveUp> {
        loop {
            let whose = self.whose(event, read, LOOK_EVERY);
            if whose != Whose::NotKnown {
                return Ok(whose);
            }
            self.writer.stand_still()?;
        }
    }

    /// What is known of an Event before a change that comes into a frame next.
    fn before(&mut self, frame: &Pending, uid: UidKey) -> Result<Option<SeenEntry>, GaveUp> {
        match frame.changed.get(&uid) {
            Some(change) => Ok(*change),
            None => self.writer.known(uid),
        }
    }

    /// Adds one change to a frame; answers its delta.
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
        let delta = SeenEntry::delta(before, occurrences, || {
            created_since(&incoming.fields.metadata.creation_timestamp, spec.first_start_ms)
        });
        let change = if before.is_some() { Change::Updated } else { Change::Created };
        let cluster_json = &self.cluster_json;
        let head = EnvelopeHead { cluster_json, change, observed_time, delta, replayed };
        let ((keys, first), objects, most) = (&self.keys, &self.shared.objects, self.max_event);
        let Pending { builder, names, sightings, cut, .. } = frame;
        builder.record(|out| {
            let start = out.len();
            let is_cut = head.write(incoming, most, out);
            // Whoever reads it in the log has to come to the same keys and the same object.
            let parts = is_cut.then(|| EnvelopeParts::of(&out[start..])).flatten();
            let kept = parts.and_then(|parts| parts.fields());
            let fields = kept.as_ref().unwrap_or(&incoming.fields);
            sightings.extend(objects.as_ref().map(|objects| objects.look(fields)));
            if let Some(names) = names {
                names.push(Names::of(*first, fields, keys));
            }
            if is_cut {
                *cut += 1;
                tell_cut(&self.lines, &spec.key, most, incoming);
            }
        });
        let entry = SeenEntry::new(incoming.resource_version, occurrences, spec.id);
        frame.changed.insert(incoming.uid, Some(entry));
        delta
    }

    /// The source is followed from here, whatever was before.
    fn start_at(&mut self, source: usize, resource_version: u64) -> Result<(), GaveUp> {
        let resume = Resume { resource_version, ..self.sources[source].spec.resume };
        let frame = self.frame(source, 0);
        self.sources[source].spec.whole_from = Some(resource_version);
        self.append(source, frame, resume)?;
        self.sources[source].caught_up(now_ms());
        Ok(())
    }

    /// An empty frame with room for records of `expected` bytes.
    fn frame(&self, source: usize, expected: usize) -> Pending {
        let IngestSource { key, resume, .. } = &self.sources[source].spec;
        let mut builder = FrameBuilder::new(Arc::clone(key), *resume);
        builder.reserve(expected.min(FRAME_BYTES));
        Pending {
            builder,
            changed: SeenChanges::default(),
            names: self.shared.sinks.correlate().then(Vec::new),
            sightings: Vec::new(),
            cut: 0,
        }
    }

    /// Appends a frame and publishes it. While the disk takes nothing, or a sink blocks, intake stands
    /// still here: the channel fills, the reflectors wait, and the API server keeps what comes.
    fn append(&mut self, source: usize, mut frame: Pending, resume: Resume) -> Result<(), GaveUp> {
        if frame.changed.is_empty() && resume == self.sources[source].spec.resume {
            return Ok(());
        }
        frame.builder.set_resume(resume);
        let written = self.writer.append(&mut frame.builder, frame.changed.len())?;
        // Before the view: what is saved of it is never ahead of what is saved of the source.
        self.sources[source].appended(resume, written.next());
        self.shared.counters.records.fetch_add(u64::from(written.count()), Ordering::Relaxed);
        self.shared.counters.truncated.fetch_add(frame.cut, Ordering::Relaxed);
        self.shared.seen.add(frame.changed, written.next());
        if let Some(objects) = &self.shared.objects {
            objects.observe(&written, frame.sightings);
        }
        let names = frame.names.map(Into::into);
        // Nobody reads after a shutdown; the frame is in the log for the next start.
        self.shared.pulse.works("handing a frame to the broadcaster");
        let _ = self.broadcaster.publish_blocking(Published { frame: written, names });
        self.shared.pulse.works("taking what was read");
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
    changed: SeenChanges,
    /// Under which keys each record is correlated; `None` if nobody asks.
    names: Option<Vec<Names>>,
    /// What is at hand of the objects that its records are about.
    sightings: Vec<Option<Sighting>>,
    /// So many of them were cut.
    cut: u64,
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

/// Says that an Event was cut, in one line a second at most.
fn tell_cut(lines: &LogLines, source: &str, most: usize, event: &Incoming<'_>) {
    if !lines.admit(Level::WARN, "an Event was cut", "", 1) {
        return;
    }
    let (metadata, (before, after)) = (&event.fields.metadata, event.json());
    tracing::warn!(
        source,
        id = event.id(),
        object = %format!("{}/{}", &*metadata.namespace, &*metadata.name),
        bytes = before.len() + after.len(),
        most,
        "an Event is too large for the journal and was cut: `truncated` says by how much. What is \
         cut is not kept; journal.maxEvent bounds it"
    );
}
