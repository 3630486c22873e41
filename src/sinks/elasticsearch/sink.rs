//! The requests of an Elasticsearch sink: `_bulk` with `create`.

#[cfg(test)]
mod tests;

use http::StatusCode;
use reqwest::Url;

use super::{ElasticsearchOptions, answer, index};
use crate::{
    bridge::{Failure, Outcome, Reason, RefusedClass, Secrets},
    encode::{EncodeError, Format},
    event::{Batch, Record},
    sinks::{
        HttpOptions, SinkBuildError,
        http::{HttpKind, HttpSink, Nodes, Part, Reading, Reply, Request, below, parse_url, peer},
    },
    template::{Context, RenderError, Templated},
};

/// The parts of an answer that say what became of each event.
const FILTER_PATH: &str =
    "errors,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason";

/// Bulk requests to one node.
pub(super) struct Bulk {
    url: Url,
    index: Templated,
    format: Format,
}

/// Checks the options and sets up the clients; nothing is connected yet.
pub(super) fn build(
    options: &ElasticsearchOptions,
) -> Result<Nodes<HttpSink<Bulk>>, SinkBuildError> {
    if let Templated::Fixed(name) = &options.index {
        index::name(name).map_err(|wrong| SinkBuildError::at(&["index"], wrong.what))?;
    }
    let secrets: Vec<_> = options.nodes.iter().flat_map(HttpOptions::secrets).collect();
    let nodes = options.nodes.iter().map(|node| {
        let base = parse_url(&["urls"], node.url.expose())?;
        let kind = Bulk {
            url: bulk_url(options, &base),
            index: options.index.clone(),
            format: options.format,
        };
        Ok((peer(&base), HttpSink::new(kind, node, &base, secrets.clone())?))
    });
    let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
    if nodes.is_empty() {
        return Err(SinkBuildError::at(&["urls"], "expected at least one address, found none"));
    }
    Ok(Nodes::new(nodes))
}

/// An index that is the same for all stands in the path: clusters may forbid to name it in the body.
fn bulk_url(options: &ElasticsearchOptions, base: &Url) -> Url {
    let mut url = match &options.index {
        Templated::Fixed(name) => below(base, &[name, "_bulk"]),
        Templated::Template(_) => below(base, &["_bulk"]),
    };
    url.query_pairs_mut().append_pair("filter_path", FILTER_PATH);
    if let Some(pipeline) = &options.pipeline {
        url.query_pairs_mut().append_pair("pipeline", pipeline);
    }
    url
}

/// Why there is no document for an event.
#[derive(Debug, thiserror::Error)]
enum DocumentError {
    #[error("{0}")]
    Encode(#[from] EncodeError),
    #[error("{0}")]
    Event(#[from] RenderError),
    #[error("{0}")]
    Index(#[from] index::IndexError),
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

#[derive(serde::Serialize)]
struct Action<'a> {
    create: Create<'a>,
}

#[derive(serde::Serialize)]
struct Create<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    _index: Option<&'a str>,
    _id: &'a str,
}

impl Bulk {
    /// The index that the template makes of a record; nothing where it is the same for all.
    fn index(&self, record: &Record) -> Result<Option<String>, DocumentError> {
        match &self.index {
            Templated::Fixed(_) => Ok(None),
            Templated::Template(template) => {
                Ok(Some(index::render(template, &Context::of(record)?)?))
            }
        }
    }

    /// The two lines of a record.
    fn write(&self, record: &Record, body: &mut Vec<u8>) -> Result<(), DocumentError> {
        let index = self.index(record)?;
        let document = self.format.encode(record)?;
        let action = Action { create: Create { _index: index.as_deref(), _id: record.id() } };
        serde_json::to_writer(&mut *body, &action)?;
        body.push(b'\n');
        body.extend_from_slice(&document);
        body.push(b'\n');
        Ok(())
    }
}

impl HttpKind for Bulk {
    fn requests(&self, batch: &Batch, secrets: &Secrets) -> Result<Vec<Part>, Failure> {
        // An ECS document is about twice as long as its envelope.
        let mut body = Vec::with_capacity(batch.bytes() * 2);
        for record in &batch.records {
            self.write(record, &mut body).map_err(|error| {
                Failure::refused(RefusedClass::Unsendable, secrets.reason(error))
            })?;
        }
        Ok(Part::all(batch, Request::post(&self.url, "application/x-ndjson", body)))
    }

    fn reads(&self, status: StatusCode) -> Reading {
        let is_read = status.is_success() || status == StatusCode::BAD_REQUEST;
        if is_read { Reading::Whole(answer::MOST_BYTES + 1) } else { Reading::Status }
    }

    fn outcome(&self, reply: &Reply, sent: &Batch, secrets: &Secrets) -> Outcome {
        answer::outcome(reply, sent, secrets)
    }

    fn destination(&self, record: &Record, secrets: &Secrets) -> Result<Option<String>, Reason> {
        self.index(record).map_err(|error| secrets.reason(error))
    }
}
