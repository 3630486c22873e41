//! The keys of a kind of sink: how they are read, checked, and turned into the options of its sink.
//!
//! A kind has a folder with its keys ([`Keys`]), its options ([`BuildSink`]) and its sink, and a line in
//! [`KINDS`](super::KINDS). The names, the schema and every list of keys come from there.

mod credentials;
mod proxy;
pub(super) mod stand_ins;
pub(super) mod tls;

use std::{any::Any, fmt, net::Ipv6Addr, sync::Arc, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, de::DeserializeOwned};

pub(crate) use self::credentials::Plaintext;
use super::{Compression, Format, Proxy, SinkBuildError};
use crate::{
    bridge::{BatchOptions, MAX_DESTINATIONS, Sink},
    document::{
        Checks, Misplaced, Path, Span, Text, Wrong,
        decode::{DecodeError, decode},
        wrong,
        yaml::Node,
    },
    template::{Context, Templated},
};

/// A kind of sink.
#[derive(Debug)]
pub struct Kind {
    /// The key below a sink that says of which kind it is.
    pub name: &'static str,
    /// Whether this build has it. The cargo feature is called like the kind.
    pub built: bool,
    pub(crate) decode: Decode,
    /// The schema of the kind's key below a sink.
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
}

/// Reads the keys of a kind; the text is what their mapping is called in errors.
type Decode = fn(&Node, &str) -> Result<Box<dyn Keys>, DecodeError>;

impl Kind {
    pub(super) const fn of<K>(name: &'static str, built: bool) -> Self
    where
        K: Keys + DeserializeOwned + JsonSchema + 'static,
    {
        let decode: Decode = |node, path| Ok(Box::new(decode::<K>(node, path)?));
        Self { name, built, decode, schema: schema_of::<K> }
    }
}

fn schema_of<K: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let description = K::json_schema(generator).get("description").cloned();
    let mut schema = Schema::default();
    schema.insert("description".to_owned(), description.unwrap_or_default());
    schema.ensure_object().extend(generator.subschema_for::<K>().ensure_object().clone());
    schema
}

/// The keys of a kind of sink, as they are written.
pub(crate) trait Keys: fmt::Debug + Send + Sync {
    /// The number of events in a batch unless the sink says otherwise.
    fn batch_events(&self) -> usize {
        BatchOptions::default().events
    }

    /// The number of attempts under way at once unless the sink says otherwise: as many as a receiver of
    /// one event a request needs to keep up. A request that carries a whole batch keeps up alone, and each
    /// one more takes the memory of a batch.
    fn concurrency(&self, batch: BatchOptions) -> usize {
        let _ = batch;
        1
    }

    /// How many destinations a day its templates make unless the sink says otherwise.
    fn max_destinations(&self) -> usize {
        MAX_DESTINATIONS
    }

    /// How long an envelope may be that the sink is sent, in bytes, of its `maxEvent`; nothing: as in the journal.
    fn max_event(&self, max_event: Option<usize>) -> Option<usize> {
        max_event
    }

    /// How long an attempt may take, where that is not the sink's `timeout`.
    fn attempt_within(&self, timeout: Duration) -> Duration {
        timeout
    }

    /// Checks the keys, and those of the sink that a kind may refuse, and resolves them.
    fn options(&self, sink: &Shared<'_>, checks: &mut Checks<'_>) -> Arc<dyn BuildSink>;
}

/// The options of a kind, of which its sink is made.
pub trait BuildSink: SameAs + fmt::Debug + Send + Sync {
    /// Makes the sink; nothing is contacted yet.
    fn build(&self) -> Result<Arc<dyn Sink>, SinkBuildError>;

    /// The proxy, where the sink can use one.
    fn proxy(&self) -> Option<&Proxy> {
        None
    }
}

/// Comparison with options that may be of another kind.
pub trait SameAs: Any {
    /// Whether the other options are of the same kind, and equal.
    fn same_as(&self, other: &dyn Any) -> bool;
}

impl<T: PartialEq + Any> SameAs for T {
    fn same_as(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }
}

impl PartialEq for dyn BuildSink {
    fn eq(&self, other: &Self) -> bool {
        self.same_as(other)
    }
}

/// The keys of a sink, beside those of its kind, that the kind makes use of or refuses.
pub(crate) struct Shared<'a> {
    pub(crate) name: &'a str,
    pub(crate) path: Path,
    pub(crate) cluster: Option<String>,
    pub(crate) timeout: Duration,
    pub(crate) batch: BatchOptions,
    pub(crate) concurrency: usize,
    pub(crate) max_event: Option<usize>,
    pub(crate) format: Option<Format>,
    pub(crate) compression: Compression,
    pub(crate) allow_plaintext: bool,
    pub(crate) proxy: Option<&'a Text>,
    pub(crate) connection: Option<&'a ConnectionModel>,
}

