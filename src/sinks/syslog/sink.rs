//! Messages on their way: one connection, or one socket of UDP.

#[cfg(test)]
mod tests;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::BytesMut;
use futures_util::{FutureExt as _, future::BoxFuture};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustls::{
    ClientConfig, ProtocolVersion, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket, lookup_host},
    sync::Mutex,
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    SyslogOptions, SyslogTransport,
    keys::{HEADER_BYTES, address, is_app_name},
};
use crate::{
    bridge::{Failure, FailureClass, Fault, Outcome, RefusedClass, Secrets, Sink, Status},
    document::Wrong,
    encode::{Format, syslog},
    event::{Batch, Record, smaller},
    sinks::{
        SinkBuildError, TlsOptions,
        http::{net_error, tls},
        own_deadline,
    },
};

/// How long a sink waits for the receiver to close the connection, before it writes a batch.
const LISTEN_BEFORE: Duration = Duration::from_millis(1);
/// The same, after it has written a batch.
const LISTEN_BEHIND: Duration = Duration::from_millis(5);
/// The same, after the first batch on a connection. A receiver that speaks TLS, or a proxy that has no receiver, closes it by
/// then.
const LISTEN_FIRST: Duration = Duration::from_millis(250);
/// How long a receiver that sends no tickets may object to our certificate.
const JUDGED_WITHIN: Duration = Duration::from_millis(500);
/// How long the receiver's end of a connection is waited for.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// How much that is written may wait in our host for the receiver's, in bytes; Linux takes twice as much. All of it is lost
/// when the receiver's host goes away.
const SEND_BUFFER: usize = 64 << 10;

/// Sends events to one receiver.
pub(super) struct Syslog {
    host: String,
    port: u16,
    /// `host:port`, for messages.
    peer: String,
    transport: Transport,
    facility: u8,
    app_name: String,
    format: Format,
    most_bytes: usize,
    max_age: Duration,
    deadline: Duration,
    /// Counts connections: each begins with the next address of the name.
    turn: AtomicUsize,
    /// Taken out while it is written on: one that an attempt has dropped in the midst is not used again.
    open: Mutex<Option<Open>>,
}

enum Transport {
    Udp,
    Tcp,
    Tls(TlsConnector, ServerName<'static>),
}

struct Open {
    socket: Socket,
    since: Instant,
    /// Whether it was still open behind a batch.
    is_proved: bool,
    /// The bytes that are still to be written, of an attempt for which the receiver was too slow.
    rest: BytesMut,
    /// The records of such attempts, by their sequence. They are not written again.
    written: Vec<u64>,
}

enum Socket {
    Udp(UdpSocket),
    Stream(Box<dyn Stream>),
}

trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

impl Syslog {
    /// Checks the options; nothing is connected yet.
    pub(super) fn new(options: &SyslogOptions) -> Result<Self, SinkBuildError> {
        let bad = |key: &str, wrong: Wrong| SinkBuildError::at(&[key], wrong.what);
        let (host, port) = address(&options.address).map_err(|wrong| bad("address", wrong))?;
        is_app_name(&options.app_name).map_err(|wrong| bad("appName", wrong))?;
        let transport = match options.transport {
            SyslogTransport::Udp => Transport::Udp,
            SyslogTransport::Tcp => Transport::Tcp,
            SyslogTransport::Tls => {
                let tls = options.tls.clone().unwrap_or_default();
                let connector = TlsConnector::from(Arc::new(client_config(&tls)?));
                let name = tls.server_name.as_deref().unwrap_or(host).to_owned();
                let name = ServerName::try_from(name).map_err(|_| {
                    let reason = "expected a name or an address of IP, found another host";
                    SinkBuildError::at(&["address"], reason)
                })?;
                Transport::Tls(connector, name)
            }
        };
        Ok(Self {
            host: host.to_owned(),
            port,
            peer: options.address.clone(),
            transport,
            facility: options.facility as u8,
            app_name: options.app_name.clone(),
            format: options.format,
            most_bytes: options.most_bytes,
            max_age: options.connection_max_age,
            deadline: own_deadline(options.timeout),
            turn: AtomicUsize::default(),
            open: Mutex::default(),
        })
    }

