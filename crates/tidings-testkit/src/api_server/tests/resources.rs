//! Resources with a watch cache, and objects without their specs.

use super::*;

const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const PODS: &str = "/api/v1/namespaces/shop/pods";

fn pod(name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": app}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    })
}

fn with_pods(count: usize) -> ApiServer {
    let server = server();
    for n in 0..count {
        server.create_object("pods", pod(&format!("p{n}"), &format!("a{}", n % 2))).unwrap();
    }
    server
}

impl Client {
    async fn accept(&self, path: &str, accept: &str) -> ::http::Response<Body> {
        let request = HttpRequest::get(path).header("accept", accept).body(Body::empty()).unwrap();
        timeout(LONG, self.0.send(request)).await.expect("an answer in time").unwrap()
    }

    async fn get_as(&self, path: &str, accept: &str) -> (StatusCode, Value) {
        let response = self.accept(path, accept).await;
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap())
    }
}

#[tokio::test]
async fn metadata_alone_is_answered_to_who_asks_for_it() {
    let server = with_pods(2);
    let client = Client::of(&server);
    let (_, one) = client.get_as(&format!("{PODS}/p0"), METADATA).await;
    assert_eq!(one["kind"], "PartialObjectMetadata");
    assert_eq!(one["apiVersion"], "meta.k8s.io/v1");
    assert_eq!((&one["metadata"]["labels"]["app"], version(&one)), (&json!("a0"), "1001"));
    assert_eq!(one.as_object().unwrap().len(), 3, "{one}");

    let accept =
        format!("application/vnd.kubernetes.protobuf;as=X,{METADATA_LIST},application/json");
    let (_, list) = client.get_as(PODS, &accept).await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(
        (list["apiVersion"].as_str(), names(&list)),
        (Some("meta.k8s.io/v1"), vec!["p0", "p1"])
    );
    assert_eq!(list["items"][1]["kind"], "PartialObjectMetadata");
    assert_eq!(list["items"][1].as_object().unwrap().len(), 3);

    let (_, none) = client.get_as("/apis/apps/v1/deployments", METADATA_LIST).await;
    assert_eq!(none["items"], Value::Null);
    let (status, refused) = client.get_as(PODS, METADATA).await;
    assert_eq!(status, 406);
    assert_eq!(
        refused["message"],
        "you requested PartialObjectMetadata, but the requested object is a list (*core.PodList)"
    );
    assert_eq!(client.get_as(&format!("{PODS}/p0"), METADATA_LIST).await.0, 406);

    let path = format!("{PODS}?watch=1&resourceVersion=1001");
    let body = client.accept(&path, METADATA).await.into_body();
    let mut watch = Lines { body, rest: Vec::new(), ended: None };
    let line: Value = serde_json::from_slice(&watch.next(LONG).await.unwrap()).unwrap();
    assert_eq!((&line["type"], &line["object"]["kind"]), (&json!("ADDED"), &one["kind"]));
    assert_eq!(line["object"].as_object().unwrap().len(), 3);
}

