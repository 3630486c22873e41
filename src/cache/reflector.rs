//! The reflector: one state machine that keeps a [`Store`] up with the Events of an API server.
//!
//! It mirrors client-go's `tools/cache` Reflector (the waits, the random watch timeout, the rule
//! for very short watches) with what Events need beyond it. The API server keeps no watch cache
//! for them: a list reads etcd, bookmarks do not come, a resourceVersion can be resumed only until
//! etcd's compaction, and a stale one shows as a 410, as an ERROR in the stream, or as a 200 that
//! closes at once and empty. And a watch from a resourceVersion of the future, as after an etcd
//! was restored from a snapshot, answers 200 and stays quiet for ever; hence the probe.
//!
//! ```text
//!            ┌──────── no resume point ────────┐
//!  Start ────┤                                 ▼
//!            └─▶ Probe ──gone, or behind us──▶ List ──whole──▶ Watch ──ended──▶ Probe
//! ```
//!
//! A failure of any of them waits (see [`BackoffManager`]) and then takes the same step again, or
//! the one that the failure asks for. A watch is never taken up again without a probe, and a list
//! that is older than the resume point is of another epoch, whatever it was made for.

mod health;
mod stream;

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

pub use self::health::{SharedHealth, SourceHealth};
use self::{health::now_ms, stream::StreamEnd};
use super::{
    BackoffManager, EventsApi, ListWatchError, ReplaceReason, Store, StoreClosed,
    api::Page,
    list_items::{ListItems, ListMeta},
};

/// Items of a list are asked for in pages of this size.
const PAGE_SIZE: u32 = 500;
/// The server is told to end a watch after a random time in this range, so that the watches of
/// many clients do not end together.
const WATCH_TIMEOUT_SECS: std::ops::Range<u64> = 300..600;
/// So long after that time a watch that has not ended is a dead connection.
const WATCH_GRACE: Duration = Duration::from_secs(30);
/// A watch that ended sooner did not work.
const VERY_SHORT_WATCH: Duration = Duration::from_secs(1);
/// An API server that lags behind another catches up in less; after it, it is a restored one.
const TOO_LARGE_STANDS: Duration = Duration::from_secs(30);
/// The wait between two probes meanwhile.
const TOO_LARGE_WAIT: Duration = Duration::from_secs(1);
/// The longest that the API server can make us wait by `Retry-After`: etcd's history, which a watch
/// is resumed from, goes back five minutes.
const MAX_ASKED_WAIT: Duration = Duration::from_mins(1);
/// Items of a list go to the store in groups of this size.
const GROUP_BYTES: usize = 256 << 10;

/// Where a source without a resume point starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartFrom {
    /// With every Event that exists.
    List,
    /// With what happens from now on.
    Now,
}

/// How a reflector is set up.
#[derive(Clone, Debug)]
pub struct ReflectorOptions {
    /// The name of the source in logs.
    pub name: String,
    /// Where to go on; `None` when nothing was read before.
    pub resume: Option<u64>,
    /// What to do without a resume point.
    pub start: StartFrom,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    Probe { too_large_since: Option<Instant> },
    List(ReplaceReason),
    Watch,
}

/// Keeps one store up with one source: lists, watches, and takes the one up where the other ends.
pub struct Reflector<S> {
    api: EventsApi,
    store: S,
    options: ReflectorOptions,
    health: SharedHealth,
    backoff: BackoffManager,
    state: State,
    /// The resourceVersion up to which the store has been fed.
    last: u64,
}

/// Why a step did not succeed.
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

impl<S: Store> Reflector<S> {
    /// A reflector that has not asked for anything yet.
    pub fn new(api: EventsApi, store: S, options: ReflectorOptions) -> Self {
        Self {
            api,
            store,
            last: options.resume.unwrap_or(0),
            options,
            health: SharedHealth::default(),
            backoff: BackoffManager::new(),
            state: State::Start,
        }
    }

    /// How it does, to be read while it runs.
    pub fn health(&self) -> SharedHealth {
        Arc::clone(&self.health)
    }

