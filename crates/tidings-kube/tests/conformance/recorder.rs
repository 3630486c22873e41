//! `recorder`: what becomes of a call of `EventRecorder`.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kube::core::{DynamicObject, TypeMeta};
use serde_json::{Value, json};
use tidings_kube::recorder::{BroadcasterOptions, EventBroadcaster, EventRecorder};
use tokio::sync::mpsc;

use super::{
    compare::{Difference, pruned, step_by_step},
    vector::{Vector, virtual_time},
};

pub(crate) fn drive(vector: &Vector) -> Result<Vec<Value>, String> {
    virtual_time(async {
        let now = Arc::new(Mutex::new(vector.clock(0, 0)));
        let clock = Arc::clone(&now);
        let broadcaster = EventBroadcaster::new(BroadcasterOptions {
            clock: Arc::new(move || *clock.lock().unwrap()),
            ..BroadcasterOptions::default()
        });
        let (sender, mut events) = mpsc::unbounded_channel();
        let handler = move |event: &Event| sender.send(event.clone()).unwrap();
        broadcaster.start_event_watcher(handler).await.map_err(|e| e.to_string())?;
        let source = serde_json::from_value(vector.options["source"].clone());
        let recorder = broadcaster.new_recorder(source.map_err(|e| e.to_string())?);

        let mut answers = Vec::new();
        for step in &vector.steps {
            *now.lock().unwrap() = vector.clock_of(step);
            if step.get("shutdown").is_some() {
                broadcaster.shutdown().await;
                answers.push(json!(SHUTDOWN));
                continue;
            }
            let before = recorder.counts();
            record(&recorder, step)?;
            let counts = recorder.counts();
            if counts.recorded == before.recorded {
                assert_eq!(counts.dropped(), before.dropped() + 1, "a drop is counted");
                answers.push(json!({"dropped": true}));
            } else {
                answers.push(answer(&events.recv().await.ok_or("no event came")?));
            }
        }
        Ok(answers)
    })
}

fn record(recorder: &EventRecorder, step: &Value) -> Result<(), String> {
    let text = |member: &str| step[member].as_str().unwrap_or_default();
    let annotations: Option<_> =
        serde_json::from_value(step["annotations"].clone()).map_err(|e| e.to_string())?;
    let annotations = annotations.unwrap_or_default();
    let (event_type, reason, message) = (text("type"), text("reason"), text("message"));
    if let Some(reference) = step.get("reference") {
        let reference: Option<ObjectReference> =
            serde_json::from_value(reference.clone()).map_err(|e| e.to_string())?;
        recorder.event_of_type(&reference, annotations, event_type, reason, message);
    } else {
        let object = step.get("object").filter(|object| !object.is_null()).map(dynamic);
        recorder.event_of_type(&object.transpose()?, annotations, event_type, reason, message);
    }
    Ok(())
}

fn dynamic(object: &Value) -> Result<DynamicObject, String> {
    let text = |member: &str| object[member].as_str().unwrap_or_default().to_owned();
    let metadata: Option<_> =
        serde_json::from_value(object["metadata"].clone()).map_err(|e| e.to_string())?;
    Ok(DynamicObject {
        types: Some(TypeMeta { api_version: text("apiVersion"), kind: text("kind") }),
        metadata: metadata.unwrap_or_default(),
        data: Value::Null,
    })
}

fn answer(event: &Event) -> Value {
    let mut event = event.clone();
    let name = event.metadata.name.take_if(|name| is_random_uuid(name));
    let mut answer = json!({"dropped": false, "event": pruned_event(&event)});
    if name.is_some() {
        answer["name_is_uuid"] = true.into();
    }
    answer
}

pub(crate) fn pruned_event(event: &Event) -> Value {
    let mut event = serde_json::to_value(event).unwrap();
    // The vectors hold what Go has in memory, where the kind is not repeated.
    let members = event.as_object_mut().unwrap();
    members.remove("apiVersion");
    members.remove("kind");
    pruned(event)
}

fn is_random_uuid(name: &str) -> bool {
    let groups: Vec<&str> = name.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'))
        && groups[2].starts_with('4')
        && groups[3].starts_with(['8', '9', 'a', 'b'])
}

/// What stands for a step that records nothing.
const SHUTDOWN: &str = "shutdown";

/// Step by step; of a shutdown there is nothing to compare.
pub(crate) fn compare(expected: &[Value], actual: &[Value]) -> Result<(), Difference> {
    let nothing = |(expected, actual): (&Value, &Value)| {
        if actual == SHUTDOWN { actual.clone() } else { expected.clone() }
    };
    let shown = expected.iter().zip(actual).map(nothing);
    let rest = expected.iter().skip(actual.len()).cloned();
    step_by_step(&shown.chain(rest).collect::<Vec<_>>(), actual)
}
