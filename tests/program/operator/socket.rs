//! The control socket itself: who may use it, and what it makes of what is sent there.

use std::{net::SocketAddr, os::unix::fs::MetadataExt as _, path::Path, time::Duration};

use proptest::prelude::*;
use serde_json::{Value, json};
use tidings::admin::{AdminServer, api};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::timeout,
};

use super::{commands, stage::Stage};

/// Sends bytes, and answers status and body of what comes back until the other end closes.
async fn exchange(socket: &Path, request: &[u8]) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    // Whoever refuses a body may close before it has all of it.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let reading = timeout(Duration::from_mins(1), stream.read_to_end(&mut answer));
    let _ = reading.await.expect("an answer within a minute");
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or(0), body.to_owned())
}

async fn post(socket: &Path, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: tidings\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    exchange(socket, format!("{head}{body}").as_bytes()).await
}

async fn get(socket: &Path, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: tidings\r\nconnection: close\r\n\r\n");
    exchange(socket, request.as_bytes()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_for_the_user_alone_and_goes_with_the_bridge() {
    let mut stage = Stage::set().await;
    let mode = std::fs::metadata(stage.socket()).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    stage.stop().await;
    assert!(!stage.socket().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn it_answers_what_tcp_does_and_tcp_only_reads() {
    let stage = Stage::set().await;
    stage.events(["poison"]).await;
    let socket = stage.socket();
    assert_eq!(get(&socket, "/livez").await, (200, "ok\n".to_owned()));
    assert_eq!(get(&socket, "/readyz").await.0, 200);
    assert!(get(&socket, "/metrics").await.1.contains("tidings_build_info"));
    let status: Value = serde_json::from_str(&get(&socket, "/api/v1/status").await.1).unwrap();
    assert_eq!(status["sinks"][0]["deadLettered"], 1);

    let view = stage.bridge().view();
    let tcp = AdminServer::start(SocketAddr::from(([127, 0, 0, 1], 0)).into(), view).unwrap();
    for request in [
        "POST /api/v1/dead-letters/drop",
        "POST /api/v1/dead-letters/retry",
        "POST /api/v1/replay",
        "POST /api/v1/status",
        "GET /api/v1/dead-letters",
        "GET /api/v1/dead-letters/1",
    ] {
        let mut stream = tokio::net::TcpStream::connect(tcp.address()).await.unwrap();
        let body = "{\"all\":true}";
        let text = format!(
            "{request} HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let refused = ["HTTP/1.1 404", "HTTP/1.1 405"].iter().any(|code| answer.starts_with(code));
        assert!(refused, "{request}: {answer}");
    }
    assert_eq!(stage.numbers().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_is_refused_and_says_what_one_is() {
    let stage = Stage::set().await;
    stage.events(["poison"]).await;
    let socket = stage.socket();
    let mut said = Vec::new();
    let selections = [
        "",
        "{}",
        "{\"all\": false}",
        "{\"all\": true, \"numbers\": [1]}",
        "{\"numbers\": [1], \"sink\": \"pager\"}",
        "{\"numbers\": [-1]}",
        "{\"numbers\": 1}",
        "{\"all\": true, \"sinks\": \"pager\"}",
        "[null, true]",
        "{\"all\": true} x",
        "{\"all\": tr",
    ];
    for body in selections {
        let (status, answer) = post(&socket, "/api/v1/dead-letters/drop", body).await;
        said.push(format!("drop {body}\n{status} {answer}"));
    }
    for body in [
        "{\"sink\": \"pager\"}",
        "{\"sink\": \"pager\", \"from\": 1, \"since\": \"2026-11-21T14:57:00Z\"}",
        "{\"sink\": \"pager\", \"since\": \"yesterday\"}",
        "{\"sink\": \"pagr\", \"from\": 1}",
        "{\"sink\": \"pager\", \"from\": 1, \"match\": \"event.typ == 'Warning'\"}",
        "{\"from\": 1}",
    ] {
        let (status, answer) = post(&socket, "/api/v1/replay", body).await;
        said.push(format!("replay {body}\n{status} {answer}"));
    }
    for query in ["?limit=x", "?before=-1", "?order=up", "/x", "/-1", "/18446744073709551616"] {
        let (status, answer) = get(&socket, &format!("/api/v1/dead-letters{query}")).await;
        said.push(format!("list {query}\n{status} {answer}"));
    }
    insta::assert_snapshot!(said.join("\n\n"));
    assert_eq!(stage.numbers().await.len(), 1, "nothing was done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_end_is_not_taken() {
    let stage = Stage::set().await;
    let socket = stage.socket();
    let numbers: Vec<u64> = (0..100_000).collect();
    let (status, answer) =
        post(&socket, "/api/v1/dead-letters/drop", &json!({"numbers": numbers}).to_string()).await;
    assert_eq!(status, 413, "{answer}");
    assert!(answer.contains("a body has 65536 bytes at most"), "{answer}");
    // Without a length stated beforehand it is noticed on the way.
    let mut chunked = b"POST /api/v1/replay HTTP/1.1\r\nhost: t\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..100 {
        chunked.extend_from_slice(b"1000\r\n");
        chunked.extend_from_slice(&[b' '; 4096]);
        chunked.extend_from_slice(b"\r\n");
    }
    assert_eq!(exchange(&socket, &chunked).await.0, 413);
    assert_eq!(exchange(&socket, b"what is this?\r\n\r\n").await.0, 400);
    assert_eq!(get(&socket, "/livez").await.0, 200, "it goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_pages() {
    let stage = Stage::set().await;
    stage.poison(25).await;
    let (mut numbers, mut query) = (Vec::new(), "?limit=10".to_owned());
    loop {
        let page = get(&stage.socket(), &format!("/api/v1/dead-letters{query}")).await.1;
        let page: Value = serde_json::from_str(&page).unwrap();
        let letters = page["deadLetters"].as_array().unwrap();
        numbers.extend(letters.iter().map(|letter| letter["number"].as_u64().unwrap()));
        let Some(before) = page["before"].as_u64() else { break };
        query = format!("?limit=10&before={before}");
    }
    assert_eq!(numbers, stage.numbers().await);
}

#[tokio::test]
async fn a_bridge_that_goes_away_in_mid_answer_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("tidings.yaml");
    std::fs::write(&config, format!("journal: {{path: {}}}\n", dir.path().display())).unwrap();
    let listener = tokio::net::UnixListener::bind(dir.path().join("admin.sock")).unwrap();
    let serve = async {
        let mut answers = [
            &b""[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n{\"deadLetters\":[",
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno",
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        ]
        .into_iter();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            // The first connection of each command only looks whether anybody is there.
            if stream.read(&mut request).await.unwrap_or(0) > 0 {
                stream.write_all(answers.next().unwrap()).await.unwrap();
            }
        }
    };
    let ask = async {
        let mut said = Vec::new();
        for _ in 0..4 {
            let answer = commands::tidings(&config, &["dead-letters", "list"]).await;
            assert_eq!((answer.code, answer.stdout.as_str()), (1, ""), "{answer:?}");
            said.push(commands::steady(&answer.stderr, dir.path()));
        }
        said
    };
    let said = tokio::select! {
        () = serve => unreachable!(),
        said = ask => said,
    };
    insta::assert_snapshot!(said.join("\n"));
}

proptest! {
    #[test]
    fn no_body_and_no_query_is_a_surprise(bytes in any::<Vec<u8>>(), text in ".*") {
        let _ = api::parse_selection(&bytes);
        let _ = api::parse_selection(text.as_bytes());
        let _ = api::parse_query(&text);
        let wrapped = json!({"sink": text, "since": text, "match": text}).to_string();
        prop_assert!(api::parse_replay(&bytes).is_err());
        prop_assert!(api::parse_replay(wrapped.as_bytes()).is_err() || text.contains('-'));
    }
}
