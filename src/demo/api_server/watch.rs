//! Answers to a watch: what has changed since a revision, then what changes, line by line.

use std::{io, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    Shared,
    faults::{Fault, Place, StreamFault},
    http::{Chunk, Connection, Ending, Request},
    object::{EventObject, ObjectMeta},
    params::{FieldSelector, ListParams},
    serve::{self, JSON},
    state::{Change, ChangeType},
    status::ApiStatus,
};

/// How many changes are taken from the log at once, and when a chunk is written.
const BATCH: usize = 1024;
const CHUNK: usize = 192 * 1024;

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
    namespace: Option<&str>,
    request: &Request,
    fault: Option<Fault>,
) -> io::Result<bool> {
    let params = match ListParams::of(request, true) {
        Ok(params) => params,
        Err(status) => return serve::refuse(connection, &status).await,
    };
    connection.begin_chunks(200, JSON).await?;
    if fault == Some(Fault::EmptyStream) {
        return connection.end(Ending::Clean).await;
    }
    let mut pulse = shared.pulse.subscribe();
    let _open = shared.watch_opened();
    let prefix = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let (first, start) = beginning(shared, &params, &prefix);
    let fault = match fault {
        Some(Fault::Stream { after, then }) => Some((after, then)),
        _ => None,
    };
    let mut stream = Stream { connection, shared, chunk: Chunk::default(), fault };
    if let Flow::Over(reusable) = stream.send(&first).await? {
        return Ok(reusable);
    }
    let Some(mut position) = start else {
        return stream.fail(&ApiStatus::expired_watch()).await;
    };
    // The server's own bound, when the client states none, is 30 to 60 minutes.
    let seconds = params.timeout_seconds.unwrap_or_else(|| fastrand::u64(1800..3600));
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        pulse.borrow_and_update();
        let changes = shared.state().changes(position, BATCH);
        let Some(changes) = changes else {
            // Compacted while this watch was behind.
            return stream.fail(&ApiStatus::expired_watch()).await;
        };
        if changes.is_empty() {
            tokio::select! {
                _ = pulse.changed() => {}
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

/// What the watch begins with, and where in the log it goes on; none where that is compacted.
///
/// Without a resourceVersion, or with 0, a watch begins with what exists.
fn beginning(shared: &Shared, params: &ListParams, prefix: &str) -> (Vec<Line>, Option<u64>) {
    let mut state = shared.state();
    let revision = state.revision();
    let from = params.version.filter(|version| *version > 0 && !params.initial_events);
    if let Some(from) = from {
        return (Vec::new(), state.log_position(from));
    }
    let page = state.list(prefix, "", revision, 0, |item| params.selector.matches(item));
    let mut first: Vec<Line> =
        page.items.into_iter().map(|item| Line { kind: "ADDED", item }).collect();
    if params.initial_events {
        first.push(Line { kind: "BOOKMARK", item: bookmark(revision, true) });
    }
    (first, state.log_position(revision))
}

/// How a change looks to a watch with a selector: what begins to match is added, what ceases to
/// is deleted.
fn line_for(change: Change, selector: &FieldSelector) -> Option<Line> {
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
            let mut last: EventObject = serde_json::from_slice(&last).ok()?;
            last.metadata.resource_version = change.revision.to_string();
            Some(Line { kind: "DELETED", item: last.to_item() })
        }
    }
}

/// The object of a BOOKMARK: empty but for the version.
fn bookmark(revision: u64, initial_events_end: bool) -> Bytes {
    let mut metadata =
        ObjectMeta { resource_version: revision.to_string(), ..ObjectMeta::default() };
    if initial_events_end {
        metadata.annotations.insert("k8s.io/initial-events-end".to_owned(), "true".into());
    }
    EventObject { metadata, ..EventObject::default() }.to_item()
}

struct Stream<'a> {
    connection: &'a mut Connection,
    shared: &'a Shared,
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
            push_line(out, line.kind, &line.item);
            self.shared.count_event();
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
                let item = bookmark(self.shared.state().revision(), false);
                let mut line = Vec::new();
                push_line(&mut line, "BOOKMARK", &item);
                self.line(line.trim_ascii_end()).await?;
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
                    push_line(out, next.kind, &next.item);
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

/// Appends a line of a watch: the object with `kind` and `apiVersion`, which items lack.
fn push_line(out: &mut Vec<u8>, kind: &str, item: &[u8]) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    push_typed(out, item);
    out.extend_from_slice(b"}\n");
}

/// Appends an object as it is written on its own.
pub(super) fn push_typed(out: &mut Vec<u8>, item: &[u8]) {
    out.extend_from_slice(b"{\"kind\":\"Event\",\"apiVersion\":\"v1\",");
    out.extend_from_slice(item.get(1..).unwrap_or_default());
}
