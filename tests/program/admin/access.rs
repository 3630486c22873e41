//! What is shown to whom.

use serde_json::Value;
use tidings::{
    admin::AdminServer,
    config::{ServerDetail, ServerSettings},
    sinks::Secret,
};
use tidings_testkit::api_server::{Fault, On};
use tokio::net::TcpStream;

use super::{
    at,
    support::{MemorySink, Setup, server, stop},
};

/// Code and body of what somebody is answered whom a proxy asks for.
async fn as_a_stranger(admin: &AdminServer, path: &str, token: Option<&str>) -> (u16, String) {
    let asked = reqwest::Client::new().get(format!("http://{}{path}", admin.address()));
    let asked = asked.header("x-forwarded-for", "10.0.0.1");
    let asked = token.into_iter().fold(asked, reqwest::RequestBuilder::bearer_auth);
    let answer = asked.send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_is_told_the_code_and_one_word() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    server.set_fault(On::List, None, Fault::Forbidden);
    let bridge = Setup::new(&server, dir.path()).sink("a", &MemorySink::default()).start().await;
    let serve = |detail, token: Option<&str>| {
        let settings =
            ServerSettings { detail, token: token.map(Secret::new), ..at("127.0.0.1:0") };
        AdminServer::start(settings, bridge.view()).unwrap()
    };
    let closed = serve(ServerDetail::Loopback, None);
    let why = reqwest::get(format!("http://{}/readyz", closed.address())).await.unwrap();
    let why = why.text().await.unwrap();
    assert!(
        why.starts_with("no Events of * are read") || why.starts_with("the cluster has"),
        "{why}"
    );
    assert_eq!(as_a_stranger(&closed, "/livez", None).await, (200, "ok\n".to_owned()));
    assert_eq!(as_a_stranger(&closed, "/readyz", None).await, (503, "unready\n".to_owned()));
    for path in ["/metrics", "/api/v1/status"] {
        let (code, said) = as_a_stranger(&closed, path, Some("anything")).await;
        assert_eq!(code, 403, "{path}");
        assert!(said.starts_with("expected a request from loopback"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }

    let scraped = serve(ServerDetail::Metrics, Some("a-token-of-sixteen"));
    assert!(as_a_stranger(&scraped, "/metrics", None).await.1.contains("tidings_build_info"));
    assert_eq!(as_a_stranger(&scraped, "/readyz", None).await.1, "unready\n");
    for (token, found) in [(None, "none"), (Some("another-of-sixteen"), "another")] {
        let (code, said) = as_a_stranger(&scraped, "/api/v1/status", token).await;
        assert_eq!(code, 401);
        assert_eq!(
            said,
            format!(
                "expected the token of server.token as `Authorization: Bearer TOKEN`, found {found}\n"
            )
        );
    }
    let token = Some("a-token-of-sixteen");
    let status = as_a_stranger(&scraped, "/api/v1/status", token).await.1;
    assert_eq!(serde_json::from_str::<Value>(&status).unwrap()["sinks"][0]["name"], "a");
    assert_ne!(as_a_stranger(&scraped, "/readyz", token).await.1, "unready\n");

    let open = serve(ServerDetail::All, None);
    assert_eq!(as_a_stranger(&open, "/api/v1/status", None).await.0, 200);
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_address_of_both_families_is_served_where_there_are_both() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let bridge = Setup::new(&server, dir.path()).sink("a", &MemorySink::default()).start().await;
    let admin = AdminServer::start(at("[::]:0"), bridge.view()).unwrap();
    let port = admin.address().port();
    let mut asked = vec![format!("127.0.0.1:{port}")];
    // This machine may have no IPv6.
    if TcpStream::connect(("::1", port)).await.is_ok() {
        assert!(admin.address().is_ipv6());
        asked.push(format!("[::1]:{port}"));
    }
    for address in asked {
        // A detail: in either family this is loopback.
        let answer = reqwest::get(format!("http://{address}/api/v1/status")).await.unwrap();
        assert_eq!(answer.status(), 200, "{address}");
    }
    stop(bridge).await;
}