    /// The message of a record. Its event is cut once more where a format makes it too long.
    fn message(&self, record: &Record) -> Result<Vec<u8>, String> {
        let (mut record, most) = (record.clone(), self.most_bytes);
        let mut found = 0;
        for room in [usize::MAX, most.saturating_sub(HEADER_BYTES), most / 2, most / 4] {
            if let Some(envelope) = smaller(&record.envelope, room) {
                record.envelope = envelope;
            }
            let message = syslog::message(&record, self.format, self.facility, &self.app_name);
            let message = message.map_err(|error| error.to_string())?;
            if message.len() <= most {
                return Ok(message);
            }
            found = message.len();
        }
        Err(format!("expected a message of at most {most} bytes, found {found}: see `maxEvent`"))
    }

    /// Writes the messages of records. A connection on which a receiver is slow is kept, and written on where it was left.
    async fn attempt(&self, messages: &[(u64, Vec<u8>)]) -> Result<(), Failure> {
        let end = Instant::now() + self.deadline;
        let not_taken = || {
            let (peer, within) = (&self.peer, self.deadline);
            let words = format_args!("{peer} has not taken a batch within {within:?}");
            Failure::silence(Secrets::none().reason(words))
        };
        let mut slot = timeout_at(end, self.open.lock()).await.map_err(|_| not_taken())?;
        let mut open = slot.take();
        if let Some(Open { socket, since, written, .. }) = &mut open {
            let is_open = socket.is_open(Instant::now() + LISTEN_BEFORE).await;
            let is_old = since.elapsed() >= self.max_age && written.is_empty();
            if !is_open.map_err(|error| self.failure(&error))? || is_old {
                socket.close().await;
                open = None;
            }
        }
        let mut open = match open {
            Some(open) => open,
            None => {
                let socket = timeout_at(end, self.connect()).await;
                let in_time = || Err(self.unconnected(&io::ErrorKind::TimedOut.into()));
                Open {
                    socket: socket.unwrap_or_else(|_| in_time())?,
                    since: Instant::now(),
                    is_proved: false,
                    rest: BytesMut::new(),
                    written: Vec::new(),
                }
            }
        };
        match timeout_at(end, open.write(messages)).await {
            Ok(written) => written.map_err(|error| self.failure(&error))?,
            Err(_) => {
                *slot = Some(open);
                return Err(not_taken());
            }
        }
        let behind = if open.is_proved { LISTEN_BEHIND } else { LISTEN_FIRST };
        let is_open = open.socket.is_open(end.min(Instant::now() + behind)).await;
        if !is_open.map_err(|error| self.failure(&error))? {
            let words = format_args!("{} has closed the connection behind a batch", self.peer);
            let failure = Failure::new(FailureClass::Unavailable, Secrets::none().reason(words));
            return Err(Failure { fault: Fault::RecordForNow, status: Status::Cut, ..failure });
        }
        open.is_proved = true;
        open.written.retain(|written| !messages.iter().any(|(seq, _)| seq == written));
        *slot = Some(open);
        Ok(())
    }

    /// Connects to the first of the addresses of the name that takes a connection.
    async fn connect(&self) -> Result<Socket, Failure> {
        let addresses = lookup_host((self.host.as_str(), self.port)).await.map_err(|error| {
            let words = format_args!("cannot resolve the name of {}: {error}", self.peer);
            Failure::new(FailureClass::Unavailable, Secrets::none().reason(words))
        })?;
        let mut addresses: Vec<_> = addresses.collect();
        // Another one comes first each time: of UDP only the next attempt hears that nobody is there.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let first = turn.checked_rem(addresses.len()).unwrap_or_default();
        addresses.rotate_left(first);
        // One that does not answer leaves time for the others.
        let within = self.deadline / addresses.len().max(1) as u32;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            match timeout(within, self.connect_to(address)).await {
                Ok(Ok(socket)) => return Ok(socket),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(self.unconnected(&last))
    }

    fn unconnected(&self, error: &io::Error) -> Failure {
        net_error::to_failure(error, false, &self.peer, &Secrets::none())
    }

    async fn connect_to(&self, address: SocketAddr) -> io::Result<Socket> {
        if let Transport::Udp = self.transport {
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any).await?;
            socket.connect(address).await?;
            return Ok(Socket::Udp(socket));
        }
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        set_socket_send_buffer_size(&stream, SEND_BUFFER)?;
        let Transport::Tls(connector, name) = &self.transport else {
            return Ok(Socket::Stream(Box::new(stream)));
        };
        let mut stream = connector.connect(name.clone(), stream).await?;
        is_accepted(&mut stream).await?;
        Ok(Socket::Stream(Box::new(stream)))
    }

