//! Whether a watch shows what happens now: only then does a read of it say that nothing is missing.
//!
//! A watch begins with history, all that has happened since the resume point. etcd sends it in pieces
//! of a thousand revisions, a tenth of a second apart, so neither bytes nor a short wait for them say
//! that it is over. A version does: before each watch, and beside it, the API server is asked where
//! it is, and when the watch has come there, all that had happened when it was asked has been read.
//! If that is long ago it is asked again. What it answers alone says nothing: a watch that is quiet
//! behind its history may be quiet because it is dead.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::health::now_ms;

/// A watch that comes to where the API server was so short a time ago shows what happens now.
const NOW: Duration = Duration::from_secs(1);
/// So does one that comes there with something it had to wait so long for: pieces of history follow
/// each other faster.
const QUIET: Duration = Duration::from_secs(5);
/// In history an end says that it is over only after so long a quiet: an API server that stops ends
/// its watches wherever they are, and an etcd that elects a leader is quiet for a while.
const QUIET_TO_THE_END: Duration = Duration::from_secs(15);
/// A store that took so long may have kept events waiting in the connection: what is read then is
/// no sign of what happens now,
const BACKLOG_AFTER: Duration = Duration::from_millis(250);
/// until a read has to wait this long for something to read.
const NOTHING_WAITED: Duration = Duration::from_millis(5);

/// A point in time, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) at: Instant,
    /// In milliseconds since the epoch.
    pub(super) ms: Option<u64>,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self { at: Instant::now(), ms: now_ms() }
    }
}

/// Where the API server was.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerAt {
    pub(super) version: u64,
    /// Before it was asked: nothing that had happened by then is newer than the version.
    pub(super) asked: Moment,
}

/// How far a watch has come, as it shares it with the probe beside it.
pub(super) struct Position {
    fed: AtomicU64,
    /// Where the watch has yet to come.
    ahead: Mutex<Option<ServerAt>>,
    /// It has come there, and that says nothing of now.
    to_ask: Notify,
}

impl Position {
    pub(super) fn new(fed: u64, server: Option<ServerAt>) -> Self {
        Self { fed: AtomicU64::new(fed), ahead: Mutex::new(server), to_ask: Notify::new() }
    }

    /// The version up to which the store has been fed.
    pub(super) fn fed(&self) -> u64 {
        self.fed.load(Ordering::Relaxed)
    }

    /// Completes when the API server should be asked again at once.
    pub(super) async fn to_be_asked(&self) {
        self.to_ask.notified().await;
    }

    /// The API server was asked again. Where the watch has not come yet stays: it would never come
    /// to what is always put further ahead.
    pub(super) fn server_is(&self, at: ServerAt) {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.get_or_insert(at);
    }

    /// The store has been fed up to this version. Answers what the watch has come to with it.
    fn come_to(&self, version: u64) -> Option<ServerAt> {
        self.fed.store(version, Ordering::Relaxed);
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.take_if(|server| server.version <= version)
    }
}

/// See the [module](self).
pub(super) struct CatchUp {
    /// What is read may be of before the watch began.
    history: bool,
    /// What is read may have waited for the store.
    backlog: bool,
    /// How long the last read waited.
    waited: Duration,
}

impl CatchUp {
    /// Of a watch before which the API server was there; without it nothing is history.
    pub(super) fn new(server: Option<ServerAt>) -> Self {
        Self { history: server.is_some(), backlog: false, waited: Duration::ZERO }
    }

    /// Something, or the end, was read after so long a wait.
    pub(super) fn waited(&mut self, waited: Duration) {
        self.waited = waited;
        self.backlog &= waited < NOTHING_WAITED;
    }

    /// The store has been fed, up to this version, with events that were read then. Answers when
    /// all that had happened has been read with them, in milliseconds since the epoch, if they say so.
    pub(super) fn fed(&mut self, read: Moment, position: &Position, version: u64) -> Option<u64> {
        let reached = position.come_to(version);
        if let Some(server) = reached
            && (self.waited >= QUIET || read.at.duration_since(server.asked.at) <= NOW)
        {
            (self.history, self.backlog) = (false, false);
        }
        match reached {
            _ if !self.history && !self.backlog => read.ms,
            Some(server) if self.history => {
                // So much is known, and more may be soon.
                position.to_ask.notify_one();
                server.asked.ms
            }
            _ => None,
        }
    }

