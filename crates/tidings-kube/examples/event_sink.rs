//! A sink of one's own, which has bad days: it appends Events to a file as lines. What it answers
//! when something is wrong decides what the recorder does next, so the art is to say what it *was*.
//! Watch the same troubles under client-go's policy and under the patient one.
//!
//!     cargo run --example event_sink
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs::File,
    io::{self, Write as _},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use kube::core::Status;
use tidings_kube::{
    correlator::Patch,
    recorder::{
        BroadcasterOptions, EventBroadcaster, EventSink, EventType, Level, RetryPolicy, SinkCounts,
        SinkError,
    },
};

/// What goes wrong with an event, and until which try.
fn trouble(reason: &str, nth: u32) -> Result<(), SinkError> {
    match (reason, nth) {
        // No answer, or nobody knows what came of it. This is what `Other` is for, and why an event
        // may be written twice. Both policies try again, at most twelve times in all.
        ("DiskAway", ..=2) | ("DiskGone", _) => {
            Err(SinkError::Other(io::Error::other("the disk does not answer").into()))
        }
        // Somebody else has answered, a proxy for instance. Tried again, too.
        ("Strange", 1) => Err(SinkError::UnexpectedObject("a page in HTML".to_owned())),
        // "Not now." To client-go every answer is final, this one as well. Here the policies differ.
        ("Busy", 1) => Err(answer(503, "ServiceUnavailable")),
        // "No", today and tomorrow. Nobody tries again; only that it is there already is no error in
        // the log, because then somebody has written it.
        ("Forbidden", _) => Err(answer(403, "Forbidden")),
        ("Exists", _) => Err(answer(409, "AlreadyExists")),
        // There was nothing that could have been sent.
        ("Impossible", _) => Err(SinkError::RequestConstruction("no such place".to_owned())),
        _ => Ok(()),
    }
}

/// An answer as an API server would give it: by code and reason it is told what it means.
fn answer(code: u16, reason: &str) -> SinkError {
    SinkError::status(Status { code, reason: reason.to_owned(), ..Status::default() })
}

/// Lines of `<create or patch> <count> <event's name>`. When the file is rotated, the new one knows
/// nothing of the old one's events, as an API server knows nothing of those whose hour is over.
struct FileSink(Mutex<State>);

struct State {
    file: File,
    /// The events in the file.
    names: BTreeSet<String>,
    /// How often each was tried, by its reason.
    tries: BTreeMap<String, u32>,
    /// The writes that took place, by the event's reason.
    writes: BTreeMap<String, Vec<&'static str>>,
}

impl FileSink {
    fn new(file: File) -> Self {
        let (names, tries, writes) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        Self(Mutex::new(State { file, names, tries, writes }))
    }

    /// One attempt. There is no await in it, so a shutdown whose time is up finds it done or not
    /// begun: no line is ever cut in two. (A file that may be slow belongs in `spawn_blocking`.)
    fn write(&self, how: &'static str, event: &Event) -> Result<Event, SinkError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = event.reason.clone().unwrap_or_default();
        let name = event.metadata.name.clone().unwrap_or_default();
        let nth = state.tries.entry(reason.clone()).or_default();
        *nth += 1;
        trouble(&reason, *nth)?;
        // The one answer that is no end and no "again": what is to be patched is not there. In the
        // same try the recorder creates it, with all of its count.
        if how == "patch" && !state.names.contains(&name) {
            return Err(answer(404, "NotFound"));
        }
        let line = format!("{how} {} {name}\n", event.count.unwrap_or_default());
        state.file.write_all(line.as_bytes()).map_err(|error| SinkError::Other(error.into()))?;
        state.names.insert(name);
        state.writes.entry(reason.clone()).or_default().push(how);
        if reason == "Rotated" {
            // As if a new file had begun.
            state.names.clear();
        }
        // What is stored now. The next patch goes to the name and goes on from the count in here.
        Ok(event.clone())
    }

    /// What became of the events of this reason.
    fn outcome(&self, reason: &str) -> String {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tries = state.tries.get(reason).copied().unwrap_or_default();
        let writes = state.writes.get(reason).map_or("not written".to_owned(), |w| w.join(", "));
        format!("{writes} ({tries} {})", if tries == 1 { "call" } else { "calls" })
    }
}

impl EventSink for FileSink {
    async fn create(&self, event: &Event) -> Result<Event, SinkError> {
        self.write("create", event)
    }

    /// For a store that can merge, the patch has what changes; `event` is what it comes to.
    async fn patch(&self, event: &Event, _patch: Option<&Patch>) -> Result<Event, SinkError> {
        self.write("patch", event)
    }
}

/// How often each is recorded. The first time it is created; the second is a patch of its count.
const EVENTS: [(&str, usize); 9] = [
    ("Fine", 2),
    ("Rotated", 2),
    ("DiskAway", 1),
    ("DiskGone", 1),
    ("Strange", 1),
    ("Busy", 1),
    ("Forbidden", 1),
    ("Exists", 1),
    ("Impossible", 1),
];

/// Sends the same events through a new sink, and answers what it went through.
async fn run(retry: RetryPolicy) -> Result<(Arc<FileSink>, SinkCounts), Box<dyn Error>> {
    let sink = Arc::new(FileSink::new(tempfile::tempfile()?));
    let options = BroadcasterOptions { retry, ..BroadcasterOptions::default() };
    let broadcaster = EventBroadcaster::new(options);
    let running = broadcaster.start_recording_to_sink(Arc::clone(&sink)).await?;
    let recorder = broadcaster.new_recorder(EventSource::default());
    // They are written one after the other, so one that is tried again holds up all behind it. That
    // is what the queue is for; when it is full, new ones are dropped, and counted.
    let object = ObjectReference { name: Some("web".to_owned()), ..ObjectReference::default() };
    for (reason, times) in EVENTS {
        for _ in 0..times {
            recorder.event(&object, EventType::Normal, reason, "so it is");
        }
    }
    broadcaster.shutdown().await;
    Ok((sink, running.counts()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Which event was given up, why, and what one can do about it: that is in the log.
    tracing_subscriber::fmt().with_max_level(Level::ERROR).with_writer(io::stderr).init();
    // Both wait for seconds between two tries, where nobody is looking on.
    let (brief, longest) = (Duration::from_millis(5), Duration::from_millis(20));
    let (strict, strict_counts) = run(RetryPolicy::ClientGo { sleep: brief }).await?;
    let (patient, patient_counts) =
        run(RetryPolicy::Patient { initial: brief, max: longest }).await?;

    println!("{:12} {:34} the patient one's", "", "client-go's policy");
    for (reason, _) in EVENTS {
        println!("{reason:12} {:34} {}", strict.outcome(reason), patient.outcome(reason));
    }
    for (policy, counts) in [("client-go's", strict_counts), ("patient", patient_counts)] {
        let SinkCounts { written, given_up, retries, .. } = counts;
        println!("{policy}: {written} written, {given_up} given up, {retries} retries");
    }
    Ok(())
}
