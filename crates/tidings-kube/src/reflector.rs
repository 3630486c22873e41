//! The reflector: one state machine that keeps a [`ReflectorStore`] up with a resource of an API
//! server.
//!
//! ```text
//!                               a stream in place of a list
//!  Start ──▶ (Streaming)List ──whole──▶ Watch ──ended──▶ Watch, or a list
//!    │             ▲                      ▲
//!    └──▶ Probe ───┴── or behind us ──────┘              changes only: before each Watch
//! ```
//!
//! There are two ways to follow, and most is the same in both: pages, streams, waits, bookmarks,
//! deadlines. What differs by nature is which list is asked for (`list`) and what the end of a
//! watch leads to (`watch_end`).
//!
//! **[`Follow::State`] is client-go's** `tools/cache` Reflector, 0.34. A round is a list and then
//! watches, one after another, until one of them cannot be taken up again; each round ends with a
//! pause. The first list may come from the API server's cache ("0"), the next must be at least as
//! new as what was seen last, and one that is refused as expired or as too new is asked for again at
//! once with no demand. Beyond client-go: a watch whose time has passed and that has not ended is
//! given up, and a server whose every answer leads to another request at once, without anything new
//! in it, is asked no more than a few times a second (`pace`).
//!
//! **[`Follow::Changes`] is for a log.** The resource has no watch cache, as Events have none: a list
//! reads etcd, bookmarks do not come, a resourceVersion can be resumed only until etcd's compaction,
//! and a stale one shows as a 410, as an ERROR in the stream, or behind some front ends as a 200 that
//! closes at once and empty. Such an end, and an ERROR that does not say so (500 while etcd has no
//! leader, 429), is as a connection that breaks: the watch is taken up where it ended, and a list is
//! made only where that goes on for a minute. And a watch from a resourceVersion of the future, as after an etcd was restored from a
//! snapshot, answers 200 and stays quiet for ever; hence the `probe`. A watch is never taken up
//! again without one, and a list that is older than the resume point is of another epoch, whatever
//! it was made for. An etcd that was restored and has grown past the resume point since is told by
//! what was read before: see `witness`. Since when a gap may hide something is known by what the
//! watches have brought: see `catch_up`.

mod api;
mod backoff;
mod catch_up;
mod decode;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod head;
mod health;
mod internal_errors;
mod lines;
mod list;
mod list_items;
mod lister_watcher;
mod local_source;
mod options;
mod pace;
mod pager;
mod probe;
mod store;
mod streaming_list;
mod watch;
mod watch_end;
mod witness;

