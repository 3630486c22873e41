//! Tokens of OAuth 2.0 by client credentials (RFC 6749 §4.4): asked for when they are needed, kept until
//! shortly before they expire, and asked for again once a receiver does not take one.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use ::http::{
    HeaderValue, StatusCode,
    header::{ACCEPT, AUTHORIZATION},
};
use form_urlencoded::Serializer;
use reqwest::Url;
use serde::Deserialize;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};

use super::{
    HttpOptions,
    auth::{OAuth2Options, basic, encoded},
    client::{Client, Reading, Reply, Request, Trust, parse_url, peer},
};
use crate::{
    bridge::{Failure, FailureClass, Fault, Secrets},
    event::Batch,
    sinks::{SinkBuildError, TlsOptions},
};

/// How much of an answer with a token is read.
const ANSWER_BYTES: usize = 64 << 10;
/// A token is asked for again so long before it expires, or in the last tenth of its life.
const BEFORE_EXPIRY: Duration = Duration::from_secs(60);
/// A token whose life is not stated is asked for again after this time.
const UNSTATED: Duration = Duration::from_mins(30);
/// And any after this.
const LONGEST: Duration = Duration::from_hours(24);
const FORM: &str = "application/x-www-form-urlencoded";

/// Where tokens come from.
pub(super) struct Tokens {
    client: Client,
    url: Url,
    options: OAuth2Options,
    /// Those of the sink.
    secrets: Secrets,
    /// The same, as texts.
    texts: Vec<String>,
    /// Whether the client is named in the body of a request: servers that know no other way refuse the header.
    in_body: AtomicBool,
    last: Mutex<Last>,
}

/// The result of the last request.
#[derive(Default)]
struct Last {
    token: Option<Token>,
    /// With its time.
    failure: Option<(Failure, Instant)>,
}

/// A token, and what hides it in reasons, with all other secrets of the sink.
#[derive(Clone)]
pub(super) struct Token {
    pub(super) authorization: HeaderValue,
    pub(super) secrets: Secrets,
    until: Instant,
}

impl Token {
    /// A request with it.
    pub(super) fn on(&self, mut request: Request) -> Request {
        request.headers.insert(AUTHORIZATION, self.authorization.clone());
        request
    }
}

/// The answer of a server (RFC 6749 §5.1).
#[derive(Deserialize)]
struct Answer {
    access_token: String,
    /// In seconds; some servers write it as a text.
    #[serde(default)]
    expires_in: serde_json::Value,
}

impl Tokens {
    /// Sets up a client of its own, which connects as the sink's does.
    pub(super) fn new(
        options: &OAuth2Options,
        http: &HttpOptions,
        texts: Vec<String>,
    ) -> Result<Self, SinkBuildError> {
        let url = parse_url(&["auth", "oauth2", "tokenUrl"], options.token_url.expose())?;
        let secrets = Secrets::of(&texts);
        // The rest of the sink's TLS is for its own receiver alone.
        let tls = http.tls.as_ref().filter(|_| url.scheme() == "https");
        let tls = tls.map(|tls| TlsOptions { ca: tls.ca.clone(), ..TlsOptions::default() });
        let http = HttpOptions { tls, ..http.clone() };
        let client = Client::new(&http, &url, Trust::AlsoSystem, &secrets)?;
        Ok(Self {
            client,
            url,
            options: options.clone(),
            secrets,
            texts,
            in_body: AtomicBool::default(),
            last: Mutex::default(),
        })
    }

    /// The current token, and whether this call has asked for it. Waits until the end of the attempt at most.
    /// Attempts that need a token at the same time ask once, and share the token or the failure.
    pub(super) async fn token(&self, end: Instant) -> Result<(Token, bool), Failure> {
        let began = Instant::now();
        let late = |_| {
            let words = "another attempt waits for a token for too long";
            self.failure(&Failure::new(FailureClass::Unavailable, self.secrets.reason(words)))
        };
        let mut last = timeout_at(end, self.last.lock()).await.map_err(late)?;
        if let Some(token) = last.token.as_ref().filter(|token| Instant::now() < token.until) {
            return Ok((token.clone(), false));
        }
        if let Some((failure, at)) = &last.failure
            && *at > began
        {
            return Err(failure.clone());
        }
        let asked = self.ask(end).await;
        last.token = asked.as_ref().ok().cloned();
        last.failure = asked.as_ref().err().map(|failure| (failure.clone(), Instant::now()));
        asked.map(|token| (token, true))
    }

