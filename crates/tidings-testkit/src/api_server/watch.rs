//! Answers to a watch: what has changed since a revision, then what changes, line by line.

use std::{io, time::Duration};

use bytes::Bytes;
use tokio::{sync::watch as signal, time::Instant};

use super::{
    Shared,
    faults::{Fault, Place, StreamFault},
    object::{EventObject, ObjectMeta},
    params::ListParams,
    resource::{EVENTS, ResourceId},
    route::Target,
    selector::Selector,
    serve::{self, JSON},
    shape::{Shape, restamped},
    shared::Feed,
    status::ApiStatus,
    stored::{AnyObject, Stored as _},
    table::{Change, ChangeType},
};
use crate::http::{Chunk, Connection, Ending, Request};

/// How many changes are taken from the log at once, and when a chunk is written.
const BATCH: usize = 1024;
const CHUNK: usize = 192 * 1024;

/// How long before a watch times out its last bookmark comes.
const BEFORE_DEADLINE: Duration = Duration::from_secs(2);

/// One line to send.
struct Line {
    kind: &'static str,
    item: Bytes,
}

/// Whether a stream goes on after a fault.
#[derive(PartialEq, Eq)]
enum Flow {
    On,
    /// Over; true: the connection can serve another request.
    Over(bool),
}

/// Serves one watch to its end. True: the connection can serve another request.
pub(super) async fn serve(
    connection: &mut Connection,
    shared: &Shared,
    target: &Target<'_>,
    request: &Request,
    fault: Option<Fault>,
) -> io::Result<bool> {
    let resource = &shared.catalogue[target.resource];
    let params = ListParams::of(request, resource, true)
        .and_then(|params| Ok((params, Shape::of_object(request, resource)?)));
    let (params, shape) = match params {
        Ok(params) => params,
        Err(status) => return serve::refuse(connection, &status).await,
    };
    connection.begin_chunks(200, JSON).await?;
    if fault == Some(Fault::EmptyStream) {
        return connection.end(Ending::Clean).await;
    }
    let feed = &shared.feeds[target.resource];
    let mut pulse = feed.pulse.subscribe();
    let mut cut = feed.cut.subscribe();
    let mut bookmarks = Bookmarks::of(shared, target.resource, &params);
    let _open = feed.watch_opened();
    let prefix = target.namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let beginning = beginning(shared, target.resource, &params, &prefix);
    let fault = match fault {
        Some(Fault::Stream { after, then }) => Some((after, then)),
        _ => None,
    };
    let chunk = Chunk::default();
    let mut stream =
        Stream { connection, shared, feed, resource: target.resource, shape, chunk, fault };
    let (first, mut position) = match beginning {
        Ok(beginning) => beginning,
        Err(status) => {
            // A fault before the first event comes before the refusal.
            if let Flow::Over(reusable) = stream.send(&[]).await? {
                return Ok(reusable);
            }
            return stream.fail(&status).await;
        }
    };
    if let Flow::Over(reusable) = stream.send(&first).await? {
        return Ok(reusable);
    }
    drop(first);
    // The server's own bound, when the client states none, is 30 to 60 minutes.
    let seconds = params.timeout_seconds.unwrap_or_else(|| fastrand::u64(1800..3600));
    let deadline = Instant::now() + Duration::from_secs(seconds);
    bookmarks.end_with(deadline);
    loop {
        if cut.has_changed().unwrap_or(true) {
            return stream.connection.end(Ending::Closed).await;
        }
        pulse.borrow_and_update();
        let (changes, revision) = {
            let state = shared.state();
            (state.table(target.resource).changes(position, BATCH), state.revision())
        };
        let Some(changes) = changes else {
            // Compacted while this watch was behind.
            return stream.fail(&ApiStatus::expired_watch()).await;
        };
        if changes.is_empty() {
            if bookmarks.due() {
                stream.bookmark(revision).await?;
            }
            tokio::select! {
                _ = pulse.changed() => {}
                _ = cut.changed() => return stream.connection.end(Ending::Closed).await,
                () = bookmarks.wait() => {}
                () = stream.connection.closed() => return Ok(false),
                () = tokio::time::sleep_until(deadline) => {
                    return stream.connection.end(Ending::Clean).await;
                }
            }
            continue;
        }
        position += changes.len() as u64;
        let lines: Vec<Line> = changes
            .into_iter()
            .filter(|change| change.key.starts_with(&prefix))
            .filter(|change| params.version.is_none_or(|version| change.revision > version))
            .filter_map(|change| line_for(change, &params.selector))
            .collect();
        if let Flow::Over(reusable) = stream.send(&lines).await? {
            return Ok(reusable);
        }
        if Instant::now() >= deadline {
            return stream.connection.end(Ending::Clean).await;
        }
    }
}

