//! An API server that knows events by name, and fails on demand.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::{core::v1::ObjectReference, events::v1::Event};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::recorder::{
    Clock, EventType, SinkError,
    events_v1::{
        EventBroadcaster, EventBroadcasterOptions, EventRecorder, EventSink, RecordingHandle,
        RecordingOptions,
    },
};

/// How it answers one call instead of doing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Status(u16, &'static str),
    /// Too many requests, please come again in so many seconds.
    ComeAgainIn(u32),
    Transport,
    /// It does it all the same.
    AnswerLost,
    RequestConstruction,
    UnexpectedObject,
}

impl Fault {
    fn error(self) -> SinkError {
        match self {
            Self::Status(code, reason) => {
                let status = json!({"code": code, "reason": reason});
                SinkError::status(serde_json::from_value(status).unwrap())
            }
            Self::Transport | Self::AnswerLost => {
                SinkError::Other(Box::new(io::Error::other("no route")))
            }
            Self::ComeAgainIn(seconds) => {
                let details = json!({"retryAfterSeconds": seconds});
                let status = json!({"code": 429, "details": details});
                SinkError::status(serde_json::from_value(status).unwrap())
            }
            Self::RequestConstruction => SinkError::RequestConstruction("no".into()),
            Self::UnexpectedObject => SinkError::UnexpectedObject("a Pod".into()),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) at: Duration,
    pub(super) op: &'static str,
    pub(super) event: Event,
}

#[derive(Default)]
pub(super) struct State {
    /// What it knows: each event's count.
    pub(super) counts: BTreeMap<String, i32>,
    pub(super) calls: Vec<Call>,
    /// For the next calls, in their order: how long they take, and how they fail.
    pub(super) next: VecDeque<(Duration, Option<Fault>)>,
    /// Those without an entry there fail like this.
    pub(super) down: Option<Fault>,
    resource_version: u64,
}

#[derive(Clone)]
pub(super) struct Server {
    start: Instant,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn faults(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state().next.extend(faults.into_iter().map(|fault| (Duration::ZERO, Some(fault))));
    }

    /// The calls since the last time: seconds, what, and the series' count.
    pub(super) fn took(&self) -> Vec<(u64, &'static str, i32)> {
        let calls = std::mem::take(&mut self.state().calls);
        calls.iter().map(|call| (call.at.as_secs(), call.op, count(&call.event))).collect()
    }

    async fn call(&self, op: &'static str, event: &Event) -> Result<Event, SinkError> {
        let (takes, fault) = {
            let mut state = self.state();
            state.calls.push(Call { at: self.start.elapsed(), op, event: event.clone() });
            let down = state.down;
            state.next.pop_front().unwrap_or((Duration::ZERO, down))
        };
        if !takes.is_zero() {
            sleep(takes).await;
        }
        if let Some(fault) = fault.filter(|fault| *fault != Fault::AnswerLost) {
            return Err(fault.error());
        }
        let mut state = self.state();
        let name = event.metadata.name.clone().unwrap();
        let known = state.counts.contains_key(&name);
        match op {
            "create" if known => return Err(Fault::Status(409, "AlreadyExists").error()),
            "patch" if !known => return Err(Fault::Status(404, "NotFound").error()),
            _ => state.counts.insert(name, count(event)),
        };
        state.resource_version += 1;
        let mut event = event.clone();
        event.metadata.resource_version = Some(state.resource_version.to_string());
        fault.map_or(Ok(event), |lost| Err(lost.error()))
    }
}

fn count(event: &Event) -> i32 {
    event.series.as_ref().map_or(1, |series| series.count)
}

impl EventSink for Server {
    async fn create(&self, event: &Event) -> Result<Event, SinkError> {
        self.call("create", event).await
    }

    async fn patch(&self, event: &Event, patch: &Value) -> Result<Event, SinkError> {
        assert_eq!(*patch, json!({"series": event.series}));
        self.call("patch", event).await
    }
}

pub(super) struct Stage {
    pub(super) start: Instant,
    pub(super) server: Server,
    pub(super) broadcaster: EventBroadcaster,
    pub(super) recorder: EventRecorder,
    pub(super) recording: RecordingHandle,
}

impl Stage {
    pub(super) async fn new() -> Self {
        Self::with(RecordingOptions::default()).await
    }

    pub(super) async fn with(options: RecordingOptions) -> Self {
        let base = base();
        let start = Instant::now();
        Self::with_clock(options, start, Arc::new(move || base + start.elapsed())).await
    }

    /// With a time that no two events share, so that no two names are the same.
    pub(super) async fn with_names(options: RecordingOptions) -> Self {
        let base = base();
        let start = Instant::now();
        let asked = AtomicU64::new(0);
        let clock = Arc::new(move || {
            base + start.elapsed() + Duration::from_nanos(asked.fetch_add(1, Ordering::Relaxed))
        });
        Self::with_clock(options, start, clock).await
    }

    async fn with_clock(options: RecordingOptions, start: Instant, clock: Clock) -> Self {
        let broadcaster = EventBroadcaster::new(EventBroadcasterOptions {
            clock,
            host_name: "host1".into(),
            ..EventBroadcasterOptions::default()
        });
        let server = Server { start, state: Arc::default() };
        let recording = broadcaster.start_recording_to_sink(server.clone(), options).await.unwrap();
        let recorder = broadcaster.new_recorder("example.io/scheduler");
        Self { start, server, broadcaster, recorder, recording }
    }

    /// Something happens to the Pod of that name.
    pub(super) async fn happens(&self, pod: &str) {
        self.recorder.event(&self::pod(pod), EventType::Normal, "Evicted", "Evicting", "why");
        settle().await;
    }

    /// Lets the time come to so many seconds after the start, and everything happen until then.
    pub(super) async fn at(&self, seconds: u64) {
        tokio::time::sleep_until(self.start + Duration::from_secs(seconds)).await;
        settle().await;
    }
}

fn base() -> Timestamp {
    "2000-01-01T00:00:00Z".parse().unwrap()
}

/// Everything that can happen without time passing.
pub(super) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

pub(super) fn pod(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: Some(name.into()),
        namespace: Some("shop".into()),
        ..ObjectReference::default()
    }
}
