//! The bridge and a receiver of syslog: one message for one event, whatever an Event says and however often the receiver
//! closes the connection.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::Value;
use tidings::{bridge::Sink, config::parse};
use tidings_testkit::api_server::EventObject;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use crate::support::{MemorySink, Setup, Tuning, server, settled, stop, until};

const HOSTILE: [&str; 3] = [
    "\n70 <0>1 2026-11-21T10:00:00Z dc1 sshd - - - root login accepted\n<0>1 - dc1 sshd - - - x",
    "quote \" bracket ] backslash \\ NUL \0 bell \u{7} C1 \u{9b} \u{2028} \u{202e}txt.exe",
    "[tidings@32473 id=\"forged\"]",
];

/// Reads messages of RFC 5424 by their lengths.
#[derive(Clone, Default)]
struct Receiver {
    /// By their ids.
    messages: Arc<Mutex<BTreeMap<String, Vec<Value>>>>,
    /// How many connections were opened.
    opened: Arc<AtomicUsize>,
    closing: Arc<Notify>,
    closed: Arc<AtomicUsize>,
}

impl Receiver {
    async fn start() -> (Self, String) {
        let receiver = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let this = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                this.opened.fetch_add(1, Ordering::SeqCst);
                let this = this.clone();
                tokio::spawn(async move {
                    let closing = Arc::clone(&this.closing);
                    tokio::select! {
                        () = closing.notified() => {}
                        () = this.read(stream) => {}
                    }
                    this.closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        (receiver, address)
    }

    async fn read(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        loop {
            let mut length = Vec::new();
            stream.read_until(b' ', &mut length).await.unwrap();
            let Some((b' ', digits)) = length.split_last() else { return };
            let length = std::str::from_utf8(digits).unwrap().parse().unwrap();
            assert!(length <= 8000, "{length}");
            let mut message = vec![0; length];
            stream.read_exact(&mut message).await.unwrap();
            self.take(std::str::from_utf8(&message).unwrap());
        }
    }

    async fn has(&self, events: u64) {
        until("all have come", || self.messages.lock().unwrap().len() as u64 == events).await;
    }

    /// Reads a message as strictly as the events of these tests allow.
    fn take(&self, message: &str) {
        let mut parts = message.splitn(9, ' ');
        let mut next = || parts.next().unwrap();
        assert_eq!(next(), "<134>1");
        let time: jiff::Timestamp = next().parse().unwrap();
        assert_eq!([next(), next(), next(), next()], ["test", "tidings", "-", "Failed"]);
        assert_eq!(next(), "[tidings@32473");
        let id = next().strip_prefix("id=\"").unwrap().strip_suffix("\"]").unwrap();
        let event: Value = serde_json::from_str(next()).unwrap();
        assert_eq!(event["id"], id);
        assert_eq!(event["time"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap(), time);
        self.messages.lock().unwrap().entry(id.to_owned()).or_default().push(event);
    }
}

/// The sink of `config/syslog.yaml`, towards the double, and without TLS.
fn shipped(address: &str) -> Arc<dyn Sink> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("config/syslog.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let text = text
        .replace("syslog.example.com:6514", address)
        .replace("transport: tls", "transport: tcp");
    let settings = parse("syslog.yaml", &text, []).unwrap_or_else(|error| panic!("{error}"));
    let [sink] = settings.sinks.as_slice() else { panic!("one sink") };
    assert_eq!(sink.max_event, Some(8000 - 512));
    sink.sink.build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_is_a_message_of_its_own() {
    let (server, dir, memory) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let (receiver, address) = Receiver::start().await;
    let mut setup = Setup::new(&server, dir.path()).sink("memory", &memory);
    setup.sinks.push(("syslog", shipped(&address), Tuning::default()));
    let bridge = setup.start().await;
    let view = bridge.view();
    let create = |pod: &str, message: &str| {
        server.create(EventObject::about_pod("shop", pod, "Failed", message)).unwrap();
    };
    for (n, message) in HOSTILE.into_iter().enumerate() {
        create(&format!("web-{n}"), message);
    }
    create("web-long", &"é".repeat(20_000));
    let mut seen = HOSTILE.len() as u64 + 1;
    for round in 0..3 {
        let status = settled(&view, "syslog", seen).await;
        assert_eq!((status.delivered, status.dead_lettered), (seen, 0));
        receiver.has(seen).await;
        assert_eq!(receiver.opened.load(Ordering::SeqCst), round + 1);
        receiver.closing.notify_waiters();
        until("it is closed", || receiver.closed.load(Ordering::SeqCst) == round + 1).await;
        for n in 0..20 {
            create(&format!("api-{round}-{n}"), "m");
        }
        seen += 20;
    }
    receiver.has(seen).await;
    stop(bridge).await;

    let messages = receiver.messages.lock().unwrap();
    let mut sent = memory.ids();
    sent.sort();
    assert_eq!(messages.keys().cloned().collect::<Vec<_>>(), sent);
    let texts: Vec<_> = messages.values().map(|found| &found[0]["event"]["message"]).collect();
    for message in HOSTILE {
        assert_eq!(texts.iter().filter(|found| **found == message).count(), 1);
    }
}
