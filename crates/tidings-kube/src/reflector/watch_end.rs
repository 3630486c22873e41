//! What the end of a watch leads to.

use std::time::Duration;

use tokio::time::Instant;

use super::{ListWatchError, Reflector, ReflectorStore, State, Turn, watch::Watched};

/// A watch that ended sooner and brought nothing did not work.
pub(super) const VERY_SHORT_WATCH: Duration = Duration::from_secs(1);
/// ERROR lines, or the end at once, behind which nothing comes for so long, though the API server
/// answers: it cannot go past what is there, and a list may.
const FAILURES_STAND: Duration = Duration::from_secs(60);

/// How a watch ended.
pub(super) enum WatchEnd {
    /// Before it began.
    Refused(ListWatchError),
    /// By the server.
    Closed,
    /// In the middle: the connection broke.
    Broken(ListWatchError),
    /// By something that is no line of a watch.
    Malformed(ListWatchError),
    /// By an ERROR line.
    Error(ListWatchError),
    /// Not at all, past its time.
    Silent,
    /// The server seems to be behind the resume point.
    Behind,
    /// Not at all, though the API server has not answered for long.
    Unanswered(ListWatchError),
    /// Somebody knows that it is dead; see [`Reconnect`](super::Reconnect).
    GivenUp,
}

impl<S: ReflectorStore> Reflector<S> {
    /// client-go's rules. What ends the round leads to a pause and to a list, which asks for nothing
    /// older than what was seen last, even where that has expired: a list may be newer.
    pub(super) fn after_watch_of_state(&mut self, watched: Watched) -> Turn {
        let Watched { end, events, lasted, .. } = watched;
        match end {
            WatchEnd::Refused(error) if is_retriable(&error) => {
                // Most likely the API server is not there, or overloaded; what it has told does not
                // have to be told again.
                self.backed_off_for(&error, State::Watch(None))
            }
            WatchEnd::Refused(error) => {
                let next = self.round();
                self.failed(&error, next)
            }
            WatchEnd::Closed
            | WatchEnd::Broken(_)
            | WatchEnd::Silent
            | WatchEnd::Behind
            | WatchEnd::Unanswered(_)
            | WatchEnd::GivenUp => {
                self.say_if_dead(&end);
                if events == 0 && lasted < VERY_SHORT_WATCH {
                    tracing::warn!(
                        source = self.options.name,
                        "very short watch: it lasted less than a second and brought nothing"
                    );
                    let next = self.round();
                    return self.backed_off(next);
                }
                Turn::at_once(State::Watch(None))
            }
            WatchEnd::Error(error) | WatchEnd::Malformed(error) => {
                if error.is_expired() {
                    tracing::debug!(source = self.options.name, %error, "the watch has expired");
                    let next = self.round();
                    return self.backed_off(next);
                }
                if error.is_too_many_requests() {
                    return self.backed_off_for(&error, State::Watch(None));
                }
                if error.is_internal_error()
                    && self.internal_errors.retry(self.options.max_internal_error_retry)
                {
                    tracing::info!(source = self.options.name, %error, "watching again at once");
                    return Turn::at_once(State::Watch(None));
                }
                let next = self.round();
                self.backed_off_for(&error, next)
            }
        }
    }

    /// What an end leads to where every change matters: a watch is never taken up again without a
    /// probe, and a list, which is a gap, is made only where it has to be.
    pub(super) fn after_watch_of_changes(&mut self, watched: Watched) -> Turn {
        let Watched { end, events, lasted, .. } = watched;
        let probe = State::Probe { too_large_since: None };
        match end {
            WatchEnd::Refused(error) | WatchEnd::Error(error) if error.is_expired() => {
                Turn::at_once(State::List(self.reason()))
            }
            WatchEnd::Refused(error)
            | WatchEnd::Broken(error)
            | WatchEnd::Malformed(error)
            | WatchEnd::Unanswered(error) => {
                // What answers next may have been restored meanwhile.
                self.failed(&error, probe)
            }
            // Of an etcd without a leader, as a rule: all of its history is there when it has one.
            WatchEnd::Error(error) => {
                let stands = !error.is_too_many_requests() && self.stands();
                let next = if stands { State::List(self.reason()) } else { probe };
                self.failed(&error, next)
            }
            // Of what stands in front of the API server, as a rule; some of it answers a stale
            // resourceVersion so.
            WatchEnd::Closed if lasted < VERY_SHORT_WATCH && events == 0 => {
                let next = if self.stands() { State::List(self.reason()) } else { probe };
                self.backed_off(next)
            }
            WatchEnd::Closed if lasted < VERY_SHORT_WATCH => self.backed_off(probe),
            WatchEnd::Closed => Turn::at_once(probe),
            WatchEnd::Silent | WatchEnd::Behind | WatchEnd::GivenUp => {
                self.say_if_dead(&end);
                Turn::at_once(probe)
            }
        }
    }

    /// Whether watches have ended so for long. If so, it counts from anew.
    fn stands(&mut self) -> bool {
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        let stands = since.elapsed() >= FAILURES_STAND;
        if stands {
            self.failing_since = None;
        }
        stands
    }

    fn say_if_dead(&self, end: &WatchEnd) {
        if let WatchEnd::Silent = end {
            tracing::warn!(
                source = self.options.name,
                "the watch did not end when it should have: the connection is dead"
            );
        }
    }
}

/// Whether a watch is to be asked for again, in place of a list.
pub(super) fn is_retriable(error: &ListWatchError) -> bool {
    error.is_connection_refused() || error.is_too_many_requests()
}
