//! HTTP/1.1 by hand, over one connection: a library would not let us cut a stream in the
//! middle of a line or a chunk, reset it, or say nothing for ever.

use std::{io, net::SocketAddr, time::Duration};

use bytes::{Buf as _, Bytes, BytesMut};
use jiff::Timestamp;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream},
    net::{TcpListener, TcpSocket, TcpStream},
};

const MAX_HEAD: usize = 64 * 1024;
const MAX_BODY: usize = 64 * 1024 * 1024;

/// How long a slow connection waits between pieces: 50 of them a second.
const STEP: Duration = Duration::from_millis(20);

/// A request.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `GET` and so on.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query's parameters, decoded.
    pub query: Vec<(String, String)>,
    /// The headers; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

impl Request {
    /// A query parameter; empty when it is absent.
    pub fn param(&self, name: &str) -> &str {
        find(&self.query, name)
    }

    /// A header, by its name in lower case; empty when it is absent.
    pub fn header(&self, name: &str) -> &str {
        find(&self.headers, name)
    }

    /// Whether a boolean parameter is set, as Go reads one.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.param(name), "1" | "t" | "T" | "true" | "TRUE" | "True")
    }
}

fn find<'a>(pairs: &'a [(String, String)], name: &str) -> &'a str {
    pairs.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The HTTP body ends as it should: with the last chunk.
    Clean,
    /// The connection is closed in the middle of the body (FIN).
    Closed,
    /// The connection is reset (RST), as by a firewall or a crashed node.
    Reset,
}

/// Listens at an address, also if the connections of an earlier listener linger there. Needs a tokio runtime.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}

/// The stream under a [`Connection`].
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Makes the end of the connection a reset, where there is one.
    fn reset(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for TcpStream {
    fn reset(&self) -> io::Result<()> {
        self.set_zero_linger()
    }
}

impl Stream for DuplexStream {}

#[cfg(feature = "tls")]
impl Stream for tokio_rustls::server::TlsStream<TcpStream> {}

/// One connection. It writes as slowly as it is told to.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    read: BytesMut,
    /// Bytes a second; none for as fast as it goes.
    pub(crate) pace: Option<usize>,
}

impl Connection {
    pub(crate) fn new(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), read: BytesMut::with_capacity(4096), pace: None }
    }

    /// The next request; none when the client has closed.
    pub(crate) async fn request(&mut self) -> io::Result<Option<Request>> {
        let Some((head, body)) = self.message().await? else { return Ok(None) };
        Ok(Some(Request { body, ..parse_head(&head)? }))
    }

    /// The head and the body of the next request; none when the client has closed.
    pub(crate) async fn message(&mut self) -> io::Result<Option<(String, Bytes)>> {
        let head_length = loop {
            if let Some(at) = memchr::memmem::find(&self.read, b"\r\n\r\n") {
                break at + 4;
            }
            if self.read.len() > MAX_HEAD {
                return Err(malformed("the head of the request is too long"));
            }
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Ok(None);
            }
        };
        let head = String::from_utf8(self.read.split_to(head_length).to_vec())
            .map_err(|_| malformed("the head is not UTF-8"))?;
        let says =
            |name, value| header(&head, name).is_some_and(|it| it.eq_ignore_ascii_case(value));
        if says("expect", "100-continue") {
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let body = if says("transfer-encoding", "chunked") {
            self.chunked_body().await?
        } else {
            let length = header(&head, "content-length").and_then(|length| length.parse().ok());
            self.exactly(length.unwrap_or_default()).await?
        };
        Ok(Some((head, body)))
    }

    async fn exactly(&mut self, length: usize) -> io::Result<Bytes> {
        if length > MAX_BODY {
            return Err(malformed("the body is too large"));
        }
        while self.read.len() < length {
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.read.split_to(length).freeze())
    }

    async fn chunked_body(&mut self) -> io::Result<Bytes> {
        let mut body = BytesMut::new();
        loop {
            let line_end = loop {
                if let Some(at) = memchr::memmem::find(&self.read, b"\r\n") {
                    break at;
                }
                if self.stream.read_buf(&mut self.read).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            };
            let line = self.read.split_to(line_end);
            self.read.advance(2);
            let size = std::str::from_utf8(&line)
                .ok()
                .and_then(|line| usize::from_str_radix(line.split(';').next()?.trim(), 16).ok())
                .ok_or_else(|| malformed("not the size of a chunk"))?;
            if body.len() + size > MAX_BODY {
                return Err(malformed("the body is too large"));
            }
            let chunk = self.exactly(size + 2).await?;
            if size == 0 {
                return Ok(body.freeze());
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    /// Returns when the client has closed the connection.
    pub(crate) async fn closed(&mut self) {
        loop {
            match self.stream.read_buf(&mut self.read).await {
                // A client that sends on before it has its answer is kept for later, within bounds.
                Ok(read) if read > 0 && self.read.len() <= MAX_HEAD => {}
                _ => return,
            }
        }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(pace) = self.pace else {
            return self.stream.write_all(bytes).await;
        };
        for piece in bytes.chunks((pace / 50).max(1)) {
            self.stream.write_all(piece).await?;
            tokio::time::sleep(STEP).await;
        }
        Ok(())
    }

    /// Writes at once what was written.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        self.stream.flush().await
    }

    /// Answers with a whole body.
    pub(crate) async fn answer(&mut self, code: u16, head: &str, body: &[u8]) -> io::Result<()> {
        let mut out = Vec::with_capacity(body.len() + 400);
        out.extend_from_slice(response_head(code, head).as_bytes());
        out.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        out.extend_from_slice(body);
        self.write(&out).await
    }

    /// Begins an answer whose body follows in chunks.
    pub(crate) async fn begin_chunks(&mut self, code: u16, head: &str) -> io::Result<()> {
        let head = response_head(code, head) + "Transfer-Encoding: chunked\r\n\r\n";
        self.write(head.as_bytes()).await
    }

    /// Ends a chunked answer. True: the connection can serve another request.
    pub(crate) async fn end(&mut self, how: Ending) -> io::Result<bool> {
        match how {
            Ending::Clean => self.write(b"0\r\n\r\n").await?,
            Ending::Closed => self.stream.shutdown().await?,
            Ending::Reset => self.stream.reset()?,
        }
        Ok(how == Ending::Clean)
    }
}

/// Frames what is written to it as one chunk, without copying it again.
#[derive(Debug, Default)]
pub(crate) struct Chunk(Vec<u8>);

impl Chunk {
    /// Room for the size: eight hexadecimal digits and a line end.
    const HEAD: usize = 10;

    /// Empties it and lets it be filled.
    pub(crate) fn start(&mut self) -> &mut Vec<u8> {
        self.0.clear();
        self.0.resize(Self::HEAD, b'0');
        &mut self.0
    }

    /// What was filled in, as a chunk; empty when nothing was, because an empty chunk ends a body.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let size = self.0.len().saturating_sub(Self::HEAD);
        if size == 0 {
            return &[];
        }
        self.0[..Self::HEAD].copy_from_slice(format!("{size:08x}\r\n").as_bytes());
        self.0.extend_from_slice(b"\r\n");
        &self.0
    }

    /// What was filled in.
    pub(crate) fn content(&self) -> &[u8] {
        self.0.get(Self::HEAD..).unwrap_or_default()
    }

    /// Drops what was filled in beyond `length`.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.0.truncate(Self::HEAD + length);
    }

    /// A chunk that announces all its content and brings `length` bytes of it.
    pub(crate) fn finish_partly(&mut self, length: usize) -> &[u8] {
        let whole = self.finish();
        whole.get(..Self::HEAD + length).unwrap_or_default()
    }
}