#[tokio::test]
async fn kubes_typed_and_metadata_clients_understand_it() {
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node};
    use kube::{
        api::{Patch, PatchParams, PostParams},
        core::PartialObjectMeta,
    };
    let server = server();
    let client = Client::of(&server).0;
    let deployments: kube::Api<Deployment> = kube::Api::namespaced(client.clone(), "shop");
    let nodes: kube::Api<Node> = kube::Api::all(client);
    let new = json!({"metadata": {"name": "web"}, "spec": {"replicas": 1, "selector": {}, "template": {}}});
    let new: Deployment = serde_json::from_value(new).unwrap();
    let mut made = deployments.create(&PostParams::default(), &new).await.unwrap();
    assert_eq!(
        (made.metadata.namespace.as_deref(), made.metadata.generation),
        (Some("shop"), Some(1))
    );
    made.spec.as_mut().unwrap().replicas = Some(3);
    let updated = deployments.replace("web", &PostParams::default(), &made).await.unwrap();
    assert_eq!(updated.metadata.generation, Some(2));
    let stale = deployments.replace("web", &PostParams::default(), &made).await;
    assert!(matches!(stale, Err(kube::Error::Api(status)) if status.reason == "Conflict"));
    let scale = async |version: Option<&String>, replicas: i32| {
        let patch =
            json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}});
        deployments.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await
    };
    let stale = scale(made.metadata.resource_version.as_ref(), 4).await;
    assert!(matches!(stale, Err(kube::Error::Api(status)) if status.reason == "Conflict"));
    let patched = scale(updated.metadata.resource_version.as_ref(), 4).await.unwrap();
    assert_eq!(patched.metadata.generation, Some(3));
    let whichever = scale(None, 5).await.unwrap();
    assert_eq!(whichever.metadata.generation, Some(4));
    let listed: kube::core::ObjectList<PartialObjectMeta<Deployment>> =
        deployments.list_metadata(&kube::api::ListParams::default()).await.unwrap();
    assert_eq!(listed.items[0].metadata.resource_version.as_deref(), Some("1004"));
    let got = deployments.get_metadata("web").await.unwrap();
    assert_eq!(got.metadata.uid, made.metadata.uid);
    deployments.delete("web", &kube::api::DeleteParams::default()).await.unwrap();
    let gone = deployments.get("web").await;
    assert!(matches!(gone, Err(kube::Error::Api(status))
        if status.message == "deployments.apps \"web\" not found"));
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    assert_eq!(nodes.list(&kube::api::ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn all_resources_count_one_revision() {
    let server = server();
    server.create_object("pods", pod("a", "x")).unwrap();
    server.create(event("shop", "e")).unwrap();
    let made = server.create_object("nodes", json!({"metadata": {"name": "n1"}})).unwrap();
    assert_eq!((made.resource_version, server.revision()), (1003, 1003));
    assert_eq!((server.live("pods"), server.live_events(), server.live("nodes")), (1, 1, 1));
    let client = Client::of(&server);
    assert_eq!(version(&client.get("/api/v1/pods").await.1), "1003");
    let patch = json!({"metadata": {"labels": {"app": null, "zone": "b"}}});
    let patched = server.patch_object("pods", "shop", "a", &patch).unwrap();
    assert_eq!(patched.resource_version, 1004);
    assert_eq!(
        server.object("pods", "shop", "a").unwrap()["metadata"]["labels"],
        json!({"zone": "b"})
    );
    let unknown = server.create_object("widgets.example.com", json!({})).unwrap_err();
    assert_eq!(unknown.code, 404);
}

#[tokio::test]
async fn versions_of_a_list_mean_what_they_mean_with_a_watch_cache() {
    let server = with_pods(3);
    let client = Client::of(&server);
    let list = async |query: &str| client.get(&format!("{PODS}?{query}")).await;
    let (_, any) = list("resourceVersion=0&limit=1").await;
    assert_eq!((names(&any).len(), any["metadata"].get("continue")), (3, None));
    assert_eq!(names(&list("resourceVersion=1002&limit=9").await.1), ["p0", "p1"]);
    let (_, page) = list("resourceVersion=1001&resourceVersionMatch=NotOlderThan&limit=1").await;
    assert_eq!((version(&page), names(&page)), ("1003", vec!["p0"]));
    let response = client.send("GET", &format!("{PODS}?resourceVersion=9999"), None).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (504, &"1".parse().unwrap())
    );
    let (_, status) = list("resourceVersion=9999").await;
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
    assert_eq!(list("sendInitialEvents=true").await.0, 422);
}

#[tokio::test]
async fn streaming_lists_end_with_their_bookmark() {
    let server = with_pods(3);
    let client = Client::of(&server);
    let streaming = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let path = format!("{PODS}?{streaming}&allowWatchBookmarks=true&labelSelector=app%3Da0");
    let mut watch = client.watch(&path).await;
    watch.next(LONG).await.unwrap();
    watch.next(LONG).await.unwrap();
    let line: Value = serde_json::from_slice(&watch.next(LONG).await.unwrap()).unwrap();
    assert_eq!(
        line,
        json!({"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {
            "resourceVersion": "1003", "annotations": {"k8s.io/initial-events-end": "true"}
        }}})
    );
    server.create_object("pods", pod("p4", "a0")).unwrap();
    assert_eq!(watch.take(1).await, ["ADDED p4@1004"]);
    let path = format!("{PODS}?{streaming}");
    assert_eq!(client.watch(&path).await.take(4).await.len(), 4, "no bookmark unasked");
    let path = format!("{PODS}?{streaming}&allowWatchBookmarks=true&resourceVersion=5000");
    assert_eq!(client.watch(&path).await.finish().await, ["ERROR 504 Timeout"]);
    let path = format!("{PODS}?watch=1&sendInitialEvents=true");
    assert_eq!(client.get(&path).await.0, 422);
}

