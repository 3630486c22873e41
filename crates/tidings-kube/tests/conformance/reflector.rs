//! `reflector`: the requests that a reflector makes of a scripted API server, and what it tells its
//! store.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ApiResource;
use serde_json::{Map, Value, json};
use tidings_kube::reflector::{Reflector, ReflectorOptions, ResourceApi};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    compare::Difference,
    replies::reply,
    scripted::{Answer, Request, ScriptedServer},
    told::Told,
    vector::{Vector, virtual_time},
};

/// The grain of Tokio's timers.
const GRAIN_MS: f64 = 2.0;
/// A reflector that has not asked for everything by then will not.
const AT_MOST: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn drive(vector: &Vector) -> Result<Vec<Value>, String> {
    let mut replies = Vec::new();
    for step in &vector.steps {
        replies.push(reply(step)?);
    }
    let options = options(vector)?;
    virtual_time(async {
        let start = Instant::now();
        let (answers, busy): (Vec<Answer>, Vec<Duration>) = replies.into_iter().unzip();
        let server = ScriptedServer::script(answers);
        let store = Told::default();
        let api = ResourceApi::new(server.client(), &ApiResource::erase::<ConfigMap>(&()));
        let reflector = Reflector::new(api, store.clone(), options);
        let health = reflector.health();
        let running = tokio::spawn(reflector.run());
        let asked_for_all = timeout(AT_MOST, server.until_requests(busy.len())).await.is_ok();
        let settled = Duration::from_millis(1);
        if let Some(busy) = busy.last().filter(|_| asked_for_all) {
            sleep(*busy + settled).await;
        }
        if let Some(until) = vector.input["until_ms"].as_u64() {
            sleep_until(start + Duration::from_millis(until) + settled).await;
        }
        running.abort();
        // What is asked for beyond the script is never answered.
        let calls = server.requests().iter().take(busy.len()).map(call).collect::<Vec<_>>();
        let last = health.lock().unwrap().last_sync_resource_version.clone();
        let store = store.lines();
        Ok(vec![json!({"calls": calls, "store": store, "last_sync_resource_version": last})])
    })
}

fn options(vector: &Vector) -> Result<ReflectorOptions, String> {
    let mut options = ReflectorOptions::default();
    if vector.steps.first().is_some_and(|step| step.get("watch").is_some()) {
        options.streaming_lists = true;
    }
    for (name, value) in vector.options.as_object().into_iter().flatten() {
        let ms = || {
            let ms = value.as_u64().ok_or_else(|| format!("{name} is {value}"));
            ms.map(Duration::from_millis)
        };
        match &**name {
            "watch_list_page_size" | "page_size" => {
                options.page_size = value.as_u64().and_then(|size| u32::try_from(size).ok());
            }
            "resync_ms" => options.resync_period = Some(ms()?).filter(|ms| !ms.is_zero()),
            "max_internal_error_retry_ms" => options.max_internal_error_retry = ms()?,
            "min_watch_timeout_ms" => options.min_watch_timeout = ms()?,
            "watch_list" | "use_watch_list" => {
                options.streaming_lists = value.as_bool().unwrap_or(false);
            }
            _ => return Err(format!("unknown option {name:?}")),
        }
    }
    Ok(options)
}

/// A request as a vector states it.
fn call(request: &Request) -> Value {
    let verb = if request.is_watch() { "watch" } else { "list" };
    let mut call = Map::new();
    call.insert("verb".to_owned(), verb.into());
    call.insert("after_ms".to_owned(), (request.since_last_action.as_secs_f64() * 1e3).into());
    for (name, value) in request.query.iter().filter(|(name, _)| *name != "watch") {
        let plain = match &**name {
            "limit" | "timeoutSeconds" | "allowWatchBookmarks" | "sendInitialEvents" => {
                serde_json::from_str(value).unwrap()
            }
            _ => Value::from(value.clone()),
        };
        call.insert(name.clone(), plain);
    }
    call.into()
}

/// The calls one by one: those that are to come at a time, and those with a parameter in a range,
/// fit or do not; all the rest is compared as JSON.
pub(crate) fn compare(expected: &[Value], actual: &[Value]) -> Result<(), Difference> {
    let differ = |what: String| Difference { step: None, what };
    let ([expected], [actual]) = (expected, actual) else {
        return Err(differ("not one outcome".into()));
    };
    let list = |of: &Value| of["calls"].as_array().cloned().unwrap_or_default();
    let (wanted, calls) = (list(expected), list(actual));
    for (at, (wanted, call)) in wanted.iter().zip(&calls).enumerate() {
        if !fits(wanted.clone(), call.clone()) {
            let what = format!("call {at}: expected {wanted}\n    but got  {call}");
            return Err(Difference { step: Some(at), what });
        }
    }
    if wanted.len() != calls.len() {
        return Err(differ(format!("expected {} calls, got {calls:?}", wanted.len())));
    }
    for member in ["store", "last_sync_resource_version"] {
        if expected.get(member).is_some_and(|expected| *expected != actual[member]) {
            let (expected, actual) = (&expected[member], &actual[member]);
            return Err(differ(format!("expected {expected}\n    but got  {actual}")));
        }
    }
    Ok(())
}

fn fits(mut wanted: Value, mut call: Value) -> bool {
    let take = |of: &mut Value, member: &str| of.as_object_mut().unwrap().remove(member);
    let min = take(&mut wanted, "after_min_ms").and_then(|ms| ms.as_f64()).unwrap_or(0.0);
    let below = take(&mut wanted, "after_below_ms").and_then(|ms| ms.as_f64()).unwrap_or(min);
    let after = take(&mut call, "after_ms").and_then(|ms| ms.as_f64()).unwrap();
    let in_time = after >= min && after < below.max(min) + GRAIN_MS;
    let seconds = wanted["timeoutSeconds"].as_str().map(str::to_owned);
    let in_range = match seconds.as_deref().and_then(|range| range.split_once("..")) {
        Some((least, most)) => {
            let range = least.parse::<u64>().unwrap()..=most.parse().unwrap();
            take(&mut wanted, "timeoutSeconds");
            let seconds = take(&mut call, "timeoutSeconds");
            seconds.and_then(|s| s.as_u64()).is_some_and(|s| range.contains(&s))
        }
        None => true,
    };
    in_time && in_range && wanted == call
}
