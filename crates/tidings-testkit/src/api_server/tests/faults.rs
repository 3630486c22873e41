//! What the server does when it is told to misbehave.

use super::*;

#[tokio::test]
async fn refusals_are_in_the_servers_words() {
    let server = server();
    let client = Client::of(&server);
    let cases = [
        (Fault::Unauthorized, "/api/v1/events", 401, "Unauthorized"),
        (
            Fault::Forbidden,
            "/api/v1/events?watch=1",
            403,
            "events is forbidden: User \"system:serviceaccount:tidings:tidings\" cannot watch \
             resource \"events\" in API group \"\" at the cluster scope",
        ),
        (
            Fault::Forbidden,
            "/api/v1/namespaces/shop/events",
            403,
            "events is forbidden: User \"system:serviceaccount:tidings:tidings\" cannot list \
             resource \"events\" in API group \"\" in the namespace \"shop\"",
        ),
        (
            Fault::Forbidden,
            "/api/v1/namespaces/kube-system",
            403,
            "namespaces \"kube-system\" is forbidden: User \
             \"system:serviceaccount:tidings:tidings\" cannot get resource \"namespaces\" in API \
             group \"\" in the namespace \"kube-system\"",
        ),
        (Fault::InternalError, "/api/v1/events", 500, "etcdserver: request timed out"),
        (
            Fault::Gone,
            "/api/v1/events?watch=1",
            410,
            "The resourceVersion for the provided watch is too old.",
        ),
    ];
    for (fault, path, code, message) in cases {
        let id = server.fail_once(On::Any, fault);
        let (status, refused) = client.get(path).await;
        assert_eq!((status.as_u16(), refused["message"].as_str().unwrap()), (code, message));
        assert_eq!(server.fault_hits(id), 1);
    }
    server.fail_once(On::List, Fault::TooManyRequests { retry_after: 3 });
    let response = client.send("GET", "/api/v1/events", None).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (429, &"3".parse().unwrap())
    );
    server.fail_once(On::List, Fault::Html { code: 502 });
    let response = client.send("GET", "/api/v1/events", None).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (502, &"text/html".parse().unwrap())
    );
    assert_eq!(client.get("/api/v1/events").await.0, 200);
}

#[tokio::test]
async fn streams_break_as_told() {
    let server = server();
    let client = Client::of(&server);
    fill(&server, "shop", 3);
    let path = "/api/v1/events?watch=1&resourceVersion=1000";
    let broken = async |after, then| {
        server.fail_once(On::Watch, Fault::Stream { after, then });
        client.watch(path).await
    };
    let all = ["ADDED e00@1001", "ADDED e01@1002", "ADDED e02@1003"].map(str::to_owned);

    let mut lines = broken(2, StreamFault::Cut(Place::MidLine, Ending::Clean)).await;
    assert_eq!(lines.finish().await, all[..2]);
    assert_eq!((lines.ended, lines.rest.is_empty()), (Some(Ok(())), false));
    let mut lines = broken(1, StreamFault::Cut(Place::MidCharacter, Ending::Closed)).await;
    assert_eq!(lines.finish().await, all[..1]);
    assert_eq!(lines.rest.last(), Some(&0xe2), "the first byte of the ellipsis");
    assert!(lines.ended.unwrap().is_err());
    let mut lines = broken(3, StreamFault::Cut(Place::BetweenLines, Ending::Reset)).await;
    assert_eq!(lines.finish().await, all);
    assert!(lines.ended.unwrap().is_err());
    let mut lines = broken(0, StreamFault::Cut(Place::BetweenLines, Ending::Clean)).await;
    assert_eq!((lines.finish().await.len(), lines.ended), (0, Some(Ok(()))));
    let mut lines = broken(1, StreamFault::Stall).await;
    assert_eq!((&lines.take(1).await[..], lines.ended), (&all[..1], None));
    let mut lines = broken(1, StreamFault::Expired).await;
    assert_eq!(lines.finish().await[1..], ["ERROR 410 Expired"]);
    let mut lines = broken(0, StreamFault::InternalError).await;
    assert_eq!(lines.finish().await, ["ERROR 500 InternalError"]);
    let mut lines = broken(2, StreamFault::Bookmark).await;
    assert_eq!(lines.take(4).await[2..], ["BOOKMARK 1003", "ADDED e02@1003"]);
    let mut lines = broken(1, StreamFault::garbage()).await;
    assert_eq!(lines.take(4).await[1..3], ["garbage", "ADDED e01@1002"]);
    let mut lines = broken(3, StreamFault::wrong_kind()).await;
    assert_eq!(lines.take(4).await[3..], ["ADDED stray@1"]);
    server.fail_once(On::Watch, Fault::EmptyStream);
    let mut lines = client.watch(path).await;
    assert_eq!((lines.finish().await.len(), lines.ended), (0, Some(Ok(()))));
    server.fail_once(On::Watch, Fault::Slow { bytes_per_second: 20_000 });
    assert_eq!(client.watch(path).await.take(3).await, all);
}

