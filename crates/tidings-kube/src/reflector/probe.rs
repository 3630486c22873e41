//! Whether an API server still is the one that the resume point is of. Only where changes are
//! followed.

use std::{sync::PoisonError, time::Duration};

use tokio::time::{Instant, sleep, timeout};

use super::{
    Follow, ListError, ListOptions, ListWatchError, Reflector, ReflectorStore, ReplaceReason,
    SharedHealth, Source, State, StoreClosed, Turn, VersionMatch, Witness, Witnesses,
    catch_up::{Moment, Position, ServerAt},
    health::now_ms,
    list_items::{ListItems, ListMeta},
    watch_end::WatchEnd,
    witness::unknown_witness,
};

/// While a watch is open the API server is probed so often: of an etcd that is restored under a
/// running API server an open watch shows nothing, neither an end nor what is written from then on
/// (seen on 1.34). More often only while it catches up, see [`catch_up`](super::catch_up).
const PROBE_EVERY: Duration = Duration::from_secs(15);
/// Then after so long at the soonest: one that takes its time to answer has enough to do.
const ASKED_FOR_AFTER: Duration = Duration::from_secs(5);
/// An API server that is asked and sends nothing for so long, on the watch or elsewhere, is not
/// reached any more, whether or not the watch's connection says so.
const SILENT_FOR: Duration = Duration::from_secs(60);
/// An API server that lags behind another catches up in less; after it, it is a restored one.
const TOO_LARGE_STANDS: Duration = Duration::from_secs(30);
/// The wait between two probes meanwhile.
const TOO_LARGE_WAIT: Duration = Duration::from_secs(1);

impl<S: ReflectorStore> Reflector<S> {
    /// Asks, and watches on if it is.
    pub(super) async fn probe(
        &mut self,
        too_large_since: Option<Instant>,
    ) -> Result<Turn, StoreClosed> {
        self.locked(|health| health.lists += 1);
        Ok(match list_one(&self.source, Some(self.last_number())).await {
            Ok(server) => match self.new_epoch(&server.version.to_string(), self.reason()) {
                Some(epoch) => Turn::at_once(epoch),
                None => {
                    self.server = Some(server);
                    self.ask_the_witnesses().await
                }
            },
            Err(error) if error.is_expired() => Turn::at_once(State::List(self.reason())),
            Err(error) if error.is_too_large_resource_version() => {
                let since = too_large_since.unwrap_or_else(Instant::now);
                if since.elapsed() < TOO_LARGE_STANDS {
                    let next = State::Probe { too_large_since: Some(since) };
                    return Ok(Turn { next, wait: Some(TOO_LARGE_WAIT) });
                }
                tracing::warn!(
                    source = self.options.name,
                    resume_point = self.last,
                    %error,
                    "the API server has not known the resume point for 30 s: its etcd was restored, or it is another one"
                );
                Turn::at_once(State::List(ReplaceReason::NewEpoch))
            }
            Err(error) => self.failed(&error, State::Probe { too_large_since }),
        })
    }

    /// Watches on, unless the API server, which is not behind, has another history.
    async fn ask_the_witnesses(&mut self) -> Turn {
        match unknown_witness(&self.source, &self.options.witnesses).await {
            Ok(None) if self.options.has_part_of_list => Turn::at_once(State::List(self.reason())),
            Ok(None) => Turn::at_once(State::Watch(None)),
            Ok(Some(Witness { namespace, name, resource_version, .. })) => {
                tracing::warn!(
                    source = self.options.name,
                    resume_point = self.last,
                    object = %format!("{namespace}/{name}"),
                    resource_version,
                    "the API server has never had an object that was read from it: its etcd was restored and has \
                     grown past the resume point, or it is another one"
                );
                Turn::at_once(State::List(ReplaceReason::NewEpoch))
            }
            Err(error) => self.failed(&error, State::Probe { too_large_since: None }),
        }
    }

