//! `indexer` and `lister`: a store with its indexes, and what is selected from it by names and labels.

use std::{collections::BTreeMap, sync::Arc};

use kube::core::{Expression, Selector};
use kube_machinery::cache::{
    IndexError, Indexers, Lister, NAMESPACE_INDEX, Object, StoreWriter, meta_namespace_key,
    namespace_index_func, split_meta_namespace_key,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    compare::{Difference, step_by_step},
    vector::Vector,
};

pub(crate) fn drive(vector: &Vector) -> Result<Vec<Value>, String> {
    let store = StoreWriter::new(indexers(&vector.options["indexes"]));
    vector.steps.iter().map(|step| play(&store, step)).collect()
}

/// An error is one in any words.
pub(crate) fn compare(expected: &[Value], actual: &[Value]) -> Result<(), Difference> {
    let mut expected = expected.to_vec();
    for error in expected.iter_mut().filter_map(|answer| answer.get_mut("error")) {
        *error = true.into();
    }
    step_by_step(&expected, actual)
}

/// An object, which says itself what its indexes make of it.
#[derive(Deserialize)]
struct Indexed {
    key: String,
    #[serde(default)]
    rv: String,
    #[serde(default)]
    values: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl Object for Indexed {
    fn namespace(&self) -> Option<&str> {
        split_meta_namespace_key(&self.key)?.0
    }

    fn name(&self) -> &str {
        split_meta_namespace_key(&self.key).map_or("", |(_, name)| name)
    }

    fn uid(&self) -> Option<&str> {
        None
    }

    fn resource_version(&self) -> &str {
        &self.rv
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

fn indexers(names: &Value) -> Indexers<Indexed> {
    let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
    names.fold(Indexers::new(), |indexers, name| {
        if name == NAMESPACE_INDEX {
            return indexers.with(name, namespace_index_func);
        }
        let index = name.to_owned();
        indexers.with(name, move |of: &Indexed| of.values.get(&index).cloned().unwrap_or_default())
    })
}

fn play(store: &StoreWriter<Indexed>, step: &Value) -> Result<Value, String> {
    let text = |member: &str| step[member].as_str().unwrap_or_default();
    let (index, value) = (text("index"), text("value"));
    Ok(match text("op") {
        "add" => {
            store.add(object(step)?);
            json!({})
        }
        "update" => {
            store.update(object(step)?);
            json!({})
        }
        "delete" => {
            store.delete(text("key"));
            json!({})
        }
        "replace" => {
            let items = step["items"].as_array().into_iter().flatten().map(object);
            store.replace(items.collect::<Result<_, _>>()?);
            json!({})
        }
        "get" => match store.get_by_key(text("key")) {
            Some(found) => json!({ "exists": true, "rv": found.rv }),
            None => json!({ "exists": false }),
        },
        "list" => objects(&store.list()),
        "list_keys" => keys(store.list_keys()),
        "index" => or_error(store.index(index, &*object(step)?), |found| objects(&found)),
        "by_index" => or_error(store.by_index(index, value), |found| objects(&found)),
        "index_keys" => or_error(store.index_keys(index, value), keys),
        "values" => json!({ "values": sorted(store.index_func_values(index)) }),
        "indexers" => json!({ "indexes": store.indexers().names().collect::<Vec<_>>() }),
        "add_indexers" => or_error(store.add_indexers(indexers(&step["indexes"])), |()| json!({})),
        "select" => select(store, step)?,
        op => return Err(format!("unknown op {op:?}")),
    })
}

fn select(store: &StoreWriter<Indexed>, step: &Value) -> Result<Value, String> {
    let requirements = step["selector"].as_array().into_iter().flatten();
    let selector: Selector = requirements.map(expression).collect::<Result<_, _>>()?;
    let lister = Lister::new(store.store());
    let one = |found: Option<Arc<Indexed>>| match found {
        Some(found) => objects(&[found]),
        None => json!({ "error": true }),
    };
    Ok(match (step["namespace"].as_str(), step["name"].as_str()) {
        (Some(namespace), Some(name)) => one(lister.namespace(namespace).get(name)),
        (None, Some(name)) => one(lister.get(name)),
        (Some(namespace), None) => objects(&lister.namespace(namespace).list(&selector)),
        (None, None) => objects(&lister.list(&selector)),
    })
}

fn expression(of: &Value) -> Result<Expression, String> {
    let key = of["key"].as_str().unwrap_or_default().to_owned();
    let values: Vec<String> = of["values"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(Into::into)
        .collect();
    let value = values.first().cloned().unwrap_or_default();
    Ok(match of["op"].as_str() {
        Some("=" | "==") => Expression::Equal(key, value),
        Some("!=") => Expression::NotEqual(key, value),
        Some("in") => Expression::In(key, values.into_iter().collect()),
        Some("notin") => Expression::NotIn(key, values.into_iter().collect()),
        Some("exists") => Expression::Exists(key),
        Some("!") => Expression::DoesNotExist(key),
        _ => return Err(format!("unknown requirement {of}")),
    })
}

fn object(of: &Value) -> Result<Arc<Indexed>, String> {
    serde_json::from_value(of.clone()).map(Arc::new).map_err(|error| format!("{of}: {error}"))
}

fn or_error<T>(found: Result<T, IndexError>, shown: impl FnOnce(T) -> Value) -> Value {
    found.map_or_else(|_| json!({ "error": true }), shown)
}

fn objects(objects: &[Arc<Indexed>]) -> Value {
    let shown = objects.iter().map(|of| format!("{}@{}", meta_namespace_key(&**of), of.rv));
    json!({ "objects": sorted(shown.collect()) })
}

fn keys(keys: Vec<String>) -> Value {
    json!({ "keys": sorted(keys) })
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}
