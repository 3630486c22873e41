//! What becomes of credentials: none travels in plain text unless that is meant, and one that stands
//! in the file itself is told of.

use std::{collections::BTreeMap, net::IpAddr};

use http::Uri;

use super::Builder;
use crate::{
    config::{
        path::Path,
        validate::{Wrong, wrong},
    },
    document::Text,
    sinks::{
        Proxy,
        secrets::{is_harmless, looks_secret},
    },
};

/// How far credentials of a sink over HTTP may travel without TLS.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Plaintext {
    /// To any host: `allowPlaintext`.
    Anywhere,
    /// To an address of this host.
    ThisHost,
    /// Nowhere: a proxy is asked for every address, those of this host included.
    Nowhere,
}

impl Builder<'_> {
    /// Refuses headers and a query that would travel over `http://` farther than they may. Of an
    /// address that is not known here nothing can be said.
    pub(super) fn no_plain_http(
        &mut self,
        path: &Path,
        key: &str,
        url: Option<&str>,
        headers: &BTreeMap<String, Text>,
        plaintext: Plaintext,
    ) {
        let Some(uri) = url.and_then(|url| url.parse::<Uri>().ok()) else { return };
        let may = match plaintext {
            Plaintext::Anywhere => true,
            Plaintext::ThisHost => uri.host().is_some_and(is_loopback),
            Plaintext::Nowhere => false,
        };
        if uri.scheme_str() != Some("http") || may {
            return;
        }
        let refused = |what: &str| {
            wrong(format!(
                "{what} would travel in plain text: expected `https://` or an address of this host \
                 without a proxy, found `http://`"
            ))
            .hint("use `https://`; if it is meant, write `allowPlaintext: true` on the sink")
        };
        if uri.query().is_some_and(|query| !query.is_empty()) {
            self.wrong(&path.key(key), refused("the query, which may hold a credential,"));
        }
        for name in headers.keys().filter(|name| !is_harmless(name)) {
            let what = "the header, which may be a credential,";
            self.wrong_key(&path.key("headers").key(name), refused(what));
        }
    }

    /// Refuses user and password for a proxy on another host that is spoken to without TLS.
    pub(super) fn no_plain_proxy(&mut self, path: &Path, proxy: &Proxy, hint: &'static str) {
        let Proxy::Url(url) = proxy else { return };
        let Ok(uri) = url.expose().parse::<Uri>() else { return };
        let named = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if named && uri.scheme_str() != Some("https") && !uri.host().is_some_and(is_loopback) {
            let wrong = wrong(
                "user and password of the proxy would travel in plain text: expected `https://` or \
                 an address of this host, found neither",
            );
            self.wrong(path, wrong.hint(hint));
        }
    }

    /// Refuses SASL without TLS, with brokers on this host, too: they name the hosts that are spoken to.
    pub(super) fn no_plain_sasl(&mut self, path: &Path) {
        let wrong = wrong(
            "user and password would be given without TLS to the hosts that the brokers name: \
             expected `tls`, found none",
        );
        let hint = "add `tls: {}`; if it is meant, write `allowPlaintext: true` on the sink";
        self.wrong_key(&path.key("sasl"), wrong.hint(hint));
    }

    /// Notes a secret that stands in the file itself.
    pub(super) fn note_plain(&mut self, path: &Path, text: &Text) {
        if matches!(text, Text::Plain(text) if !text.is_empty()) {
            self.plain_secrets.push(path.to_string());
        }
    }

    /// The same of headers, but for those that are none.
    pub(super) fn note_plain_headers(&mut self, path: &Path, headers: &BTreeMap<String, Text>) {
        for (name, value) in headers.iter().filter(|(name, _)| !is_harmless(name)) {
            self.note_plain(&path.key(name), value);
        }
    }

    /// The same of an address, if it holds what looks like a key.
    pub(super) fn note_plain_address(&mut self, path: &Path, text: &Text) {
        let holds_key = |url: &str| {
            let (url, query) = url.split_once('?').unwrap_or((url, ""));
            let (_, rest) = url.split_once("://").unwrap_or(("", url));
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            authority.contains('@') || !query.is_empty() || path.split('/').any(looks_secret)
        };
        if matches!(text, Text::Plain(url) if holds_key(url)) {
            self.note_plain(path, text);
        }
    }

    /// That `allowPlaintext` has something to allow.
    pub(super) fn nothing_to_allow(&mut self, path: &Path) {
        let wrong: Wrong = wrong("a `stdout` sink sends nothing over a network").hint("remove it");
        self.wrong(&path.key("allowPlaintext"), wrong);
    }
}

/// Whether a host, as it stands in an address, is this one.
fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host == "localhost",
    }
}
