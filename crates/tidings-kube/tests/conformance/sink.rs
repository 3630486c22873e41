//! `sink`: the calls that an event makes of its sink, and when.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::Event;
use kube::core::{
    Status,
    response::{StatusCause, StatusDetails},
};
use serde_json::{Value, json};
use tidings_kube::{
    correlator::Patch,
    recorder::{BroadcasterOptions, EventBroadcaster, EventSink, RetryPolicy, SinkError},
};
use tokio::time::{Instant, sleep_until};

use super::{
    correlator::options,
    recorder::pruned_event,
    vector::{Vector, virtual_time},
};

/// The first wait is this part of the sleep.
const RANDOM: f64 = 0.37;
/// The grain of Tokio's timers.
const GRAIN: Duration = Duration::from_millis(2);

/// An API server whose answers are written down.
struct Script {
    state: Mutex<State>,
    sleep: Duration,
}

struct State {
    answers: VecDeque<Value>,
    calls: Vec<Value>,
    last: Instant,
}

impl Script {
    fn call(&self, op: &str, event: &Event, patch: Option<Value>) -> Result<Event, SinkError> {
        let mut state = self.state.lock().unwrap();
        let waited = state.last.elapsed();
        state.last = Instant::now();
        let after = if waited < GRAIN {
            "at once".to_owned()
        } else if waited + GRAIN < self.sleep {
            "random below sleep".to_owned()
        } else if waited < self.sleep + GRAIN {
            "sleep".to_owned()
        } else {
            format!("{waited:?}")
        };
        let mut call = json!({"after": after, "op": op, "event": pruned_event(event)});
        if let Some(patch) = patch {
            call["patch"] = patch;
        }
        state.calls.push(call);
        let answer = state.answers.pop_front();
        answer_to(event, &answer.unwrap_or_else(|| json!({"ok": {"resourceVersion": "1"}})))
    }
}

impl EventSink for Script {
    async fn create(&self, event: &Event) -> Result<Event, SinkError> {
        self.call("create", event, None)
    }

    async fn patch(&self, event: &Event, patch: Option<&Patch>) -> Result<Event, SinkError> {
        let patch = patch.map_or(Value::Null, |patch| {
            serde_json::from_slice(&patch.to_bytes().unwrap()).unwrap()
        });
        self.call("patch", event, Some(patch))
    }
}

fn answer_to(event: &Event, answer: &Value) -> Result<Event, SinkError> {
    let (kind, answer) = answer.as_object().and_then(|members| members.iter().next()).unwrap();
    let text = || answer.as_str().unwrap_or("as the vector has it").to_owned();
    match kind.as_str() {
        "ok" => {
            let mut stored = event.clone();
            let of = |member: &str| answer[member].as_str().map(str::to_owned);
            stored.metadata.resource_version = of("resourceVersion");
            stored.metadata.name = of("name").or(stored.metadata.name);
            stored.count = answer["count"].as_i64().map(|n| n as i32).or(stored.count);
            Ok(stored)
        }
        "status" => Err(SinkError::status(status(answer))),
        "wrapped_status" => Err(SinkError::Other(Box::new(SinkError::status(status(answer))))),
        "transport" => Err(SinkError::Other(text().into())),
        "request_construction" => Err(SinkError::RequestConstruction(text())),
        "unexpected_object" => Err(SinkError::UnexpectedObject(text())),
        other => panic!("an answer of the kind {other:?}"),
    }
}

/// The status that an answer of a vector stands for.
pub(crate) fn status(answer: &Value) -> Status {
    let cause = |cause: &Value| {
        let reason = cause.as_str().or(cause["reason"].as_str()).or(cause["type"].as_str());
        let reason = reason.unwrap_or_default().to_owned();
        StatusCause { reason, message: String::new(), field: String::new() }
    };
    Status {
        code: answer["code"].as_u64().unwrap_or_default() as u16,
        reason: answer["reason"].as_str().unwrap_or_default().to_owned(),
        details: answer["causes"].as_array().map(|causes| StatusDetails {
            causes: causes.iter().map(cause).collect(),
            ..serde_json::from_value(json!({})).unwrap()
        }),
        ..Status::default()
    }
}

pub(crate) fn drive(vector: &Vector) -> Result<Vec<Value>, String> {
    virtual_time(async {
        let sleep_for =
            Duration::from_millis(vector.options["sleep_ms"].as_u64().unwrap_or(10_000));
        // A part of a sleep that is as short as a tick of the clock would look like the whole.
        let sleep_for = if sleep_for < GRAIN * 100 { sleep_for * 1000 } else { sleep_for };
        let max_tries = vector.options["max_tries"].as_u64().unwrap_or(12) as u32;
        let (start, base) = (Instant::now(), vector.clock(0, 0));
        let correlator = vector.options["correlator"].clone();
        let broadcaster = EventBroadcaster::new(BroadcasterOptions {
            correlator: Arc::new(move || options(&correlator)),
            retry: RetryPolicy::ClientGo { sleep: sleep_for },
            max_tries,
            clock: Arc::new(move || base + start.elapsed()),
            random: Arc::new(|| RANDOM),
            ..BroadcasterOptions::default()
        });
        let state = State { answers: VecDeque::new(), calls: Vec::new(), last: start };
        let script = Arc::new(Script { state: Mutex::new(state), sleep: sleep_for });
        let sink = Arc::clone(&script);
        let recording =
            broadcaster.start_recording_to_sink(sink).await.map_err(|e| e.to_string())?;

        let mut all = Vec::new();
        for (done, step) in (1..).zip(&vector.steps) {
            let at = step["at_ms"].as_u64().unwrap_or_default();
            sleep_until(start + Duration::from_millis(at)).await;
            {
                let mut state = script.state.lock().unwrap();
                state.answers = step["answers"].as_array().cloned().unwrap_or_default().into();
                state.last = Instant::now();
            }
            let event = serde_json::from_value(step["event"].clone());
            broadcaster.forward(event.map_err(|error| error.to_string())?);
            broadcaster.flush().await.map_err(|error| error.to_string())?;
            if recording.counts().total() != done {
                return Err("the recording ended".into());
            }
            let calls = std::mem::take(&mut script.state.lock().unwrap().calls);
            all.push(json!({"calls": calls}));
        }
        Ok(all)
    })
}
