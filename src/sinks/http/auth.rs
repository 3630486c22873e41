//! `auth`: the credentials of a sink over HTTP.

use std::collections::BTreeMap;

#[cfg(feature = "http-client")]
use base64::{Engine as _, engine::general_purpose::STANDARD};
use schemars::JsonSchema;
use serde::Deserialize;

use super::keys::{header_value, url};
#[cfg(feature = "http-client")]
use super::secrets::from_base64;
use crate::{
    document::{Checks, Path, Text, Wrong, wrong},
    sinks::{
        Secret,
        keys::{Plaintext, stand_ins},
    },
};

/// Credentials for each request: exactly one of `bearer`, `basic` and `oauth2`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Auth")]
pub(crate) struct AuthModel {
    /// A bearer token, best as a reference.
    bearer: Option<Text>,
    /// User and password.
    basic: Option<BasicModel>,
    /// A bearer token that is asked for: OAuth 2.0, client credentials.
    oauth2: Option<OAuth2Model>,
}

/// User and password.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Basic")]
pub(crate) struct BasicModel {
    /// The user.
    username: Text,
    /// The password, best as a reference.
    password: Text,
}

/// OAuth 2.0, client credentials.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "OAuth2")]
pub(crate) struct OAuth2Model {
    /// Where tokens are asked for.
    #[schemars(extend("x-shown" = "address"))]
    token_url: Text,
    /// The client's id.
    client_id: Text,
    /// The client's secret, best as a reference.
    client_secret: Text,
    /// The scope of a token. Default: none.
    #[schemars(extend("x-shown" = true))]
    scope: Option<Text>,
}

/// The keys of `auth` that a kind has, of which exactly one is written.
#[derive(Clone, Copy, Default)]
pub(crate) struct AuthKeys<'a> {
    pub(crate) bearer: Option<&'a Text>,
    pub(crate) basic: Option<&'a BasicModel>,
    pub(crate) oauth2: Option<&'a OAuth2Model>,
    pub(crate) api_key: Option<&'a Text>,
    /// The names of those that the kind has, for errors.
    pub(crate) names: &'static str,
}

impl AuthModel {
    /// The keys, for resolving.
    pub(crate) fn keys(&self) -> AuthKeys<'_> {
        AuthKeys {
            bearer: self.bearer.as_ref(),
            basic: self.basic.as_ref(),
            oauth2: self.oauth2.as_ref(),
            api_key: None,
            names: "`bearer`, `basic` and `oauth2`",
        }
    }
}

/// The credentials of each request.
#[derive(Clone, Debug, PartialEq)]
pub enum Auth {
    /// A bearer token.
    Bearer(Secret),
    /// A key of the API of Elasticsearch: the base64 of `id:key`.
    ApiKey(Secret),
    /// User and password.
    Basic {
        /// Without a colon.
        username: Secret,
        /// The password.
        password: Secret,
    },
    /// A bearer token that is asked for.
    OAuth2(OAuth2Options),
}

/// OAuth 2.0, client credentials.
#[derive(Clone, Debug, PartialEq)]
pub struct OAuth2Options {
    /// Where tokens are asked for.
    pub token_url: Secret,
    /// The client's id.
    pub client_id: Secret,
    /// The client's secret.
    pub client_secret: Secret,
    /// The scope of a token.
    pub scope: Option<String>,
}

impl Auth {
    /// The value of `Authorization`, where it is always the same.
    #[cfg(feature = "http-client")]
    pub(super) fn authorization(&self) -> Option<String> {
        match self {
            Self::Bearer(token) => Some(format!("Bearer {}", token.expose())),
            Self::ApiKey(key) => Some(format!("ApiKey {}", key.expose())),
            Self::Basic { username, password } => Some(basic(username.expose(), password.expose())),
            Self::OAuth2(_) => None,
        }
    }

    /// The secrets that no reason may hold.
    #[cfg(feature = "http-client")]
    pub(super) fn secrets(&self) -> Vec<String> {
        match self {
            Self::Bearer(token) => vec![token.expose().to_owned()],
            Self::ApiKey(key) => {
                let key = key.expose();
                let decoded = from_base64(key).unwrap_or_default();
                let secret = decoded.split_once(':').map_or("", |(_, secret)| secret).to_owned();
                vec![key.to_owned(), decoded, secret]
            }
            Self::Basic { username: user, password } => pair(user.expose(), password.expose()),
            Self::OAuth2(options) => {
                let (id, secret) = (options.client_id.expose(), options.client_secret.expose());
                [pair(id, secret), pair(&encoded(id), &encoded(secret))].concat()
            }
        }
    }
}

