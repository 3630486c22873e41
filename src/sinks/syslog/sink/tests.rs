use tokio::{
    net::TcpListener,
    sync::{Notify, mpsc},
};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::{
    bridge::EventFate,
    sinks::{
        BuildSink as _,
        fixtures::{self, batch},
        http::pki::Pki,
    },
};

/// Reads the messages of connections, of which it closes each after so many, or when it is told to.
struct Receiver {
    address: String,
    /// The number of the connection, and a message.
    messages: mpsc::UnboundedReceiver<(usize, String)>,
    closing: Arc<Notify>,
}

impl Receiver {
    async fn start(tls: Option<rustls::ServerConfig>, closes_after: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("localhost:{}", listener.local_addr().unwrap().port());
        let acceptor = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
        let (told, messages) = mpsc::unbounded_channel();
        let closing = Arc::<Notify>::default();
        let is_closing = Arc::clone(&closing);
        tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (told, acceptor, closing) =
                    (told.clone(), acceptor.clone(), is_closing.clone());
                tokio::spawn(async move {
                    let mut stream: Box<dyn Stream> = match acceptor {
                        None => Box::new(stream),
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => Box::new(stream),
                            Err(_) => return,
                        },
                    };
                    for _ in 0..closes_after {
                        let read = tokio::select! {
                            message = read(&mut stream) => message,
                            () = closing.notified() => None,
                        };
                        let Some(message) = read else { return };
                        told.send((connection, message)).unwrap();
                    }
                });
            }
        });
        Self { address, messages, closing }
    }

    async fn next(&mut self) -> (usize, String) {
        self.messages.recv().await.unwrap()
    }
}

/// A message behind its length.
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut length = 0;
    loop {
        match stream.read_u8().await.ok()? {
            b' ' => break,
            digit => length = length * 10 + usize::from(digit - b'0'),
        }
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await.ok()?;
    Some(String::from_utf8(message).unwrap())
}

fn failure(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn messages_stand_behind_their_lengths_on_one_connection() {
    let mut receiver = Receiver::start(None, usize::MAX).await;
    let mut options = SyslogOptions::new(&receiver.address);
    options.app_name = "events".to_owned();
    let sink = options.build().unwrap();
    assert_eq!(sink.send(&batch(1..=2)).await, Outcome::Delivered);
    assert_eq!(sink.send(&batch(3..=3)).await, Outcome::Delivered);
    for n in 1..=3 {
        let (connection, message) = receiver.next().await;
        assert_eq!(connection, 0);
        let (header, event) = message.split_once(" {").unwrap();
        let header_of = format!(
            "<133>1 2026-11-21T10:00:00.000000Z prod events - - [tidings@32473 id=\"e{n}-{n}\"]"
        );
        assert_eq!(header, header_of);
        assert_eq!(format!("{{{event}").as_bytes(), fixtures::record(n, "m").envelope);
    }
}

#[tokio::test]
async fn a_connection_that_the_receiver_has_closed_is_not_written_on() {
    let mut receiver = Receiver::start(None, usize::MAX).await;
    let sink = SyslogOptions::new(&receiver.address).build().unwrap();
    for n in 0..3 {
        assert_eq!(sink.send(&batch(1..=2)).await, Outcome::Delivered);
        assert_eq!((receiver.next().await.0, receiver.next().await.0), (n, n));
        receiver.closing.notify_waiters();
    }
    // One that is too old is not written on either.
    let mut receiver = Receiver::start(None, usize::MAX).await;
    let mut options = SyslogOptions::new(&receiver.address);
    options.connection_max_age = Duration::ZERO;
    let sink = options.build().unwrap();
    for n in 0..2 {
        assert_eq!(sink.send(&batch(1..=1)).await, Outcome::Delivered);
        assert_eq!(receiver.next().await.0, n);
    }
}

#[tokio::test]
async fn a_batch_is_not_delivered_if_the_receiver_closes_the_connection_behind_it() {
    let receiver = Receiver::start(None, 1).await;
    let sink = SyslogOptions::new(&receiver.address).build().unwrap();
    for _ in 0..2 {
        let closed = failure(sink.send(&batch(1..=2)).await);
        assert_eq!((closed.class, closed.status), (FailureClass::Unavailable, Status::Cut));
    }
}

#[tokio::test]
async fn a_batch_that_a_slow_receiver_takes_in_several_attempts_is_written_once() {
    let pki = Pki::new("localhost");
    for tls in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("localhost:{}", listener.local_addr().unwrap().port());
        let mut options = SyslogOptions::new(address);
        options.timeout = Duration::from_millis(500);
        let acceptor = tls.then(|| {
            (options.transport, options.tls) = (SyslogTransport::Tls, Some(pki.options(false)));
            TlsAcceptor::from(Arc::new(pki.server_config(false)))
        });
        let (reads, may_read) = tokio::sync::oneshot::channel::<()>();
        let receiver = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream: Box<dyn Stream> = match acceptor {
                None => Box::new(stream),
                Some(acceptor) => Box::new(acceptor.accept(stream).await.unwrap()),
            };
            may_read.await.unwrap();
            let mut messages = Vec::new();
            while messages.len() < 3001 {
                messages.push(read(&mut stream).await.unwrap());
            }
            (messages, stream)
        });
        let sink = options.build().unwrap();
        let records = (1..=3000).map(|seq| fixtures::record(seq, &"x".repeat(7000)));
        let large = Batch { records: records.collect() };
        // More than the buffers of both ends hold.
        for _ in 0..2 {
            let unread = failure(sink.send(&large).await);
            assert_eq!(unread.class, FailureClass::Timeout);
            assert!(unread.reason.contains("has not taken a batch within"), "{}", unread.reason);
        }
        reads.send(()).unwrap();
        while sink.send(&large).await != Outcome::Delivered {}
        assert_eq!(sink.send(&batch(3001..=3001)).await, Outcome::Delivered);
        let (messages, _open) = receiver.await.unwrap();
        for (seq, message) in (1..).zip(&messages) {
            assert!(message.contains(&format!("id=\"e{seq}-{seq}\"")), "{seq}");
        }
    }
}

