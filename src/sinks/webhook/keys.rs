//! The keys of a webhook, and the options that come of them.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, de::IgnoredAny};

use super::signing_key;
use crate::{
    bridge::{BatchOptions, Filter, Sink},
    document::{Checks, Misplaced, Path, Text, Texts, Wrong, wrong},
    sinks::{
        BuildSink, Format, HttpOptions, Proxy, Secret, SinkBuildError,
        http::{
            address::Address,
            auth::AuthModel,
            keys::{HttpModel, Urls},
            secrets::{NO_WORD, of_body as words_of_body},
        },
        keys::{Keys, Shared, tls::TlsModel},
    },
    template::{Context, Escape, Template},
};

/// Signs where a secret is not here.
const STAND_IN: &str = "whsec_c3RhbmQtaW4gc3RhbmQtaW4gc3RhbmQtaW4h";

/// Sends JSON to a URL: one event a request, or an array if `batch.events` is more than 1.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Webhook")]
pub(crate) struct WebhookModel {
    /// The address to send to. Path and query may be a template.
    url: Text,
    /// The method of requests.
    #[serde(default)]
    #[schemars(extend("default" = "POST"))]
    method: WebhookMethod,
    /// Sent with each request. A value may be a template.
    #[serde(default)]
    headers: BTreeMap<String, Text>,
    /// A template of the body: where its type, of the header `content-type`, is JSON, `{{ x }}` is a value of JSON, quotes
    /// included. Default: the event in the sink's format.
    body: Option<Text>,
    /// Credentials of each request. Default: none but those in `headers`.
    auth: Option<AuthModel>,
    /// A CEL expression over `status`, `headers` (by their names in lower case) and `body` (its JSON) of an answer: a 2xx
    /// for which it is not true is a refusal. Default: every 2xx is a success.
    #[schemars(extend("x-shown" = true))]
    success: Option<Text>,
    /// A CEL expression over the same: an answer that is no success, and for which this is true, is waited for as a 429 is.
    /// Default: none.
    #[schemars(extend("x-shown" = true))]
    retry_when: Option<Text>,
    /// TLS, for `https://`. Default: the system's authorities.
    tls: Option<TlsModel>,
    /// Signs each request by the Standard Webhooks scheme. Default: unsigned.
    signing: Option<SigningModel>,
}

/// The method of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the names say it")]
pub enum WebhookMethod {
    #[default]
    Post,
    Put,
    Patch,
}

/// Standard Webhooks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Signing")]
struct SigningModel {
    /// `whsec_` and base64 of at least 24 bytes, for HMAC-SHA256, or `whsk_` and base64 of a private key
    /// of ed25519; best as a reference. Of a list, each signs, so that a secret can be exchanged.
    secret: Texts,
}

/// A webhook.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookOptions {
    /// Where to, and how.
    pub http: HttpOptions,
    /// The method of requests.
    pub method: WebhookMethod,
    /// The body; `None`: the event in its format. One event a request, as with any other template.
    pub body: Option<WebhookBody>,
    /// Which answers of 2xx are successes: an expression over answers; `None`: all.
    pub success: Option<Filter>,
    /// Which other answers are waited for as a 429 is.
    pub retry_when: Option<Filter>,
    /// Standard Webhooks secrets, `whsec_` or `whsk_` and base64; each signs. None: unsigned.
    pub signing_secrets: Vec<Secret>,
    /// The format of the body, or of each object in it.
    pub format: Format,
    /// One object a request instead of an array; the batches then hold one event each.
    pub single: bool,
}

/// The body of each request.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookBody {
    /// Escapes for JSON if that is the type of the content.
    pub template: Template,
    /// The type of the content.
    pub content_type: String,
}

impl BuildSink for WebhookOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, SinkBuildError> {
        #[cfg(feature = "webhook")]
        return Ok(Arc::new(super::sink::build(self)?));
        #[cfg(not(feature = "webhook"))]
        Err(SinkBuildError::at(&[], "expected a kind that is built in, found another"))
    }

    fn proxy(&self) -> Option<&Proxy> {
        Some(&self.http.proxy)
    }
}

impl WebhookOptions {
    /// Whether a template makes a part of a request, which is of one event then.
    pub(crate) fn has_template(&self) -> bool {
        let is_in = |value: &Secret| Template::is_in(value.expose());
        self.body.is_some()
            || is_in(&self.http.url)
            || self.http.headers.iter().any(|(_, value)| is_in(value))
    }
}

#[cfg(feature = "webhook")]
impl WebhookOptions {
    pub(crate) fn secrets(&self) -> Vec<String> {
        let mut texts = self.http.secrets();
        texts.extend(self.body.iter().flat_map(|body| words_of_body(body.template.source())));
        for secret in &self.signing_secrets {
            let secret = secret.expose();
            texts.push(secret.to_owned());
            // The form of it that stands behind a prefix, and what it is the base64 of.
            if let Some((_, encoded)) = secret.split_once('_') {
                texts.push(encoded.to_owned());
                texts.extend(crate::sinks::http::secrets::from_base64(encoded));
            }
        }
        texts
    }
}

impl Keys for WebhookModel {
    fn batch_events(&self) -> usize {
        1
    }

    fn concurrency(&self, batch: BatchOptions) -> usize {
        if batch.events == 1 { 8 } else { 1 }
    }

