//! Answers to a list: one page, of one revision.

use std::{fmt::Write as _, io};

use bytes::Bytes;

use super::{
    Shared,
    faults::{Fault, StreamFault},
    params::{ContinueToken, ListParams, VersionMatch},
    route::Target,
    serve::JSON,
    shape::Shape,
    status::ApiStatus,
    table::Page,
};
use crate::http::{Chunk, Connection, Ending, Request};

/// A list as it goes out: what stands before, between and after its items.
pub(super) struct List<'a> {
    head: String,
    tail: &'static str,
    shape: Shape<'a>,
    items: Vec<Bytes>,
}

pub(super) fn list<'a>(
    shared: &'a Shared,
    target: &Target<'_>,
    request: &Request,
) -> Result<List<'a>, ApiStatus> {
    let resource = &shared.catalogue[target.resource];
    let shape = Shape::of_list(request, resource)?;
    let params = ListParams::of(request, resource, false)?;
    let prefix = target.namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    // The watch cache, asked for any version, always gave all it has.
    let limit = if resource.watch_cached() && params.version == Some(0) && params.token.is_none() {
        0
    } else {
        params.limit
    };
    let mut state = shared.state();
    let current = state.revision();
    let (wanted, start) = if let Some(token) = &params.token {
        (token.revision, token.start.as_str())
    } else {
        let exact = match params.version_match {
            VersionMatch::Exact => true,
            VersionMatch::NotOlderThan => false,
            // As it always was: with a limit the version is meant exactly.
            VersionMatch::Unset => params.limit > 0 && params.version != Some(0),
        };
        (params.version.filter(|_| exact), "")
    };
    let least = wanted.or(params.version).unwrap_or_default();
    if least > current {
        return Err(if resource.watch_cached() {
            ApiStatus::too_large_for_cache(least, current)
        } else {
            ApiStatus::too_large(least, current)
        });
    }
    let revision = wanted.unwrap_or(current);
    if revision < state.compacted() {
        return Err(match &params.token {
            Some(token) => {
                let go_on = ContinueToken { revision: None, start: token.start.clone() };
                ApiStatus::expired_continue(go_on.to_string())
            }
            None => ApiStatus::expired_list(),
        });
    }
    let Page { items, last_key, more, remaining } =
        state
            .table_mut(target.resource)
            .list(&prefix, start, revision, limit, |item| params.selector.matches(item));
    let mut metadata = format!("\"resourceVersion\":\"{revision}\"");
    if more {
        // Writing to a string cannot fail.
        let token = ContinueToken { revision: Some(revision), start: format!("{last_key}\0") };
        let _ = write!(metadata, ",\"continue\":\"{token}\"");
        if params.selector.is_empty() {
            let _ = write!(metadata, ",\"remainingItemCount\":{remaining}");
        }
    }
    let (head, tail) = shape.list_frame(&metadata, items.is_empty());
    Ok(List { head, tail, shape, items })
}

pub(super) async fn send(
    connection: &mut Connection,
    shared: &Shared,
    request: &Request,
    list: List<'_>,
    fault: Option<Fault>,
) -> io::Result<bool> {
    let mut chunk = Chunk::default();
    let out = chunk.start();
    let head = out.len();
    out.extend_from_slice(list.head.as_bytes());
    let mut cut_at = out.len();
    for (at, item) in list.items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        if let Some(Fault::Stream { after, .. }) = &fault
            && *after == at
        {
            cut_at = out.len() + item.len() / 2;
        }
        list.shape.push_item(out, item);
    }
    out.extend_from_slice(list.tail.as_bytes());
    match fault {
        Some(Fault::Stream { then: StreamFault::Cut(_, how), .. }) => {
            connection.begin_chunks(200, JSON).await?;
            connection.write(chunk.finish_partly(cut_at - head)).await?;
            return connection.end(if how == Ending::Clean { Ending::Closed } else { how }).await;
        }
        Some(Fault::Stream { then: StreamFault::Stall, .. }) => {
            connection.begin_chunks(200, JSON).await?;
            connection.write(chunk.finish_partly(cut_at - head)).await?;
            connection.closed().await;
            return Ok(false);
        }
        _ => {}
    }
    let accepts_gzip = request.header("accept-encoding").contains("gzip");
    if accepts_gzip
        && chunk.content().len() > shared.options.gzip_above
        && let Some(packed) = gzip(chunk.content())
    {
        let head = format!("{JSON}Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n");
        connection.answer(200, &head, &packed).await?;
        return Ok(true);
    }
    connection.begin_chunks(200, JSON).await?;
    connection.write(chunk.finish()).await?;
    connection.end(Ending::Clean).await
}

/// At the level that the API server uses.
fn gzip(body: &[u8]) -> Option<Vec<u8>> {
    use std::io::Write as _;
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(body).ok()?;
    packer.finish().ok()
}