/// User and password as a value of `Authorization`.
#[cfg(feature = "http-client")]
pub(super) fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// A text as RFC 6749 §2.3.1 has it in user and password.
#[cfg(feature = "http-client")]
pub(super) fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// The forms of user and password in a header.
#[cfg(feature = "http-client")]
fn pair(user: &str, password: &str) -> Vec<String> {
    let both = format!("{user}:{password}");
    vec![user.to_owned(), password.to_owned(), STANDARD.encode(&both), both]
}

impl AuthKeys<'_> {
    /// Checks the keys and resolves them. `plaintext` is for the address of tokens.
    pub(super) fn resolve(
        &self,
        path: &Path,
        headers: &BTreeMap<String, Text>,
        plaintext: Plaintext,
        checks: &mut Checks<'_>,
    ) -> Option<Auth> {
        if headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
            let wrong = wrong("expected `auth` or the header `Authorization`, found both");
            checks.wrong_key(path, wrong.hint("remove one of the two"));
        }
        let Self { bearer, basic, oauth2, api_key, names } = *self;
        match (bearer, basic, oauth2, api_key) {
            (Some(token), None, None, None) => {
                Some(Auth::Bearer(credential(&path.key("bearer"), token, checks, |_| Ok(()))))
            }
            (None, Some(basic), None, None) => Some(basic.resolve(&path.key("basic"), checks)),
            (None, None, Some(oauth2), None) => {
                Some(oauth2.resolve(&path.key("oauth2"), plaintext, checks))
            }
            (None, None, None, Some(key)) => {
                Some(Auth::ApiKey(credential(&path.key("apiKey"), key, checks, |key| {
                    if !key.contains([':', ' ']) {
                        return Ok(());
                    }
                    let what = "expected base64, found a text with a colon or a blank";
                    let hint =
                        "write the field `encoded` of the answer of `POST /_security/api_key`";
                    Err(wrong(what).hint(hint))
                })))
            }
            _ => {
                let given =
                    [bearer.is_some(), basic.is_some(), oauth2.is_some(), api_key.is_some()];
                let given = given.into_iter().filter(|given| *given).count();
                let what = format!("expected one of {names}, found {given}");
                checks.wrong_key(path, wrong(what).hint("write one of them, or remove `auth`"));
                None
            }
        }
    }
}

/// A credential that stands in a header.
fn credential(
    path: &Path,
    text: &Text,
    checks: &mut Checks<'_>,
    check: impl FnOnce(&str) -> Result<(), Wrong>,
) -> Secret {
    checks.note_plain(path, text);
    secret(checks.checked(path, text, |text| {
        header_value(text)?;
        not_empty(text)?;
        check(text)
    }))
}

impl BasicModel {
    fn resolve(&self, path: &Path, checks: &mut Checks<'_>) -> Auth {
        checks.note_plain(&path.key("password"), &self.password);
        let username = checks.checked(&path.key("username"), &self.username, |user| {
            if user.contains(':') {
                let what = "expected a user without a colon, found one with a colon";
                return Err(wrong(what).hint("basic authentication cannot carry it"));
            }
            not_empty(user)
        });
        let password = checks.text(&path.key("password"), &self.password);
        Auth::Basic { username: secret(username), password: secret(password) }
    }
}

impl OAuth2Model {
    fn resolve(&self, path: &Path, plaintext: Plaintext, checks: &mut Checks<'_>) -> Auth {
        let place = path.key("tokenUrl");
        let token_url = checks.checked(&place, &self.token_url, |text| url(text).map(drop));
        checks.note_plain_address(&place, &self.token_url);
        checks.no_plain_credentials(&place, &token_url, plaintext);
        checks.note_plain(&path.key("clientSecret"), &self.client_secret);
        let mut text = |key: &str, text: &Text| checks.optional(&path.key(key), Some(text));
        Auth::OAuth2(OAuth2Options {
            token_url: Secret::new(token_url.unwrap_or_else(|| stand_ins::url(false))),
            client_id: secret(text("clientId", &self.client_id)),
            client_secret: secret(text("clientSecret", &self.client_secret)),
            scope: self.scope.as_ref().and_then(|scope| text("scope", scope)),
        })
    }
}

fn not_empty(text: &str) -> Result<(), Wrong> {
    if text.is_empty() {
        return Err(
            wrong("expected a value, found an empty one").hint("write one, or remove `auth`")
        );
    }
    Ok(())
}

fn secret(value: Option<String>) -> Secret {
    Secret::new(value.unwrap_or_else(|| stand_ins::TEXT.to_owned()))
}
