//! What a vector's API server replies, as answers of the scripted one. Objects are config maps.

use std::{io, time::Duration};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::scripted::{Answer, Ending};

/// The reply of a step `list` or `watch`, and how long the server is busy with it.
pub(crate) fn reply(step: &Value) -> Result<(Answer, Duration), String> {
    let (verb, reply) = match step.as_object().and_then(|step| step.iter().next()) {
        Some((verb, reply)) if matches!(&**verb, "list" | "watch") => (&**verb, reply),
        _ => return Err(format!("no reply: {step}")),
    };
    if let Some(error) = reply.get("error") {
        return Ok((refusal(error)?, Duration::ZERO));
    }
    match verb {
        "list" => list(reply).map(|answer| (answer, Duration::ZERO)),
        _ => watch(reply),
    }
}

fn list(list: &Value) -> Result<Answer, String> {
    only(list, &["items", "resourceVersion", "continue"])?;
    let items = list["items"].as_array().into_iter().flatten();
    let item =
        |item: &Value| json!({"metadata": {"name": item["key"], "resourceVersion": item["rv"]}});
    let items: Vec<Value> = items.map(item).collect();
    let text = |member: &str| list[member].as_str().unwrap_or_default();
    Ok(Answer::list(&items, text("resourceVersion"), text("continue")))
}

fn watch(watch: &Value) -> Result<(Answer, Duration), String> {
    only(watch, &["events", "close_after_ms"])?;
    let mut pieces = Vec::new();
    for event in watch["events"].as_array().into_iter().flatten() {
        only(event, &["after_ms", "type", "name", "rv", "annotations", "status", "kind"])?;
        let after = Duration::from_millis(event["after_ms"].as_u64().unwrap_or(0));
        let object = match event.get("status") {
            Some(status) => status_object(status),
            None => object(event),
        };
        let line = json!({"type": event["type"], "object": object}).to_string() + "\n";
        pieces.push((after, Bytes::from(line)));
    }
    let close = watch["close_after_ms"].as_u64().map(Duration::from_millis);
    let busy = pieces.iter().map(|(after, _)| *after).sum::<Duration>() + close.unwrap_or_default();
    Ok((Answer::stream(pieces, close.map_or(Ending::Open, Ending::Close)), busy))
}

fn object(event: &Value) -> Value {
    let mut metadata = Map::new();
    for (member, of) in
        [("name", "name"), ("resourceVersion", "rv"), ("annotations", "annotations")]
    {
        if let Some(value) = event.get(of) {
            metadata.insert(member.to_owned(), value.clone());
        }
    }
    let kind = event.get("kind").cloned().unwrap_or_else(|| "ConfigMap".into());
    json!({"kind": kind, "apiVersion": "v1", "metadata": metadata})
}

fn refusal(error: &Value) -> Result<Answer, String> {
    if let Some(status) = error.get("status") {
        return Ok(Answer::status(&status_object(status)));
    }
    Ok(Answer::Unreachable(match error["transport"].as_str() {
        Some("connection refused") => io::ErrorKind::ConnectionRefused,
        Some("connection reset by peer") => io::ErrorKind::ConnectionReset,
        Some("EOF" | "unexpected EOF") => io::ErrorKind::UnexpectedEof,
        Some("i/o timeout") => io::ErrorKind::TimedOut,
        _ => return Err(format!("unknown error {error}")),
    }))
}

fn status_object(status: &Value) -> Value {
    let mut object = status.clone();
    let mut details = Map::new();
    for (member, of) in [("causes", "causes"), ("retryAfterSeconds", "retry_after_seconds")] {
        if let Some(value) = status.get(of) {
            details.insert(member.to_owned(), value.clone());
        }
    }
    object["kind"] = "Status".into();
    object["apiVersion"] = "v1".into();
    if !details.is_empty() {
        object["details"] = details.into();
    }
    object
}

/// A member that is not known here would be left out silently.
fn only(of: &Value, members: &[&str]) -> Result<(), String> {
    let unknown =
        of.as_object().into_iter().flatten().find(|(name, _)| !members.contains(&&***name));
    unknown.map_or(Ok(()), |(name, _)| Err(format!("unknown member {name:?} in {of}")))
}
