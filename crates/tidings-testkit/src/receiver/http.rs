//! A receiver over HTTP/1.1 that is told its answers: bytes, pauses and connections that are cut.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{net::TcpStream, task::JoinHandle};

use crate::http::{Connection, Stream, header, listen};

/// A step of an answer. The connection serves the next request after the last step.
#[derive(Clone, Debug)]
pub enum Step {
    /// Writes these bytes.
    Write(Vec<u8>),
    /// Waits.
    Wait(Duration),
    /// Closes the connection.
    Cut,
    /// Waits until the client closes the connection.
    Hang,
}

impl Step {
    /// Writes a whole answer; `headers` have their line ends. One of 204 is without a body.
    pub fn answer(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Self {
        let (length, body) = match body.as_ref() {
            _ if status.starts_with("204") => (String::new(), &[][..]),
            body => (format!("content-length: {}\r\n", body.len()), body),
        };
        let head = format!("HTTP/1.1 {status}\r\n{headers}{length}\r\n");
        Self::Write([head.as_bytes(), body].concat())
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Received {
    /// The request line and the headers, with their line ends.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
    /// The connection that it came on; the first is 0.
    pub connection: usize,
}

impl Received {
    /// The request line, for instance `POST /events HTTP/1.1`.
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// A header, by its name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// The receiver. It listens on a port of its own until it is dropped; connections that are open then are served on. A
/// body of more than 64 MiB ends its connection.
#[derive(Debug)]
pub struct HttpReceiver {
    /// The address that it listens at.
    pub address: SocketAddr,
    log: Arc<Log>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Log {
    connections: AtomicUsize,
    requests: AtomicUsize,
    received: Mutex<Vec<Received>>,
}

impl Drop for HttpReceiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl HttpReceiver {
    /// Answers each request with what `answer` says of its number, from 0, and of the request. Needs a tokio runtime.
    ///
    /// # Errors
    /// No port can be bound.
    pub fn start(
        answer: impl Fn(usize, &Received) -> Vec<Step> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::accepting(plain, false, answer)
    }

    /// The same, and keeps every request.
    ///
    /// # Errors
    /// No port can be bound.
    pub fn recording(
        answer: impl Fn(usize, &Received) -> Vec<Step> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::accepting(plain, true, answer)
    }

    /// The same over TLS.
    ///
    /// # Errors
    /// No port can be bound.
    #[cfg(feature = "tls")]
    pub fn recording_over_tls(
        config: tokio_rustls::rustls::ServerConfig,
        answer: impl Fn(usize, &Received) -> Vec<Step> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let accept = move |stream| {
            let accept = acceptor.accept(stream);
            async { accept.await.ok() }
        };
        Self::accepting(accept, true, answer)
    }

    /// Answers every request with one status line, headers (with their line ends) and body, and keeps all.
    ///
    /// # Errors
    /// No port can be bound.
    pub fn always(status: &str, headers: &str, body: &str) -> io::Result<Self> {
        let answer = Step::answer(status, headers, body);
        Self::recording(move |_, _| vec![answer.clone()])
    }

    /// `accept` makes a stream of a connection, or nothing.
    fn accepting<S: Stream + 'static, F>(
        accept: impl Fn(TcpStream) -> F + Send + Sync + 'static,
        records: bool,
        answer: impl Fn(usize, &Received) -> Vec<Step> + Send + Sync + 'static,
    ) -> io::Result<Self>
    where
        F: Future<Output = Option<S>> + Send,
    {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let (address, log) = (listener.local_addr()?, Arc::<Log>::default());
        let (kept, told) = (Arc::clone(&log), Arc::new((accept, answer)));
        let accepting = tokio::spawn(async move {
            loop {
                // An error is one of the connection, or of too many files: the next may do.
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                let _ = stream.set_nodelay(true);
                let (log, told) = (Arc::clone(&kept), Arc::clone(&told));
                let number = log.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let (accept, answer) = &*told;
                    if let Some(stream) = accept(stream).await {
                        // A connection that breaks is the client's to notice.
                        let _ = serve(Connection::new(stream), number, &log, records, answer).await;
                    }
                });
            }
        });
        Ok(Self { address, log, accepting })
    }

    /// `scheme://address`.
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.address)
    }

    /// The requests that were kept, in their order. None is answered while the guard is held.
    pub fn received(&self) -> MutexGuard<'_, Vec<Received>> {
        self.log.received()
    }

    /// How many requests came.
    pub fn requests(&self) -> usize {
        self.log.requests.load(Ordering::SeqCst)
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        self.log.connections.load(Ordering::SeqCst)
    }
}

async fn plain(stream: TcpStream) -> Option<TcpStream> {
    Some(stream)
}

impl Log {
    fn received(&self) -> MutexGuard<'_, Vec<Received>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(
    mut connection: Connection,
    number: usize,
    log: &Log,
    records: bool,
    answer: &(impl Fn(usize, &Received) -> Vec<Step> + Sync),
) -> io::Result<()> {
    while let Some((head, body)) = connection.message().await? {
        let request = Received { head, body: body.to_vec(), connection: number };
        let nth = {
            // The n-th of those that are kept is the n-th that came.
            let mut received = log.received();
            if records {
                received.push(request.clone());
            }
            log.requests.fetch_add(1, Ordering::SeqCst)
        };
        for step in answer(nth, &request) {
            match step {
                Step::Write(bytes) => {
                    connection.write(&bytes).await?;
                    connection.flush().await?;
                }
                Step::Wait(time) => tokio::time::sleep(time).await,
                Step::Cut => return Ok(()),
                Step::Hang => {
                    connection.closed().await;
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}
