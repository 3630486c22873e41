//! The step that lists by a stream: a watch that begins with all objects.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use bytes::Bytes;
use tokio::time::{MissedTickBehavior, interval};

use super::{
    ListWatchError, Reflector, ReflectorStore, Replaced, State, StoreClosed, Turn, WatchEventType,
    head::ObjectHead,
    watch::{Read, Stream},
    watch_end::{VERY_SHORT_WATCH, WatchEnd, is_retriable},
};

/// So often it is said that the bookmark behind the objects has not come yet.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// The objects of a stream until they are complete, by namespace and name.
#[derive(Default)]
struct Collected {
    objects: BTreeMap<(String, String), Bytes>,
    resource_version: String,
    events: u64,
}

/// How collecting ended.
enum Collecting {
    Complete(Collected),
    Ended { end: WatchEnd, events: u64 },
}

impl<S: ReflectorStore> Reflector<S> {
    /// client-go's `watchList`: all objects come as ADDED, then a bookmark says that this was all,
    /// and the same stream goes on as the watch. What the API server does not do this way is listed
    /// instead, in the same round.
    pub(super) async fn streaming_list(&mut self) -> Result<Turn, StoreClosed> {
        let from = if self.last_unavailable { String::new() } else { self.last.clone() };
        let mut stream = match self.open_watch(from, true).await? {
            Ok(stream) => stream,
            Err(error) => return Ok(self.no_streaming_list(&error)),
        };
        let collected = self.collect(&mut stream).await;
        let collected = match collected {
            Collecting::Complete(collected) => collected,
            Collecting::Ended { end, events } => {
                self.stream_open(false);
                return Ok(match end {
                    WatchEnd::Error(error)
                    | WatchEnd::Malformed(error)
                    | WatchEnd::Refused(error) => self.no_streaming_list(&error),
                    _ if events == 0 && stream.opened.elapsed() < VERY_SHORT_WATCH => {
                        tracing::debug!(source = self.options.name, "a very short streaming list");
                        Turn::at_once(State::List(self.reason()))
                    }
                    _ => Turn::at_once(State::StreamingList),
                });
            }
        };
        self.last_unavailable = false;
        let Collected { objects, resource_version, .. } = collected;
        self.store.begin_replace(self.reason()).await?;
        self.store.replace_page(objects.into_values().collect()).await?;
        if self.store.end_replace(&resource_version).await? != Replaced::Kept {
            self.stream_open(false);
            let next = self.round();
            return Ok(self.not_kept(next));
        }
        self.seen(resource_version);
        self.caught_up();
        stream.opened = tokio::time::Instant::now();
        Ok(Turn::at_once(self.first_watch(Some(stream))))
    }

    /// What an error of a streaming list leads to.
    fn no_streaming_list(&mut self, error: &ListWatchError) -> Turn {
        if is_retriable(error) {
            return self.backed_off_for(error, State::StreamingList);
        }
        if error.is_expired() || error.is_too_large_resource_version() {
            self.last_unavailable = true;
            return Turn::at_once(State::StreamingList);
        }
        tracing::debug!(source = self.options.name, %error, "no streaming list: listing instead");
        Turn::at_once(State::List(self.reason()))
    }

    /// Takes a stream up to the bookmark behind its objects. What was read beyond it stays ahead in
    /// the stream.
    async fn collect(&self, stream: &mut Stream) -> Collecting {
        let mut warnings = interval(WARN_EVERY);
        warnings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        warnings.reset();
        let expected = self.source.expected();
        let mut collected = Collected::default();
        loop {
            let read = {
                let mut reading = pin!(stream.read());
                loop {
                    tokio::select! {
                        biased;
                        read = &mut reading => break read,
                        _ = warnings.tick() => tracing::warn!(
                            source = self.options.name,
                            events = collected.events,
                            "still waiting for the bookmark behind a streaming list"
                        ),
                    }
                }
            };
            let Read { events, end } = read;
            let mut events = events.into_iter();
            while let Some(event) = events.next() {
                let head = match ObjectHead::read(&event.object) {
                    Ok(head) if head.is_a(expected) => head,
                    Ok(_) => {
                        tracing::warn!(source = self.options.name, "an object of another kind");
                        continue;
                    }
                    Err(error) => {
                        tracing::warn!(source = self.options.name, %error, "no object");
                        continue;
                    }
                };
                let key = || {
                    let (namespace, name) = (&head.metadata.namespace, &head.metadata.name);
                    (namespace.clone().into_owned(), name.clone().into_owned())
                };
                let complete = match event.kind {
                    WatchEventType::Added | WatchEventType::Modified => {
                        collected.objects.insert(key(), event.object.clone());
                        false
                    }
                    WatchEventType::Deleted => {
                        collected.objects.remove(&key());
                        false
                    }
                    WatchEventType::Bookmark => head.ends_initial_events(),
                    WatchEventType::Unknown => {
                        tracing::warn!(source = self.options.name, "an event of an unknown type");
                        false
                    }
                };
                collected.resource_version = head.metadata.resource_version.into_owned();
                collected.events += 1;
                if complete {
                    stream.ahead = Some(Read { events: events.collect(), end });
                    return Collecting::Complete(collected);
                }
            }
            if let Some(end) = end {
                return Collecting::Ended { end, events: collected.events };
            }
        }
    }
}
