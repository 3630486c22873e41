//! Which Events the bridge has written itself.
//!
//! Whoever may create an Event writes in it what he likes, but for what the API server says: the
//! namespace and the uid. So the bridge keeps the uids that its writes were answered with. A watch
//! may bring an Event before the answer to its write has come. So one of the bridge's own namespace
//! that nothing is known of waits while a write that may have made it has no answer; it is somebody
//! else's if no answer names it. Nothing waits where the last write was not answered for long, or
//! intake would fall behind by a wait for each write.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Event;
use tidings_kube::{
    correlator::Patch,
    recorder::{EventSink, SinkError},
};

use super::shared::lock;

/// An answer is waited for so long from when the write began, so no Event that was read since waits
/// longer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// A write that had no answer after so long is not one that was refused.
const SILENT_AFTER: Duration = Duration::from_secs(5);
/// So many Events are known, the newest: what a bridge says of itself in hours.
const EVENTS: usize = 4096;
/// And so many heartbeats: there is another one when the API server has dropped the last.
const HEARTBEATS: usize = 16;

/// The Events that a bridge writes, of which it knows each by the answer; clones are the same.
#[derive(Clone, Debug)]
pub struct OwnWrites(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    namespace: String,
    known: Mutex<Known>,
    /// There is one more answer, or one less to wait for.
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Known {
    /// When each write began that has no answer, by its number.
    unanswered: BTreeMap<u64, Instant>,
    writes: u64,
    /// The write that ended last had no answer for long.
    silent: bool,
    /// The uids of Events and those of heartbeats, the oldest first.
    events: VecDeque<String>,
    heartbeats: VecDeque<String>,
}

/// Whose an Event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The bridge's, by which it notices that a watch is dead.
    Heartbeat,
    /// The bridge's: something that it says of itself.
    Own,
    /// Somebody else's, whatever it says.
    Others,
    /// An answer may still tell.
    NotKnown,
}

impl OwnWrites {
    /// Nothing yet, and all of it to come in this namespace.
    pub fn in_namespace(namespace: impl Into<String>) -> Self {
        let (namespace, known) = (namespace.into(), Mutex::default());
        Self(Arc::new(Inner { namespace, known, answered: Condvar::new() }))
    }

    /// A sink for what the bridge says of itself: whatever is written through it is known for the
    /// bridge's own.
    pub fn through<S: EventSink>(&self, sink: S) -> impl EventSink {
        Noting { sink, writes: self.clone() }
    }

    /// A write begins. Without an answer it ends when this is dropped.
    pub(super) fn begin(&self) -> OwnWrite {
        let known = &mut *lock(&self.0.known);
        known.writes += 1;
        known.unanswered.insert(known.writes, Instant::now());
        OwnWrite { writes: self.clone(), number: known.writes, answered: false }
    }

    /// Heartbeats that earlier runs have written.
    pub(super) fn know_heartbeats(&self, uids: impl IntoIterator<Item = String>) {
        lock(&self.0.known).heartbeats.extend(uids);
    }

    /// The uids of heartbeats, to be known in the next run.
    pub(super) fn heartbeats(&self) -> Vec<String> {
        lock(&self.0.known).heartbeats.iter().cloned().collect()
    }

    /// Whether an Event is the bridge's own, as far as is known.
    pub(super) fn has(&self, namespace: &str, uid: &str) -> bool {
        namespace == self.0.namespace && lock(&self.0.known).whose(uid).is_some()
    }

    /// Whose an Event is that had been read by then. For an answer that may tell it is waited so long.
    pub(super) fn whose(&self, namespace: &str, uid: &str, read: Instant, most: Duration) -> Whose {
        if namespace != self.0.namespace {
            return Whose::Others;
        }
        let may_be_told = |known: &mut Known| known.whose(uid).is_none() && known.awaits(read);
        let waited = self.0.answered.wait_timeout_while(lock(&self.0.known), most, may_be_told);
        let (known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let not_named = || if known.awaits(read) { Whose::NotKnown } else { Whose::Others };
        known.whose(uid).unwrap_or_else(not_named)
    }
}

impl Known {
    fn whose(&self, uid: &str) -> Option<Whose> {
        let among = |uids: &VecDeque<String>| uids.iter().any(|known| known == uid);
        let heartbeat = among(&self.heartbeats).then_some(Whose::Heartbeat);
        heartbeat.or_else(|| among(&self.events).then_some(Whose::Own))
    }

    /// Whether a write has no answer that may have made what had been read by then.
    fn awaits(&self, read: Instant) -> bool {
        let mut begun = self.unanswered.values();
        let no_answers =
            self.silent || begun.clone().any(|begun| begun.elapsed() >= ANSWERED_WITHIN);
        !no_answers && begun.any(|begun| *begun <= read)
    }
}

/// A write under way.
#[derive(Debug)]
pub(super) struct OwnWrite {
    writes: OwnWrites,
    number: u64,
    answered: bool,
}

impl OwnWrite {
    /// It was answered with a heartbeat of this uid.
    pub(super) fn made_heartbeat(mut self, uid: &str) {
        self.answered = true;
        note(&mut lock(&self.writes.0.known).heartbeats, uid, HEARTBEATS);
    }

