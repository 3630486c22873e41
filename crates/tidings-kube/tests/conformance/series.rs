//! `series`: the events.k8s.io/v1 recorder, with the calls of a whole run.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};
use tidings_kube::recorder::{
    RetryPolicy, SinkError,
    events_v1::{EventBroadcaster, EventBroadcasterOptions, EventSink, RecordingOptions},
};
use tokio::{
    task::yield_now,
    time::{Instant, sleep_until},
};

use crate::{
    compare::{Difference, pruned, without_information},
    sink::status,
    vector::Vector,
};

pub(crate) fn drive(vector: &Vector) -> Result<Vec<Value>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(run(vector))
}

async fn run(vector: &Vector) -> Result<Vec<Value>, String> {
    let start = Instant::now();
    let at = |ms: &Value| start + Duration::from_millis(ms.as_u64().unwrap_or(0));
    let base = vector.clock(0, 0);
    let broadcaster = EventBroadcaster::new(EventBroadcasterOptions {
        clock: Arc::new(move || base + start.elapsed()),
        ..EventBroadcasterOptions::default()
    });
    let server = ApiServer(Arc::new(Mutex::new(Script {
        start,
        answers: VecDeque::new(),
        calls: Vec::new(),
    })));
    broadcaster
        .start_recording_to_sink(server.clone(), options(&vector.options))
        .await
        .map_err(|error| error.to_string())?;
    for step in &vector.steps {
        sleep_until(at(&step["at_ms"])).await;
        // What is due at the same time comes before the step.
        for _ in 0..1000 {
            yield_now().await;
        }
        let answers = step["answers"].as_array().into_iter().flatten().cloned();
        server.0.lock().unwrap().answers.extend(answers);
        let event: Event =
            serde_json::from_value(step["event"].clone()).map_err(|error| error.to_string())?;
        broadcaster.forward(event);
    }
    sleep_until(at(&vector.input["until_ms"])).await;
    for _ in 0..1000 {
        yield_now().await;
    }
    let calls = std::mem::take(&mut server.0.lock().unwrap().calls);
    Ok(calls)
}

fn options(options: &Value) -> RecordingOptions {
    let default = RecordingOptions::default();
    let ms = |name: &str, default: Duration| {
        options[name].as_u64().map_or(default, Duration::from_millis)
    };
    RecordingOptions {
        max_tries: options["max_tries"].as_u64().map_or(default.max_tries, |n| n as u32),
        retry: options["sleep_ms"]
            .as_u64()
            .map_or(default.retry, |ms| RetryPolicy::ClientGo { sleep: Duration::from_millis(ms) }),
        refresh_interval: ms("refresh_ms", default.refresh_interval),
        finish_interval: ms("finish_ms", default.finish_interval),
        ..default
    }
}

/// Answers what the vector says, in the order of the calls, and remembers them.
#[derive(Clone)]
struct ApiServer(Arc<Mutex<Script>>);

struct Script {
    start: Instant,
    answers: VecDeque<Value>,
    calls: Vec<Value>,
}

impl ApiServer {
    fn call(&self, op: &str, event: &Event, patch: Option<&Value>) -> Result<Event, SinkError> {
        let mut script = self.0.lock().unwrap();
        let mut call = json!({
            "at_ms": script.start.elapsed().as_millis() as u64,
            "op": op,
            "event": without_type(pruned(serde_json::to_value(event).unwrap())),
        });
        if let Some(patch) = patch {
            call["patch"] = patch.clone();
        }
        script.calls.push(call);
        answer(event, &script.answers.pop_front().unwrap_or(Value::Null))
    }
}

/// Rust's typed objects always say what they are, Go's do not.
fn without_type(mut event: Value) -> Value {
    let members = event.as_object_mut().unwrap();
    members.retain(|name, _| name != "apiVersion" && name != "kind");
    event
}

fn answer(event: &Event, answer: &Value) -> Result<Event, SinkError> {
    if let Some(answer) = answer.get("status") {
        return Err(SinkError::status(status(answer)));
    }
    if let Some(answer) = answer.get("wrapped_status") {
        return Err(SinkError::Other(Box::new(SinkError::status(status(answer)))));
    }
    if let Some(why) = answer.get("transport") {
        return Err(SinkError::Other(Box::new(io::Error::other(why.to_string()))));
    }
    if answer.get("request_construction").is_some() {
        return Err(SinkError::RequestConstruction("as the vector says".into()));
    }
    if answer.get("unexpected_object").is_some() {
        return Err(SinkError::UnexpectedObject("as the vector says".into()));
    }
    let ok = &answer["ok"];
    let mut event = event.clone();
    event.metadata.resource_version = Some(ok["resourceVersion"].as_str().unwrap_or("1").into());
    if let Some(name) = ok["name"].as_str() {
        event.metadata.name = Some(name.into());
    }
    if let (Some(count), Some(series)) = (ok["count"].as_i64(), &mut event.series) {
        series.count = count as i32;
    }
    Ok(event)
}

impl EventSink for ApiServer {
    async fn create(&self, event: &Event) -> Result<Event, SinkError> {
        self.call("create", event, None)
    }

    async fn patch(&self, event: &Event, patch: &Value) -> Result<Event, SinkError> {
        self.call("patch", event, Some(patch))
    }
}

/// A `retry` comes 10 to 12.5 s after an earlier call for the same event (others may have come
/// between), a call `at_once` at the same time as the one before; any other at its `at_ms`. Calls of
/// one instant may come in any order: client-go walks through a map, and gives each event a
/// goroutine.
pub(crate) fn compare(expected: &[Value], actual: &[Value]) -> Result<(), Difference> {
    let mut left: Vec<&Value> = actual.iter().collect();
    // The calls found so far, for what comes after them.
    let mut found: Vec<&Value> = Vec::new();
    for (i, expected) in expected.iter().enumerate() {
        let wanted = without_information(expected.clone());
        let at = left.iter().position(|call| same(&wanted, call) && on_time(&wanted, call, &found));
        let Some(at) = at else {
            let what = format!("call {i}: expected {wanted}\n    but left are {}", json!(left));
            return Err(Difference { step: None, what });
        };
        found.push(left.remove(at));
    }
    match left.first() {
        None => Ok(()),
        Some(call) => Err(Difference { step: None, what: format!("not expected: {call}") }),
    }
}

fn same(wanted: &Value, call: &Value) -> bool {
    ["op", "event", "patch"].iter().all(|member| wanted.get(member) == call.get(member))
}

fn on_time(wanted: &Value, call: &Value, found: &[&Value]) -> bool {
    let ms = |call: &Value| call["at_ms"].as_u64();
    let name = |call: &Value| call["event"]["metadata"]["name"].clone();
    let mut since = found
        .iter()
        .rev()
        .filter(|before| name(before) == name(wanted))
        .filter_map(|before| ms(call)?.checked_sub(ms(before)?));
    if wanted.get("retry").is_some() {
        return since.any(|since| (10_000..=12_500).contains(&since));
    }
    match ms(wanted) {
        Some(at) => ms(call) == Some(at),
        None => since.next() == Some(0),
    }
}
