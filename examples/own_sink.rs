//! A sink of one's own: envelopes as lines over TCP, to a receiver that hangs up on the first
//! batch, as receivers do. Watch it come again under the same ids. (The options: `embed.rs`.)
//!
//!     cargo run --example own_sink
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{io, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tidings::{
    bridge::{
        Bridge, BridgeOptions, Failure, FailureClass, JournalOptions, ObjectOptions, Outcome,
        RefusedClass, Secrets, Sink, SinkOptions, SourceOptions, SourceStart,
    },
    event::{Batch, Cluster, Envelope},
};
use tidings_log::{LogOptions, Sync as SyncPolicy};
use tidings_testkit::api_server::{ApiServer, EventObject, Options};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufStream},
    net::{TcpListener, TcpStream},
    sync::Mutex,
};

/// Sends a batch as `<n>` and n lines, and waits for `ok` or for why not.
struct LinesSink {
    address: String,
    /// The receiver has the other end. `None` at first, and after an attempt without an answer. Several
    /// attempts may be under way; this receiver takes them one at a time, so they wait for each other.
    connection: Mutex<Option<BufStream<TcpStream>>>,
    /// Taken out of everything that the receiver says: a token, had this sink one.
    secrets: Secrets,
}

impl LinesSink {
    async fn attempt(&self, batch: &Batch) -> io::Result<String> {
        let mut kept = self.connection.lock().await;
        // Cancel-safety: the bridge may drop this future at any await, with half a batch sent. So
        // the connection is taken out, and put back only after an answer: dropped, it is closed.
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => BufStream::new(TcpStream::connect(&self.address).await?),
        };
        connection.write_all(format!("{}\n", batch.records.len()).as_bytes()).await?;
        for record in &batch.records {
            connection.write_all(&record.envelope).await?;
            connection.write_all(b"\n").await?;
        }
        connection.flush().await?;
        let mut answer = String::new();
        if connection.read_line(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        *kept = Some(connection);
        Ok(answer.trim_end().to_owned())
    }
}

impl Sink for LinesSink {
    /// One attempt. It neither waits nor tries again, that is the bridge's; what it owes is honesty.
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            match self.attempt(batch).await {
                // The receiver said so. To have written to a socket would not be enough.
                Ok(answer) if answer == "ok" => Outcome::Delivered,
                // The payload is bad, today and tomorrow: it goes to the dead letters. (An answer
                // about us, "log in first", is no refusal: that is `FailureClass::Misconfigured`.)
                Ok(reason) => {
                    let reason = self.secrets.reason(reason);
                    Outcome::Failed(Failure::refused(RefusedClass::Invalid, reason))
                }
                // Whether it has arrived nobody knows, so the bridge will send it again.
                Err(error) => {
                    let reason = self.secrets.reason(format_args!("{}: {error}", self.address));
                    Outcome::Failed(Failure::new(FailureClass::Unavailable, reason))
                }
            }
        })
    }
}

/// The other side: takes a batch, and answers or hangs up.
async fn receive(listener: &TcpListener, answers: bool) -> Result<(), Box<dyn std::error::Error>> {
    let mut lines = BufStream::new(listener.accept().await?.0).lines();
    let count = lines.next_line().await?.unwrap_or_default();
    for _ in 0..count.parse::<u32>()? {
        let envelope = lines.next_line().await?.unwrap_or_default();
        println!("{}  answered: {answers}", &*Envelope::parse(envelope.as_bytes())?.id);
    }
    if answers {
        lines.get_mut().write_all(b"ok\n").await?;
        lines.get_mut().flush().await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let receiver = TcpListener::bind("127.0.0.1:0").await?;
    let address = receiver.local_addr()?.to_string();
    let sink = LinesSink { address, connection: Mutex::default(), secrets: Secrets::none() };
    let (server, journal) = (ApiServer::start(Options::default())?, tempfile::tempdir()?);
    for pod in ["web-1", "web-2"] {
        server.create(EventObject::about_pod("shop", pod, "Killing", "Stopping container"))?;
    }
    let (sync, start) = (SyncPolicy::Interval(Duration::from_secs(1)), SourceStart::All);
    let log = LogOptions { retention_size: 1 << 30, retention_age: Duration::from_hours(24), sync };
    let options = BridgeOptions {
        cluster: Cluster::default(),
        source: SourceOptions { namespaces: vec![], field_selector: String::new(), start },
        journal: JournalOptions {
            path: journal.path().to_owned(),
            log,
            dead_letters: 64 << 20,
            max_event: 256 << 10,
        },
        sinks: vec![SinkOptions::new("lines", "lines", Arc::new(sink))],
        counters: Vec::new(),
        objects: ObjectOptions::default(),
        own_events: None,
        heartbeat: None,
    };
    let client = kube::Client::try_from(kube::Config::new(server.url().parse()?))?;
    let bridge = Bridge::start(client, options).await?;
    receive(&receiver, false).await?;
    receive(&receiver, true).await?;
    bridge.stop(Duration::from_secs(10)).await?;
    Ok(())
}