    /// The list of a new epoch, if an API server that is at `server` is behind the resume point and
    /// this is not known already.
    pub(super) fn new_epoch(&self, server: &str, reason: ReplaceReason) -> Option<State> {
        let changes = matches!(self.options.follow, Follow::Changes { .. });
        let behind = || number(server).is_ok_and(|server| server < self.last_number());
        if !changes || reason == ReplaceReason::NewEpoch || !behind() {
            return None;
        }
        tracing::warn!(
            source = self.options.name,
            resume_point = self.last,
            server,
            "the API server is behind the resume point: its etcd was restored, or it is another one"
        );
        Some(State::List(ReplaceReason::NewEpoch))
    }

    /// Where the API server is now.
    pub(super) async fn now(&mut self) -> Result<ServerAt, ListWatchError> {
        self.locked(|health| health.lists += 1);
        list_one(&self.source, None).await
    }

    /// The resume point as a number; 0 before there is one.
    pub(super) fn last_number(&self) -> u64 {
        self.last.parse().unwrap_or(0)
    }
}

/// A resourceVersion of a list, which orders what is followed.
pub(super) fn number(resource_version: &str) -> Result<u64, ListWatchError> {
    let why = || ListError::NotAList(format!("its resourceVersion is {resource_version:?}"));
    resource_version.parse().map_err(|_| why().into())
}

/// Asks for one object, for the sake of the resourceVersion of the list.
async fn list_one(
    source: &Source,
    not_older_than: Option<u64>,
) -> Result<ServerAt, ListWatchError> {
    let asked = Moment::now();
    let version_match = match not_older_than {
        Some(_) => VersionMatch::NotOlderThan,
        None => VersionMatch::Unset,
    };
    let page = ListOptions {
        limit: Some(1),
        resource_version: not_older_than.map(|rv| rv.to_string()).unwrap_or_default(),
        version_match,
        ..ListOptions::default()
    };
    let mut answer = source.list(&page).await?;
    let (mut items, mut ignored) = (ListItems::new(), Vec::new());
    while let Some(chunk) = answer.list_chunk().await? {
        items.push(&chunk, &mut ignored)?;
        ignored.clear();
    }
    let ListMeta { resource_version, .. } = items.finish(&source.list_kind())?;
    Ok(ServerAt { version: number(&resource_version)?, asked })
}

/// Probes a server that a watch is open to. Completes when it turns out to be behind what the watch
/// has fed, to have another history, or not to be reached any more.
pub(super) async fn end_by_probe(
    source: Source,
    position: &Position,
    health: SharedHealth,
    witnesses: Witnesses,
) -> WatchEnd {
    let locked = || health.lock().unwrap_or_else(PoisonError::into_inner);
    // Since when it was asked in vain, and what had been heard by then.
    let mut in_vain: Option<(Instant, Option<u64>)> = None;
    loop {
        let sooner = async {
            sleep(ASKED_FOR_AFTER).await;
            position.to_be_asked().await;
        };
        let _ = timeout(PROBE_EVERY, sooner).await;
        let asked = Instant::now();
        let last = position.fed();
        match list_one(&source, Some(last)).await {
            Ok(server) if server.version < last => return WatchEnd::Behind,
            Ok(server) => {
                position.server_is(server);
                locked().last_heard_ms = now_ms();
                in_vain = None;
                if let Ok(Some(_)) = unknown_witness(&source, &witnesses).await {
                    return WatchEnd::Behind;
                }
            }
            Err(error) if error.is_too_large_resource_version() => return WatchEnd::Behind,
            // It is there, and what it refuses to a probe the watch need not be refused.
            Err(ListWatchError::Status { .. }) => in_vain = None,
            Err(error) => {
                let heard_ms = locked().last_heard_ms;
                let (since, _) = in_vain
                    .filter(|(_, heard_before)| *heard_before == heard_ms)
                    .unwrap_or((asked, heard_ms));
                in_vain = Some((since, heard_ms));
                if since.elapsed() >= SILENT_FOR {
                    return WatchEnd::Unanswered(error);
                }
            }
        }
    }
}
