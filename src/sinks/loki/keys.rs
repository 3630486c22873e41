//! The keys of a Loki sink, and the options that come of them.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    bridge::Sink,
    document::{Checks, Misplaced, Path, Text, Wrong, is_word, wrong},
    sinks::{
        BuildSink, Format, HttpOptions, Proxy, SinkBuildError,
        http::{
            auth::AuthModel,
            keys::{HttpModel, Urls, base_url},
        },
        keys::{Keys, Shared, templated, tls::TlsModel},
    },
    template::Templated,
};

/// The label of old entries, whose streams are apart.
pub(super) const REPLAYED: &str = "replayed";
/// The label by which Loki calls the source of a stream.
pub(super) const SERVICE_NAME: &str = "service_name";
/// How many labels Loki takes by default, with those two.
const MOST_LABELS: usize = 15;

/// Sends events to Loki as log lines.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Loki")]
pub(crate) struct LokiModel {
    /// `http://` or `https://`, host and port, with a path where there is one. `/loki/api/v1/push` is appended.
    #[schemars(extend("x-shown" = "address"))]
    url: Text,
    /// The labels of a stream: texts or templates by their names. Each set of values is a stream, so they should be few.
    /// Default: `cluster`, `namespace`, `kind` and `type`. `service_name` is added, with `tidings`.
    #[schemars(extend("x-shown" = true))]
    labels: Option<BTreeMap<String, Text>>,
    /// The tenant, or a template of one. Default: none is sent.
    #[schemars(extend("x-shown" = true))]
    tenant: Option<Text>,
    /// Credentials of each request. Default: none.
    auth: Option<AuthModel>,
    /// TLS, for `https://`. Default: the system's authorities.
    tls: Option<TlsModel>,
}

/// A Loki.
#[derive(Clone, Debug, PartialEq)]
pub struct LokiOptions {
    /// Where to, and how. `/loki/api/v1/push` is appended to the URL.
    pub http: HttpOptions,
    /// The labels of a stream; `None`: `cluster`, `namespace`, `kind` and `type`. `service_name` is added.
    pub labels: Option<BTreeMap<String, Templated>>,
    /// The tenant; `None`: none is sent.
    pub tenant: Option<Templated>,
    /// The format of a line.
    pub format: Format,
}

impl LokiOptions {
    /// The default labels, without a tenant.
    pub fn new(url: impl Into<String>) -> Self {
        let http = HttpOptions::new(url);
        Self { http, labels: None, tenant: None, format: Format::default() }
    }
}

impl BuildSink for LokiOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, SinkBuildError> {
        #[cfg(feature = "loki")]
        return Ok(Arc::new(super::sink::build(self)?));
        #[cfg(not(feature = "loki"))]
        Err(SinkBuildError::at(&[], "expected a kind that is built in, found another"))
    }

    fn proxy(&self) -> Option<&Proxy> {
        Some(&self.http.proxy)
    }
}

impl Keys for LokiModel {
    /// Labels make more of them than an index does: namespaces times kinds times types.
    fn max_destinations(&self) -> usize {
        2000
    }

    fn options(&self, sink: &Shared<'_>, checks: &mut Checks<'_>) -> Arc<dyn BuildSink> {
        let path = sink.path.key("loki");
        let model = HttpModel {
            auth: self.auth.as_ref().map(AuthModel::keys),
            tls: self.tls.as_ref(),
            ..HttpModel::new(&path, "url", Urls::One(&self.url))
        };
        let http = model.resolve(sink, checks, address);
        sink.no_zstd(checks);
        let tenant = &path.key("tenant");
        Arc::new(LokiOptions {
            http,
            labels: self.labels(&path.key("labels"), checks),
            tenant: self
                .tenant
                .as_ref()
                .and_then(|text| checks.parsed(tenant, text, |text| templated(text, is_tenant))),
            format: sink.format.unwrap_or_default(),
        })
    }
}

impl LokiModel {
    fn labels(&self, path: &Path, checks: &mut Checks<'_>) -> Option<BTreeMap<String, Templated>> {
        let labels = self.labels.as_ref()?;
        if let Err(wrong) = are_few(labels) {
            checks.wrong_key(path, wrong);
        }
        let mut read = BTreeMap::new();
        for (name, text) in labels {
            let path = if is_word(name) { path.key(name) } else { path.clone() };
            if let Err(wrong) = is_label(name) {
                checks.wrong_key(&path, wrong);
            }
            if let Some(text) = checks.parsed(&path, text, |text| templated(text, |_| Ok(()))) {
                read.insert(name.clone(), text);
            }
        }
        Some(read)
    }
}

/// Checks the number of labels.
pub(super) fn are_few<T>(labels: &BTreeMap<String, T>) -> Result<(), Wrong> {
    let most = MOST_LABELS - 1 - usize::from(!labels.contains_key(SERVICE_NAME));
    if labels.len() <= most {
        return Ok(());
    }
    let what = format!("expected at most {most} labels, found {}", labels.len());
    Err(wrong(what).hint("Loki takes 15, with `service_name` and `replayed`, which are added"))
}

/// Checks the name of a label.
pub(super) fn is_label(name: &str) -> Result<(), Wrong> {
    if [REPLAYED, "event_id"].contains(&name) {
        let wrong = wrong(format!("expected another label, found `{name}`, which the sink sets"));
        return Err(wrong.hint("remove it"));
    }
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_inner = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if starts && !name.starts_with("__") && name.bytes().all(is_inner) {
        return Ok(());
    }
    let found = if is_word(name) { format!("`{name}`") } else { "another text".to_owned() };
    Err(wrong(format!("expected the name of a label, found {found}"))
        .hint("letters, digits and `_`, starting with neither a digit nor `__`"))
}

/// Checks the name of a tenant.
pub(super) fn is_tenant(name: &str) -> Result<(), Wrong> {
    let is_inner = |b: u8| b.is_ascii_alphanumeric() || b"!-_.*'()".contains(&b);
    if !matches!(name, "" | "." | "..") && name.len() <= 150 && name.bytes().all(is_inner) {
        return Ok(());
    }
    let found = if name.is_empty() { "an empty text" } else { "another text" };
    Err(wrong(format!("expected a tenant, found {found}"))
        .hint("a tenant is at most 150 letters, digits and `!-_.*'()`"))
}

/// Checks the address of a Loki.
fn address(text: &str) -> Result<(), Misplaced> {
    if base_url(text)?.path().contains("/loki/api") {
        let wrong = wrong("expected the address of a Loki, found one of pushes");
        return Err(wrong.hint("remove `/loki/api/v1/push`, which is appended").into());
    }
    Ok(())
}