    /// The store has had all that there was to tell it of what was read then.
    pub(super) fn told(&mut self, read: Moment) {
        self.backlog |= read.at.elapsed() > BACKLOG_AFTER;
    }

    /// Whether the server, when it ended the watch, may not have sent all that it had.
    pub(super) fn ended_behind(&self) -> bool {
        self.backlog || (self.history && self.waited < QUIET_TO_THE_END)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::time::advance;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(100);

    /// A watch in paused time, which here is the time since the epoch, too.
    struct Told {
        begun: Instant,
        position: Position,
        catch_up: CatchUp,
    }

    impl Told {
        fn ms(&self) -> u64 {
            self.begun.elapsed().as_millis().try_into().unwrap()
        }

        fn moment(&self) -> Moment {
            Moment { at: Instant::now(), ms: Some(self.ms()) }
        }

        /// A watch before which the API server was at 1000.
        fn new() -> Self {
            let asked = Moment { at: Instant::now(), ms: Some(0) };
            let server = Some(ServerAt { version: 1000, asked });
            let (position, catch_up) = (Position::new(0, server), CatchUp::new(server));
            Self { begun: Instant::now(), position, catch_up }
        }

        /// Events up to a version come after a wait, and the store takes so long for them.
        async fn read(&mut self, wait: Duration, version: u64, store: Duration) -> Option<u64> {
            advance(wait).await;
            self.catch_up.waited(wait);
            let read = self.moment();
            advance(store).await;
            let up_to_ms = self.catch_up.fed(read, &self.position, version);
            self.catch_up.told(read);
            up_to_ms
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pieces_of_history_say_nothing_however_they_come() {
        let mut told = Told::new();
        for version in (0..1000).step_by(100) {
            let wait = if version == 500 { QUIET_TO_THE_END } else { MOMENT };
            assert_eq!(told.read(wait, version, Duration::ZERO).await, None, "{version}");
            assert!(told.catch_up.ended_behind() || version == 500);
        }
        // What was asked long ago is all that the next says, and the one behind it nothing.
        assert!(told.position.to_be_asked().now_or_never().is_none());
        assert_eq!(told.read(MOMENT, 1000, Duration::ZERO).await, Some(0));
        assert!(told.position.to_be_asked().now_or_never().is_some());
        assert_eq!(told.read(MOMENT, 2000, Duration::ZERO).await, None);
        assert!(told.catch_up.ended_behind());
        // Until the API server was asked again.
        let asked = told.moment();
        told.position.server_is(ServerAt { version: 2500, asked });
        told.position.server_is(ServerAt { version: 9000, asked });
        assert_eq!(told.read(MOMENT, 2499, Duration::ZERO).await, None);
        assert_eq!(told.read(MOMENT, 2500, Duration::ZERO).await, Some(told.ms()));
        assert_eq!(told.read(Duration::ZERO, 2600, Duration::ZERO).await, Some(told.ms()));
        assert!(!told.catch_up.ended_behind());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_waited_for_long_happens_now_and_so_does_an_end() {
        let mut told = Told::new();
        assert_eq!(told.read(MOMENT, 900, Duration::ZERO).await, None);
        told.catch_up.waited(Duration::from_secs(300));
        assert!(!told.catch_up.ended_behind(), "an end in quiet");
        let after = told.read(Duration::from_secs(20), 1001, Duration::ZERO).await;
        assert_eq!(after, Some(20_100));
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_have_waited_for_the_store_says_nothing() {
        let mut told = Told::new();
        let slow = BACKLOG_AFTER * 2;
        assert_eq!(told.read(MOMENT, 1000, slow).await, Some(100));
        assert!(told.catch_up.ended_behind());
        assert_eq!(told.read(Duration::ZERO, 1001, Duration::ZERO).await, None);
        assert_eq!(told.read(NOTHING_WAITED, 1002, Duration::ZERO).await, Some(told.ms()));
        // A stream that is never drained, and keeps up with where the API server is.
        assert_eq!(told.read(Duration::ZERO, 1003, slow).await, Some(605));
        let asked = told.moment();
        told.position.server_is(ServerAt { version: 1005, asked });
        assert_eq!(told.read(Duration::ZERO, 1004, Duration::ZERO).await, None);
        assert_eq!(told.read(Duration::ZERO, 1005, Duration::ZERO).await, Some(told.ms()));
    }
}