fn response_head(code: u16, head: &str) -> String {
    let phrase = http::StatusCode::from_u16(code)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Unknown");
    let date = Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT");
    format!(
        "HTTP/1.1 {code} {phrase}\r\nAudit-Id: {:032x}\r\nCache-Control: no-cache, private\r\n\
         Date: {date}\r\n{head}",
        fastrand::u128(..)
    )
}

/// A header of a head, by its name in any case.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// A request of which only the head is known.
fn parse_head(head: &str) -> io::Result<Request> {
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target)) = (first.next(), first.next()) else {
        return Err(malformed("no request line"));
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(key, value)| (decoded(key), decoded(value)))
        .collect();
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Ok(Request {
        method: method.to_owned(),
        path: decoded(path),
        query,
        headers,
        body: Bytes::new(),
    })
}

/// Undoes the percent encoding of a query.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'%')
            .then(|| after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        rest = if escaped.is_some() { &after[2..] } else { after };
        bytes.push(escaped.unwrap_or(if first == b'+' { b' ' } else { first }));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_server::{ApiServer, Options};

    #[test]
    fn a_request_head_is_read() {
        let head = "GET /api/v1/events?watch=1&fieldSelector=type%3DWarning%2Creason%21%3Da+b HTTP/1.1\r\n\
            Host: x\r\nAccept-Encoding:  gzip \r\n\r\n";
        let request = parse_head(head).unwrap();
        assert_eq!((&*request.method, &*request.path), ("GET", "/api/v1/events"));
        assert!(request.flag("watch"));
        assert_eq!(request.param("fieldSelector"), "type=Warning,reason!=a b");
        assert_eq!(request.header("accept-encoding"), "gzip");
        assert_eq!(request.param("limit"), "");
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%zz%E2%80%A6"), "%zz…");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_in_memory_is_served_until_it_is_cut() {
        let server = ApiServer::start(Options::default()).unwrap();
        let mut client = server.connect();
        client.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").await.unwrap();
        let mut answer = [0; 15];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        server.cut_connections();
        client.read_to_end(&mut Vec::new()).await.unwrap();
    }

    #[test]
    fn a_chunk_states_its_size() {
        let mut chunk = Chunk::default();
        chunk.start().extend_from_slice(b"0123456789abcdef!");
        assert_eq!(chunk.finish(), b"00000011\r\n0123456789abcdef!\r\n");
        chunk.start();
        assert_eq!(chunk.finish(), b"");
    }
}
