//! Feeding one watch stream to the store until it ends, with a probe beside it.

use std::{
    pin::pin,
    sync::{
        PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Reflector, SharedHealth, StepError, health::now_ms, list_one};
use crate::cache::{
    EventsApi, Store, WatchEvent,
    api::Answer,
    lines::{Line, Lines},
    store::resource_version_of,
};

/// While a watch is open the API server is probed so often: of an etcd that is restored under a
/// running API server an open watch shows nothing, neither an end nor what is written from then on
/// (seen on 1.34).
const PROBE_EVERY: Duration = Duration::from_secs(15);
/// Reads of a watch that are ready together go to the store together, up to this many bytes.
const READ_AHEAD_BYTES: usize = 256 << 10;

impl<S: Store> Reflector<S> {
    /// Feeds a stream to the store until it ends.
    pub(super) async fn follow(
        &mut self,
        answer: &mut Answer,
        deadline: Instant,
    ) -> Result<StreamEnd, StepError> {
        let mut lines = Lines::default();
        let mut empty = true;
        let fed = AtomicU64::new(self.last);
        let mut behind = pin!(turns_out_behind(self.api.clone(), &fed, self.health()));
        loop {
            let first = tokio::select! {
                // A stream that is never silent needs no probe.
                biased;
                first = timeout_at(deadline, answer.chunk()) => first,
                () = &mut behind => return Ok(StreamEnd::Behind),
            };
            let Ok(first) = first else { return Ok(StreamEnd::Silent) };
            let mut read = first;
            let (mut events, mut bytes, mut error) = (Vec::new(), 0, None);
            // What has arrived already is taken along: a frame of the journal costs about the same
            // for one event as for a hundred.
            let end = loop {
                match read {
                    Ok(None) => break Some(Ok(StreamEnd::Closed { empty })),
                    Err(error) => break Some(Err(error)),
                    Ok(Some(chunk)) => {
                        bytes += chunk.len();
                        let malformed = lines.push(chunk, |line| {
                            match Line::parse(&line)? {
                                Line::Event(event) => events.push(event),
                                Line::Error(status) => error = Some(status),
                            }
                            Ok(())
                        });
                        if let Err(malformed) = malformed {
                            break Some(Err(malformed.into()));
                        }
                        if let Some(status) = error.take() {
                            break Some(Ok(StreamEnd::Error(status)));
                        }
                    }
                }
                if bytes >= READ_AHEAD_BYTES {
                    break None;
                }
                match answer.chunk().now_or_never() {
                    Some(more) => read = more,
                    None => break None,
                }
            };
            if !events.is_empty() {
                empty = false;
                self.caught_up();
                // Events that came before an error count; what they say of the resourceVersion too.
                let last = last_resource_version(&events).unwrap_or(0);
                self.store.apply(events).await?;
                // What does not belong in the stream has a resourceVersion from anywhere.
                self.last = self.last.max(last);
                fed.store(self.last, Ordering::Relaxed);
            }
            match end {
                None => {}
                Some(end) => return Ok(end?),
            }
        }
    }
}

/// Probes a server that a watch is open to; completes when it turns out to be behind what
/// the watch has `fed`. Other failures are the watch's own to notice.
async fn turns_out_behind(api: EventsApi, fed: &AtomicU64, health: SharedHealth) {
    loop {
        sleep(PROBE_EVERY).await;
        let last = fed.load(Ordering::Relaxed);
        match list_one(&api, Some(last)).await {
            Ok(list) if list.resource_version < last => return,
            Ok(_) => health.lock().unwrap_or_else(PoisonError::into_inner).last_heard_ms = now_ms(),
            Err(error) if error.is_too_large_resource_version() => return,
            Err(_) => {}
        }
    }
}

/// How a watch stream ended without failing.
pub(super) enum StreamEnd {
    /// By the server.
    Closed {
        /// Without a line.
        empty: bool,
    },
    /// By an ERROR line.
    Error(Bytes),
    /// Not at all, past its time.
    Silent,
    /// The server seems to be behind the resume point.
    Behind,
}

/// The resourceVersion of the last event that has one.
fn last_resource_version(events: &[WatchEvent]) -> Option<u64> {
    events.iter().rev().find_map(|event| resource_version_of(&event.object))
}