#[tokio::test]
async fn tls_is_checked_both_ways() {
    let pki = Pki::new("localhost");
    let mut receiver = Receiver::start(Some(pki.server_config(true)), usize::MAX).await;
    let mut options = SyslogOptions::new(&receiver.address);
    options.transport = SyslogTransport::Tls;
    options.tls = Some(pki.options(true));
    let sink = options.build().unwrap();
    for n in 0..2 {
        assert_eq!(sink.send(&batch(1..=1)).await, Outcome::Delivered);
        assert_eq!(receiver.next().await.0, 0, "{n}");
    }
    // Its certificate is judged behind the handshake.
    for certificate in [None, Some(Pki::new("localhost").options(true))] {
        let mut mine = pki.options(false);
        if let Some(other) = certificate {
            (mine.cert, mine.key) = (other.cert, other.key);
        }
        options.tls = Some(mine);
        let refused = failure(options.build().unwrap().send(&batch(1..=1)).await);
        assert_eq!(refused.class, FailureClass::Misconfigured, "{}", refused.reason);
    }
    options.tls = Some(Pki::new("localhost").options(true));
    let unknown = failure(options.build().unwrap().send(&batch(1..=1)).await);
    assert_eq!(unknown.class, FailureClass::Misconfigured, "{}", unknown.reason);
    options.tls = Some(pki.options(true));
    options.address = options.address.replace("localhost", "127.0.0.1");
    let other_name = failure(options.build().unwrap().send(&batch(1..=1)).await);
    assert_eq!(other_name.class, FailureClass::Misconfigured, "{}", other_name.reason);
    options.tls.as_mut().unwrap().server_name = Some("localhost".to_owned());
    assert_eq!(options.build().unwrap().send(&batch(1..=1)).await, Outcome::Delivered);
}

#[tokio::test]
async fn a_datagram_of_udp_is_a_message() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut options = SyslogOptions::new(socket.local_addr().unwrap().to_string());
    options.transport = SyslogTransport::Udp;
    let sink = options.build().unwrap();
    assert_eq!(sink.send(&batch(1..=2)).await, Outcome::Delivered);
    for n in 1..=2 {
        let mut datagram = [0; 2048];
        let length = socket.recv(&mut datagram).await.unwrap();
        let message = std::str::from_utf8(&datagram[..length]).unwrap();
        assert!(message.starts_with("<133>1 ") && message.contains(&format!("id=\"e{n}-{n}\"")));
    }
}

#[tokio::test]
async fn a_receiver_that_is_away_is_tried_again() {
    // Bound, so that nobody else takes the port, and not listening.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut options = SyslogOptions::new(socket.local_addr().unwrap().to_string());
    let away = failure(options.build().unwrap().send(&batch(1..=1)).await);
    assert_eq!((away.class, away.fault), (FailureClass::Unavailable, Fault::Sink));
    // Accepts, and does not speak TLS.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    options.address = listener.local_addr().unwrap().to_string();
    (options.transport, options.timeout) = (SyslogTransport::Tls, Duration::from_millis(300));
    let silent = failure(options.build().unwrap().send(&batch(1..=1)).await);
    assert_eq!((silent.class, silent.fault), (FailureClass::Timeout, Fault::Sink));
}

#[tokio::test]
async fn no_message_is_longer_than_its_bound() {
    let mut receiver = Receiver::start(None, usize::MAX).await;
    for format in [Format::Envelope, Format::Event, Format::Ecs, Format::CloudEvents] {
        for most in [4 << 10, 5 << 10, 8000] {
            let mut options = SyslogOptions::new(&receiver.address);
            (options.format, options.most_bytes) = (format, most);
            let sink = options.build().unwrap();
            for length in [0, most - 900, most - 500, most - 200, most, 20_000, 200_000] {
                let records = vec![fixtures::record(1, &"x".repeat(length))];
                assert_eq!(sink.send(&Batch { records }).await, Outcome::Delivered, "{length}");
                let (_, message) = receiver.next().await;
                assert!(message.len() <= most, "{format:?}: {length} became {}", message.len());
            }
        }
    }
    // Data beside the Event cannot be cut: it takes no other with it.
    let mut long = fixtures::record(2, "m");
    let envelope = String::from_utf8(long.envelope.to_vec()).unwrap();
    let object = format!(r#","object":{{"annotations":{{"a":"{}"}}}},"event""#, "x".repeat(9000));
    long.envelope = envelope.replacen(",\"event\"", &object, 1).into();
    let sink = SyslogOptions::new(&receiver.address).build().unwrap();
    let records = vec![fixtures::record(1, "m"), long, fixtures::record(3, "m")];
    let Outcome::PerEvent(fates) = sink.send(&Batch { records }).await else { panic!() };
    let [EventFate::Delivered, EventFate::Failed(failure), EventFate::Delivered] = &*fates else {
        panic!("{fates:?}")
    };
    assert_eq!(failure.class, FailureClass::Refused(RefusedClass::Unsendable));
    let words = "expected a message of at most 8000 bytes, found ";
    assert!(failure.reason.starts_with(words), "{}", failure.reason);
}