/// What the watch begins with, and where in the log it goes on.
///
/// Without a resourceVersion, or with 0, a watch begins with what exists.
fn beginning(
    shared: &Shared,
    resource: ResourceId,
    params: &ListParams,
    prefix: &str,
) -> Result<(Vec<Line>, u64), ApiStatus> {
    let cached = shared.catalogue[resource].watch_cached();
    let mut state = shared.state();
    let revision = state.revision();
    let version = params.version.filter(|version| *version > 0);
    if let Some(from) = version.filter(|_| !params.initial_events) {
        let position = state.log_position(resource, from);
        return position.map(|position| (Vec::new(), position)).ok_or_else(|| {
            if cached {
                ApiStatus::expired_watch_cache(from, state.compacted())
            } else {
                ApiStatus::expired_watch()
            }
        });
    }
    if let Some(wanted) = version.filter(|version| cached && *version > revision) {
        return Err(ApiStatus::too_large_for_cache(wanted, revision));
    }
    let table = state.table_mut(resource);
    let page = table.list(prefix, "", revision, 0, |item| params.selector.matches(item));
    let position = table.log_position(revision);
    let mut first: Vec<Line> =
        page.items.into_iter().map(|item| Line { kind: "ADDED", item }).collect();
    if params.initial_events && params.bookmarks {
        first.push(Line { kind: "BOOKMARK", item: bookmark(resource, revision, true) });
    }
    Ok((first, position))
}

/// How a change looks to a watch with a selector: what begins to match is added, what ceases to
/// is deleted.
fn line_for(change: Change, selector: &Selector) -> Option<Line> {
    if selector.is_empty() {
        let kind = match change.kind {
            ChangeType::Added => "ADDED",
            ChangeType::Modified => "MODIFIED",
            ChangeType::Deleted => "DELETED",
        };
        return Some(Line { kind, item: change.object });
    }
    let now = change.kind != ChangeType::Deleted && selector.matches(&change.object);
    let before = change.previous.filter(|previous| selector.matches(previous));
    match (before, now) {
        (None, false) => None,
        (None, true) => Some(Line { kind: "ADDED", item: change.object }),
        (Some(_), true) => Some(Line { kind: "MODIFIED", item: change.object }),
        (Some(last), false) => {
            Some(Line { kind: "DELETED", item: restamped(&last, change.revision) })
        }
    }
}

/// The object of a BOOKMARK: empty but for the version.
fn bookmark(resource: ResourceId, revision: u64, initial_events_end: bool) -> Bytes {
    let mut metadata =
        ObjectMeta { resource_version: revision.to_string(), ..ObjectMeta::default() };
    if initial_events_end {
        metadata.annotations.insert("k8s.io/initial-events-end".to_owned(), "true".into());
    }
    if resource == EVENTS {
        EventObject { metadata, ..EventObject::default() }.to_item()
    } else {
        AnyObject { metadata, ..AnyObject::default() }.to_item()
    }
}

/// When a watch gets bookmarks: never, unless it asks for them and the resource is cached.
struct Bookmarks {
    taken: bool,
    every: Duration,
    next: Instant,
    /// The last before the watch times out, so that the next one begins late.
    last: Option<Instant>,
    rung: signal::Receiver<()>,
}

impl Bookmarks {
    fn of(shared: &Shared, resource: ResourceId, params: &ListParams) -> Self {
        let every = shared.options.bookmark_every;
        Self {
            taken: params.bookmarks && shared.catalogue[resource].watch_cached(),
            every,
            next: Instant::now() + every,
            last: None,
            rung: shared.feeds[resource].bookmark.subscribe(),
        }
    }

    fn end_with(&mut self, deadline: Instant) {
        self.last = deadline.checked_sub(BEFORE_DEADLINE);
    }

    /// Whether it is time for one; answers so once.
    fn due(&mut self) -> bool {
        let now = Instant::now();
        let rung = self.rung.has_changed().unwrap_or_default();
        self.rung.mark_unchanged();
        let last = self.last.take_if(|last| *last <= now).is_some();
        if !self.taken || !(rung || last || self.next <= now) {
            return false;
        }
        self.next = now + self.every;
        true
    }

