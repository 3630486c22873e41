//! What is asked of which resource.

use std::sync::Arc;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::core::ApiResource;
use tidings_kube::{
    client_without_retry,
    reflector::{Reflector, ReflectorOptions, ResourceApi},
};
use tokio::time::sleep;

use super::{
    scripted::{Answer, Request, ScriptedServer},
    told::Told,
};

async fn requests(
    answers: impl IntoIterator<Item = Answer>,
    api: impl Fn(kube::Client) -> ResourceApi,
) -> (Vec<Request>, Told) {
    let (server, store) = (ScriptedServer::script(answers), Told::default());
    let reflector =
        Reflector::new(api(server.client()), store.clone(), ReflectorOptions::default());
    let running = tokio::spawn(reflector.run());
    sleep(std::time::Duration::from_millis(10)).await;
    running.abort();
    (server.requests(), store)
}

#[tokio::test(start_paused = true)]
async fn a_resource_of_a_group_in_a_namespace_is_seen_through_selectors() {
    let empty =
        Answer::body(200, r#"{"kind":"DeploymentList","metadata":{"resourceVersion":"7"}}"#);
    let (requests, _) = requests([empty], |client| {
        ResourceApi::new(client, &ApiResource::erase::<Deployment>(&()))
            .namespace("shop")
            .fields("metadata.name=web")
            .labels("app in (web,db)")
    })
    .await;
    assert_eq!(requests.len(), 2);
    for request in &requests {
        assert_eq!(request.path, "/apis/apps/v1/namespaces/shop/deployments");
        assert_eq!(request.param("fieldSelector"), "metadata.name=web");
        assert_eq!(request.param("labelSelector"), "app in (web,db)");
        assert!(!request.headers.contains_key("accept"), "all of the object");
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_is_asked_for_by_the_accept_header() {
    let list = r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",
        "metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"web","resourceVersion":"3"}}]}"#;
    let pods = |client| ResourceApi::new(client, &ApiResource::erase::<Pod>(&())).metadata_only();
    let (requests, store) = requests([Answer::body(200, list)], pods).await;
    let accept: Vec<&str> =
        requests.iter().map(|r| r.headers["accept"].to_str().unwrap()).collect();
    let kind = "application/json;as=PartialObjectMetadata";
    assert_eq!(
        accept,
        [format!("{kind}List;g=meta.k8s.io;v=v1"), format!("{kind};g=meta.k8s.io;v=v1")]
    );
    assert_eq!(requests[0].path, "/api/v1/pods");
    assert_eq!(store.lines(), ["replace [web@3] at 7"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_another_kind_is_refused() {
    let services =
        Answer::body(200, r#"{"kind":"ServiceList","metadata":{"resourceVersion":"7"}}"#);
    let pods = |client| ResourceApi::new(client, &ApiResource::erase::<Pod>(&()));
    let (requests, store) = requests([services], pods).await;
    assert_eq!((requests.len(), store.lines().len()), (1, 0));
}

/// Over a real socket, as what a client's error is made of is the client's own.
#[tokio::test]
async fn an_address_where_nobody_listens_is_told_apart() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let config = kube::Config::new(url.parse().unwrap());
    let client = client_without_retry(config).unwrap();
    let api = ResourceApi::new(client, &ApiResource::erase::<Pod>(&()));
    let (errors, mut refused) = tokio::sync::mpsc::unbounded_channel();
    let options = ReflectorOptions {
        watch_error_handler: Some(Arc::new(move |error| {
            errors.send(error.is_connection_refused()).unwrap();
        })),
        ..ReflectorOptions::default()
    };
    let running = tokio::spawn(Reflector::new(api, Told::default(), options).run());
    assert_eq!(refused.recv().await, Some(true));
    running.abort();
}
