//! The index template for ECS documents.
//!
//! Every field is declared and no other is added: whoever may write Events cannot fill the mapping. Labels are one
//! field, `flattened` or `flat_object`, whatever their keys: as an object, `app` beside `app.kubernetes.io/name` would be a
//! text and an object of the same name, and the second document would be refused.
//!
//! OpenSearch refuses a document with a value of more than 32 KiB in a `flat_object`, and an annotation may be longer. So
//! annotations are kept there and not searched.

use serde_json::{Map, Value, json};

use crate::encode::kind_words;

/// The program that an index template is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Product {
    Elasticsearch,
    OpenSearch,
}

/// Longer texts are kept, but not found by their value: Lucene has no term of more than 32 766 bytes.
const IGNORE_ABOVE: u64 = 1024;
/// Higher than 100, that of the built-in template of Elasticsearch for `logs-*-*`.
const PRIORITY: u64 = 200;

/// The body of `PUT _index_template/<name>`.
pub(crate) fn index_template(pattern: &str, product: Product, is_data_stream: bool) -> Value {
    let mut template = json!({
        "index_patterns": [pattern],
        "priority": PRIORITY,
        "template": { "mappings": { "dynamic": false, "properties": properties(product) } },
        "_meta": { "description": "Kubernetes Events, as Tidings writes them in ECS" },
    });
    if is_data_stream {
        template["data_stream"] = json!({});
    }
    template
}

