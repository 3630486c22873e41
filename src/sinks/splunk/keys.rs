//! The keys of a Splunk sink, and the options that come of them.

use std::{sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    bridge::{BatchOptions, Sink},
    document::{Checks, Misplaced, Path, Span, Text, Wrong, wrong},
    sinks::{
        BuildSink, Format, HttpOptions, Proxy, Secret, SinkBuildError,
        http::keys::{HttpModel, Urls, base_url, header_value},
        keys::{Keys, Shared, stand_ins, templated, tls::TlsModel},
    },
    template::Templated,
};

/// How long an acknowledgement is waited for unless the sink says otherwise: after that Splunk advises to send again.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_mins(5);

/// Sends events to the HTTP Event Collector of Splunk.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Splunk")]
pub(crate) struct SplunkModel {
    /// `http://` or `https://`, host and port. `/services/collector/event` is appended.
    #[schemars(extend("x-shown" = "address"))]
    url: Text,
    /// The token of the event collector, best as a reference.
    token: Text,
    /// The index, or a template of one. Default: that of the token.
    #[schemars(extend("x-shown" = true))]
    index: Option<Text>,
    /// The source type, or a template of one. Default: `kube:events`.
    #[schemars(extend("default" = "kube:events", "x-shown" = true))]
    sourcetype: Option<Text>,
    /// The source, or a template of one. Default: `tidings`.
    #[schemars(extend("default" = "tidings", "x-shown" = true))]
    source: Option<Text>,
    /// The host, or a template of one. Default: the cluster's name, else its uid.
    #[schemars(extend("x-shown" = true))]
    host: Option<Text>,
    /// Whether events are delivered only once indexers acknowledge them, which the token has to offer.
    #[serde(default)]
    #[schemars(extend("default" = false))]
    acknowledge: bool,
    /// How long an attempt may take with `acknowledge`, instead of `timeout`; then the events are sent again. Default: `5m`.
    #[schemars(with = "Option<Span>", extend("default" = "5m"))]
    acknowledge_within: Option<Span>,
    /// TLS, for `https://`. Default: the system's authorities.
    tls: Option<TlsModel>,
}

/// An event collector of Splunk.
#[derive(Clone, Debug, PartialEq)]
pub struct SplunkOptions {
    /// Where to, and how. `/services/collector/event` is appended to the URL.
    pub http: HttpOptions,
    /// The token.
    pub token: Secret,
    /// The index; `None`: that of the token.
    pub index: Option<Templated>,
    /// The source type.
    pub sourcetype: Templated,
    /// The source.
    pub source: Templated,
    /// The host; `None`: the cluster's name, else its uid.
    pub host: Option<Templated>,
    /// How long an acknowledgement is waited for; `None`: none is asked for. The sink's own
    /// [`timeout`](crate::bridge::SinkOptions::timeout) has to be as long.
    pub acknowledge: Option<Duration>,
    /// The format of `event`.
    pub format: Format,
}

impl SplunkOptions {
    /// The default options, without acknowledgement.
    pub fn new(url: impl Into<String>, token: impl Into<String>) -> Self {
        Self {
            http: HttpOptions::new(url),
            token: Secret::new(token),
            index: None,
            sourcetype: Templated::Fixed("kube:events".to_owned()),
            source: Templated::Fixed("tidings".to_owned()),
            host: None,
            acknowledge: None,
            format: Format::default(),
        }
    }
}

impl BuildSink for SplunkOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, SinkBuildError> {
        #[cfg(feature = "splunk")]
        return Ok(Arc::new(super::sink::Splunk::new(self)?));
        #[cfg(not(feature = "splunk"))]
        Err(SinkBuildError::at(&[], "expected a kind that is built in, found another"))
    }

    fn proxy(&self) -> Option<&Proxy> {
        Some(&self.http.proxy)
    }
}

impl Keys for SplunkModel {
    /// Several batches wait for their acknowledgements at once.
    fn concurrency(&self, _: BatchOptions) -> usize {
        8
    }

    fn attempt_within(&self, timeout: Duration) -> Duration {
        if self.acknowledge { self.within() } else { timeout }
    }

    fn options(&self, sink: &Shared<'_>, checks: &mut Checks<'_>) -> Arc<dyn BuildSink> {
        let path = sink.path.key("splunk");
        let model = HttpModel {
            tls: self.tls.as_ref(),
            token: Some("token"),
            ..HttpModel::new(&path, "url", Urls::One(&self.url))
        };
        let http = model.resolve(sink, checks, address);
        let place = path.key("token");
        checks.note_plain(&place, &self.token);
        let token = checks.checked(&place, &self.token, token);
        sink.no_zstd(checks);
        self.check_within(&path, checks);
        let mut templated = |key: &str, text: Option<&Text>| {
            let check = |name: &str| if key == "index" { index_name(name) } else { Ok(()) };
            checks.parsed(&path.key(key), text?, |text| templated(text, check))
        };
        let defaults = SplunkOptions::new("", "");
        Arc::new(SplunkOptions {
            index: templated("index", self.index.as_ref()),
            sourcetype: templated("sourcetype", self.sourcetype.as_ref())
                .unwrap_or(defaults.sourcetype),
            source: templated("source", self.source.as_ref()).unwrap_or(defaults.source),
            host: templated("host", self.host.as_ref()),
            acknowledge: self.acknowledge.then(|| self.within()),
            http,
            token: Secret::new(token.unwrap_or_else(|| stand_ins::TEXT.to_owned())),
            format: sink.format.unwrap_or_default(),
        })
    }
}

impl SplunkModel {
    fn within(&self) -> Duration {
        self.acknowledge_within.map_or(ACKNOWLEDGED_WITHIN, |span| span.0)
    }

    fn check_within(&self, path: &Path, checks: &mut Checks<'_>) {
        let Some(within) = self.acknowledge_within else { return };
        let path = path.key("acknowledgeWithin");
        if !self.acknowledge {
            let wrong = wrong("expected `acknowledge: true` beside it, found none");
            checks.wrong_key(&path, wrong.hint("add `acknowledge: true`, or remove it"));
        } else if within.0 < Duration::from_secs(1) {
            let wrong = wrong("expected at least `1s`, found less");
            checks.wrong(&path, wrong.hint("the default is `5m`"));
        }
    }
}

/// Checks the name of an index.
pub(super) fn index_name(text: &str) -> Result<(), Wrong> {
    const HINT: &str = "a name is at most 80 lower-case letters, digits, `_` and `-`, and starts with a letter or a digit";
    let is_inner = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    let starts = text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if starts && text.len() <= 80 && text.bytes().all(is_inner) {
        return Ok(());
    }
    let found = if text.is_empty() { "an empty text" } else { "another text" };
    Err(wrong(format!("expected the name of an index, found {found}")).hint(HINT))
}

/// Checks the address of an event collector.
fn address(text: &str) -> Result<(), Misplaced> {
    let address = base_url(text)?;
    let path = address.path().trim_end_matches('/');
    if path.ends_with("/services") || path.contains("/services/collector") {
        let wrong = wrong("expected the address of a server, found one of its event collector");
        return Err(wrong.hint("remove `/services/collector…`, which is appended").into());
    }
    Ok(())
}

fn token(text: &str) -> Result<(), Wrong> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        let found = if text.is_empty() { "an empty text" } else { "a text with a blank" };
        return Err(wrong(format!("expected a token, found {found}"))
            .hint("write the token alone, without `Splunk` in front"));
    }
    header_value(text).map(drop)
}
