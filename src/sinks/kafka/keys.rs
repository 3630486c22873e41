//! The keys of a Kafka sink, and the options that come of them.

use std::{sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    bridge::Sink,
    document::{Checks, Path, Text, Wrong, wrong},
    sinks::{
        BuildSink, Compression, Format, Secret, SinkBuildError, TlsOptions,
        keys::{Keys, Shared, host_and_port, stand_ins, tls::TlsModel},
    },
};

/// Produces to a Kafka topic.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Kafka")]
pub(crate) struct KafkaModel {
    /// Brokers to start from, `host:port` each.
    #[schemars(length(min = 1), extend("x-shown" = "address"))]
    brokers: Vec<Text>,
    /// The topic to produce to.
    #[schemars(extend("x-shown" = true))]
    topic: Text,
    /// The key of a message: `qualified`, `<cluster uid>/<namespace>/<uid of the object that the
    /// Event is about, else kind/name>`, or `object`, that uid alone, else `kind/namespace/name`.
    #[serde(default)]
    #[schemars(extend("default" = "qualified"))]
    key: KafkaKey,
    /// TLS towards the brokers; `{}` for TLS with the system's authorities. Default: none.
    tls: Option<TlsModel>,
    /// SASL towards the brokers. Default: none.
    sasl: Option<SaslModel>,
}

/// SASL towards Kafka.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Sasl")]
struct SaslModel {
    /// The mechanism.
    mechanism: SaslMechanism,
    /// The user.
    username: Text,
    /// The password, best as a reference.
    password: Text,
}

/// The parts that the key of a Kafka message is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KafkaKey {
    /// The cluster, the Event's namespace, and the object that it is about.
    #[default]
    Qualified,
    /// The object alone: its uid, else `kind/namespace/name`.
    Object,
}

/// A SASL mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub enum SaslMechanism {
    #[serde(rename = "plain")]
    Plain,
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

/// SASL towards Kafka.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct SaslOptions {
    pub mechanism: SaslMechanism,
    pub username: Secret,
    pub password: Secret,
}

/// A Kafka producer.
#[derive(Clone, Debug, PartialEq)]
pub struct KafkaOptions {
    /// The sink's name, for the log.
    pub name: String,
    /// `host:port` of brokers to start from.
    pub brokers: Vec<String>,
    /// The topic to produce to.
    pub topic: String,
    /// The parts of a message's key.
    pub key: KafkaKey,
    /// The format of a message's value.
    pub format: Format,
    /// The cluster's name, for the client's id.
    pub cluster: Option<String>,
    /// TLS, where the brokers speak it.
    pub tls: Option<TlsOptions>,
    /// SASL, where the brokers ask for it.
    pub sasl: Option<SaslOptions>,
    /// Of message batches.
    pub compression: Compression,
    /// How long one attempt may take.
    pub timeout: Duration,
}

impl KafkaOptions {
    /// The default options: plain text to brokers that ask for no user.
    pub fn new(name: impl Into<String>, brokers: Vec<String>, topic: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            brokers,
            topic: topic.into(),
            key: KafkaKey::default(),
            format: Format::default(),
            cluster: None,
            tls: None,
            sasl: None,
            compression: Compression::default(),
            timeout: crate::bridge::TIMEOUT,
        }
    }
}

impl BuildSink for KafkaOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, SinkBuildError> {
        #[cfg(feature = "kafka")]
        return Ok(Arc::new(super::KafkaSink::new(self)?));
        #[cfg(not(feature = "kafka"))]
        Err(SinkBuildError::at(&[], "expected a kind that is built in, found another"))
    }
}

#[cfg(feature = "kafka")]
impl KafkaOptions {
    pub(super) fn secrets(&self) -> crate::bridge::Secrets {
        let mut texts = Vec::new();
        if let Some(sasl) = &self.sasl {
            let (user, password) = (sasl.username.expose(), sasl.password.expose());
            texts.extend([user.to_owned(), password.to_owned(), format!("{user}:{password}")]);
        }
        crate::bridge::Secrets::of(texts)
    }
}

