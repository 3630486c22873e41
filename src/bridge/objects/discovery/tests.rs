#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use http_body_util::Full;
use serde_json::{Value, json};

use super::*;

/// An API server with widgets, and with gadgets from some time on. Notes what it was asked for.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<(Vec<String>, bool)>>);

impl Server {
    fn answer(&self, path: &str) -> Option<Value> {
        let mut inner = lock(&self.0);
        inner.0.push(path.to_owned());
        let version = |group: &str| {
            let version = json!({"groupVersion": format!("{group}/v1"), "version": "v1"});
            json!({"name": group, "versions": [version], "preferredVersion": version})
        };
        let resource = |kind: &str| {
            let name = format!("{}s", kind.to_lowercase());
            json!({"name": name, "kind": kind, "namespaced": true, "singularName": "", "verbs": []})
        };
        let list = |resources: &[&str]| {
            let resources: Vec<_> = resources.iter().map(|kind| resource(kind)).collect();
            json!({"groupVersion": "a.example.com/v1", "resources": resources})
        };
        match (path, inner.1) {
            ("/apis", false) => Some(json!({"groups": [version("a.example.com")]})),
            ("/apis", true) => {
                Some(json!({"groups": [version("a.example.com"), version("b.example.com")]}))
            }
            ("/apis/a.example.com/v1", false) => Some(list(&["Widget"])),
            ("/apis/a.example.com/v1", true) => Some(list(&["Widget", "Gear"])),
            ("/apis/b.example.com/v1", true) => Some(list(&["Gadget"])),
            _ => None,
        }
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0).0)
    }

    fn discovery(&self) -> Discovery {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<_>| {
            let _: &kube::client::Body = request.body();
            let (code, body) = match server.answer(request.uri().path().trim_end_matches('/')) {
                Some(body) => (200, body),
                None => (404, json!({"kind": "Status", "code": 404, "status": "Failure"})),
            };
            let answer = http::Response::builder().status(code).body(Full::from(body.to_string()));
            async { Ok::<_, std::convert::Infallible>(answer.unwrap()) }
        });
        let client = kube::Client::new(service, "default");
        Discovery::new(client, Arc::new(Rate::new(1000.0, 1000, Arc::default())))
    }
}

async fn is_known(discovery: &Discovery, api_version: &str, kind: &str) -> bool {
    let object = Ref { api_version, kind, namespace: "shop", name: "x", uid: "" };
    match discovery.kind(object).await {
        Ok((found, _)) => found.kind == kind,
        Err(AskError::Unknown) => false,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_unknown_kinds_is_asked_for_once_in_a_while() {
    let server = Server::default();
    let discovery = server.discovery();
    for n in 0..500 {
        assert!(!is_known(&discovery, &format!("g{n}.example.com/v1"), "Thing").await);
        assert!(!is_known(&discovery, &format!("v{n}beta1"), "Thing").await);
        assert!(!is_known(&discovery, "a.example.com/v1", &format!("Thing{n}")).await);
    }
    assert_eq!(server.asked(), ["/apis", "/apis/a.example.com/v1"]);
    assert!(is_known(&discovery, "a.example.com/v1", "Widget").await);
    assert_eq!(server.asked(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_that_is_added_is_known_within_a_minute() {
    let server = Server::default();
    let discovery = server.discovery();
    for (api_version, kind) in [("b.example.com/v1", "Gadget"), ("a.example.com/v1", "Gear")] {
        assert!(!is_known(&discovery, api_version, kind).await);
    }
    lock(&server.0).1 = true;
    server.asked();
    tokio::time::advance(UNKNOWN_FOR / 2).await;
    assert!(!is_known(&discovery, "b.example.com/v1", "Gadget").await);
    assert_eq!(server.asked(), [""; 0]);
    tokio::time::advance(UNKNOWN_FOR / 2).await;
    for (api_version, kind) in [("b.example.com/v1", "Gadget"), ("a.example.com/v1", "Gear")] {
        assert!(is_known(&discovery, api_version, kind).await);
    }
    assert_eq!(server.asked(), ["/apis", "/apis/b.example.com/v1", "/apis/a.example.com/v1"]);
    // One that is taken out again is asked for no more often than one that never was.
    lock(&server.0).1 = false;
    tokio::time::advance(UNKNOWN_FOR).await;
    let object =
        |kind| Ref { api_version: "b.example.com/v1", kind, namespace: "shop", name: "x", uid: "" };
    assert!(discovery.kind(object("Other")).await.is_err());
    server.asked();
    for _ in 0..10 {
        assert!(!is_known(&discovery, "b.example.com/v1", "Other").await);
    }
    assert_eq!(server.asked(), ["/apis"]);
}