    /// Runs until the store closes. Dropping the future between two steps or in the middle of one
    /// loses nothing: the store knows how far it was fed.
    pub async fn run(mut self) {
        loop {
            match self.step().await {
                Ok(next) => self.state = next,
                Err(StepError::Closed) => return,
                Err(StepError::Failed(error)) => {
                    let wait = self.backoff.next_wait();
                    let asked = error.retry_after().unwrap_or_default().min(MAX_ASKED_WAIT);
                    let wait = wait.max(asked);
                    self.report(&error, wait);
                    sleep(wait).await;
                    if self.state == State::Watch {
                        // What answers next may have been restored meanwhile.
                        self.state = State::Probe { too_large_since: None };
                    }
                }
            }
        }
    }

    async fn step(&mut self) -> Result<State, StepError> {
        match self.state {
            State::Start if self.options.resume.is_some() => {
                Ok(State::Probe { too_large_since: None })
            }
            State::Start => match self.options.start {
                StartFrom::List => Ok(State::List(ReplaceReason::First)),
                StartFrom::Now => {
                    let now = self.list_one(None).await?;
                    self.store.start_at(now.resource_version).await?;
                    self.caught_up();
                    self.last = now.resource_version;
                    Ok(State::Watch)
                }
            },
            State::Probe { too_large_since } => self.probe(too_large_since).await,
            State::List(reason) => self.list(reason).await,
            State::Watch => self.watch().await,
        }
    }

    fn gap(&self) -> State {
        let last_sign_of_life_ms = self.locked(|health| health.caught_up_ms);
        State::List(ReplaceReason::Gap { last_sign_of_life_ms })
    }

    /// The API server is at `server` and so behind the resume point.
    fn new_epoch(&self, server: u64) -> State {
        tracing::warn!(
            source = self.options.name,
            resume_point = self.last,
            server,
            "the API server is behind the resume point: its etcd was restored, or it is another one"
        );
        State::List(ReplaceReason::NewEpoch)
    }