fn properties(product: Product) -> Value {
    let keyword = || json!({ "type": "keyword", "ignore_above": IGNORE_ABOVE });
    let (text, long, boolean) =
        (json!({ "type": "text" }), json!({ "type": "long" }), json!({ "type": "boolean" }));
    // The API server takes years that Elasticsearch does not.
    let date = json!({ "type": "date", "ignore_malformed": true });
    let flat = match product {
        Product::Elasticsearch => json!({ "type": "flattened", "ignore_above": IGNORE_ABOVE }),
        Product::OpenSearch => json!({ "type": "flat_object" }),
    };
    let annotations = match product {
        Product::Elasticsearch => flat.clone(),
        Product::OpenSearch => json!({ "type": "object", "enabled": false }),
    };
    let object = |fields: &[(&str, &Value)]| {
        let fields = fields.iter().map(|(name, field)| ((*name).to_owned(), (*field).clone()));
        json!({ "properties": fields.collect::<Map<_, _>>() })
    };
    let keywords = |names: &[&str]| {
        let keyword = keyword();
        object(&names.iter().map(|name| (*name, &keyword)).collect::<Vec<_>>())
    };
    let named = keywords(&["name", "uid"]);
    let mut kubernetes: Map<_, _> =
        kind_words().map(|word| (word.to_owned(), named.clone())).collect();
    kubernetes.extend([
        ("namespace".to_owned(), keyword()),
        ("container".to_owned(), keywords(&["name"])),
        ("labels".to_owned(), flat.clone()),
        ("annotations".to_owned(), annotations.clone()),
        (
            "event".to_owned(),
            object(&[
                ("reason", &keyword()),
                ("action", &keyword()),
                ("type", &keyword()),
                ("count", &long),
                ("reporting_controller", &keyword()),
                ("reporting_instance", &keyword()),
                ("source", &keywords(&["component", "host"])),
                (
                    "involved_object",
                    &keywords(&[
                        "api_version",
                        "kind",
                        "namespace",
                        "name",
                        "uid",
                        "resource_version",
                        "field_path",
                    ]),
                ),
                (
                    "metadata",
                    &object(&[
                        ("name", &keyword()),
                        ("namespace", &keyword()),
                        ("uid", &keyword()),
                        ("resource_version", &keyword()),
                        ("timestamp", &object(&[("created", &date)])),
                        ("labels", &flat),
                        ("annotations", &annotations),
                    ]),
                ),
                ("timestamp", &object(&[("first_occurrence", &date), ("last_occurrence", &date)])),
                (
                    "related",
                    &keywords(&[
                        "apiVersion",
                        "kind",
                        "namespace",
                        "name",
                        "uid",
                        "resourceVersion",
                        "fieldPath",
                    ]),
                ),
            ]),
        ),
    ]);
    json!({
        "@timestamp": { "type": "date" },
        "message": text,
        "ecs": keywords(&["version"]),
        "labels": flat,
        "log": keywords(&["level"]),
        "event": object(&[
            ("id", &keyword()),
            ("kind", &keyword()),
            ("module", &keyword()),
            ("dataset", &keyword()),
            ("type", &keyword()),
            ("action", &keyword()),
            ("code", &keyword()),
            ("provider", &keyword()),
            ("severity", &long),
            ("created", &date),
            ("start", &date),
        ]),
        "orchestrator": object(&[
            ("type", &keyword()),
            ("cluster", &keywords(&["id", "name"])),
            ("namespace", &keyword()),
            ("api_version", &keyword()),
            ("resource", &keywords(&["type", "name", "id"])),
        ]),
        "kubernetes": { "properties": kubernetes },
        "tidings": object(&[
            ("change", &keyword()),
            ("occurrences", &long),
            ("delta", &long),
            ("replayed", &boolean),
            ("truncated", &flat),
            ("owners", &keywords(&["apiVersion", "kind", "name", "uid"])),
            ("node_claimed", &boolean),
            ("missing", &keyword()),
            (
                "correlation",
                &object(&[
                    ("action", &keyword()),
                    ("aggregated", &boolean),
                    ("count", &long),
                    ("summarises", &long),
                    ("distinctMessages", &long),
                    ("messages", &object(&[("id", &keyword()), ("message", &text)])),
                ]),
            ),
            (
                "dead_letter",
                &object(&[
                    ("sink", &keyword()),
                    ("class", &keyword()),
                    ("reason", &text),
                    ("attempts", &long),
                    ("firstTime", &date),
                    ("time", &date),
                ]),
            ),
        ]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{encode::Format, event::Record};

    /// Every member that an envelope can have.
    const ENVELOPE: &str = r#"{"id":"0b8e-12",
        "cluster":{"name":"prod","uid":"c-1","labels":{"env":"prod"}},
        "change":"updated","time":"2026-11-21T10:00:00Z","observedTime":"2026-11-21T10:00:01.5Z",
        "occurrences":7,"delta":2,"replayed":true,"truncated":{"message":5},
        "correlation":{"action":"summary","aggregated":true,"count":9,"summarises":3,"distinctMessages":2,
            "messages":[{"id":"0b8e-11","message":"m"}]},
        "object":{"labels":{"app":"web","app.kubernetes.io/name":"web"},"annotations":{"a":"b"},
            "owners":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"r-1"}],
            "node":"node-1","nodeClaimed":true,"missing":"timeout"},
        "deadLetter":{"sink":"a","class":"invalid","reason":"r","attempts":1,
            "firstTime":"2026-11-21T10:00:00Z","time":"2026-11-21T10:00:01Z"},
        "event":{"kind":"Event","apiVersion":"v1",
            "metadata":{"name":"web-1.18ea","namespace":"shop","uid":"0b8e","resourceVersion":"12",
                "creationTimestamp":"2026-11-21T09:30:00Z","labels":{"app":"web"},"annotations":{"a":"b"}},
            "involvedObject":{"kind":"Pod","namespace":"shop","name":"web-1","uid":"p-1","apiVersion":"v1",
                "resourceVersion":"11","fieldPath":"spec.containers{app}"},
            "related":{"kind":"Node","name":"node-1"},"reason":"BackOff","action":"Pull","message":"m",
            "source":{"component":"kubelet","host":"node-1"},"firstTimestamp":"2026-11-21T09:30:00Z",
            "lastTimestamp":"2026-11-21T10:00:00Z","count":7,"type":"Warning","eventTime":null,
            "reportingComponent":"kubelet","reportingInstance":"node-1"}}"#;

    /// The leaves of a document for which a mapping has no field.
    fn undeclared(document: &Value, mapping: &Value, path: &str, found: &mut Vec<String>) {
        match (document, &mapping["properties"]) {
            (Value::Object(fields), Value::Object(declared)) => {
                for (name, value) in fields {
                    let path = format!("{path}.{name}");
                    match declared.get(name) {
                        Some(field) => undeclared(value, field, &path, found),
                        None => found.push(path),
                    }
                }
            }
            (Value::Array(items), Value::Object(_)) => {
                for item in items {
                    undeclared(item, mapping, path, found);
                }
            }
            (Value::Object(_), _)
                if !mapping["type"].as_str().unwrap().starts_with("flat")
                    && mapping["enabled"] != false =>
            {
                found.push(path.to_owned());
            }
            _ => {}
        }
    }

    #[test]
    fn a_template_declares_every_field_of_a_document() {
        let record = Record { seq: 1, envelope: ENVELOPE.replace('\n', "").into() };
        let document = serde_json::from_slice(&Format::Ecs.encode(&record).unwrap()).unwrap();
        for (product, flat) in
            [(Product::Elasticsearch, "flattened"), (Product::OpenSearch, "flat_object")]
        {
            let template = index_template("k8s-events-*", product, false);
            let mappings = &template["template"]["mappings"];
            let mut found = Vec::new();
            undeclared(&document, mappings, "", &mut found);
            assert_eq!(found, [""; 0]);
            let labels = &mappings["properties"]["kubernetes"]["properties"]["labels"];
            assert_eq!(labels["type"], flat);
        }
    }

    #[test]
    fn a_template_of_a_data_stream_says_so() {
        let of = |is_data_stream| index_template("logs-*", Product::OpenSearch, is_data_stream);
        assert_eq!(of(true)["data_stream"], json!({}));
        assert_eq!(of(false).get("data_stream"), None);
        assert_eq!(of(true)["index_patterns"], json!(["logs-*"]));
    }
}
