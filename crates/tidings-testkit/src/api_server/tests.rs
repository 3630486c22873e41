//! The server seen through the client that the bridge uses.

use std::time::Duration;

use ::http::{Request as HttpRequest, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;

mod faults;
mod population;
mod resources;

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(20);

struct Client(kube::Client);

/// A watch as lines, and how it ended: none while it is open.
struct Lines {
    body: Body,
    rest: Vec<u8>,
    ended: Option<Result<(), String>>,
}

impl Client {
    fn of(server: &ApiServer) -> Self {
        let mut config = kube::Config::new(server.url().parse().unwrap());
        // It would answer for the server.
        config.default_retry = false;
        Self(kube::Client::try_from(config).unwrap())
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Result<::http::Response<Body>, kube::Error> {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = HttpRequest::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(Body::from(body))
            .unwrap();
        timeout(LONG, self.0.send(request)).await.expect("an answer in time")
    }

    async fn json(&self, method: &str, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let response = self.send(method, path, body).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.json("GET", path, None).await
    }

    async fn watch(&self, path: &str) -> Lines {
        let response = self.send("GET", path, None).await.unwrap();
        assert_eq!(response.status(), 200);
        Lines { body: response.into_body(), rest: Vec::new(), ended: None }
    }
}

impl Lines {
    /// The next whole line; none at the end, and when nothing comes for so long.
    async fn next(&mut self, wait: Duration) -> Option<Vec<u8>> {
        while self.ended.is_none() {
            if let Some(at) = memchr::memchr(b'\n', &self.rest) {
                let mut line: Vec<u8> = self.rest.drain(..=at).collect();
                line.pop();
                return Some(line);
            }
            match timeout(wait, self.body.frame()).await {
                Err(_) => return None,
                Ok(None) => self.ended = Some(Ok(())),
                Ok(Some(Err(error))) => self.ended = Some(Err(error.to_string())),
                Ok(Some(Ok(frame))) => self.rest.extend_from_slice(&frame.into_data().unwrap()),
            }
        }
        None
    }

    /// `TYPE name@version` of the next lines: so many, and what else comes at once.
    async fn take(&mut self, count: usize) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let wait = if all.len() < count { LONG } else { Duration::from_millis(100) };
            let Some(line) = self.next(wait).await else {
                return all;
            };
            let Ok(line) = serde_json::from_slice::<Value>(&line) else {
                all.push("garbage".to_owned());
                continue;
            };
            let (kind, object) = (line["type"].as_str().unwrap(), &line["object"]);
            all.push(match kind {
                "ERROR" => {
                    format!("ERROR {} {}", object["code"], object["reason"].as_str().unwrap())
                }
                "BOOKMARK" => format!("BOOKMARK {}", version(object)),
                _ => format!(
                    "{kind} {}@{}",
                    object["metadata"]["name"].as_str().unwrap(),
                    version(object)
                ),
            });
        }
    }

    /// The same until the stream ends.
    async fn finish(&mut self) -> Vec<String> {
        let all = self.take(usize::MAX).await;
        assert!(self.ended.is_some(), "the stream ends");
        all
    }
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

fn server() -> ApiServer {
    ApiServer::start(Options::default()).unwrap()
}

fn event(namespace: &str, name: &str) -> EventObject {
    let mut event = EventObject::about_pod(namespace, "web-1", "BackOff", "back-off \u{2026}");
    name.clone_into(&mut event.metadata.name);
    event
}

fn fill(server: &ApiServer, namespace: &str, count: usize) {
    for n in 0..count {
        server.create(event(namespace, &format!("e{n:02}"))).unwrap();
    }
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_list_in_pages_is_of_one_revision() {
    let server = server();
    let client = Client::of(&server);
    fill(&server, "shop", 5);
    let (status, first) = client.get("/api/v1/events?limit=2").await;
    assert_eq!(status, 200);
    assert_eq!((&first["kind"], &first["apiVersion"]), (&json!("EventList"), &json!("v1")));
    assert_eq!((version(&first), names(&first)), ("1005", vec!["e00", "e01"]));
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    assert_eq!(first["items"][0].get("kind"), None);
    assert_eq!(first["items"][0]["metadata"]["resourceVersion"], "1001");

    server.create(event("shop", "e02a")).unwrap();
    server.delete("shop", "e03").unwrap();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = client.get(&format!("/api/v1/events?limit=2&continue={token}")).await;
    assert_eq!((version(&second), names(&second)), ("1005", vec!["e02", "e03"]));
    assert_eq!(second["metadata"]["remainingItemCount"], 1);
    let token = second["metadata"]["continue"].as_str().unwrap();
    let (_, third) = client.get(&format!("/api/v1/events?limit=2&continue={token}")).await;
    assert_eq!((version(&third), names(&third)), ("1005", vec!["e04"]));
    assert_eq!(third["metadata"].get("continue"), None);
    assert_eq!(third["metadata"].get("remainingItemCount"), None);
    let (_, now) = client.get("/api/v1/namespaces/shop/events").await;
    assert_eq!((version(&now), names(&now)), ("1007", vec!["e00", "e01", "e02", "e02a", "e04"]));
    assert_eq!(names(&client.get("/api/v1/namespaces/sho/events").await.1), Vec::<&str>::new());
}

#[tokio::test]
async fn an_expired_token_offers_an_inconsistent_one() {
    let server = server();
    let client = Client::of(&server);
    fill(&server, "shop", 4);
    let (_, first) = client.get("/api/v1/events?limit=2").await;
    server.create(event("shop", "e02a")).unwrap();
    server.compact(server.revision());
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (status, expired) = client.get(&format!("/api/v1/events?limit=2&continue={token}")).await;
    assert_eq!((status.as_u16(), &expired["reason"]), (410, &json!("Expired")));
    let token = expired["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = client.get(&format!("/api/v1/events?continue={token}")).await;
    assert_eq!((version(&rest), names(&rest)), ("1005", vec!["e02", "e02a", "e03"]));
}

#[tokio::test]
async fn versions_of_a_list_mean_what_they_mean_without_a_watch_cache() {
    let server = server();
    let client = Client::of(&server);
    fill(&server, "shop", 3);
    let list = async |query: &str| client.get(&format!("/api/v1/events?{query}")).await;
    // With a limit a version is exact, without one it is a lower bound.
    assert_eq!(names(&list("limit=9&resourceVersion=1002").await.1), ["e00", "e01"]);
    assert_eq!(version(&list("limit=9&resourceVersion=1002").await.1), "1002");
    assert_eq!(version(&list("resourceVersion=1002").await.1), "1003");
    assert_eq!(version(&list("resourceVersion=0&limit=1").await.1), "1003");
    let not_older = list("limit=1&resourceVersion=1002&resourceVersionMatch=NotOlderThan").await;
    assert_eq!(version(&not_older.1), "1003");
    for query in ["resourceVersion=2000", "limit=1&resourceVersion=2000"] {
        let (status, refused) = list(query).await;
        assert_eq!((status.as_u16(), &refused["reason"]), (504, &json!("Timeout")));
        assert_eq!(refused["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        let message = refused["message"].as_str().unwrap();
        assert!(message.ends_with("Too large resource version: 2000, current: 1003"), "{message}");
    }
    server.compact(1003);
    assert_eq!(list("limit=1&resourceVersion=1002").await.0, 410);
    assert_eq!(list("limit=1&resourceVersion=1003").await.0, 200);
    assert_eq!(list("resourceVersionMatch=Exact").await.0, 422);
    assert_eq!(list("resourceVersion=x").await.0, 400);
    assert_eq!(list("continue=zz").await.0, 400);
    assert_eq!(list("fieldSelector=a%3Db").await.0, 400);
}

#[tokio::test]
async fn a_watch_resumes_and_goes_on() {
    let server = server();
    let client = Client::of(&server);
    fill(&server, "shop", 3);
    let mut from = client.watch("/api/v1/events?watch=1&resourceVersion=1002").await;
    let mut all = client.watch("/api/v1/events?watch=true").await;
    let mut other = client.watch("/api/v1/namespaces/other/events?watch=1&resourceVersion=0").await;
    server.patch_count("shop", "e00", 2, Timestamp::now()).unwrap();
    fill(&server, "other", 1);
    server.delete("shop", "e01").unwrap();
    let changes = ["MODIFIED e00@1004", "ADDED e00@1005", "DELETED e01@1006"];
    assert_eq!(from.take(4).await, [&["ADDED e02@1003"][..], &changes].concat());
    let existing = ["ADDED e00@1001", "ADDED e01@1002", "ADDED e02@1003"];
    assert_eq!(all.take(6).await, [existing, changes].concat());
    assert_eq!(other.take(1).await, ["ADDED e00@1005"]);
    assert_eq!((server.open_watches(), server.events_sent()), (3, 11));
    drop((from, all, other));
    server.create(event("shop", "last")).unwrap();
    timeout(LONG, async {
        while server.open_watches() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_watch_shows_typed_objects_and_ends_in_time() {
    let server = server();
    let client = Client::of(&server);
    fill(&server, "shop", 1);
    let mut watch = client
        .watch("/api/v1/events?watch=1&resourceVersion=1000&timeoutSeconds=1&allowWatchBookmarks=1")
        .await;
    let line: Value = serde_json::from_slice(&watch.next(LONG).await.unwrap()).unwrap();
    assert_eq!(
        (&line["object"]["kind"], &line["object"]["apiVersion"]),
        (&json!("Event"), &json!("v1"))
    );
    assert_eq!(line["object"]["metadata"]["managedFields"][0]["manager"], "kubelet");
    assert_eq!((watch.finish().await.len(), watch.ended), (0, Some(Ok(()))), "no bookmarks");
}

#[tokio::test]
async fn what_was_compacted_is_an_error_and_what_is_to_come_is_silence() {
    let server = server();
    let client = Client::of(&server);
    fill(&server, "shop", 4);
    server.compact(1003);
    let mut stale = client.watch("/api/v1/events?watch=1&resourceVersion=1001").await;
    assert_eq!(stale.finish().await, ["ERROR 410 Expired"]);
    assert_eq!(stale.ended, Some(Ok(())));
    let mut just = client.watch("/api/v1/events?watch=1&resourceVersion=1002").await;
    assert_eq!(just.take(2).await, ["ADDED e02@1003", "ADDED e03@1004"]);
    let mut future = client.watch("/api/v1/events?watch=1&resourceVersion=1006").await;
    server.create(event("shop", "quiet")).unwrap();
    assert_eq!(future.take(0).await, Vec::<String>::new());
    assert_eq!(future.ended, None);
    server.skip_revisions(1);
    server.create(event("shop", "heard")).unwrap();
    assert_eq!(future.take(1).await, ["ADDED heard@1007"]);
}

#[tokio::test]
async fn a_selector_turns_changes_into_coming_and_going() {
    let server = server();
    let client = Client::of(&server);
    server.create(event("shop", "a")).unwrap();
    server.create(event("shop", "b").warning()).unwrap();
    let path = "/api/v1/events?fieldSelector=type%3DWarning";
    let (_, list) = client.get(&format!("{path}&limit=1")).await;
    assert_eq!(names(&list), ["b"]);
    let mut watch = client.watch(&format!("{path}&watch=1&resourceVersion=1002")).await;
    server.patch("shop", "a", &json!({"type": "Warning"})).unwrap();
    server.patch("shop", "a", &json!({"count": 2})).unwrap();
    server.patch("shop", "a", &json!({"type": "Normal"})).unwrap();
    server.create(event("shop", "c")).unwrap();
    assert_eq!(watch.take(3).await, ["ADDED a@1003", "MODIFIED a@1004", "DELETED a@1005"]);
}

#[tokio::test]
async fn ttl_deletes_at_one_revision() {
    let server = server();
    let client = Client::of(&server);
    fill(&server, "shop", 2);
    let mut watch = client.watch("/api/v1/events?watch=1&resourceVersion=1002").await;
    assert_eq!(server.expire_ttl(Duration::from_hours(1)), 0);
    assert_eq!(server.expire_ttl(Duration::ZERO), 2);
    assert_eq!(watch.take(2).await, ["DELETED e00@1003", "DELETED e01@1003"]);
    assert_eq!((server.live_events(), server.revision()), (0, 1003));
}

#[tokio::test]
async fn writes_over_http_are_checked() {
    let server = server();
    let client = Client::of(&server);
    let path = "/api/v1/namespaces/shop/events";
    let body = serde_json::to_value(event("shop", "a")).unwrap();
    let (status, made) = client.json("POST", path, Some(body.clone())).await;
    assert_eq!((status.as_u16(), version(&made), &made["kind"]), (201, "1001", &json!("Event")));
    assert_eq!(made["metadata"]["uid"].as_str().unwrap().len(), 36);
    let (status, refused) = client.json("POST", path, Some(body)).await;
    assert_eq!((status.as_u16(), &refused["reason"]), (409, &json!("AlreadyExists")));
    let mut body = serde_json::to_value(event("shop", "b")).unwrap();
    body["involvedObject"]["namespace"] = json!("else");
    assert_eq!(client.json("POST", path, Some(body)).await.0, 422);

    let patch = json!({"count": 7, "lastTimestamp": "2026-01-01T00:00:00Z"});
    let (status, patched) = client.json("PATCH", &format!("{path}/a"), Some(patch.clone())).await;
    assert_eq!((status.as_u16(), &patched["count"], version(&patched)), (200, &json!(7), "1002"));
    let (_, same) = client.json("PATCH", &format!("{path}/a"), Some(patch.clone())).await;
    assert_eq!(version(&same), "1002", "nothing changed, nothing written");
    assert_eq!(client.json("PATCH", &format!("{path}/x"), Some(patch)).await.0, 404);
    assert_eq!(client.get(&format!("{path}/a")).await.1["count"], 7);
    assert_eq!(client.json("DELETE", &format!("{path}/a"), None).await.0, 200);
    assert_eq!(client.get(&format!("{path}/a")).await.0, 404);
    assert_eq!(client.json("POST", &format!("{path}/a"), None).await.0, 405);
    let (_, namespace) = client.get("/api/v1/namespaces/kube-system").await;
    assert_eq!(namespace["metadata"]["uid"], Options::default().cluster_uid);
    assert_eq!(client.get("/version").await.1["minor"], "34");
    let typed: kube::Api<k8s_openapi::api::core::v1::Event> = kube::Api::all(client.0.clone());
    assert_eq!(typed.list(&kube::api::ListParams::default()).await.unwrap().items.len(), 0);
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark_when_asked_for() {
    let server = server();
    let client = Client::of(&server);
    fill(&server, "shop", 1);
    let path = "/api/v1/events?watch=1&sendInitialEvents=true&allowWatchBookmarks=true\
                &resourceVersionMatch=NotOlderThan&resourceVersion=";
    assert_eq!(client.watch(path).await.take(2).await, ["ADDED e00@1001", "BOOKMARK 1001"]);
}

#[tokio::test]
async fn prepared_events_keep_their_order() {
    let server = server();
    let client = Client::of(&server);
    let mut watch = client.watch("/api/v1/events?watch=1&resourceVersion=1000").await;
    let prepared = server.prepare((0..5000).map(|n| event("shop", &format!("p{n}"))));
    assert_eq!(server.release(prepared).unwrap(), 1001..=6000);
    let expected: Vec<_> = (0..5000).map(|n| format!("ADDED p{n}@{}", 1001 + n)).collect();
    assert_eq!(watch.take(5000).await, expected);
    let late = server.prepare([event("shop", "late")]);
    server.create(event("shop", "first")).unwrap();
    assert_eq!(server.release(late).unwrap_err().reason, "Conflict");
}

#[tokio::test]
async fn driven_events_say_when_they_were_sent() {
    let server = server();
    let made =
        server.drive(500.0, Duration::from_millis(200), |n| event("shop", &format!("d{n}"))).await;
    assert!(made >= 50, "{made}");
    let (_, list) = Client::of(&server).get("/api/v1/events?limit=1").await;
    let sent = sent_at(list["items"][0]["message"].as_str().unwrap()).unwrap();
    assert!((Timestamp::now().as_microsecond() - sent) < 60_000_000);
    assert_eq!(sent_at("no stamp"), None);
}
