//! Messages on their way: one connection, or one socket of UDP.

#[cfg(test)]
mod tests;

use std::{io, sync::Arc, time::Duration};

use futures_util::{FutureExt as _, future::BoxFuture};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket, lookup_host},
    sync::Mutex,
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::TlsConnector;

use super::{
    SyslogOptions, SyslogTransport,
    keys::{HEADER_BYTES, address, is_app_name},
};
use crate::{
    bridge::{Failure, Outcome, RefusedClass, Secrets, Sink},
    document::Wrong,
    encode::{EncodeError, Format, syslog},
    event::{Batch, Record, smaller},
    sinks::{
        SinkBuildError, TlsOptions,
        http::{net_error, tls},
        own_deadline,
    },
};

/// How long the end of a connection is listened for before something is written on it.
const LISTEN: Duration = Duration::from_millis(1);

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
    /// Taken out while it is written on: what an attempt has left half-written is not used again.
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
}

enum Socket {
    Udp(UdpSocket),
    Stream(Box<dyn Stream>),
}

trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

/// Why there is no message for an event.
#[derive(Debug, thiserror::Error)]
enum MessageError {
    #[error("{0}")]
    Encode(#[from] EncodeError),
    #[error("expected a message of at most {most} bytes, found one of {found}: see `maxEvent`")]
    TooLong { most: usize, found: usize },
}

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
                let name = tls.server_name.as_deref().unwrap_or(host).to_owned();
                let name = ServerName::try_from(name).map_err(|_| {
                    SinkBuildError::at(
                        &["address"],
                        "expected a name or an address of IP, found another host",
                    )
                })?;
                Transport::Tls(TlsConnector::from(Arc::new(client_config(&tls)?)), name)
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
            open: Mutex::default(),
        })
    }

    /// The message of a record. Its event is cut once more where a format makes it too long.
    fn message(&self, record: &Record) -> Result<Vec<u8>, MessageError> {
        let mut record = record.clone();
        let mut found = 0;
        let most = self.most_bytes;
        for room in [most, most.saturating_sub(HEADER_BYTES), most / 2] {
            if let Some(envelope) = smaller(&record.envelope, room) {
                record.envelope = envelope;
            }
            let message = syslog::message(&record, self.format, self.facility, &self.app_name)?;
            if message.len() <= most {
                return Ok(message);
            }
            found = message.len();
        }
        Err(MessageError::TooLong { most, found })
    }

    async fn attempt(&self, messages: &[Vec<u8>]) -> Result<(), Failure> {
        let end = Instant::now() + self.deadline;
        let silence = || net_error::silence(self.deadline, &self.peer, &Secrets::none());
        let mut open = timeout_at(end, self.open.lock()).await.map_err(|_| silence())?;
        let mut usable = open.take().filter(|open| open.since.elapsed() < self.max_age);
        if let Some(open) = &mut usable
            && open.socket.is_closed().await
        {
            usable = None;
        }
        let mut usable = match usable {
            Some(usable) => usable,
            None => {
                let connecting = timeout_at(end, self.connect()).await.map_err(|_| silence())?;
                let socket = connecting.map_err(|error| self.failure(&error, false))?;
                Open { socket, since: Instant::now() }
            }
        };
        let written =
            timeout_at(end, usable.socket.write(messages)).await.map_err(|_| silence())?;
        written.map_err(|error| self.failure(&error, true))?;
        *open = Some(usable);
        Ok(())
    }

    async fn connect(&self) -> io::Result<Socket> {
        let host = (self.host.as_str(), self.port);
        if let Transport::Udp = self.transport {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in lookup_host(host).await? {
                let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(any).await?;
                match socket.connect(address).await {
                    Ok(()) => return Ok(Socket::Udp(socket)),
                    Err(error) => last = error,
                }
            }
            return Err(last);
        }
        let stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        set_socket_send_buffer_size(&stream, SEND_BUFFER)?;
        Ok(Socket::Stream(match &self.transport {
            Transport::Tls(connector, name) => {
                Box::new(connector.connect(name.clone(), stream).await?)
            }
            _ => Box::new(stream),
        }))
    }

    fn failure(&self, error: &io::Error, connected: bool) -> Failure {
        net_error::to_failure(error, connected, &self.peer, &Secrets::none())
    }
}

impl Socket {
    /// Whether the receiver has closed it. What else a receiver says is nothing to us.
    async fn is_closed(&mut self) -> bool {
        let Self::Stream(stream) = self else { return false };
        let mut said = [0; 256];
        !matches!(timeout(LISTEN, stream.read(&mut said)).await, Err(_) | Ok(Ok(1..)))
    }

    async fn write(&mut self, messages: &[Vec<u8>]) -> io::Result<()> {
        match self {
            Self::Udp(socket) => {
                for message in messages {
                    socket.send(message).await?;
                }
                Ok(())
            }
            Self::Stream(stream) => {
                let mut frames = Vec::with_capacity(messages.iter().map(|m| m.len() + 8).sum());
                for message in messages {
                    frames.extend_from_slice(format!("{} ", message.len()).as_bytes());
                    frames.extend_from_slice(message);
                }
                stream.write_all(&frames).await?;
                stream.flush().await
            }
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
                        messages.push(message);
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
            if let Some(Open { socket: Socket::Stream(mut stream), .. }) =
                self.open.lock().await.take()
            {
                // The receiver hears that it is the end; a failure changes nothing.
                let _ = timeout(self.deadline, stream.shutdown()).await;
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
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let client = ClientConfig::builder().with_root_certificates(roots);
    let Some((cert, key)) = options.identity()? else { return Ok(client.with_no_client_auth()) };
    let chain = CertificateDer::pem_slice_iter(cert).flatten().collect();
    let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes());
    let key = key.map_err(|error| tls::bad("key", error))?;
    client.with_client_auth_cert(chain, key).map_err(|error| tls::bad("cert", error))
}