    /// Has the next one ask for another token in place of this one.
    pub(super) async fn forget(&self, token: &Token) {
        let mut last = self.last.lock().await;
        last.token.take_if(|last| last.authorization == token.authorization);
    }

    async fn ask(&self, end: Instant) -> Result<Token, Failure> {
        let in_body = self.in_body.load(Relaxed);
        let mut reply = self.send(in_body, end).await;
        let is_refused = |reply: &Reply| {
            matches!(reply.status(), StatusCode::UNAUTHORIZED | StatusCode::BAD_REQUEST)
        };
        if reply.as_ref().is_ok_and(is_refused) {
            let other = self.send(!in_body, end).await;
            if other.as_ref().is_ok_and(Reply::is_success) {
                self.in_body.store(!in_body, Relaxed);
                reply = other;
            }
        }
        let reply = reply.map_err(|failure| self.failure(&failure))?;
        if !reply.is_success() {
            let failure = reply.failure(&reply.text(), &Batch::default(), &self.secrets);
            return Err(self.failure(&failure));
        }
        let answer: Answer = serde_json::from_slice(&reply.body)
            .map_err(|_| self.no_token("found something else"))?;
        self.read(&answer)
    }

    async fn send(&self, in_body: bool, end: Instant) -> Result<Reply, Failure> {
        let reads = |status: StatusCode| {
            if status.is_success() { Reading::Whole(ANSWER_BYTES) } else { Reading::Status }
        };
        self.client.send(self.request(in_body), reads, end).await
    }

    fn request(&self, in_body: bool) -> Request {
        let OAuth2Options { client_id, client_secret, scope, .. } = &self.options;
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        if let Some(scope) = scope {
            form.append_pair("scope", scope);
        }
        if in_body {
            form.append_pair("client_id", client_id.expose());
            form.append_pair("client_secret", client_secret.expose());
        }
        let mut request = Request::post(&self.url, FORM, form.finish());
        request.header(ACCEPT, "application/json");
        if !in_body {
            let named = basic(&encoded(client_id.expose()), &encoded(client_secret.expose()));
            request.header(AUTHORIZATION, named);
        }
        request
    }

    fn read(&self, answer: &Answer) -> Result<Token, Failure> {
        let Ok(mut authorization) =
            HeaderValue::try_from(format!("Bearer {}", answer.access_token))
        else {
            return Err(self.no_token("found one that no header can carry"));
        };
        authorization.set_sensitive(true);
        let seconds = match &answer.expires_in {
            serde_json::Value::Number(number) => number.as_f64(),
            serde_json::Value::String(text) => text.parse().ok(),
            _ => None,
        };
        let life = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let life = life.unwrap_or(UNSTATED).min(LONGEST);
        let until = Instant::now() + life.saturating_sub(BEFORE_EXPIRY.min(life / 10));
        let texts = self.texts.iter().chain([&answer.access_token]);
        Ok(Token { authorization, secrets: Secrets::of(texts), until })
    }

    fn no_token(&self, found: &str) -> Failure {
        let words = format_args!("expected a token, {found}");
        self.failure(&Failure::new(FailureClass::Misconfigured, self.secrets.reason(words)))
    }

    /// A failure to get a token, which no event has brought about.
    fn failure(&self, failure: &Failure) -> Failure {
        let class = match failure.class {
            FailureClass::Refused(_) => FailureClass::Misconfigured,
            class => class,
        };
        let words = format_args!("auth.oauth2 at {}: {}", peer(&self.url), failure.reason);
        Failure { class, fault: Fault::Sink, reason: self.secrets.reason(words), ..failure.clone() }
    }
}