    /// Asks whether the API server still is the one that the resume point is of.
    async fn probe(&mut self, too_large_since: Option<Instant>) -> Result<State, StepError> {
        match self.list_one(Some(self.last)).await {
            Ok(list) if list.resource_version >= self.last => Ok(State::Watch),
            Ok(list) => Ok(self.new_epoch(list.resource_version)),
            Err(error) if error.is_expired() => Ok(self.gap()),
            Err(error) if error.is_too_large_resource_version() => {
                let since = too_large_since.unwrap_or_else(Instant::now);
                if since.elapsed() < TOO_LARGE_STANDS {
                    sleep(TOO_LARGE_WAIT).await;
                    return Ok(State::Probe { too_large_since: Some(since) });
                }
                tracing::warn!(
                    source = self.options.name,
                    resume_point = self.last,
                    %error,
                    "the API server has not known the resume point for 30 s: its etcd was restored, or it is another one"
                );
                Ok(State::List(ReplaceReason::NewEpoch))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn list_one(&mut self, not_older_than: Option<u64>) -> Result<ListMeta, ListWatchError> {
        self.locked(|health| health.lists += 1);
        list_one(&self.api, not_older_than).await
    }

    async fn list(&mut self, reason: ReplaceReason) -> Result<State, StepError> {
        self.store.begin_replace(reason).await?;
        let list = match self.list_pages(Some(PAGE_SIZE)).await {
            // A token lives as long as etcd's history. The whole list in one answer needs none.
            Err(StepError::Failed(error)) if error.is_expired() => {
                tracing::info!(
                    source = self.options.name,
                    "the list outlived its continue token: listing without pages"
                );
                self.store.abort().await?;
                self.store.begin_replace(reason).await?;
                self.list_pages(None).await
            }
            list => list,
        };
        match list {
            Ok(resource_version)
                if resource_version < self.last && reason != ReplaceReason::NewEpoch =>
            {
                self.store.abort().await?;
                Ok(self.new_epoch(resource_version))
            }
            Ok(resource_version) => {
                if !self.store.end_replace(resource_version).await? {
                    sleep(self.backoff.next_wait()).await;
                    return Ok(State::List(reason));
                }
                self.last = resource_version;
                self.caught_up();
                Ok(State::Watch)
            }
            Err(error) => {
                self.store.abort().await?;
                Err(error)
            }
        }
    }

    /// Feeds all pages; answers the resourceVersion of the list, which is that of its first page.
    async fn list_pages(&mut self, limit: Option<u32>) -> Result<u64, StepError> {
        let mut page = Page { limit, ..Page::default() };
        let mut taken_at = None;
        loop {
            self.locked(|health| health.lists += 1);
            let mut answer = self.api.list(&page).await?;
            let (mut splitter, mut items, mut bytes) = (ListItems::new(), Vec::new(), 0);
            while let Some(chunk) = answer.list_chunk().await? {
                splitter.push(&chunk, &mut items).map_err(ListWatchError::from)?;
                bytes += chunk.len();
                if bytes >= GROUP_BYTES {
                    bytes = 0;
                    self.store.replace_page(std::mem::take(&mut items)).await?;
                }
                self.alive();
            }
            let meta = splitter.finish().map_err(ListWatchError::from)?;
            self.store.replace_page(items).await?;
            let taken_at = *taken_at.get_or_insert(meta.resource_version);
            if meta.continue_token.is_empty() {
                return Ok(taken_at);
            }
            page.continue_token = Some(meta.continue_token);
        }
    }

    async fn watch(&mut self) -> Result<State, StepError> {
        let server_timeout = Duration::from_secs(fastrand::u64(WATCH_TIMEOUT_SECS));
        let opened = Instant::now();
        let deadline = opened + server_timeout + WATCH_GRACE;
        self.locked(|health| health.watches += 1);
        let mut answer = match self.api.watch(self.last, server_timeout).await {
            Err(error) if error.is_expired() => return Ok(self.gap()),
            answer => answer?,
        };
        self.alive();
        self.stream_open(true);
        let end = self.follow(&mut answer, deadline).await;
        self.stream_open(false);
        let short = opened.elapsed() < VERY_SHORT_WATCH;
        match end? {
            // Some front ends answer a stale resourceVersion so. A list tells.
            StreamEnd::Closed { empty: true } if short => {
                sleep(self.backoff.next_wait()).await;
                Ok(self.gap())
            }
            StreamEnd::Closed { .. } => {
                if short {
                    sleep(self.backoff.next_wait()).await;
                } else {
                    self.caught_up();
                }
                Ok(State::Probe { too_large_since: None })
            }
            StreamEnd::Error(status) => {
                let error = status_error(&status);
                if !error.is_expired() {
                    let wait = self.backoff.next_wait();
                    self.report(&error, wait);
                    sleep(wait).await;
                }
                Ok(self.gap())
            }
            StreamEnd::Behind => Ok(State::Probe { too_large_since: None }),
            StreamEnd::Silent => {
                tracing::warn!(
                    source = self.options.name,
                    "the watch did not end when it should have: the connection is dead"
                );
                Ok(State::Probe { too_large_since: None })
            }
        }
    }

    fn locked<T>(&self, change: impl FnOnce(&mut SourceHealth) -> T) -> T {
        change(&mut self.health.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Everything up to now has been read: what a gap starts from. An answer to a probe, or a
    /// stream that opened, does not say so.
    fn caught_up(&self) {
        self.locked(|health| {
            health.caught_up_ms = now_ms();
            health.last_heard_ms = health.caught_up_ms;
        });
    }

    /// The API server answers.
    fn alive(&self) {
        self.locked(|health| {
            if health.last_error.take().is_some() {
                tracing::info!(source = self.options.name, "the API server answers again");
            }
        });
    }

    fn stream_open(&self, open: bool) {
        self.locked(|health| {
            health.stream_open = open;
            health.stream_last_open = Some(Instant::now());
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
                %error,
                hint = error.hint(),
                retry_in,
                "the API server cannot be followed"
            );
        }
    }
}

/// Asks for one Event, for the sake of what the list says of itself.
async fn list_one(
    api: &EventsApi,
    not_older_than: Option<u64>,
) -> Result<ListMeta, ListWatchError> {
    let page = Page { limit: Some(1), continue_token: None, not_older_than };
    let mut answer = api.list(&page).await?;
    let (mut items, mut ignored) = (ListItems::new(), Vec::new());
    while let Some(chunk) = answer.list_chunk().await? {
        items.push(&chunk, &mut ignored)?;
        ignored.clear();
    }
    Ok(items.finish()?)
}

fn status_error(status: &[u8]) -> ListWatchError {
    let status = serde_json::from_slice(status).unwrap_or_default();
    ListWatchError::Status { verb: "watch", status: Box::new(status), retry_after: None }
}
