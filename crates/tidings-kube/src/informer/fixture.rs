//! Objects for tests.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::object::{Object, split_meta_namespace_key};

/// An object with a key and a version.
pub(super) fn config_map(key: &str, version: u64) -> ConfigMap {
    labelled(key, version, &[])
}

/// The same, with labels.
pub(super) fn labelled(key: &str, version: u64, labels: &[(&str, &str)]) -> ConfigMap {
    let (namespace, name) = split_meta_namespace_key(key).unwrap();
    let labels: serde_json::Map<_, _> =
        labels.iter().map(|&(key, value)| (key.to_owned(), value.into())).collect();
    let metadata = json!({
        "namespace": namespace, "name": name, "resourceVersion": version.to_string(), "labels": labels,
    });
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

pub(super) fn version(object: &ConfigMap) -> u64 {
    Object::resource_version(object).parse().unwrap()
}