    fn options(&self, sink: &Shared<'_>, checks: &mut Checks<'_>) -> Arc<dyn BuildSink> {
        let path = sink.path.key("webhook");
        let signing = path.key("signing").key("secret");
        let model = HttpModel {
            headers: &self.headers,
            auth: self.auth.as_ref().map(AuthModel::keys),
            tls: self.tls.as_ref(),
            templates: true,
            content_type: self.body.is_some(),
            ..HttpModel::new(&path, "url", Urls::One(&self.url))
        };
        let http = model.resolve(sink, checks, |value| Address::parse(value).map(drop));
        let (format, single) = (sink.format.unwrap_or_default(), sink.batch.events == 1);
        let body = self.body.as_ref().and_then(|body| {
            sink.no_format(checks, "a webhook with a `body` sends that");
            body_of(&path, body, &http, sink, checks)
        });
        if format == Format::CloudEvents && !single {
            let wrong =
                wrong("expected another format for an array of events, found `cloudevents`");
            let hint = "write `batch: {events: 1}`, or another format";
            checks.wrong(&sink.path.key("format"), wrong.hint(hint));
        }
        let secrets = self.signing.as_ref().map(|model| model.secrets(&signing, checks));
        let mut over_answers = |key: &str, text: Option<&Text>| {
            checks.parsed(&sink.path.key("webhook").key(key), text?, Filter::over_answers)
        };
        let success = over_answers("success", self.success.as_ref());
        let retry_when = over_answers("retryWhen", self.retry_when.as_ref());
        let options = WebhookOptions {
            http,
            method: self.method,
            body,
            success,
            retry_when,
            signing_secrets: secrets.unwrap_or_default(),
            format,
            single,
        };
        if options.has_template() && !single {
            let wrong = wrong(format!(
                "expected 1 beside a template, found {}: a template is of one event",
                sink.batch.events
            ));
            checks.wrong(&sink.path.key("batch").key("events"), wrong.hint("write `events: 1`"));
        }
        Arc::new(options)
    }
}

/// The type of content that a body is of unless a header says otherwise.
const JSON: &str = "application/json";

fn body_of(
    path: &Path,
    text: &Text,
    http: &HttpOptions,
    sink: &Shared<'_>,
    checks: &mut Checks<'_>,
) -> Option<WebhookBody> {
    let header = http.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let content_type = header.map_or(JSON, |(_, value)| value.expose()).to_owned();
    let (media_type, _) = content_type.split_once(';').unwrap_or((&content_type, ""));
    let media_type = media_type.trim().to_ascii_lowercase();
    let is_json = media_type == JSON || media_type.ends_with("+json");
    let escape = if is_json { Escape::Json } else { Escape::Plain };
    let (path, mut holds_key) = (path.key("body"), false);
    let template = checks.parsed(&path, text, |source| -> Result<_, Misplaced> {
        let template = Template::compile(source, escape)?;
        holds_key = words_of_body(source).any(|word| word.len() >= NO_WORD);
        for made in Context::samples().filter_map(|sample| template.render(&sample).ok()) {
            if is_json && let Err(error) = is_one_json(&made) {
                let wrong = wrong(format!("expected a body of JSON, found another text: {error}"));
                let hint =
                    "`{{ x }}` writes a text with its quotes: `\"text\": {{ event.message }}`";
                return Err(wrong.hint(hint).into());
            }
        }
        Ok(template)
    })?;
    if holds_key {
        checks.note_plain(&path, text);
        let url: String = Template::literals(http.url.expose()).collect();
        checks.no_plain_credentials(&path, [url], sink.plaintext());
    }
    Some(WebhookBody { template, content_type })
}

/// Whether a text is a value of JSON.
pub(super) fn is_one_json(text: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<IgnoredAny>(text).map(drop)
}

impl SigningModel {
    fn secrets(&self, path: &Path, checks: &mut Checks<'_>) -> Vec<Secret> {
        let mut secrets = Vec::new();
        for (i, text) in self.secret.texts.iter().enumerate() {
            let path = if self.secret.listed { path.index(i) } else { path.clone() };
            checks.note_plain(&path, text);
            let shows = checks.shows_signing;
            let secret = checks.checked(&path, text, |secret| -> Result<(), Wrong> {
                let Err(error) = signing_key::parse(secret) else { return Ok(()) };
                let wrong = wrong(error.to_string());
                Err(match signing_key::prefixed(secret).filter(|_| shows) {
                    Some(shown) => wrong.hint(format!(
                        "receivers decode every secret: for the same bytes write, and give the \
                         receiver, {shown}"
                    )),
                    None => wrong.hint(error.hint(secret)),
                })
            });
            secrets.push(Secret::new(secret.unwrap_or_else(|| STAND_IN.to_owned())));
        }
        secrets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::refused;

    #[test]
    fn bad_secrets_are_refused() {
        for good in [
            "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            STAND_IN,
        ] {
            assert!(signing_key::parse(good).is_ok(), "{good}");
        }
        let bad = ["whsec_", "whsec_a", "whsec_!!!!"];
        insta::assert_snapshot!(refused(bad.map(|secret| {
            let checked = signing_key::parse(secret).map(drop);
            (secret, checked.map_err(|error| wrong(error.to_string()).hint(error.hint(secret))))
        })));
    }
}