impl Keys for KafkaModel {
    fn options(&self, sink: &Shared<'_>, checks: &mut Checks<'_>) -> Arc<dyn BuildSink> {
        let path = sink.path.key("kafka");
        let brokers = self.brokers(&path.key("brokers"), checks);
        if self.sasl.is_some() && self.tls.is_none() && !sink.allow_plaintext {
            no_plain_sasl(&path.key("sasl"), checks);
        }
        let topic = checks.checked(&path.key("topic"), &self.topic, topic);
        let tls = self.tls.as_ref().map(|tls| checks.tls(&path.key("tls"), tls));
        let sasl = self.sasl.as_ref().map(|sasl| sasl.options(&path.key("sasl"), checks));
        sink.no_proxy(checks, "a `kafka` sink cannot use a proxy", "remove it");
        let why = "a `kafka` sink learns from its brokers where to connect to";
        sink.no_connection(checks, why);
        let topic = topic.unwrap_or_else(|| stand_ins::TEXT.to_owned());
        Arc::new(KafkaOptions {
            key: self.key,
            format: sink.format.unwrap_or_default(),
            cluster: sink.cluster.clone(),
            tls,
            sasl,
            compression: sink.compression,
            timeout: sink.timeout,
            ..KafkaOptions::new(sink.name, brokers, topic)
        })
    }
}

impl KafkaModel {
    fn brokers(&self, path: &Path, checks: &mut Checks<'_>) -> Vec<String> {
        if self.brokers.is_empty() {
            let hint = "write at least one: `[\"kafka:9092\"]`";
            checks.wrong(path, wrong("expected brokers, found none").hint(hint));
        }
        let mut brokers = Vec::new();
        for (i, text) in self.brokers.iter().enumerate() {
            // A variable may hold several, as clients of Kafka write them elsewhere.
            let check = |value: &str| value.split(',').map(str::trim).try_for_each(broker);
            if let Some(value) = checks.checked(&path.index(i), text, check) {
                brokers.extend(value.split(',').map(|broker| broker.trim().to_owned()));
            }
        }
        if brokers.is_empty() {
            brokers.push(format!("{}:9092", stand_ins::HOST));
        }
        brokers
    }
}

impl SaslModel {
    fn options(&self, path: &Path, checks: &mut Checks<'_>) -> SaslOptions {
        checks.note_plain(&path.key("password"), &self.password);
        let mut secret = |key: &str, text: &Text| {
            let value = checks.optional(&path.key(key), Some(text));
            Secret::new(value.unwrap_or_else(|| stand_ins::TEXT.to_owned()))
        };
        SaslOptions {
            mechanism: self.mechanism,
            username: secret("username", &self.username),
            password: secret("password", &self.password),
        }
    }
}

/// Refuses SASL without TLS, with brokers on this host, too: they name the hosts that are spoken to.
fn no_plain_sasl(path: &Path, checks: &mut Checks<'_>) {
    let wrong = wrong(
        "user and password would be given without TLS to the hosts that the brokers name: \
         expected `tls`, found none",
    );
    let hint = "add `tls: {}`; if it is meant, write `allowPlaintext: true` on the sink";
    checks.wrong_key(path, wrong.hint(hint));
}

/// Checks `host:port` of a broker.
pub(super) fn broker(text: &str) -> Result<(), Wrong> {
    let read = host_and_port(text, "kafka:9092").map(drop);
    if text.contains('@') {
        return read.map_err(|wrong| wrong.hint("credentials stand in `sasl`"));
    }
    read
}

pub(super) fn topic(text: &str) -> Result<(), Wrong> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let expected = |found: &str| wrong(format!("expected the name of a topic, found {found}"));
    if text.is_empty() || text == "." || text == ".." || text.len() > 249 {
        return Err(expected("another text")
            .hint("a topic's name has 1 to 249 characters and is not `.` or `..`"));
    }
    if !text.chars().all(allowed) {
        return Err(expected(&format!("`{text}`"))
            .hint("a topic's name is made of letters, digits, `.`, `_` and `-`"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::refused;

    #[test]
    fn good_brokers_are_taken() {
        for text in ["kafka:9092", "10.0.0.1:9092", "[::1]:9092", "b-1.example.com:1"] {
            assert_eq!(broker(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn bad_values_are_refused() {
        let brokers = ["kafka", "kafka://a:1", "a:0", "a:x", ":9092", "::1:9092", "u:p@h:1", ""];
        let shown = [
            refused(brokers.map(|text| (text, broker(text)))),
            refused(["", "..", "a b", "ä"].map(|text| (text, topic(text)))),
        ];
        insta::assert_snapshot!(shown.join("\n\n"));
    }
}
