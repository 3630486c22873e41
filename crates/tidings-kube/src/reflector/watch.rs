//! The step that watches: opens a stream, or takes the one that is open, and feeds it to the store
//! until it ends.

use std::{pin::pin, time::Duration};

use futures_util::FutureExt as _;
use kube::core::Status;
use tokio::{
    task::coop::consume_budget,
    time::{Instant, timeout_at},
};

use super::{
    Backoff, BackoffManager, Follow, InternalErrors, ListWatchError, Reflector, ReflectorStore,
    Source, State, StoreClosed, Turn, WatchEvent, WatchEventType, WatchOptions,
    catch_up::{CatchUp, Moment, Position},
    lines::{Line, Lines},
    lister_watcher::Answer,
    probe::end_by_probe,
    watch_end::{VERY_SHORT_WATCH, WatchEnd},
};

/// So long after its time a watch that has not ended is a dead connection.
const WATCH_GRACE: Duration = Duration::from_secs(30);
/// A watch that was open for so long has worked, though it brought nothing.
const LASTING_WATCH: Duration = Backoff::REFLECTOR.max;
/// Reads of a watch that are ready together go to the store together, up to this many bytes.
const READ_AHEAD_BYTES: usize = 256 << 10;

/// A chunk counts for so many bytes more: a read of empty ones ends, too.
const CHUNK_BYTES: usize = 64;

/// A watch that is open.
pub(super) struct Stream {
    answer: Answer,
    lines: Lines,
    /// When it was asked for: some proxies send no headers before the first line.
    pub(super) opened: Instant,
    deadline: Instant,
    /// Read already.
    pub(super) ahead: Option<Read>,
}

/// What one read of a stream brought.
pub(super) struct Read {
    pub(super) events: Vec<WatchEvent>,
    /// How the stream ended behind them, if it did.
    pub(super) end: Option<WatchEnd>,
}

/// What a watch brought until it ended.
pub(super) struct Watched {
    pub(super) end: WatchEnd,
    /// The events that could be read.
    pub(super) events: u64,
    pub(super) lasted: Duration,
    /// The end may have waited in the connection while the store took its time, or have cut history
    /// short: it says nothing of what happened since.
    pub(super) behind: bool,
}

impl Stream {
    async fn open(
        source: Source,
        watch: WatchOptions,
        longest: Duration,
    ) -> Result<Box<Self>, ListWatchError> {
        let opened = Instant::now();
        let answer = source.watch(&watch).await?;
        let deadline = opened + longest + WATCH_GRACE;
        let lines = Lines::default();
        Ok(Box::new(Self { answer, lines, opened, deadline, ahead: None }))
    }

    /// The next events, and those that have arrived behind them: a frame of the journal, for one,
    /// costs about the same for one event as for a hundred. Dropping the future loses nothing.
    pub(super) async fn read(&mut self) -> Read {
        if let Some(ahead) = self.ahead.take() {
            return ahead;
        }
        // A source that is always ready must not keep the others of its thread from running.
        consume_budget().await;
        let (mut events, mut bytes) = (Vec::new(), 0);
        let Ok(mut read) = timeout_at(self.deadline, self.answer.chunk()).await else {
            return Read { events, end: Some(WatchEnd::Silent) };
        };
        let end = loop {
            match read {
                Ok(None) => break Some(WatchEnd::Closed),
                Err(error @ ListWatchError::Status { .. }) => break Some(WatchEnd::Error(error)),
                Err(error) => break Some(WatchEnd::Broken(error)),
                Ok(Some(chunk)) => {
                    bytes += chunk.len() + CHUNK_BYTES;
                    if let Some(end) = self.cut(chunk, &mut events) {
                        break Some(end);
                    }
                }
            }
            if bytes >= READ_AHEAD_BYTES {
                break None;
            }
            match self.answer.chunk().now_or_never() {
                Some(more) => read = more,
                None => break None,
            }
        };
        Read { events, end }
    }

    /// Cuts a chunk into events, up to a line that ends the watch.
    fn cut(&mut self, chunk: bytes::Bytes, events: &mut Vec<WatchEvent>) -> Option<WatchEnd> {
        let mut error = None;
        let malformed = self.lines.push(chunk, |line| {
            match Line::parse(&line)? {
                _ if error.is_some() => {}
                Line::Event(event) => events.push(event),
                Line::Error(status) => error = Some(status),
            }
            Ok(())
        });
        match (error, malformed) {
            (Some(status), _) => {
                // What is no status has neither code nor reason.
                let status: Status = serde_json::from_slice(&status).unwrap_or_default();
                let (call, status) = (self.answer.call.clone(), Box::new(status));
                Some(WatchEnd::Error(ListWatchError::Status { call, status, retry_after: None }))
            }
            (None, Err(malformed)) => Some(WatchEnd::Malformed(malformed.into())),
            (None, Ok(())) => None,
        }
    }
}

impl<S: ReflectorStore> Reflector<S> {
    /// The first watch of a round.
    pub(super) fn first_watch(&mut self, stream: Option<Box<Stream>>) -> State {
        self.internal_errors = InternalErrors::default();
        State::Watch(stream)
    }

