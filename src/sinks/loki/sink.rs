//! Pushes to Loki.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeMap};

use http::{HeaderName, StatusCode};
use jiff::{SignedDuration, Timestamp};
use reqwest::Url;
use serde::Serialize;

use super::{
    LokiOptions,
    keys::{REPLAYED, SERVICE_NAME, are_few, is_label, is_tenant},
};
use crate::{
    bridge::{Failure, FailureClass, Outcome, Reason, RefusedClass, Secrets},
    document::Wrong,
    encode::{
        EncodeError, Format,
        loki::{Entry, Event, LABELS, value},
    },
    event::{Batch, Record},
    sinks::{
        SinkBuildError,
        http::{HttpKind, HttpSink, Part, Reading, Reply, Request, below, parse_url},
    },
    template::{KeyError, Rendering, Templated},
};

const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");
/// How old an entry of the live stream is at most. Loki refuses what is an hour behind the newest of a stream.
const LIVE: SignedDuration = SignedDuration::from_mins(50);
/// How much of a refusal is read, in bytes.
const REFUSAL_BYTES: usize = 16 << 10;

/// Pushes to one Loki.
pub(super) struct Push {
    url: Url,
    labels: Option<BTreeMap<String, Templated>>,
    tenant: Option<Templated>,
    format: Format,
}

/// A stream of a tenant, by its labels.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Stream<'a> {
    tenant: Cow<'a, str>,
    labels: BTreeMap<&'a str, Cow<'a, str>>,
}

#[derive(Serialize)]
struct Body<'a> {
    streams: [Values<'a>; 1],
}

#[derive(Serialize)]
struct Values<'a> {
    stream: &'a BTreeMap<&'a str, Cow<'a, str>>,
    values: Vec<Entry<'a>>,
}