    /// It was answered with an Event of this uid.
    fn made_event(mut self, uid: &str) {
        self.answered = true;
        note(&mut lock(&self.writes.0.known).events, uid, EVENTS);
    }
}

impl Drop for OwnWrite {
    fn drop(&mut self) {
        let known = &mut *lock(&self.writes.0.known);
        if let Some(begun) = known.unanswered.remove(&self.number) {
            known.silent = !self.answered && begun.elapsed() >= SILENT_AFTER;
        }
        self.writes.0.answered.notify_all();
    }
}

fn note(uids: &mut VecDeque<String>, uid: &str, most: usize) {
    if uid.is_empty() || uids.iter().any(|known| known == uid) {
        return;
    }
    uids.push_back(uid.to_owned());
    if uids.len() > most {
        uids.pop_front();
    }
}

/// Notes what is written through it.
struct Noting<S> {
    sink: S,
    writes: OwnWrites,
}

impl<S> Noting<S> {
    async fn noted(
        &self,
        writing: impl Future<Output = Result<Event, SinkError>>,
    ) -> Result<Event, SinkError> {
        let write = self.writes.begin();
        let written = writing.await;
        if let Ok(event) = &written {
            write.made_event(event.metadata.uid.as_deref().unwrap_or_default());
        }
        written
    }
}

impl<S: EventSink> EventSink for Noting<S> {
    async fn create(&self, event: &Event) -> Result<Event, SinkError> {
        self.noted(self.sink.create(event)).await
    }

    async fn patch(&self, event: &Event, patch: Option<&Patch>) -> Result<Event, SinkError> {
        self.noted(self.sink.patch(event, patch)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_AT_ALL: Duration = Duration::ZERO;

    fn whose(writes: &OwnWrites, uid: &str) -> Whose {
        writes.whose("tidings", uid, Instant::now(), NOT_AT_ALL)
    }

    #[test]
    fn only_what_an_answer_named_is_our_own() {
        let writes = OwnWrites::in_namespace("tidings");
        writes.begin().made_heartbeat("beat");
        writes.begin().made_event("said");
        assert_eq!(whose(&writes, "beat"), Whose::Heartbeat);
        assert_eq!(whose(&writes, "said"), Whose::Own);
        assert_eq!(whose(&writes, "forged"), Whose::Others);
        for uid in ["beat", "said"] {
            let elsewhere = writes.whose("shop", uid, Instant::now(), NOT_AT_ALL);
            assert_eq!((elsewhere, writes.has("shop", uid)), (Whose::Others, false));
        }
        assert!(writes.has("tidings", "said") && !writes.has("tidings", "forged"));
    }

    #[test]
    fn an_answer_is_waited_for_by_what_was_read_after_its_write_began() {
        let writes = OwnWrites::in_namespace("tidings");
        let before = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        let write = writes.begin();
        assert_eq!(whose(&writes, "made"), Whose::NotKnown);
        assert_eq!(writes.whose("tidings", "made", before, NOT_AT_ALL), Whose::Others);
        assert_eq!(writes.whose("shop", "made", Instant::now(), NOT_AT_ALL), Whose::Others);
        let asked = std::thread::spawn({
            let writes = writes.clone();
            move || writes.whose("tidings", "made", Instant::now(), Duration::from_mins(1))
        });
        write.made_heartbeat("made");
        assert_eq!(asked.join().unwrap(), Whose::Heartbeat);
        drop(writes.begin());
        assert_eq!(whose(&writes, "forged"), Whose::Others, "a write that failed");
    }

    #[test]
    fn no_answer_is_waited_for_while_the_api_server_gives_none() {
        let writes = OwnWrites::in_namespace("tidings");
        let begun_before = |write: &OwnWrite, age: Duration| {
            let begun = Instant::now().checked_sub(age).unwrap();
            lock(&writes.0.known).unanswered.insert(write.number, begun);
        };
        let first = writes.begin();
        begun_before(&first, SILENT_AFTER);
        let second = writes.begin();
        assert_eq!(whose(&writes, "made"), Whose::NotKnown);
        begun_before(&first, ANSWERED_WITHIN);
        assert_eq!(whose(&writes, "made"), Whose::Others);
        drop(first);
        assert_eq!(whose(&writes, "made"), Whose::Others, "the second may not be answered either");
        second.made_event("said");
        let third = writes.begin();
        assert_eq!(whose(&writes, "made"), Whose::NotKnown);
        drop(third);
        let _fourth = writes.begin();
        assert_eq!(whose(&writes, "made"), Whose::NotKnown, "the third was refused");
    }

    #[test]
    fn the_newest_are_known() {
        let writes = OwnWrites::in_namespace("tidings");
        for n in 0..=EVENTS {
            writes.begin().made_event(&n.to_string());
            writes.begin().made_event(&n.to_string());
        }
        assert_eq!(whose(&writes, "0"), Whose::Others);
        assert_eq!(whose(&writes, "1"), Whose::Own);
        let next = OwnWrites::in_namespace("tidings");
        writes.begin().made_heartbeat("beat");
        next.know_heartbeats(writes.heartbeats());
        assert_eq!(whose(&next, "beat"), Whose::Heartbeat);
    }
}
