//! Requests to the event collector, and the wait for acknowledgements.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, time::Duration};

use futures_util::{FutureExt as _, future::BoxFuture};
use http::StatusCode;
use reqwest::Url;
use tokio::time::{Instant, sleep_until};

use super::{
    SplunkOptions, answer,
    channel::{Channel, Channels},
    keys::index_name,
};
use crate::{
    bridge::{Failure, FailureClass, Outcome, Reason, RefusedClass, Secrets, Sink},
    document::Wrong,
    encode::{EncodeError, Format, hec},
    event::{Batch, Record},
    sinks::{
        Secret, SinkBuildError,
        http::{HttpKind, HttpSink, Part, Reading, Reply, Request, below, parse_url},
        own_deadline,
    },
    template::{KeyError, Rendering, Templated},
};

/// The first wait for an acknowledgement; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// The longest wait between two questions.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Sends events to one event collector.
pub(super) struct Splunk {
    http: HttpSink<Hec>,
    /// Nothing where no acknowledgement is asked for.
    acknowledgements: Option<Acknowledgements>,
}

struct Acknowledgements {
    url: Url,
    within: Duration,
    channels: Channels,
}

/// The requests.
struct Hec {
    url: Url,
    index: Option<Templated>,
    sourcetype: Templated,
    source: Templated,
    host: Option<Templated>,
    format: Format,
}

impl Splunk {
    /// Checks the options and sets up the client; nothing is connected yet.
    pub(super) fn new(options: &SplunkOptions) -> Result<Self, SinkBuildError> {
        let base = parse_url(&["url"], options.http.url.expose())?;
        let below = |end: &str| below(&base, &["services", "collector", end]);
        let mut http = options.http.clone();
        let authorization = format!("Splunk {}", options.token.expose());
        http.headers.push(("authorization".to_owned(), Secret::new(authorization)));
        let kind = Hec {
            url: below("event"),
            index: options.index.clone(),
            sourcetype: options.sourcetype.clone(),
            source: options.source.clone(),
            host: options.host.clone(),
            format: options.format,
        };
        let acknowledgements = options.acknowledge.map(|within| Acknowledgements {
            url: below("ack"),
            within,
            channels: Channels::default(),
        });
        let secrets = http.secrets();
        Ok(Self { http: HttpSink::new(kind, &http, &base, secrets)?, acknowledgements })
    }
}

impl Sink for Splunk {
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        match &self.acknowledgements {
            None => self.http.send(batch),
            Some(acknowledgements) => async {
                match acknowledgements.attempt(&self.http, batch).await {
                    Ok(()) => Outcome::Delivered,
                    Err(failure) => Outcome::Failed(failure),
                }
            }
            .boxed(),
        }
    }

    fn destination(&self, record: &Record) -> Result<Option<String>, Reason> {
        self.http.destination(record)
    }
}

impl Acknowledgements {
    async fn attempt(&self, http: &HttpSink<Hec>, batch: &Batch) -> Result<(), Failure> {
        let end = Instant::now() + own_deadline(self.within);
        let mut channel = self.channels.take();
        let request = http.kind().request(batch, http.secrets())?;
        let mut request = http.prepared(request).await?;
        channel.put_on(&mut request);
        let reply = http.exchange(request, end).await?;
        channel.keep_cookies(&reply);
        let Some(id) = answer::taken(&reply, batch, http.secrets())? else {
            let words = "expected an `ackId` in the answer, found none: enable indexer acknowledgement for the token, or \
                         remove `acknowledge`";
            return Err(Failure::new(FailureClass::Misconfigured, http.secrets().reason(words)));
        };
        self.wait(http, &mut channel, id, batch, end).await?;
        // One that had trouble is not used again: its cookies may lead to an indexer that is gone.
        self.channels.give_back(channel);
        Ok(())
    }

