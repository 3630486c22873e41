//! Pushes to Loki.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use http::{HeaderName, StatusCode};
use jiff::{SignedDuration, Timestamp};
use reqwest::Url;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use super::{
    LokiOptions,
    keys::{PUSH, REPLAYED, SERVICE_NAME, are_few, is_label, is_tenant},
};
use crate::{
    bridge::{EventFate, Failure, FailureClass, Outcome, Reason, RefusedClass, Secrets, Sink},
    document::Wrong,
    encode::{
        EncodeError, Format,
        loki::{Entry, Event, value},
    },
    event::{Batch, Record},
    sinks::{
        SinkBuildError,
        http::{HttpKind, HttpSink, Reading, Reply, Request, parse_url},
        own_deadline,
    },
    template::{KeyError, Rendering, Templated},
};

const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");
/// How old an entry of the live stream is at most. Loki refuses what is an hour behind the newest of a stream.
const LIVE: SignedDuration = SignedDuration::from_mins(50);
/// How many tenants are sent to at once.
const REQUESTS: usize = 8;
/// How much of a refusal is read, in bytes.
const REFUSAL_BYTES: usize = 16 << 10;

/// Sends events to one Loki.
pub(super) struct Loki {
    http: HttpSink<Push>,
    timeout: Duration,
}

/// The requests.
struct Push {
    url: Url,
    labels: Option<BTreeMap<String, Templated>>,
    tenant: Option<Templated>,
    format: Format,
}

type Labels<'a> = BTreeMap<&'a str, Cow<'a, str>>;

#[derive(Serialize)]
struct Body<'a> {
    streams: Vec<Stream<'a>>,
}

#[derive(Serialize)]
struct Stream<'a> {
    stream: Labels<'a>,
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

impl Loki {
    /// Checks the options and sets up the client; nothing is connected yet.
    pub(super) fn new(options: &LokiOptions) -> Result<Self, SinkBuildError> {
        let LokiOptions { http, labels, tenant, format } = options;
        let bad = |path: &[&str], wrong: Wrong| SinkBuildError::at(path, wrong.what);
        if let Some(labels) = labels {
            are_few(labels).map_err(|wrong| bad(&["labels"], wrong))?;
            for name in labels.keys() {
                is_label(name).map_err(|wrong| bad(&["labels"], wrong))?;
            }
        }
        if let Some(Templated::Fixed(tenant)) = tenant {
            is_tenant(tenant).map_err(|wrong| bad(&["tenant"], wrong))?;
        }
        let mut url = parse_url(&["url"], http.url.expose())?;
        // Every address of HTTP has a path.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(PUSH);
        }
        let push = Push {
            url: url.clone(),
            labels: labels.clone(),
            tenant: tenant.clone(),
            format: *format,
        };
        let timeout = own_deadline(http.timeout);
        Ok(Self { http: HttpSink::new(push, http, &url, http.secrets())?, timeout })
    }

    /// Sends the events of each tenant for itself.
    async fn to_tenants(&self, batch: &Batch) -> Outcome {
        let end = Instant::now() + self.timeout;
        let mut tenants = BTreeMap::<String, Vec<usize>>::new();
        for (at, record) in batch.records.iter().enumerate() {
            // The request for one that has none says why.
            let tenant = self.http.kind().tenant(record).ok().flatten();
            tenants.entry(tenant.unwrap_or_default().into_owned()).or_default().push(at);
        }
        let mut sending = stream::iter(tenants.into_values())
            .map(async |places| {
                let records = places.iter().map(|at| batch.records[*at].clone()).collect();
                let outcome = timeout_at(end, self.http.send(&Batch { records })).await;
                (places, outcome)
            })
            .buffer_unordered(REQUESTS);
        let mut fates = vec![EventFate::Delivered; batch.records.len()];
        let mut refused = None;
        while let Some((places, outcome)) = sending.next().await {
            let fate = match outcome {
                Ok(Outcome::Delivered) => EventFate::Delivered,
                Ok(Outcome::Failed(failure)) => {
                    if places.len() > 1 && matches!(failure.class, FailureClass::Refused(_)) {
                        refused = Some(failure.clone());
                    }
                    EventFate::Failed(failure)
                }
                // No answer of Loki is another one.
                Ok(_) => EventFate::Failed(Failure::unanswered()),
                Err(_) => {
                    let words =
                        format!("not sent to all tenants within {} s", self.timeout.as_secs());
                    EventFate::Failed(Failure::silence(Secrets::none().reason(words)))
                }
            };
            for at in places {
                fates[at] = fate.clone();
            }
        }
        // Loki does not say which event it refuses: the batch is halved. It keeps no second copy of the others.
        refused.map_or(Outcome::PerEvent(fates), Outcome::Failed)
    }
}

impl Sink for Loki {
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        match &self.http.kind().tenant {
            Some(Templated::Template(_)) if batch.records.len() > 1 => {
                self.to_tenants(batch).boxed()
            }
            _ => self.http.send(batch),
        }
    }

    fn destination(&self, record: &Record) -> Result<Option<String>, Reason> {
        self.http.destination(record)
    }
}

