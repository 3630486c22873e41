//! `fifo`: the queues between a reflector and an informer, before a store to which pops are applied.

use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::{Value, json};
use tidings_kube::{
    informer::{
        DeletedFinalStateUnknown, Delta, DeltaFifo, DeltaFifoOptions, DeltaObject, DeltaType,
        InOrderFifo, KnownObjects, PopError, Queue, Store, TransformError,
    },
    object::Object,
};

use crate::{
    compare::{Difference, step_by_step},
    vector::Vector,
};

pub(crate) fn drive(vector: &Vector) -> Result<Vec<Value>, String> {
    let store = Store::default();
    for item in vector.input["known"].as_array().into_iter().flatten() {
        store.add(Arc::new(Item::of(item)?));
    }
    let known: Arc<dyn KnownObjects<Item>> = Arc::new(store.clone());
    // As an informer sets it up.
    let delta = |known_objects| {
        let emit_delta_type_replaced = true;
        DeltaFifo::new(DeltaFifoOptions {
            known_objects,
            emit_delta_type_replaced,
            transformer: None,
        })
    };
    match vector.options["queue"].as_str() {
        Some("delta") => play(&delta(Some(known)), &store, &vector.steps),
        Some("delta_without_known") => play(&delta(None), &store, &vector.steps),
        Some("in_order") => play(&InOrderFifo::new(known, None), &store, &vector.steps),
        other => Err(format!("unknown queue {other:?}")),
    }
}

/// An error is one in any words.
pub(crate) fn compare(expected: &[Value], actual: &[Value]) -> Result<(), Difference> {
    let wordless = |answers: &[Value]| {
        let mut answers = answers.to_vec();
        for error in answers.iter_mut().filter_map(|answer| answer.get_mut("error")) {
            *error = true.into();
        }
        answers
    };
    step_by_step(&wordless(expected), &wordless(actual))
}

fn play(
    queue: &impl Queue<Item>,
    store: &Store<Item>,
    steps: &[Value],
) -> Result<Vec<Value>, String> {
    steps.iter().map(|step| answer(queue, store, step)).collect()
}

fn answer(queue: &impl Queue<Item>, store: &Store<Item>, step: &Value) -> Result<Value, String> {
    let done = match text(step, "op")? {
        "add" => queue.add(Item::of(step)?),
        "update" => queue.update(Item::of(step)?),
        "delete" => queue.delete(Item::of(step)?),
        "delete_tombstone" => {
            let object = Some(Arc::new(Item::of(step)?));
            let key = text(step, "key")?.to_owned();
            queue.delete_tombstone(DeletedFinalStateUnknown { key, object });
            Ok(())
        }
        "replace" => {
            let items = step["items"].as_array().into_iter().flatten();
            queue.replace(items.map(Item::of).collect::<Result<_, _>>()?)
        }
        "resync" => {
            queue.resync();
            Ok(())
        }
        "close" => {
            queue.close();
            Ok(())
        }
        "has_synced" => return Ok(json!({ "has_synced": queue.has_synced() })),
        "pop" => return pop(queue, store),
        other => return Err(format!("unknown op {other:?}")),
    };
    Ok(match done {
        Ok(()) => json!({}),
        Err(error @ TransformError { .. }) => json!({ "error": error.to_string() }),
    })
}

fn pop(queue: &impl Queue<Item>, store: &Store<Item>) -> Result<Value, String> {
    let process = |deltas: &[Delta<Item>], initial: bool| -> Result<Value, String> {
        for delta in deltas {
            apply(store, delta);
        }
        let deltas: Vec<_> = deltas.iter().map(shown).collect();
        Ok(json!({ "deltas": deltas, "is_in_initial_list": initial }))
    };
    match queue.pop(process).now_or_never().ok_or("the pop waits for something to come")? {
        Ok(popped) => Ok(popped),
        Err(PopError::Process(error)) => Err(error),
        Err(PopError::Closed) => Ok(json!({ "error": PopError::<String>::Closed.to_string() })),
    }
}

/// What an informer does to its store.
fn apply(store: &Store<Item>, delta: &Delta<Item>) {
    match (&delta.kind, &delta.object) {
        (DeltaType::Deleted, object) => {
            store.delete(&object.key());
        }
        (_, DeltaObject::Object(object)) => {
            store.add(Arc::clone(object));
        }
        (_, DeltaObject::Tombstone(_)) => {}
    }
}

fn shown(delta: &Delta<Item>) -> Value {
    let mut shown = json!({ "type": format!("{:?}", delta.kind), "key": delta.object.key() });
    if let Some(object) = delta.object.object() {
        shown["rv"] = object.rv.clone().into();
    }
    if delta.object.is_tombstone() {
        shown["tombstone"] = true.into();
    }
    shown
}

struct Item {
    key: String,
    rv: String,
}

impl Item {
    fn of(step: &Value) -> Result<Self, String> {
        Ok(Self { key: text(step, "key")?.to_owned(), rv: text(step, "rv")?.to_owned() })
    }
}

impl Object for Item {
    fn namespace(&self) -> Option<&str> {
        None
    }

    fn name(&self) -> &str {
        &self.key
    }

    fn uid(&self) -> Option<&str> {
        None
    }

    fn resource_version(&self) -> &str {
        &self.rv
    }

    fn label(&self, _key: &str) -> Option<&str> {
        None
    }
}

fn text<'a>(of: &'a Value, member: &str) -> Result<&'a str, String> {
    of[member].as_str().ok_or_else(|| format!("no text {member:?} in {of}"))
}