#[tokio::test]
async fn watches_select_and_go_back_as_far_as_history() {
    let server = with_pods(3);
    let client = Client::of(&server);
    let path = format!(
        "{PODS}?watch=1&resourceVersion=0&fieldSelector=spec.nodeName%3Dn1&labelSelector=app%3Da0"
    );
    let mut watch = client.watch(&path).await;
    assert_eq!(watch.take(2).await, ["ADDED p0@1001", "ADDED p2@1003"]);
    let label = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    server.patch_object("pods", "shop", "p1", &label("a0")).unwrap();
    server.patch_object("pods", "shop", "p0", &label("other")).unwrap();
    server.delete_object("pods", "shop", "p2").unwrap();
    let expected = ["ADDED p1@1004", "DELETED p0@1005", "DELETED p2@1006"];
    assert_eq!(watch.take(3).await, expected);
    server.compact(1005);
    let old = format!("{PODS}?watch=1&resourceVersion=1001");
    assert_eq!(client.watch(&old).await.finish().await, ["ERROR 410 Expired"]);
    let new = format!("{PODS}?watch=1&resourceVersion=1005");
    assert_eq!(client.watch(&new).await.take(1).await, ["DELETED p2@1006"]);
}

#[tokio::test]
async fn bookmarks_come_to_who_takes_them() {
    let server = with_pods(1);
    let client = Client::of(&server);
    let path = format!("{PODS}?watch=1&resourceVersion=1001");
    let mut without = client.watch(&path).await;
    let mut with = client.watch(&format!("{path}&allowWatchBookmarks=true")).await;
    server.create(event("shop", "e")).unwrap();
    let label = json!({"metadata": {"labels": {"app": "z"}}});
    server.patch_object("pods", "shop", "p0", &label).unwrap();
    assert_eq!(with.take(1).await, ["MODIFIED p0@1003"]);
    server.skip_revisions(5);
    server.send_bookmarks("pods");
    assert_eq!(with.take(1).await, ["BOOKMARK 1008"]);
    assert_eq!(without.take(1).await, ["MODIFIED p0@1003"]);
    let path = format!("{path}&allowWatchBookmarks=true&timeoutSeconds=1");
    let mut short = client.watch(&path).await;
    assert_eq!(short.finish().await, ["MODIFIED p0@1003", "BOOKMARK 1008"]);

    let often = Options { bookmark_every: Duration::from_millis(5), ..Options::default() };
    let often = ApiServer::start(often).unwrap();
    let path = "/api/v1/pods?watch=1&resourceVersion=1000&allowWatchBookmarks=true";
    let mut watch = Client::of(&often).watch(path).await;
    for _ in 0..3 {
        assert!(watch.next(LONG).await.is_some());
    }
}