impl Push {
    fn tenant(&self, record: &Record) -> Result<Option<Cow<'_, str>>, EntryError> {
        let Some(tenant) = &self.tenant else { return Ok(None) };
        let tenant = Rendering::of(record).text("tenant", tenant)?;
        is_tenant(&tenant).map_err(EntryError::Tenant)?;
        Ok(Some(tenant))
    }

    fn labels<'a>(&'a self, event: &'a Event<'_>, record: &Record) -> Result<Labels<'a>, KeyError> {
        let mut labels = Labels::from([(SERVICE_NAME, "tidings".into())]);
        match &self.labels {
            None => {
                let common = event.labels().into_iter();
                labels.extend(common.map(|(name, text)| (name, value(text).into())));
            }
            Some(templates) => {
                let mut rendering = Rendering::of(record);
                for (name, template) in templates {
                    let text = match rendering.text(name, template)? {
                        Cow::Borrowed(text) => value(text).into(),
                        Cow::Owned(text) => value(&text).to_owned().into(),
                    };
                    labels.insert(name, text);
                }
            }
        }
        // An empty one is none to Loki.
        labels.retain(|_, text| !text.is_empty());
        Ok(labels)
    }

    fn body(&self, batch: &Batch) -> Result<Vec<u8>, EntryError> {
        let now = Timestamp::now();
        let events: Vec<_> =
            batch.records.iter().map(Event::of).collect::<Result<_, EncodeError>>()?;
        let mut streams = BTreeMap::<_, Vec<_>>::new();
        for (event, record) in events.iter().zip(&batch.records) {
            let mut labels = self.labels(event, record)?;
            let time = event.time(now);
            if now.duration_since(time) > LIVE {
                labels.insert(REPLAYED, time.strftime("%Y-%m-%dT%H").to_string().into());
            }
            streams.entry(labels).or_default().push(event.entry(self.format, time)?);
        }
        let streams =
            streams.into_iter().map(|(stream, values)| Stream { stream, values }).collect();
        let mut body = Vec::with_capacity(batch.bytes() * 3 / 2);
        serde_json::to_writer(&mut body, &Body { streams })?;
        Ok(body)
    }

    /// The tenant and the labels of a record, where an event has a part in them.
    fn destination(&self, record: &Record) -> Result<Option<String>, EntryError> {
        let labels = self.labels.iter().flat_map(BTreeMap::values);
        if self.labels.is_some() && !labels.chain(&self.tenant).any(Templated::is_template) {
            return Ok(None);
        }
        let tenant = self.tenant(record)?.unwrap_or_default();
        let labels = serde_json::to_string(&self.labels(&Event::of(record)?, record)?)?;
        Ok(Some(format!("{tenant}\n{labels}")))
    }
}

impl HttpKind for Push {
    fn reads(&self, status: StatusCode) -> Reading {
        if status == StatusCode::BAD_REQUEST {
            Reading::Start(REFUSAL_BYTES)
        } else {
            Reading::Status
        }
    }

    fn request(&self, batch: &Batch, secrets: &Secrets) -> Result<Request, Failure> {
        let unsendable =
            |error: EntryError| Failure::refused(RefusedClass::Unsendable, secrets.reason(error));
        let body = self.body(batch).map_err(unsendable)?;
        let mut request = Request::post(&self.url, "application/json", body);
        if let Some(first) = batch.records.first()
            && let Some(tenant) = self.tenant(first).map_err(unsendable)?
        {
            request.header(TENANT, &*tenant);
        }
        Ok(request)
    }

    fn outcome(&self, reply: &Reply, sent: &Batch, secrets: &Secrets) -> Outcome {
        if matches!(reply.status(), StatusCode::OK | StatusCode::NO_CONTENT) {
            return Outcome::Delivered;
        }
        let is_refusal =
            reply.status() == StatusCode::BAD_REQUEST && !is_of_no_event(&reply.text());
        // Another success says that the tenant is blocked, and what was sent is gone.
        if is_refusal || !(reply.is_success() || reply.status() == StatusCode::BAD_REQUEST) {
            return Outcome::Failed(reply.failure(&reply.text(), sent, secrets));
        }
        Outcome::Failed(reply.failure_of(FailureClass::Misconfigured, secrets))
    }

    fn destination(&self, record: &Record, secrets: &Secrets) -> Result<Option<String>, Reason> {
        Self::destination(self, record).map_err(|error| secrets.reason(error))
    }
}

/// Whether a 400 says what no event brings about: the limits of the tenant, a port of TLS, another program. What an event may
/// have written stands behind the start and before the end of what Loki says.
fn is_of_no_event(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let text = text.trim();
    let text = match text.split_once(" errors like: ") {
        Some((number, error)) if is_number(number) => error,
        _ => text,
    };
    text.starts_with("missing required labels '")
        || text.ends_with(" or contact your Loki administrator to enable it")
        || text.rsplit_once(" label names; limit ").is_some_and(|(_, most)| is_number(most))
        || text.starts_with("Client sent an HTTP request to an HTTPS server")
        || text.starts_with('<')
}
