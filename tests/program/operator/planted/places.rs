//! The places of a configuration that can take a secret, by its schema.

use std::collections::BTreeMap;

use serde_json::Value;

/// Texts that are no secrets: names, words, paths of files, expressions, certificates, and addresses that
/// no key is part of.
const NO_SECRETS: [&str; 37] = [
    "cluster.labels.*",
    "cluster.name",
    "cluster.uid",
    "journal.path",
    "leaderElection.lease",
    "metrics[].labels.*",
    "metrics[].match",
    "metrics[].name",
    "objects.watch[]",
    "server.listen",
    "sinks.*.deadLetters.sink",
    "sinks.*.elasticsearch.dataStream",
    "sinks.*.elasticsearch.index",
    "sinks.*.elasticsearch.pipeline",
    "sinks.*.enrich.annotations[]",
    "sinks.*.enrich.labels[]",
    "sinks.*.file.path",
    "sinks.*.kafka.brokers[]",
    "sinks.*.kafka.topic",
    "sinks.*.loki.auth.oauth2.scope",
    "sinks.*.loki.labels.*",
    "sinks.*.loki.tenant",
    "sinks.*.match",
    "sinks.*.otlp.resource.*",
    "sinks.*.splunk.host",
    "sinks.*.splunk.index",
    "sinks.*.splunk.source",
    "sinks.*.splunk.sourcetype",
    "sinks.*.syslog.address",
    "sinks.*.syslog.appName",
    "sinks.*.webhook.auth.oauth2.scope",
    "sinks.*.webhook.retryWhen",
    "sinks.*.webhook.success",
    "source.fieldSelector",
    "source.kubeconfig",
    "source.namespaces[]",
    "telemetry.otlp.resource.*",
];
/// The same of every kind of sink.
const NO_SECRETS_OF_TLS: [&str; 3] = [".tls.ca", ".tls.cert", ".tls.serverName"];

/// Every place that can take a secret, and in which a configuration has none by reference.
pub(super) fn without_secret(config: &str) -> Vec<String> {
    let schema = include_str!("../../../../config/schema.json");
    let schema: Value = serde_json::from_str(schema).unwrap();
    let config: Value = serde_saphyr::from_str(config).unwrap();
    let mut places = BTreeMap::new();
    walk(&schema, &schema, &[&config], "", &mut places);
    for place in NO_SECRETS {
        assert!(
            places.remove(place).is_some(),
            "{place} is no place of the schema that takes a text"
        );
    }
    places.retain(|place, _| !NO_SECRETS_OF_TLS.iter().any(|end| place.ends_with(end)));
    places.into_iter().filter(|(_, planted)| !planted).map(|(place, _)| place).collect()
}

/// Notes the places below a part of the schema, and whether one of the values there is a reference.
fn walk(
    schema: &Value,
    part: &Value,
    values: &[&Value],
    path: &str,
    places: &mut BTreeMap<String, bool>,
) {
    if !part.is_object() {
        return;
    }
    match part["$ref"].as_str().map(|name| name.trim_start_matches("#/$defs/")) {
        Some("Text") => {
            let refers = |value: &&Value| value.get("env").is_some() || value.get("file").is_some();
            *places.entry(path.to_owned()).or_default() |= values.iter().any(refers);
            return;
        }
        Some(name) => walk(schema, &schema["$defs"][name], values, path, places),
        None => {}
    }
    for (key, part) in part["properties"].as_object().into_iter().flatten() {
        let below: Vec<_> = values.iter().filter_map(|value| value.get(key)).collect();
        let dot = if path.is_empty() { "" } else { "." };
        walk(schema, part, &below, &format!("{path}{dot}{key}"), places);
    }
    let objects = values.iter().filter_map(|value| value.as_object());
    let below: Vec<_> = objects.flat_map(serde_json::Map::values).collect();
    walk(schema, &part["additionalProperties"], &below, &format!("{path}.*"), places);
    let lists = values.iter().filter_map(|value| value.as_array());
    let below: Vec<_> = lists.flatten().collect();
    walk(schema, &part["items"], &below, &format!("{path}[]"), places);
    for alternative in part["anyOf"].as_array().into_iter().flatten() {
        walk(schema, alternative, values, path, places);
    }
}
