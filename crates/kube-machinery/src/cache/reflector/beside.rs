//! A second watch beside one that brings nothing, which is how a dead connection is found.
//!
//! A watch on a dead connection is as silent as one of a resource that does not change. HTTP/1, which kube
//! speaks, has no pings, and a bookmark comes once a minute, if at all. So after some silence a second watch
//! is asked for from where the first has come to: what has happened meanwhile comes by it at once. The first
//! of both that brings something goes on, and the other is dropped. Where neither does, nothing has happened;
//! after as much silence again the second takes the place of the first.

use std::future::pending;

use futures_util::future::BoxFuture;

use super::{
    watch::{Asking, Read, Stream},
    watch_end::WatchEnd,
};
use crate::cache::ListWatchError;

/// A watch, and a second one beside it while it is silent.
pub(super) struct Watching {
    pub(super) stream: Box<Stream>,
    second: Option<Second>,
    asking: Asking,
    name: String,
}

struct Second {
    opening: Option<BoxFuture<'static, Result<Box<Stream>, ListWatchError>>>,
    stream: Option<Box<Stream>>,
}

impl Second {
    /// The next read of the second watch. One that cannot be opened, or ends before it brings anything, says nothing
    /// of the first: then this waits for ever. Dropping the future loses nothing.
    async fn read(&mut self) -> Read {
        if let Some(opening) = &mut self.opening {
            let opened = opening.await;
            self.opening = None;
            self.stream = opened.ok();
        }
        if let Some(stream) = &mut self.stream {
            loop {
                let read = stream.read().await;
                if !read.events.is_empty() {
                    return read;
                }
                if read.end.is_some() {
                    break;
                }
                // A piece of a line has come; the rest is on its way.
            }
            self.stream = None;
        }
        pending().await
    }
}

impl Watching {
    pub(super) fn new(stream: Box<Stream>, asking: Asking, name: &str) -> Self {
        Self { stream, second: None, asking, name: name.to_owned() }
    }

    /// The next events, from whichever watch brings some. `last` is the resourceVersion that both go on from.
    /// Dropping the future loses nothing.
    pub(super) async fn read(&mut self, last: &str) -> Read {
        loop {
            let Self { stream, second, .. } = self;
            let by_second = async {
                match second {
                    Some(second) => second.read().await,
                    None => pending().await,
                }
            };
            let read = tokio::select! {
                biased;
                read = stream.read() => read,
                read = by_second => {
                    self.take_second();
                    tracing::debug!(
                        source = self.name,
                        "a watch was silent, and a second one was the first to bring something"
                    );
                    return read;
                }
            };
            match read.end {
                Some(WatchEnd::Quiet) if self.second.is_none() => self.ask_for_second(last),
                Some(WatchEnd::Quiet) if self.take_second() => {}
                _ => {
                    self.second = None;
                    return read;
                }
            }
        }
    }

    fn ask_for_second(&mut self, last: &str) {
        self.stream.be_patient();
        let opening = Box::pin(self.asking.open(last.to_owned(), false));
        self.second = Some(Second { opening: Some(opening), stream: None });
    }

    /// Puts the second in the place of the first, if it is open.
    fn take_second(&mut self) -> bool {
        let Some(second) = self.second.take().and_then(|second| second.stream) else {
            return false;
        };
        self.stream = second;
        true
    }
}
