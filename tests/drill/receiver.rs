//! A receiver that does as it is told. HTTP/1.1 by hand, because what is wrong with an answer is to
//! be exact, and because it shares the machine with what is drilled: of an event it finds what is
//! judged, each member behind the one before it, and reads nothing else.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use memchr::memmem::{self, Finder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::judge::{Arrival, Key};
use crate::request::{ENVELOPE, head};

const BUFFER: usize = 256 * 1024;

/// The fate of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The request is taken.
    Take,
    /// The request is taken after a while.
    Slow(Duration),
    /// The request is not taken, and this is the status of the answer.
    Answer(u16),
    /// The request is read, and no answer comes.
    Hang,
    /// The connection is reset before it is read.
    Reset,
    /// The same when it has been read.
    ResetWhenRead,
    /// The request is taken, and the connection ends instead of an answer.
    Cut,
    /// Nobody listens.
    Down,
    /// This, if the body holds one of these texts; others are taken.
    Where(&'static [&'static str], Box<Self>),
    /// This for so many in a hundred, at random; others are taken.
    Sometimes(u8, Box<Self>),
    /// The request is answered after a time of its own, up to this. Of ten one is not taken but answered 503, and
    /// one is taken and cut.
    Fickle(Duration),
}

impl Mode {
    /// A body that holds one of these texts is answered this.
    pub(crate) fn refuse(status: u16, texts: &'static [&'static str]) -> Self {
        Self::Where(texts, Box::new(Self::Answer(status)))
    }

    /// The mode for this body.
    fn of(&self, body: &[u8]) -> &Self {
        match self {
            Self::Where(texts, mode) => {
                let holds = |text: &&str| memmem::find(body, text.as_bytes()).is_some();
                if texts.iter().any(holds) { mode.of(body) } else { &Self::Take }
            }
            Self::Sometimes(percent, mode) if fastrand::u8(..100) < *percent => mode.of(body),
            Self::Sometimes(..) => &Self::Take,
            mode => mode,
        }
    }
}

/// A receiver of envelopes, one or an array of them in a request.
pub(crate) struct Receiver {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    arrivals: Mutex<Vec<Arrival>>,
    /// When each connection ended, and which arrivals its last request brought.
    ended: Mutex<Vec<(Instant, Range<usize>)>>,
    /// Requests that could not be understood.
    complaints: Mutex<Vec<String>>,
    mode: watch::Sender<Mode>,
    connections: watch::Sender<usize>,
}