#[tokio::test]
async fn requests_and_watches_are_counted_by_resource() {
    let server = with_pods(1);
    let client = Client::of(&server);
    client.get(PODS).await;
    client.get(&format!("{PODS}/p0")).await;
    client.get(&format!("{PODS}/none")).await;
    client.get("/apis/apps/v1/replicasets").await;
    let mut pods = client.watch(&format!("{PODS}?watch=1&resourceVersion=0")).await;
    let mut events = client.watch("/api/v1/events?watch=1&resourceVersion=1000").await;
    assert_eq!(pods.take(1).await.len(), 1);
    assert_eq!((server.open_watches_of("pods"), server.open_watches()), (1, 2));
    let counts = [
        ((Verb::Get, "pods"), 2),
        ((Verb::List, "pods"), 1),
        ((Verb::List, "replicasets.apps"), 1),
        ((Verb::Watch, "events"), 1),
        ((Verb::Watch, "pods"), 1),
    ];
    let counts = counts.map(|((verb, resource), count)| ((verb, resource.to_owned()), count));
    assert_eq!(server.request_counts(), counts.into_iter().collect());
    assert_eq!(server.request_count(Verb::Get, "pods"), 2);

    server.cut_watches("pods");
    assert!(pods.next(LONG).await.is_none());
    assert!(matches!(&pods.ended, Some(Err(_))), "cut, not ended: {:?}", pods.ended);
    server.create(event("shop", "still")).unwrap();
    assert_eq!(events.take(1).await, ["ADDED still@1002"]);
}

#[tokio::test]
async fn faults_of_one_resource_leave_others_alone() {
    let server = with_pods(1);
    let client = Client::of(&server);
    server.set_fault(On::List.of("replicasets.apps"), None, Fault::Forbidden);
    server.set_fault(On::Get.of("pods"), None, Fault::TooManyRequests { retry_after: 2 });
    let (status, refused) = client.get("/apis/apps/v1/namespaces/shop/replicasets").await;
    assert_eq!(
        (status.as_u16(), &refused["details"]),
        (403, &json!({"group": "apps", "kind": "replicasets"}))
    );
    assert_eq!(
        refused["message"],
        "replicasets.apps is forbidden: User \"system:serviceaccount:tidings:tidings\" cannot list \
         resource \"replicasets\" in API group \"apps\" in the namespace \"shop\""
    );
    let limited = client.send("GET", &format!("{PODS}/p0"), None).await.unwrap();
    assert_eq!(
        (limited.status().as_u16(), &limited.headers()["retry-after"]),
        (429, &"2".parse().unwrap())
    );
    assert_eq!(client.get(PODS).await.0, 200);
    assert_eq!(client.get("/api/v1/events").await.0, 200);
}

#[tokio::test]
async fn discovery_says_what_there_is() {
    let widgets = Resource::new("example.com/v1alpha1", "widgets", "Widget").cluster_scoped();
    let options = Options { resources: vec![widgets], ..Options::default() };
    let server = ApiServer::start(options).unwrap();
    let client = Client::of(&server);
    let discovery = kube::Discovery::new(client.0.clone()).run().await.unwrap();
    let group = discovery.get("apps").unwrap();
    let (replica_sets, capabilities) = group.recommended_kind("ReplicaSet").unwrap();
    assert_eq!((&*replica_sets.plural, &*replica_sets.api_version), ("replicasets", "apps/v1"));
    assert!(capabilities.supports_operation(kube::discovery::verbs::WATCH));
    assert!(discovery.get("").unwrap().recommended_kind("Pod").is_some());
    assert!(discovery.get("example.com").is_some());

    let path = "/apis/example.com/v1alpha1/widgets";
    let body = json!({"metadata": {"name": "w"}, "size": 3});
    assert_eq!(client.json("POST", path, Some(body)).await.0, 201);
    let (_, widget) = client.get(&format!("{path}/w")).await;
    assert_eq!((&widget["kind"], &widget["size"]), (&json!("Widget"), &json!(3)));
    for missing in
        ["/apis/example.com/v1/widgets", "/api/v1/widgets", "/apis/none", "/apis/apps/v9"]
    {
        let status = client.send("GET", missing, None).await.unwrap().status();
        assert_eq!(status, 404, "{missing}");
    }
    let unnamed = client.json("POST", path, Some(json!({"metadata": {}}))).await;
    assert_eq!(unnamed.0, 422);
    let elsewhere = json!({"metadata": {"name": "x", "namespace": "a"}});
    assert_eq!(client.json("POST", PODS, Some(elsewhere)).await.0, 400);
}