/// Why there is no entry for an event.
#[derive(Debug, thiserror::Error)]
enum EntryError {
    #[error("{0}")]
    Encode(#[from] EncodeError),
    #[error("{0}")]
    Key(#[from] KeyError),
    #[error("`tenant`: {}", .0.what)]
    Tenant(Wrong),
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

/// Checks the options and sets up the client; nothing is connected yet.
pub(super) fn build(options: &LokiOptions) -> Result<HttpSink<Push>, SinkBuildError> {
    let LokiOptions { http, labels, tenant, format } = options;
    let bad = |key: &str, wrong: Wrong| SinkBuildError::at(&[key], wrong.what);
    if let Some(labels) = labels {
        are_few(labels).map_err(|wrong| bad("labels", wrong))?;
        labels.keys().try_for_each(|name| is_label(name)).map_err(|wrong| bad("labels", wrong))?;
    }
    if let Some(Templated::Fixed(tenant)) = tenant {
        is_tenant(tenant).map_err(|wrong| bad("tenant", wrong))?;
    }
    let base = parse_url(&["url"], http.url.expose())?;
    let kind = Push {
        url: below(&base, &["loki", "api", "v1", "push"]),
        labels: labels.clone(),
        tenant: tenant.clone(),
        format: *format,
    };
    HttpSink::new(kind, http, &base, http.secrets())
}

impl Push {
    fn stream<'a>(&'a self, event: &'a Event<'_>) -> Result<Stream<'a>, EntryError> {
        let mut rendering = Rendering::of(event.record);
        let tenant = match &self.tenant {
            None => Cow::Borrowed(""),
            Some(tenant) => {
                let tenant = rendering.text("tenant", tenant)?;
                is_tenant(&tenant).map_err(EntryError::Tenant)?;
                tenant
            }
        };
        let mut labels = BTreeMap::new();
        match &self.labels {
            None => labels.extend(LABELS.into_iter().zip(event.labels().map(value))),
            Some(templates) => {
                for (name, template) in templates {
                    let text = match rendering.text(name, template)? {
                        Cow::Borrowed(text) => value(text),
                        Cow::Owned(text) => value(&text).into_owned().into(),
                    };
                    labels.insert(name, text);
                }
            }
        }
        // An empty one is none to Loki.
        labels.retain(|_, text: &mut Cow<'_, str>| !text.is_empty());
        labels.entry(SERVICE_NAME).or_insert("tidings".into());
        Ok(Stream { tenant, labels })
    }

    /// A request for each stream: of a request with several of them Loki answers for the last.
    fn parts(&self, batch: &Batch) -> Result<Vec<Part>, EntryError> {
        let now = Timestamp::now();
        let events: Vec<_> =
            batch.records.iter().map(Event::of).collect::<Result<_, EncodeError>>()?;
        let mut streams = BTreeMap::<_, (Vec<_>, Vec<_>)>::new();
        for (at, event) in events.iter().enumerate() {
            let mut stream = self.stream(event)?;
            let time = event.time(now);
            if now.duration_since(time) > LIVE {
                let hour = time.strftime("%Y-%m-%dT%H").to_string();
                stream.labels.insert(REPLAYED, hour.into());
            }
            let (places, values) = streams.entry(stream).or_default();
            places.push(at);
            values.push(event.entry(self.format, time)?);
        }
        let part = |(Stream { tenant, labels }, (places, values))| {
            let streams = [Values { stream: &labels, values }];
            let body = serde_json::to_vec(&Body { streams })?;
            let mut request = Request::post(&self.url, "application/json", body);
            if !tenant.is_empty() {
                request.header(TENANT, &*tenant);
            }
            Ok(Part { request, places })
        };
        streams.into_iter().map(part).collect()
    }

    /// The tenant and the labels of a record, where an event has a part in them.
    fn destination(&self, record: &Record) -> Result<Option<String>, EntryError> {
        let texts = self.labels.iter().flat_map(BTreeMap::values).chain(&self.tenant);
        if self.labels.is_some() && !texts.into_iter().any(Templated::is_template) {
            return Ok(None);
        }
        let event = Event::of(record)?;
        let Stream { tenant, labels } = self.stream(&event)?;
        Ok(Some(format!("{tenant}\n{}", serde_json::to_string(&labels)?)))
    }

    /// Whether a 400 says what no event brings about: the limits of the tenant, a port of TLS, another program. The text of
    /// an event is neither at the start nor at the end of what Loki says.
    fn is_of_no_event(&self, reply: &Reply) -> bool {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let text = reply.text();
        let text = match text.trim().split_once(" errors like: ") {
            Some((number, error)) if is_number(number) => error,
            _ => text.trim(),
        };
        let starts = ["<", "Client sent an HTTP request to an HTTPS server", "tenant ID '"];
        let is_whole = reply.body.len() < REFUSAL_BYTES;
        starts.iter().any(|start| text.starts_with(start))
            || text
                .strip_prefix("missing required labels '")
                .and_then(|rest| rest.split_once('\''))
                .is_some_and(|(names, _)| names.split(',').any(|name| !self.has(name)))
            || is_whole && text.ends_with(" or contact your Loki administrator to enable it")
            || is_whole
                && text.rsplit_once(" label names; limit ").is_some_and(|(_, most)| is_number(most))
    }

    /// Whether a label is sent, if an event does not make it empty.
    fn has(&self, label: &str) -> bool {
        label == SERVICE_NAME
            || match &self.labels {
                None => LABELS.contains(&label),
                Some(labels) => labels.contains_key(label),
            }
    }
}

impl HttpKind for Push {
    fn reads(&self, status: StatusCode) -> Reading {
        let is_taken = matches!(status, StatusCode::OK | StatusCode::NO_CONTENT);
        if status == StatusCode::BAD_REQUEST || status.is_success() && !is_taken {
            Reading::Start(REFUSAL_BYTES)
        } else {
            Reading::Status
        }
    }

    fn requests(&self, batch: &Batch, secrets: &Secrets) -> Result<Vec<Part>, Failure> {
        self.parts(batch)
            .map_err(|error| Failure::refused(RefusedClass::Unsendable, secrets.reason(error)))
    }

    fn outcome(&self, reply: &Reply, sent: &Batch, secrets: &Secrets) -> Outcome {
        let misconfigured =
            || Outcome::Failed(reply.failure_of(FailureClass::Misconfigured, secrets));
        match reply.status() {
            StatusCode::OK | StatusCode::NO_CONTENT => Outcome::Delivered,
            StatusCode::BAD_REQUEST if self.is_of_no_event(reply) => misconfigured(),
            // Loki says that the tenant is blocked, and what was sent is gone.
            status if status.is_success() => misconfigured(),
            _ => Outcome::Failed(reply.failure(&reply.text(), sent, secrets)),
        }
    }

    fn destination(&self, record: &Record, secrets: &Secrets) -> Result<Option<String>, Reason> {
        Self::destination(self, record).map_err(|error| secrets.reason(error))
    }
}