impl Receiver {
    /// Starts one that takes everything.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("the port");
        let shared = Arc::new(Shared {
            arrivals: Mutex::default(),
            ended: Mutex::default(),
            complaints: Mutex::default(),
            mode: watch::Sender::new(Mode::Take),
            connections: watch::Sender::default(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { shared, address, accepting: Mutex::new(Some(accepting)) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// From now on requests, and those that hang, have this done to them.
    pub(crate) async fn set(&self, mode: Mode) {
        let down = mode == Mode::Down;
        self.shared.mode.send_replace(mode);
        let accepting = lock(&self.accepting).take();
        let accepting = match accepting {
            Some(accepting) if down => {
                accepting.abort();
                // The listener is closed when the task has ended, and not before.
                let _ = accepting.await;
                None
            }
            None if !down => {
                let listener = TcpListener::bind(self.address).await.expect("the port as before");
                Some(tokio::spawn(accept(listener, Arc::clone(&self.shared))))
            }
            same => same,
        };
        *lock(&self.accepting) = accepting;
    }

    /// Waits until no connection is open: all that was sent has been read.
    pub(crate) async fn unconnected(&self) {
        // Connections are accepted in their order: when this one has ended, there is none before it
        // that waits. Where nobody listens there is none at all.
        if let Ok(mut last) = TcpStream::connect(self.address).await {
            let _ = last.shutdown().await;
            let _ = last.read(&mut [0]).await;
        }
        let mut connections = self.shared.connections.subscribe();
        let unconnected = connections.wait_for(|open| *open == 0);
        let unconnected = timeout(Duration::from_secs(60), unconnected).await;
        unconnected.expect("an end of all connections").expect("a receiver that is there");
    }

    /// All that has arrived, in its order.
    pub(crate) fn arrivals(&self) -> MutexGuard<'_, Vec<Arrival>> {
        let complaints = lock(&self.shared.complaints);
        assert!(complaints.is_empty(), "the receiver complains: {complaints:?}");
        lock(&self.shared.arrivals)
    }

    /// Which arrivals the last request brought of each connection that has ended since: nobody may have
    /// read its answer.
    pub(crate) fn unanswered_since(&self, since: Instant) -> Vec<Range<usize>> {
        let ended = lock(&self.shared.ended);
        ended.iter().filter(|(at, _)| *at >= since).map(|(_, last)| last.clone()).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = Arc::clone(&shared);
        shared.connections.send_modify(|open| *open += 1);
        tokio::spawn(async move {
            // A connection that breaks is the client's to notice.
            let mut last = 0..0;
            let _ = serve(stream, &shared, &mut last).await;
            lock(&shared.ended).push((Instant::now(), last));
            shared.connections.send_modify(|open| *open -= 1);
        });
    }
}

/// Serves a connection to its end, and notes which arrivals its last request brought.
async fn serve(mut stream: TcpStream, shared: &Shared, last: &mut Range<usize>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut mode = shared.mode.subscribe();
    let mut buffer = vec![0; BUFFER];
    let mut filled = 0;
    loop {
        // A connection that waits for its next request ends when nobody listens any more.
        tokio::select! {
            ready = stream.readable() => ready?,
            _ = mode.wait_for(|mode| *mode == Mode::Down) => return Ok(()),
        }
        if *mode.borrow() == Mode::Reset {
            // Closed with unread bytes: the kernel answers with a reset.
            return Ok(());
        }
        let (body, end) = loop {
            if let Some((body, length)) = head(&buffer[..filled])? {
                if buffer.len() < body + length {
                    buffer.resize(body + length, 0);
                }
                if filled >= body + length {
                    break (body, body + length);
                }
            }
            match stream.read(&mut buffer[filled..]).await? {
                0 => return Ok(()),
                read => filled += read,
            }
        };
        let told = mode.borrow_and_update().clone();
        let status = match *told.of(&buffer[body..end]) {
            Mode::Take => 204,
            Mode::Slow(wait) => {
                tokio::time::sleep(wait).await;
                204
            }
            Mode::Answer(status) => status,
            Mode::Hang => {
                // Until the other side loses patience.
                tokio::select! {
                    _ = mode.changed() => {}
                    _ = stream.read(&mut buffer) => {}
                }
                return Ok(());
            }
            Mode::Cut => {
                *last = note(&buffer[body..end], shared);
                return Ok(());
            }
            Mode::ResetWhenRead => return stream.set_zero_linger(),
            Mode::Fickle(longest) => {
                let kind = fastrand::u8(..10);
                if kind > 0 {
                    // At once: whoever sends may be killed before it is answered.
                    *last = note(&buffer[body..end], shared);
                }
                tokio::time::sleep(longest.mul_f64(fastrand::f64())).await;
                match kind {
                    0 => 503,
                    1 => return Ok(()),
                    _ => 200,
                }
            }
            Mode::Reset | Mode::Down | Mode::Where(..) | Mode::Sometimes(..) => return Ok(()),
        };
        if status == 204 {
            *last = note(&buffer[body..end], shared);
        }
        let answer = format!("HTTP/1.1 {status} As Told\r\nContent-Length: 0\r\n\r\n");
        // 204 has no body, and therefore no length.
        let answer = if status == 204 { "HTTP/1.1 204 Taken\r\n\r\n" } else { &answer };
        stream.write_all(answer.as_bytes()).await?;
        buffer.copy_within(end..filled, 0);
        filled -= end;
    }
}

/// Writes down what is in a body. Answers where in the arrivals it is.
fn note(body: &[u8], shared: &Shared) -> Range<usize> {
    let starts: Vec<usize> = memmem::find_iter(body, ENVELOPE).collect();
    let ends = starts.iter().skip(1).copied().chain([body.len()]);
    let read = Instant::now();
    let found = starts.iter().zip(ends).map(|(start, end)| arrival(&body[*start..end], read));
    let found: Option<Vec<Arrival>> = found.collect();
    match found {
        Some(mut found) if !found.is_empty() => {
            let mut arrivals = lock(&shared.arrivals);
            // What comes over several connections is in the order of its times.
            let at = Instant::now();
            for arrival in &mut found {
                arrival.at = at;
            }
            let before = arrivals.len();
            arrivals.extend(found);
            before..arrivals.len()
        }
        _ => {
            let body = String::from_utf8_lossy(body);
            let complaint =
                format!("no envelopes, or not of the events that their ids name: {body}");
            lock(&shared.complaints).push(complaint);
            0..0
        }
    }
}

/// Something to look for. Made once: that takes longer than to find it.
type Mark = LazyLock<Finder<'static>>;

static OCCURRENCES: Mark = Mark::new(|| Finder::new("\"occurrences\":"));
static DELTA: Mark = Mark::new(|| Finder::new("\"delta\":"));
static SUMMARY: Mark = Mark::new(|| Finder::new("\"action\":\"summary\""));
static EVENT: Mark = Mark::new(|| Finder::new(",\"event\":"));
static METADATA: Mark = Mark::new(|| Finder::new("\"metadata\":{"));
static UID: Mark = Mark::new(|| Finder::new("\"uid\":\""));
static VERSION: Mark = Mark::new(|| Finder::new("\"resourceVersion\":\""));
static INVOLVED_OBJECT: Mark = Mark::new(|| Finder::new("\"involvedObject\":{"));

/// The part of an envelope that is kept, whose members have their order: `id`, `occurrences`, `delta`,
/// perhaps `correlation`, and `event`, which the API server writes. Within a text the quotes of a
/// name would be escaped.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// Goes on behind this, and answers what stands before them.
    fn pass(&mut self, mark: &Mark) -> Option<&'a [u8]> {
        let at = mark.find(self.0)?;
        let before = &self.0[..at];
        self.0 = &self.0[at + mark.needle().len()..];
        Some(before)
    }

    /// The text that begins here.
    fn text(&self) -> Option<&'a str> {
        let text = &self.0[..memchr::memchr(b'"', self.0)?];
        std::str::from_utf8(text).ok()
    }

    /// The number that begins here.
    fn number(&self) -> Option<u64> {
        let number = &self.0[..self.0.iter().position(|byte| !byte.is_ascii_digit())?];
        std::str::from_utf8(number).ok()?.parse().ok()
    }
}

/// None where the envelope is none, or holds another event than its id says.
fn arrival(envelope: &[u8], at: Instant) -> Option<Arrival> {
    let mut rest = Rest(envelope.strip_prefix(ENVELOPE)?);
    let id = rest.text()?;
    rest.pass(&OCCURRENCES)?;
    let occurrences = rest.number()?;
    rest.pass(&DELTA)?;
    let delta = rest.number()?;
    let before_event = rest.pass(&EVENT)?;
    rest.pass(&METADATA)?;
    rest.pass(&UID)?;
    let uid = rest.text()?;
    rest.pass(&VERSION)?;
    let version = rest.text()?;
    if id.strip_prefix(uid)?.strip_prefix('-')? != version {
        return None;
    }
    rest.pass(&INVOLVED_OBJECT)?;
    rest.pass(&UID)?;
    Some(Arrival {
        id: Key::of(id),
        object: Key::of(rest.text()?),
        occurrences,
        delta,
        summary: SUMMARY.find(before_event).is_some(),
        at,
    })
}