    pub(super) async fn watch(&mut self, open: Option<Box<Stream>>) -> Result<Turn, StoreClosed> {
        let stream = match open {
            Some(stream) => Ok(stream),
            None => self.open_watch(self.last.clone(), false).await?,
        };
        let watched = match stream {
            Ok(stream) => {
                let watched = self.follow(stream).await?;
                if let WatchEnd::Closed = watched.end
                    && watched.lasted >= VERY_SHORT_WATCH
                    && !watched.behind
                {
                    // A server that ends a watch has sent all that it had.
                    self.caught_up();
                    self.tell_caught_up().await?;
                }
                if let Follow::Changes { .. } = self.options.follow
                    && (watched.events > 0 || watched.lasted >= LASTING_WATCH)
                {
                    // It worked, so its end is the first of whatever failures come now: a log is
                    // not to fall behind where connections are short-lived.
                    self.backoff = BackoffManager::new(Backoff::REFLECTOR);
                    self.failing_since = None;
                }
                watched
            }
            Err(error) => {
                let (events, lasted, behind) = (0, Duration::ZERO, true);
                Watched { end: WatchEnd::Refused(error), events, lasted, behind }
            }
        };
        Ok(match self.options.follow {
            Follow::State => self.after_watch_of_state(watched),
            Follow::Changes { .. } => self.after_watch_of_changes(watched),
        })
    }

    /// Asks for a watch.
    pub(super) async fn open_watch(
        &mut self,
        resource_version: String,
        send_initial_events: bool,
    ) -> Result<Result<Box<Stream>, ListWatchError>, StoreClosed> {
        self.locked(|health| health.watches += 1);
        let least = self.options.least_watch_timeout();
        // Random, so that the watches of many clients do not end together; and the server is told
        // whole seconds.
        let server_timeout = least.mul_f64(1.0 + fastrand::f64());
        let server_timeout = Duration::from_secs(server_timeout.as_secs());
        let longest = match self.options.follow {
            // client-go waits for ever. A server that takes its time is left to it as long as it
            // might have been told to take.
            Follow::State => least * 2,
            Follow::Changes { .. } => server_timeout,
        };
        let watch = WatchOptions { resource_version, server_timeout, send_initial_events };
        let open = Stream::open(self.source.clone(), watch, longest);
        let stream = self.resyncing(open).await?;
        if stream.is_ok() {
            self.alive();
            self.stream_open(true);
        }
        Ok(stream)
    }

    /// Feeds a stream to the store until it ends, with a probe beside it where changes are followed.
    async fn follow(&mut self, mut stream: Box<Stream>) -> Result<Watched, StoreClosed> {
        let server = self.server.take();
        let (position, mut catch_up) =
            (Position::new(self.last_number(), server), CatchUp::new(server));
        let changes = matches!(self.options.follow, Follow::Changes { .. });
        let (source, health, reconnect) = (self.source.clone(), self.health(), self.reconnect());
        let witnesses = self.options.witnesses.clone();
        let mut given_up = pin!(reconnect.asked());
        let mut probed = pin!(async {
            if changes {
                end_by_probe(source, &position, health, witnesses).await
            } else {
                std::future::pending().await
            }
        });
        let mut taken = 0;
        let end = loop {
            let asked = Instant::now();
            let reading = async {
                tokio::select! {
                    // A stream that is never silent needs no probe.
                    biased;
                    read = stream.read() => read,
                    end = &mut probed => Read { events: Vec::new(), end: Some(end) },
                    () = &mut given_up => Read { events: Vec::new(), end: Some(WatchEnd::GivenUp) },
                }
            };
            let Read { events, end } = self.resyncing(reading).await?;
            let read = Moment::now();
            catch_up.waited(read.at - asked);
            if !events.is_empty() {
                self.heard();
                taken += self.feed(events).await?;
                let up_to_ms = catch_up.fed(read, &position, self.last_number());
                if up_to_ms.is_some() {
                    self.caught_up_at(up_to_ms);
                    self.tell_caught_up().await?;
                }
                // To tell it may take as long as to feed it.
                catch_up.told(read);
            }
            if let Some(end) = end {
                break end;
            }
        };
        self.stream_open(false);
        let (lasted, behind) = (stream.opened.elapsed(), catch_up.ended_behind());
        Ok(Watched { end, events: taken, lasted, behind })
    }

    /// Feeds events to the store; answers how many could be read.
    async fn feed(&mut self, events: Vec<WatchEvent>) -> Result<u64, StoreClosed> {
        let unknown = events.iter().filter(|event| event.kind == WatchEventType::Unknown).count();
        if unknown > 0 {
            tracing::warn!(source = self.options.name, unknown, "watch events of an unknown type");
        }
        let applied = self.store.apply(events).await?;
        if let Some(resource_version) = applied.resource_version {
            // What does not belong in the stream has a resourceVersion from anywhere. That is of no
            // consequence to a cache, which has no order of its own.
            let forward = |rv: &str| rv.parse().is_ok_and(|rv: u64| rv > self.last_number());
            if self.options.follow == Follow::State || forward(&resource_version) {
                self.seen(resource_version);
            }
        }
        Ok(applied.taken)
    }

    pub(super) fn stream_open(&self, open: bool) {
        self.locked(|health| {
            health.stream_open = open;
            health.stream_last_open = Some(Instant::now());
        });
    }
}