use std::{
    pin::pin,
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::{
    task::coop::consume_budget,
    time::{Instant, sleep, sleep_until},
};

pub use self::{
    api::ResourceApi,
    backoff::{Backoff, BackoffManager},
    decode::{Decode, DecodeError},
    error::{Call, ListWatchError},
    health::{Reconnect, SharedHealth, SourceHealth},
    lines::LineError,
    list_items::ListError,
    lister_watcher::{Body, ListOptions, ListerWatcher, VersionMatch, WatchOptions},
    local_source::{InvalidObject, LocalSource},
    options::{Follow, ReflectorOptions, StartFrom, WatchErrorHandler},
    store::{
        Applied, ReflectorStore, ReplaceReason, Replaced, StoreClosed, WatchEvent, WatchEventType,
        resource_version_of,
    },
    witness::{Witness, Witnesses},
};
use self::{
    catch_up::ServerAt, health::now_ms, internal_errors::InternalErrors, lister_watcher::Source,
    pace::Pace, watch::Stream,
};
pub(crate) use self::{
    decode::{decode, decode_listed, read_head},
    head::HeadMetadata,
    options::guarded_handler,
};

/// The longest that the API server can make us wait by `Retry-After`: etcd's history, which a watch
/// is resumed from, goes back five minutes.
const MAX_ASKED_WAIT: Duration = Duration::from_mins(1);

/// How often the store is told that it has all that has happened, at most.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// What to do next.
enum State {
    Start,
    /// Asks whether the API server still is the one that the resume point is of.
    Probe {
        too_large_since: Option<Instant>,
    },
    List(ReplaceReason),
    StreamingList,
    /// Watches on from what was seen last, on the stream that a streaming list came by if it did.
    Watch(Option<Box<Stream>>),
}

/// Where a step leads, and how long to wait before it.
struct Turn {
    next: State,
    wait: Option<Duration>,
}

impl Turn {
    fn at_once(next: State) -> Self {
        Self { next, wait: None }
    }
}

/// Why a piece of a step did not succeed.
enum StepError {
    Failed(ListWatchError),
    Closed,
}

impl From<ListWatchError> for StepError {
    fn from(error: ListWatchError) -> Self {
        Self::Failed(error)
    }
}

impl From<StoreClosed> for StepError {
    fn from(StoreClosed: StoreClosed) -> Self {
        Self::Closed
    }
}

/// Keeps one store up with one source: lists, watches, and takes the one up where the other ends.
pub struct Reflector<S> {
    source: Source,
    store: S,
    options: ReflectorOptions,
    health: SharedHealth,
    reconnect: Reconnect,
    /// One for pauses between rounds and for watches that are tried again, as in client-go.
    backoff: BackoffManager,
    pace: Pace,
    /// The resourceVersion up to which the store has been fed.
    last: String,
    /// Where the API server was before the next watch; only where changes are followed.
    server: Option<ServerAt>,
    /// The API server did not know it when it was last asked for.
    last_unavailable: bool,
    /// The store did not take the last list, which was reported.
    not_kept: bool,
    /// The first list came in pages though it need not: the API server has no cache of it.
    paginated: bool,
    internal_errors: InternalErrors,
    /// Since when watches end with an ERROR or at once, and bring nothing; only where changes are
    /// followed.
    failing_since: Option<Instant>,
    /// When the store was last told that it has all that has happened.
    told_caught_up: Option<Instant>,
    /// When the next resync is due: while watches follow a list.
    resync_at: Option<Instant>,
}

impl<S: ReflectorStore> Reflector<S> {
    /// A reflector that has not asked for anything yet.
    pub fn new(source: impl ListerWatcher, store: S, mut options: ReflectorOptions) -> Self {
        let handler = options.watch_error_handler.take();
        options.watch_error_handler =
            handler.map(|handler| guarded_handler(handler, &options.name, Arc::default()));
        let mut reflector = Self {
            source: Source::new(source),
            store,
            health: SharedHealth::default(),
            reconnect: Reconnect::default(),
            backoff: BackoffManager::new(Backoff::REFLECTOR),
            pace: Pace::default(),
            last: String::new(),
            server: None,
            last_unavailable: false,
            not_kept: false,
            paginated: false,
            internal_errors: InternalErrors::default(),
            failing_since: None,
            told_caught_up: None,
            resync_at: None,
            options,
        };
        if let Follow::Changes { resume: Some(resume), .. } = reflector.options.follow {
            reflector.seen(resume.to_string());
        }
        reflector
    }

    /// How it does, to be read while it runs.
    pub fn health(&self) -> SharedHealth {
        Arc::clone(&self.health)
    }

    /// Has its watch opened anew, while it runs.
    pub fn reconnect(&self) -> Reconnect {
        self.reconnect.clone()
    }

    /// Runs until the store closes. Dropping the future between two steps or in the middle of one
    /// loses nothing: the store knows how far it was fed.
    pub async fn run(mut self) {
        let mut state = State::Start;
        loop {
            consume_budget().await;
            let began = Instant::now();
            let Ok(Turn { next, wait }) = self.step(state).await else { return };
            match next {
                State::Watch(_) => self.resync_at = self.resync_at.or_else(|| self.next_resync()),
                State::Probe { .. } => {}
                State::Start | State::List(_) | State::StreamingList => self.resync_at = None,
            }
            if let Some(wait) = wait.or_else(|| self.pace.too_fast(began, &mut self.backoff))
                && self.resyncing(sleep(wait)).await.is_err()
            {
                return;
            }
            state = next;
        }
    }

    async fn step(&mut self, state: State) -> Result<Turn, StoreClosed> {
        match state {
            State::Start => self.start().await,
            State::Probe { too_large_since } => self.probe(too_large_since).await,
            State::List(reason) => {
                self.options.has_part_of_list = false;
                self.list(reason).await
            }
            State::StreamingList => self.streaming_list().await,
            State::Watch(stream) => self.watch(stream).await,
        }
    }

    async fn start(&mut self) -> Result<Turn, StoreClosed> {
        let start = match self.options.follow {
            Follow::State => return Ok(Turn::at_once(self.round())),
            Follow::Changes { resume: Some(_), .. } => {
                return Ok(Turn::at_once(State::Probe { too_large_since: None }));
            }
            Follow::Changes { start, .. } => start,
        };
        match start {
            StartFrom::List => Ok(Turn::at_once(State::List(ReplaceReason::First))),
            StartFrom::Now => match self.now().await {
                Ok(now) => {
                    let version = now.version.to_string();
                    self.store.start_at(&version).await?;
                    self.caught_up_at(now.asked.ms);
                    self.seen(version);
                    self.server = Some(now);
                    Ok(Turn::at_once(State::Watch(None)))
                }
                Err(error) => Ok(self.failed(&error, State::Start)),
            },
        }
    }

    /// The start of another round of client-go's.
    fn round(&self) -> State {
        if self.options.streaming_lists { State::StreamingList } else { State::List(self.reason()) }
    }

    /// What a list is for that replaces what was read before, if anything was.
    fn reason(&self) -> ReplaceReason {
        if self.last.is_empty() {
            return ReplaceReason::First;
        }
        let last_sign_of_life_ms = self.locked(|health| health.caught_up_ms);
        ReplaceReason::Gap { last_sign_of_life_ms }
    }

    /// The store has been fed up to here.
    fn seen(&mut self, resource_version: String) {
        if std::mem::take(&mut self.not_kept) {
            self.alive();
        }
        if resource_version != self.last {
            self.pace = Pace::default();
        }
        self.locked(|health| health.last_sync_resource_version.clone_from(&resource_version));
        self.last = resource_version;
    }

    /// `next`, after a pause.
    fn backed_off(&mut self, next: State) -> Turn {
        Turn { next, wait: Some(self.backoff.next_wait()) }
    }

    /// `next`, after the pause that an error asks for.
    fn backed_off_for(&mut self, error: &ListWatchError, next: State) -> Turn {
        let asked = error.retry_after().unwrap_or_default().min(MAX_ASKED_WAIT);
        let wait = self.backoff.next_wait().max(asked);
        self.report(error, wait);
        Turn { next, wait: Some(wait) }
    }

    /// The same, where the error ends the round.
    fn failed(&mut self, error: &ListWatchError, next: State) -> Turn {
        if let Some(handler) = &self.options.watch_error_handler {
            handler(error);
        }
        self.backed_off_for(error, next)
    }

    fn next_resync(&self) -> Option<Instant> {
        let period = self.options.resync_period.filter(|period| !period.is_zero())?;
        Instant::now().checked_add(period)
    }

    /// Does some waiting, with the resyncs that are due meanwhile.
    async fn resyncing<T>(&mut self, waiting: impl Future<Output = T>) -> Result<T, StoreClosed> {
        let mut waiting = pin!(waiting);
        loop {
            let due = async {
                match self.resync_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = due => {}
                done = &mut waiting => return Ok(done),
            }
            self.store.resync().await?;
            self.resync_at = self.next_resync();
        }
    }

    fn locked<T>(&self, change: impl FnOnce(&mut SourceHealth) -> T) -> T {
        change(&mut self.health.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Everything up to now has been read: what a gap starts from. An answer to a probe, or a
    /// stream that opened, does not say so.
    fn caught_up(&self) {
        self.caught_up_at(now_ms());
    }

    /// The same, up to a time in milliseconds since the epoch.
    fn caught_up_at(&self, ms: Option<u64>) {
        self.locked(|health| health.caught_up_ms = ms);
        self.heard();
    }

    /// The API server has sent something.
    fn heard(&self) {
        self.locked(|health| health.last_heard_ms = now_ms());
    }

    /// Tells the store when it was caught up last, if it was not told within the last second.
    async fn tell_caught_up(&mut self) -> Result<(), StoreClosed> {
        let recently = self.told_caught_up.is_some_and(|told| told.elapsed() < TELL_EVERY);
        let caught_up_ms = self.locked(|health| health.caught_up_ms);
        if let Follow::Changes { .. } = self.options.follow
            && !recently
            && let Some(at_ms) = caught_up_ms
        {
            self.told_caught_up = Some(Instant::now());
            self.store.caught_up(at_ms).await?;
        }
        Ok(())
    }

    /// The API server answers. If the store did not take the last list, that does not mend it.
    fn alive(&self) {
        if self.not_kept {
            return;
        }
        self.locked(|health| {
            if health.last_error.take().is_some() {
                tracing::info!(source = self.options.name, "the API server answers again");
            }
        });
    }

    fn report(&self, error: &ListWatchError, wait: Duration) {
        let text = error.to_string();
        let repeated = self.locked(|health| health.last_error.replace(text.clone()) == Some(text));
        let retry_in = format!("{:.1}s", wait.as_secs_f64());
        if repeated {
            tracing::debug!(source = self.options.name, %error, retry_in, "still failing");
        } else {
            tracing::warn!(
                source = self.options.name,
                resource = &*self.source.expected().plural,
                %error,
                hint = error.hint(),
                retry_in,
                "the API server cannot be followed"
            );
        }
    }
}