    fn failure(&self, error: &io::Error) -> Failure {
        let connected = !matches!(self.transport, Transport::Udp);
        net_error::to_failure(error, connected, &self.peer, &Secrets::none())
    }
}

/// Waits until the receiver has judged our certificate, of which TLS 1.3 says nothing in the handshake. A receiver that
/// accepts it sends tickets, most often; one that sends none has a while to object.
async fn is_accepted(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    let end = Instant::now() + JUDGED_WITHIN;
    while Instant::now() < end {
        let (_, tls) = stream.get_ref();
        let is_new = tls.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        if !is_new || tls.tls13_tickets_received() > 0 {
            break;
        }
        match timeout(LISTEN_BEFORE, stream.read(&mut [0; 256])).await {
            Ok(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(Err(error)) => return Err(error),
            Ok(Ok(_)) | Err(_) => {}
        }
    }
    Ok(())
}

impl Open {
    /// Writes messages of records, but for those that are written.
    async fn write(&mut self, messages: &[(u64, Vec<u8>)]) -> io::Result<()> {
        let Self { socket, rest, written, .. } = self;
        match socket {
            Socket::Udp(socket) => {
                for (_, message) in messages {
                    socket.send(message).await?;
                }
                Ok(())
            }
            Socket::Stream(stream) => {
                let known = written.len();
                for (seq, message) in messages {
                    if !written[..known].contains(seq) {
                        written.push(*seq);
                        rest.extend_from_slice(format!("{} ", message.len()).as_bytes());
                        rest.extend_from_slice(message);
                    }
                }
                stream.write_all_buf(rest).await?;
                stream.flush().await
            }
        }
    }
}

impl Socket {
    /// Whether the receiver leaves it open until a time. An error says that it broke. The rest of what a receiver says means
    /// nothing.
    async fn is_open(&mut self, until: Instant) -> io::Result<bool> {
        let Self::Stream(stream) = self else { return Ok(true) };
        let mut said = [0; 4096];
        loop {
            match timeout_at(until, stream.read(&mut said)).await {
                Ok(Ok(0)) => return Ok(false),
                Ok(Ok(_)) if Instant::now() < until => {}
                Ok(Ok(_)) | Err(_) => return Ok(true),
                Ok(Err(error)) => return Err(error),
            }
        }
    }

    /// Says that it is the end, and waits for the receiver's: what is written still arrives, which closing at once can prevent
    /// where the receiver has said something.
    async fn close(&mut self) {
        let Self::Stream(stream) = self else { return };
        let end = async {
            stream.shutdown().await?;
            while stream.read(&mut [0; 256]).await? > 0 {}
            io::Result::Ok(())
        };
        match timeout(CLOSED_WITHIN, end).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a connection did not end well"),
            Err(_) => tracing::debug!("a connection did not end in time"),
        }
    }
}

impl Sink for Syslog {
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        async {
            let (mut places, mut messages, mut parts) = (Vec::new(), Vec::new(), Vec::new());
            for (at, record) in batch.records.iter().enumerate() {
                match self.message(record) {
                    Ok(message) => {
                        places.push(at);
                        messages.push((record.seq, message));
                    }
                    Err(error) => {
                        let reason = Secrets::none().reason(error);
                        let failure = Failure::refused(RefusedClass::Unsendable, reason);
                        parts.push((vec![at], Outcome::Failed(failure)));
                    }
                }
            }
            if !messages.is_empty() {
                let sent = self.attempt(&messages).await;
                parts.push((places, sent.map_or_else(Outcome::Failed, |()| Outcome::Delivered)));
            }
            Outcome::of_parts(batch.records.len(), parts)
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async {
            if let Some(mut open) = self.open.lock().await.take() {
                open.socket.close().await;
            }
        }
        .boxed()
    }
}

/// TLS towards a receiver.
fn client_config(options: &TlsOptions) -> Result<ClientConfig, SinkBuildError> {
    tls::check(options, true)?;
    let mut roots = RootCertStore::empty();
    match &options.ca {
        Some(pem) => {
            let authorities = CertificateDer::pem_slice_iter(pem).flatten();
            roots.add_parsable_certificates(authorities);
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = roots.add_parsable_certificates(found.certs);
            if added == 0 {
                let what = "expected authorities in the system, found none: write `tls.ca`";
                return Err(SinkBuildError::at(&["transport"], what));
            }
        }
    }
    let client = ClientConfig::builder().with_root_certificates(roots);
    let Some((cert, key)) = options.identity()? else { return Ok(client.with_no_client_auth()) };
    let chain = CertificateDer::pem_slice_iter(cert).flatten().collect();
    let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes());
    let key = key.map_err(|error| tls::bad("key", error))?;
    client.with_client_auth_cert(chain, key).map_err(|error| tls::bad("cert", error))
}
