//! What a flood of connections finds, on the admin server and on the control socket alike.

use std::time::Duration;

use tidings::{
    admin::{AdminServer, ControlSocket, ReloadHandle},
    bridge::Bridge,
};
use tidings_testkit::api_server::ApiServer;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
    time::{Instant, timeout},
};

use super::{
    serve,
    support::{MemorySink, Setup, server, stop},
};

const WHOLE: &str = "GET /livez HTTP/1.1\r\nhost: t\r\n\r\n";

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A bridge with both of its doors.
struct Doors {
    bridge: Bridge,
    admin: AdminServer,
    _control: ControlSocket,
    dir: tempfile::TempDir,
    _server: ApiServer,
}

#[derive(Clone, Copy, Debug)]
enum Door {
    Admin,
    Control,
}
const BOTH: [Door; 2] = [Door::Admin, Door::Control];

impl Doors {
    async fn open() -> Self {
        let (server, dir) = (server(), tempfile::tempdir().unwrap());
        let bridge =
            Setup::new(&server, dir.path()).sink("a", &MemorySink::default()).start().await;
        let admin = serve(&bridge);
        let control = ControlSocket::start(
            dir.path(),
            bridge.view(),
            bridge.control(),
            ReloadHandle::new().0,
        )
        .unwrap();
        Self { bridge, admin, _control: control, dir, _server: server }
    }

    /// A connection on which this has been sent.
    async fn send(&self, door: Door, text: &str) -> Box<dyn Stream> {
        let mut stream: Box<dyn Stream> = match door {
            Door::Admin => Box::new(TcpStream::connect(self.admin.address()).await.unwrap()),
            Door::Control => {
                Box::new(UnixStream::connect(self.dir.path().join("admin.sock")).await.unwrap())
            }
        };
        // Whoever refuses may close before it has all of it.
        let _ = stream.write_all(text.as_bytes()).await;
        stream
    }

    async fn asked(&self, door: Door, text: &str) -> String {
        rest(self.send(door, text).await).await
    }
}

/// Everything until the other end closes.
async fn rest(mut stream: impl AsyncRead + Unpin) -> String {
    let mut rest = Vec::new();
    // It may close with something of ours unread, which comes as an error after what it sent.
    let reading = timeout(Duration::from_mins(1), stream.read_to_end(&mut rest));
    let _ = reading.await.expect("the end of the connection within a minute");
    String::from_utf8(rest).unwrap()
}

/// The same, while the time is the test's; and how long that took.
async fn rest_as_time_goes_by(stream: impl AsyncRead + Unpin) -> (String, Duration) {
    tokio::time::pause();
    let begun = Instant::now();
    let moving = async {
        loop {
            tokio::time::advance(Duration::from_millis(100)).await;
        }
    };
    let rest = tokio::select! {
        rest = rest(stream) => rest,
        () = moving => unreachable!(),
    };
    let took = begun.elapsed();
    tokio::time::resume();
    (rest, took)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_without_end_makes_room_when_all_places_are_taken() {
    let doors = Doors::open().await;
    for door in BOTH {
        let mut heads = Vec::new();
        for _ in 0..200 {
            heads.push(doors.send(door, "GET /livez HTTP/1.1\r\nx: y").await);
        }
        assert!(doors.asked(door, WHOLE).await.starts_with("HTTP/1.1 200"), "{door:?}");
        for head in heads.drain(..200 - 64) {
            assert_eq!(rest(head).await, "", "{door:?}");
        }
        let mut newest = heads.pop().unwrap();
        newest.write_all(b"\r\n\r\n").await.unwrap();
        assert!(rest(newest).await.starts_with("HTTP/1.1 200"), "{door:?}");
    }
    stop(doors.bridge).await;
}

#[tokio::test]
async fn a_head_that_does_not_come_to_its_end_is_not_waited_for() {
    let doors = Doors::open().await;
    for door in BOTH {
        for begun in ["", "GET /livez"] {
            let head = doors.send(door, begun).await;
            let (answer, took) = rest_as_time_goes_by(head).await;
            assert_eq!(answer, "", "{door:?}");
            // It is 5 s; the test's time runs ahead of those who close.
            assert!(took.as_secs() >= 4, "{door:?}: {took:?}");
        }
    }
    stop(doors.bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_above_16_kib_is_refused() {
    let doors = Doors::open().await;
    for door in BOTH {
        let fits = format!("GET /livez HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(16_000));
        assert!(doors.asked(door, &fits).await.starts_with("HTTP/1.1 200"), "{door:?}");
        let endless = format!("GET /livez HTTP/1.1\r\nx: {}", "x".repeat(380_000));
        let answer = doors.asked(door, &endless).await;
        assert!(answer.starts_with("HTTP/1.1 431"), "{door:?}: {answer}");
    }
    stop(doors.bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_ends_with_its_answer() {
    let doors = Doors::open().await;
    for door in BOTH {
        let answer = doors.asked(door, &WHOLE.repeat(100)).await;
        assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{door:?}: {answer}");
    }
    stop(doors.bridge).await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let doors = Doors::open().await;
    let post =
        "POST /api/v1/dead-letters/drop HTTP/1.1\r\nhost: t\r\ncontent-length: 60000\r\n\r\n{";
    assert!(doors.asked(Door::Admin, post).await.starts_with("HTTP/1.1 404"), "it reads none");
    let slow = doors.send(Door::Control, post).await;
    let (answer, took) = rest_as_time_goes_by(slow).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(took.as_secs() >= 9, "{took:?}");
    assert!(answer.contains("the request is not whole after 10 s"), "{answer}");
    stop(doors.bridge).await;
}