#[tokio::test]
async fn a_list_breaks_as_told() {
    let server = server();
    let client = Client::of(&server);
    fill(&server, "shop", 3);
    for how in [Ending::Closed, Ending::Reset] {
        let then = StreamFault::Cut(Place::MidLine, how);
        server.fail_once(On::List, Fault::Stream { after: 1, then });
        let response = client.send("GET", "/api/v1/events", None).await.unwrap();
        assert!(response.into_body().collect().await.is_err());
    }
    for fault in [Fault::Reset, Fault::Hang] {
        let hang = fault == Fault::Hang;
        server.fail_once(On::List, fault);
        let get =
            client.0.request_text(HttpRequest::get("/api/v1/events").body(Vec::new()).unwrap());
        let patience = if hang { Duration::from_millis(300) } else { LONG };
        let answer = timeout(patience, get).await;
        assert_eq!(answer.is_err(), hang, "{answer:?}");
        assert!(answer.is_err() || answer.unwrap().is_err());
    }
    let late = Instant::now();
    server.fail_once(On::List, Fault::Delay(Duration::from_millis(120)));
    assert_eq!(client.get("/api/v1/events").await.0, 200);
    assert!(late.elapsed() >= Duration::from_millis(120));
}

#[tokio::test]
async fn it_goes_away_and_comes_back_and_is_restored() {
    let server = server();
    let client = Client::of(&server);
    fill(&server, "shop", 1);
    let snapshot = server.snapshot();
    let mut watch = client.watch("/api/v1/events?watch=1&resourceVersion=1000").await;
    server.create(event("shop", "lost")).unwrap();
    assert_eq!(watch.take(2).await.len(), 2);
    server.stop_listening().await;
    assert_eq!(watch.finish().await.len(), 0);
    assert!(matches!(watch.ended, Some(Err(_))));
    assert!(client.send("GET", "/version", None).await.is_err());
    server.restore(&snapshot);
    server.listen_again().unwrap();
    assert_eq!(names(&client.get("/api/v1/events").await.1), ["e00"]);
    let written = server.create(event("shop", "again")).unwrap();
    assert_eq!(written.resource_version, 1002, "the revision is given out again");
}

#[tokio::test]
async fn a_large_list_is_compressed_for_who_takes_it() {
    let server = ApiServer::start(Options { gzip_above: 500, ..Options::default() }).unwrap();
    let client = Client::of(&server);
    fill(&server, "shop", 20);
    assert_eq!(names(&client.get("/api/v1/events").await.1).len(), 20);
    let request = &server.requests()[0].request;
    assert_eq!((&*request.method, &*request.path), ("GET", "/api/v1/events"));
    assert!(request.header("accept-encoding").contains("gzip"));
}

#[tokio::test]
async fn small_lists_and_other_clients_get_plain_text() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = ApiServer::start(Options { gzip_above: 5000, ..Options::default() }).unwrap();
    let packed = async |accept: &str| {
        let mut stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        let request =
            format!("GET /api/v1/events HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {accept}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while memchr::memmem::find(&answer, b"\r\n\r\n").is_none() {
            timeout(LONG, stream.read_buf(&mut answer)).await.unwrap().unwrap();
        }
        memchr::memmem::find(&answer, b"Content-Encoding: gzip\r\n").is_some()
    };
    assert!(!packed("gzip").await);
    fill(&server, "shop", 20);
    assert!(packed("deflate, gzip").await);
    assert!(!packed("identity").await);
}
