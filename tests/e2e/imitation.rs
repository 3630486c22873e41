//! The in-process API server answers as the real one does: the same requests to both, the answers
//! side by side.

use std::time::Duration;

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tidings_testkit::api_server::{ApiServer as Imitation, Options};
use tokio::time::timeout;

use crate::parts::{ApiServer, ApiServerOptions, Etcd};

const OBJECT: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const WHOLE: &str = "application/json";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const STREAMING: &str =
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// What is asked of both, in this order. `{first}` is the version of the first object.
fn questions() -> Vec<(Method, String, &'static str, Value)> {
    let map = |name: &str, tier: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "<v>"},
               "metadata": {"name": name, "labels": {"tier": tier}, "annotations": {"n": "1"}}})
    };
    let maps = |query: &str| format!("{MAPS}?{query}");
    let get = |path: String, accept| (Method::GET, path, accept, Value::Null);
    let one = |name: &str| format!("{MAPS}/{name}");
    let stale = json!({"metadata": {"name": "a", "resourceVersion": "1"}});
    vec![
        (Method::POST, MAPS.into(), WHOLE, map("a", "front")),
        (Method::POST, MAPS.into(), WHOLE, map("b", "back")),
        (Method::POST, MAPS.into(), OBJECT, map("c", "front")),
        (Method::POST, MAPS.into(), WHOLE, map("a", "front")),
        get(one("a"), WHOLE),
        get(one("a"), OBJECT),
        get(one("a"), LIST),
        get(MAPS.into(), WHOLE),
        get(MAPS.into(), LIST),
        get(MAPS.into(), OBJECT),
        get(maps("limit=2"), LIST),
        get(maps("limit=1&resourceVersion=0"), LIST),
        get(maps("limit=1&resourceVersion={first}"), LIST),
        get(maps("limit=1&resourceVersion={first}&resourceVersionMatch=NotOlderThan"), LIST),
        get(maps("resourceVersion=99999999"), LIST),
        get(maps("labelSelector=tier%20in%20(front),!gone"), LIST),
        get(maps("fieldSelector=metadata.name%3Db"), WHOLE),
        get(maps("fieldSelector=spec.x%3Db"), WHOLE),
        get("/api/v1/pods?fieldSelector=spec.x%3Db".into(), WHOLE),
        get("/apis/apps/v1/deployments".into(), LIST),
        get("/apis/apps/v1/widgets".into(), WHOLE),
        get("/apis/apps/v1/namespaces/default/deployments/none".into(), WHOLE),
        get(maps("sendInitialEvents=true"), WHOLE),
        get(maps("watch=1&sendInitialEvents=true"), WHOLE),
        get(maps(STREAMING), WHOLE),
        get(maps(STREAMING), OBJECT),
        get(maps(&format!("{STREAMING}&labelSelector=tier%3Dback")), OBJECT),
        get(maps(&format!("{STREAMING}&resourceVersion=99999999")), OBJECT),
        get(maps("watch=1"), OBJECT),
        get(maps("watch=1&resourceVersion=0"), WHOLE),
        get(maps("watch=1&resourceVersion={first}"), OBJECT),
        get(maps("watch=1&resourceVersion=99999999"), OBJECT),
        (Method::PUT, one("a"), WHOLE, stale),
        (Method::PUT, one("a"), WHOLE, map("a", "middle")),
        (Method::PATCH, one("b"), OBJECT, json!({"metadata": {"labels": {"tier": null}}})),
        (Method::DELETE, one("c"), WHOLE, Value::Null),
        get(one("c"), WHOLE),
        get(maps("watch=1&labelSelector=tier%3Dfront&resourceVersion={first}"), OBJECT),
    ]
}

#[tokio::test]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn the_imitation_answers_as_the_real_server() {
    let etcd = Etcd::start().await;
    let server = ApiServer::start(&etcd, ApiServerOptions::default()).await;
    let real = server.client("admin").await;
    let imitation = Imitation::start(Options::default()).expect("a port");
    let mut config = kube::Config::new(imitation.url().parse().expect("a URL"));
    // As for the real one: what is refused is to be seen, not repeated.
    config.default_retry = false;
    let imitated = kube::Client::try_from(config).expect("a client");

    let (mut first, mut differences) = ([String::new(), String::new()], Vec::new());
    for (method, path, accept, body) in questions() {
        let mut answers = Vec::new();
        for (client, first) in [&real, &imitated].into_iter().zip(&mut first) {
            let path = path.replace("{first}", first);
            let answer = ask(client, &method, &path, accept, &body).await;
            if first.is_empty() {
                *first = version_in(&answer);
            }
            answers.push(comparable(answer));
        }
        if answers[0] != answers[1] {
            let [real, imitated] = [&answers[0], &answers[1]];
            differences.push(format!("{method} {path} as {accept}\n  {real}\n  {imitated}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn version_in(answer: &Value) -> String {
    answer["body"][0]["metadata"]["resourceVersion"].as_str().expect("a version").to_owned()
}

/// The code, the headers that matter and the JSON lines of an answer; of a watch those that come
/// within a second.
async fn ask(
    client: &kube::Client,
    method: &Method,
    path: &str,
    accept: &str,
    body: &Value,
) -> Value {
    let content = match *method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("accept", accept)
        .header("content-type", content)
        .body(Body::from(bytes))
        .expect("a request");
    let response = client.send(request).await.expect("an answer");
    let (head, mut body) = response.into_parts();
    let header =
        |name: &str| head.headers.get(name).map(|value| value.to_str().expect("text").to_owned());
    let mut text = Vec::new();
    // The real server takes 3 s until it says that a version lies in the future.
    let patience = if path.contains("99999999") { 5 } else { 1 };
    while let Ok(Some(Ok(frame))) = timeout(Duration::from_secs(patience), body.frame()).await {
        text.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(&text)
        .into_iter()
        .map(|value| value.map_err(|_| ()))
        .collect();
    let body = values.map_or_else(|()| json!(String::from_utf8_lossy(&text)), Value::from);
    json!({"code": head.status.as_u16(), "retry": header("retry-after"),
           "type": header("content-type"), "body": body})
}

/// The answer without what differs from run to run.
fn comparable(mut answer: Value) -> Value {
    match &mut answer {
        Value::Object(members) => {
            for (key, value) in members.iter_mut() {
                match key.as_str() {
                    "uid" | "resourceVersion" | "creationTimestamp" | "continue"
                    | "managedFields" => *value = json!("…"),
                    "message" => {
                        let text = value.as_str().unwrap_or_default();
                        // The current revision.
                        *value = json!(text.split("current: ").next());
                    }
                    _ => *value = comparable(value.take()),
                }
            }
        }
        Value::Array(items) => {
            for item in items.iter_mut() {
                *item = comparable(item.take());
            }
        }
        _ => {}
    }
    answer
}