impl Shared<'_> {
    /// How far credentials may travel without TLS.
    pub(super) fn plaintext(&self) -> Plaintext {
        match (self.allow_plaintext, self.proxy) {
            (true, _) => Plaintext::Anywhere,
            (false, None) => Plaintext::ThisHost,
            (false, Some(_)) => Plaintext::Nowhere,
        }
    }

    /// Refuses `proxy`, which the kind cannot use.
    pub(crate) fn no_proxy(&self, checks: &mut Checks<'_>, why: &str, hint: &str) {
        if let Some(text) = self.proxy {
            checks.note_plain_address(&self.path.key("proxy"), text);
            self.none(checks, "proxy", why, hint);
        }
    }

    /// Refuses `format`, of which the kind has one of its own.
    pub(crate) fn no_format(&self, checks: &mut Checks<'_>, why: &str) {
        if self.format.is_some() {
            self.none(checks, "format", why, "remove it");
        }
    }

    /// Refuses `connection`, which means nothing to the kind.
    pub(crate) fn no_connection(&self, checks: &mut Checks<'_>, why: &str) {
        if self.connection.is_some() {
            self.none(checks, "connection", why, "remove it");
        }
    }

    /// Refuses `concurrency` of more than 1.
    pub(crate) fn one_at_a_time(&self, kind: &str, checks: &mut Checks<'_>) {
        if self.concurrency > 1 {
            let what =
                format!("expected 1, found more: a `{kind}` sink writes one batch after the other");
            checks.wrong(&self.path.key("concurrency"), wrong(what).hint("remove it"));
        }
    }

    /// Refuses `allowPlaintext`, which means nothing to the kind.
    pub(crate) fn no_plaintext(&self, checks: &mut Checks<'_>, why: &str) {
        if self.allow_plaintext {
            let wrong = wrong(format!("expected `false`, found `true`: {why}"));
            checks.wrong(&self.path.key("allowPlaintext"), wrong.hint("remove it"));
        }
    }

    /// Refuses `compression`.
    pub(crate) fn no_compression(&self, kind: &str, checks: &mut Checks<'_>) {
        if self.compression != Compression::None {
            let what = format!("expected `none`, found another: a `{kind}` sink cannot compress");
            checks
                .wrong(&self.path.key("compression"), wrong(what).hint("remove it or use `none`"));
        }
    }

    /// For how long connections are used, where the sink says so.
    pub(crate) fn max_age(&self, checks: &mut Checks<'_>) -> Option<Duration> {
        let age = self.connection?.max_age?;
        let path = self.path.key("connection").key("maxAge");
        Some(checks.duration(&path, Some(age), age.0, "10m"))
    }

    /// Refuses `compression: zstd`, which the receiver may not read.
    pub(crate) fn no_zstd(&self, checks: &mut Checks<'_>) {
        if self.compression == Compression::Zstd {
            let wrong = wrong("expected `none` or `gzip`, found `zstd`");
            let hint = "write `gzip`, which every version of the receiver reads";
            checks.wrong(&self.path.key("compression"), wrong.hint(hint));
        }
    }

    /// Refuses all that means nothing to a kind that writes lines on this host.
    pub(crate) fn only_lines(&self, kind: &str, checks: &mut Checks<'_>) {
        self.one_at_a_time(kind, checks);
        self.no_compression(kind, checks);
        self.no_plaintext(checks, &format!("a `{kind}` sink sends nothing over a network"));
        self.no_proxy(checks, &format!("a `{kind}` sink cannot use a proxy"), "remove it");
        self.no_connection(checks, &format!("a `{kind}` sink has no connection"));
    }

    /// Refuses a key that is there.
    fn none(&self, checks: &mut Checks<'_>, key: &str, why: &str, hint: &str) {
        let wrong = wrong(format!("expected none, found one: {why}"));
        checks.wrong_key(&self.path.key(key), wrong.hint(hint));
    }
}

/// Reads `host:port`; the host of IPv6 is without its brackets.
pub(super) fn host_and_port<'a>(text: &'a str, example: &str) -> Result<(&'a str, u16), Wrong> {
    let hint = format!("write `host:port`, for instance `{example}`");
    let expected = |found: &str| wrong(format!("expected `host:port`, found {found}")).hint(&*hint);
    if text.contains("://") {
        return Err(expected("an address with a scheme"));
    }
    // Credentials do not belong here; they are not repeated either.
    if text.contains('@') {
        return Err(expected("one with a user"));
    }
    let Some((host, port)) = text
        .rsplit_once(':')
        .filter(|(host, _)| !host.contains(':') || host.starts_with('[') && host.ends_with(']'))
    else {
        return Err(expected(&format!("`{text}`, which has no port")));
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '/') {
        return Err(expected(&format!("`{text}`, which has no host")));
    }
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) if inner.parse::<Ipv6Addr>().is_err() => {
            return Err(expected("another text than an IPv6 address in brackets"));
        }
        Some(inner) => inner,
        None => host,
    };
    let digits = port.bytes().all(|b| b.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(number @ 1..) if digits => Ok((host, number)),
        _ => Err(wrong(format!("expected a port from 1 to 65535, found `{port}`")).hint(&*hint)),
    }
}

/// Reads a text that may be a template, but not empty; `check` is of what it makes of an ordinary event.
pub(crate) fn templated(
    text: &str,
    check: impl FnOnce(&str) -> Result<(), Wrong>,
) -> Result<Templated, Misplaced> {
    if text.is_empty() {
        let wrong = wrong("expected a value, found an empty one");
        return Err(wrong.hint("write one, or remove the key").into());
    }
    let templated = Templated::parse(text)?;
    if let Ok(text) = templated.render(Context::sample) {
        check(&text)?;
    }
    Ok(templated)
}

/// How connections are used.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Connection")]
pub(crate) struct ConnectionModel {
    /// For how long a connection is used. The next one goes to what the name stands for by then, so
    /// that new endpoints behind it are seen. Default: `10m`.
    #[schemars(with = "Option<Span>", extend("default" = "10m"))]
    pub(crate) max_age: Option<Span>,
}
