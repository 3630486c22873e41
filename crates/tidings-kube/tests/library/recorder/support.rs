//! A sink that does as it is told, and broadcasters whose chances are known.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use kube::core::Status;
use tidings_kube::{
    correlator::Patch,
    recorder::{
        BroadcasterOptions, EventBroadcaster, EventRecorder, EventSink, EventType, Running,
        SinkError,
    },
};
use tokio::time::{Instant, sleep};

/// The first wait is this part of the sleep.
pub(crate) const RANDOM: f64 = 0.25;

#[derive(Debug)]
pub(crate) enum Answer {
    Ok,
    Error(SinkError),
    /// None, ever.
    Hang,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) at: Duration,
    pub(crate) op: &'static str,
    pub(crate) event: Event,
}

/// Answers from a list and then with success; it keeps the calls.
#[derive(Clone)]
pub(crate) struct MemorySink(Arc<Mutex<State>>);

struct State {
    start: Instant,
    takes: Duration,
    answers: VecDeque<Answer>,
    calls: Vec<Call>,
}

impl MemorySink {
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self(Arc::new(Mutex::new(State {
            start: Instant::now(),
            takes: Duration::ZERO,
            answers: answers.into_iter().collect(),
            calls: Vec::new(),
        })))
    }

    /// Each call takes so long.
    pub(crate) fn slow(takes: Duration) -> Self {
        let sink = Self::new([]);
        sink.0.lock().unwrap().takes = takes;
        sink
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.0.lock().unwrap().calls.clone()
    }

    /// `op` and count of each call, and its time in milliseconds.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |call: Call| {
            format!("{} {}x at {}", call.op, call.event.count.unwrap(), call.at.as_millis())
        };
        self.calls().into_iter().map(line).collect()
    }

    pub(crate) fn messages(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.event.message.unwrap()).collect()
    }

    async fn call(&self, op: &'static str, event: &Event) -> Result<Event, SinkError> {
        let (takes, answer, version) = {
            let mut state = self.0.lock().unwrap();
            let at = state.start.elapsed();
            state.calls.push(Call { at, op, event: event.clone() });
            (state.takes, state.answers.pop_front(), state.calls.len())
        };
        sleep(takes).await;
        match answer.unwrap_or(Answer::Ok) {
            Answer::Ok => {
                let mut stored = event.clone();
                stored.metadata.resource_version = Some(version.to_string());
                Ok(stored)
            }
            Answer::Error(error) => Err(error),
            Answer::Hang => std::future::pending().await,
        }
    }
}

impl EventSink for MemorySink {
    async fn create(&self, event: &Event) -> Result<Event, SinkError> {
        self.call("create", event).await
    }

    async fn patch(&self, event: &Event, _patch: Option<&Patch>) -> Result<Event, SinkError> {
        self.call("patch", event).await
    }
}

pub(crate) fn status(code: u16) -> Answer {
    Answer::Error(SinkError::status(Status { code, ..Status::default() }))
}

pub(crate) fn eof() -> Answer {
    Answer::Error(SinkError::Other("EOF".into()))
}

pub(crate) fn eofs(n: usize) -> impl Iterator<Item = Answer> {
    std::iter::repeat_with(eof).take(n)
}

pub(crate) fn options() -> BroadcasterOptions {
    BroadcasterOptions { random: Arc::new(|| RANDOM), ..BroadcasterOptions::default() }
}

/// A broadcaster that writes to `sink`, and a recorder of it.
pub(crate) async fn start(
    options: BroadcasterOptions,
    sink: &MemorySink,
) -> (EventBroadcaster, EventRecorder, Running) {
    let broadcaster = EventBroadcaster::new(options);
    let running = broadcaster.start_recording_to_sink(sink.clone()).await.unwrap();
    let recorder = broadcaster.new_recorder(source());
    (broadcaster, recorder, running)
}

pub(crate) fn source() -> EventSource {
    EventSource { component: Some("tester".into()), host: Some("node-a".into()) }
}

pub(crate) fn pod(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: Some(name.into()),
        namespace: Some("shop".into()),
        ..ObjectReference::default()
    }
}

/// Records an event of its own about an object of its own, so that nothing is aggregated.
pub(crate) fn record(recorder: &EventRecorder, n: usize) {
    recorder.eventf(&pod(&format!("web-{n}")), EventType::Normal, "Tested", format_args!("{n}"));
}

/// Lets everybody go on until nothing is left to do at this instant.
pub(crate) async fn settle() {
    sleep(Duration::from_millis(1)).await;
}