    /// Returns when it is time for one.
    async fn wait(&mut self) {
        if !self.taken {
            return std::future::pending().await;
        }
        let next = self.last.map_or(self.next, |last| last.min(self.next));
        tokio::select! {
            _ = self.rung.changed() => self.rung.mark_changed(),
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

struct Stream<'a> {
    connection: &'a mut Connection,
    shared: &'a Shared,
    feed: &'a Feed,
    resource: ResourceId,
    shape: Shape<'a>,
    chunk: Chunk,
    /// What happens after how many more events.
    fault: Option<(usize, StreamFault)>,
}

impl Stream<'_> {
    async fn send(&mut self, lines: &[Line]) -> io::Result<Flow> {
        if let Flow::Over(reusable) = self.due(None).await? {
            return Ok(Flow::Over(reusable));
        }
        let mut out = self.chunk.start();
        for line in lines {
            if self.fault.as_ref().is_some_and(|(after, _)| *after == 0) {
                // Only a cut within the next line still waits here.
                self.flush().await?;
                if let Flow::Over(reusable) = self.due(Some(line)).await? {
                    return Ok(Flow::Over(reusable));
                }
                out = self.chunk.start();
            }
            self.shape.push_line(out, line.kind, &line.item);
            self.feed.count_event();
            let due = self.fault.as_mut().is_some_and(|(after, _)| {
                *after -= 1;
                *after == 0
            });
            if due || out.len() >= CHUNK {
                self.flush().await?;
                if let Flow::Over(reusable) = self.due(None).await? {
                    return Ok(Flow::Over(reusable));
                }
                out = self.chunk.start();
            }
        }
        self.flush().await?;
        Ok(Flow::On)
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.connection.write(self.chunk.finish()).await
    }

    async fn line(&mut self, line: &[u8]) -> io::Result<()> {
        let out = self.chunk.start();
        out.extend_from_slice(line);
        out.push(b'\n');
        self.flush().await
    }

    async fn bookmark(&mut self, revision: u64) -> io::Result<()> {
        let item = bookmark(self.resource, revision, false);
        let out = self.chunk.start();
        self.shape.push_line(out, "BOOKMARK", &item);
        self.flush().await
    }

    /// Lets the fault happen if its time has come; a cut within a line needs that line.
    async fn due(&mut self, next: Option<&Line>) -> io::Result<Flow> {
        let Some((_, then)) = self.fault.take_if(|(after, then)| {
            *after == 0
                && (next.is_some()
                    || !matches!(then, StreamFault::Cut(Place::MidLine | Place::MidCharacter, _)))
        }) else {
            return Ok(Flow::On);
        };
        let over = match then {
            StreamFault::Line(text) => {
                self.line(text.as_bytes()).await?;
                return Ok(Flow::On);
            }
            StreamFault::Bookmark => {
                let revision = self.shared.state().revision();
                self.bookmark(revision).await?;
                return Ok(Flow::On);
            }
            StreamFault::Stall => {
                self.connection.closed().await;
                false
            }
            StreamFault::Expired => self.fail(&ApiStatus::expired_watch()).await?,
            StreamFault::InternalError => self.fail(&ApiStatus::internal_in_stream()).await?,
            StreamFault::Cut(place, how) => {
                let out = self.chunk.start();
                if let Some(next) = next {
                    self.shape.push_line(out, next.kind, &next.item);
                }
                cut(self.connection, &mut self.chunk, place, how).await?
            }
        };
        Ok(Flow::Over(over))
    }

    /// Ends the stream with an ERROR event.
    async fn fail(&mut self, status: &ApiStatus) -> io::Result<bool> {
        let mut line = br#"{"type":"ERROR","object":"#.to_vec();
        line.extend_from_slice(&status.to_json());
        line.push(b'}');
        self.line(&line).await?;
        self.connection.end(Ending::Clean).await
    }
}

/// Sends a part of `chunk`, which holds what comes next, and ends the body there.
async fn cut(
    connection: &mut Connection,
    chunk: &mut Chunk,
    place: Place,
    how: Ending,
) -> io::Result<bool> {
    let content = chunk.content();
    let length = match place {
        Place::BetweenLines => 0,
        Place::MidLine => content.len() / 2,
        Place::MidCharacter => {
            content.iter().position(|byte| *byte >= 0xc0).map_or(content.len() / 2, |lead| lead + 1)
        }
    };
    if how == Ending::Clean {
        chunk.truncate(length);
        connection.write(chunk.finish()).await?;
    } else if length > 0 {
        // In the middle of the chunk, too: it announces the whole line.
        connection.write(chunk.finish_partly(length)).await?;
    }
    connection.end(how).await
}