    /// Asks for an acknowledgement until it is there. `false` may mean that the events are lost, or not yet indexed. No
    /// failure of a question is about the events, and none has them sent again before their time.
    async fn wait(
        &self,
        http: &HttpSink<Hec>,
        channel: &mut Channel,
        id: u64,
        batch: &Batch,
        end: Instant,
    ) -> Result<(), Failure> {
        let longest = LONGEST_WAIT.min(self.within / 4);
        // The last question has this time for its answer.
        let last = end - (self.within / 10).min(Duration::from_secs(1));
        let mut wait = FIRST_WAIT.min(longest);
        let mut failed: Option<Failure> = None;
        while Instant::now() < last {
            sleep_until(last.min(Instant::now() + wait)).await;
            let body = format!(r#"{{"acks":[{id}]}}"#);
            let mut request = Request::post(&self.url, "application/json", body);
            http.authorize(&mut request);
            channel.put_on(&mut request);
            let answered = match http.exchange(request, end).await {
                Ok(reply) => {
                    channel.keep_cookies(&reply);
                    answer::is_acknowledged(&reply, id, batch, http.secrets())
                }
                Err(failure) => Err(failure),
            };
            match answered {
                Ok(true) => return Ok(()),
                Ok(false) => failed = None,
                Err(failure) => failed = Some(failure),
            }
            wait = (wait * 2).min(longest);
        }
        let words = format!("not acknowledged within {} s", self.within.as_secs());
        let secrets = http.secrets();
        Err(match failed {
            Some(Failure {
                class: FailureClass::Misconfigured | FailureClass::Refused(_),
                reason,
                ..
            }) => {
                let reason = secrets.reason(format_args!("{words}: {reason}"));
                Failure::new(FailureClass::Misconfigured, reason)
            }
            Some(Failure { reason, .. }) => {
                Failure::silence(secrets.reason(format_args!("{words}: {reason}")))
            }
            None => Failure::silence(secrets.reason(words)),
        })
    }
}

/// Why there is no object for an event.
#[derive(Debug, thiserror::Error)]
enum HecError {
    #[error("{0}")]
    Encode(#[from] EncodeError),
    #[error("{0}")]
    Key(#[from] KeyError),
    #[error("`index`: {}", .0.what)]
    Index(Wrong),
}

impl Hec {
    fn request(&self, batch: &Batch, secrets: &Secrets) -> Result<Request, Failure> {
        let mut body = Vec::with_capacity(batch.bytes() + 512 * batch.records.len());
        for record in &batch.records {
            self.write(record, &mut body).map_err(|error| {
                Failure::refused(RefusedClass::Unsendable, secrets.reason(error))
            })?;
        }
        Ok(Request::post(&self.url, "application/json", body))
    }

    fn write(&self, record: &Record, body: &mut Vec<u8>) -> Result<(), HecError> {
        let mut rendering = Rendering::of(record);
        let metadata = hec::Metadata {
            host: &optional(&mut rendering, "host", self.host.as_ref())?,
            source: &rendering.text("source", &self.source)?,
            sourcetype: &rendering.text("sourcetype", &self.sourcetype)?,
            index: &self.index(&mut rendering)?,
        };
        Ok(hec::write(record, self.format, metadata, body)?)
    }

    /// The index, which is empty where it is that of the token.
    fn index(&self, rendering: &mut Rendering<'_>) -> Result<Cow<'_, str>, HecError> {
        let index = optional(rendering, "index", self.index.as_ref())?;
        if self.index.is_some() {
            index_name(&index).map_err(HecError::Index)?;
        }
        Ok(index)
    }

    /// The index and the source type of a record, where a template makes one of them.
    fn destination(&self, record: &Record) -> Result<Option<String>, HecError> {
        let parts = [self.index.as_ref(), Some(&self.sourcetype)];
        if !parts.into_iter().flatten().any(Templated::is_template) {
            return Ok(None);
        }
        let mut rendering = Rendering::of(record);
        let index = self.index(&mut rendering)?;
        Ok(Some(format!("{index}\n{}", rendering.text("sourcetype", &self.sourcetype)?)))
    }
}

/// The text of a key that may be absent, which is empty then.
fn optional<'t>(
    rendering: &mut Rendering<'_>,
    key: &str,
    text: Option<&'t Templated>,
) -> Result<Cow<'t, str>, KeyError> {
    text.map_or(Ok(Cow::Borrowed("")), |text| rendering.text(key, text))
}

impl HttpKind for Hec {
    fn requests(&self, batch: &Batch, secrets: &Secrets) -> Result<Vec<Part>, Failure> {
        Ok(Part::all(batch, self.request(batch, secrets)?))
    }

    fn reads(&self, status: StatusCode) -> Reading {
        let is_read = status.is_success() || status == StatusCode::BAD_REQUEST;
        if is_read { Reading::Whole(answer::MOST_BYTES) } else { Reading::Status }
    }

    fn outcome(&self, reply: &Reply, sent: &Batch, secrets: &Secrets) -> Outcome {
        match answer::taken(reply, sent, secrets) {
            Ok(_) => Outcome::Delivered,
            Err(failure) => Outcome::Failed(failure),
        }
    }

    fn destination(&self, record: &Record, secrets: &Secrets) -> Result<Option<String>, Reason> {
        Self::destination(self, record).map_err(|error| secrets.reason(error))
    }
}
