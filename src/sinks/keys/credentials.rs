//! Checks of credentials: none travels in plain text unless that is meant, and one that stands
//! in the file itself is told of.

use std::{collections::BTreeMap, net::IpAddr};

use http::Uri;

use crate::{
    document::{Checks, Path, Text, Wrong, wrong},
    sinks::{
        Proxy,
        http::secrets::{is_harmless, looks_secret},
    },
    template::Template,
};

/// How far credentials of a sink over HTTP may travel without TLS.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plaintext {
    /// To any host: `allowPlaintext`.
    Anywhere,
    /// To an address of this host.
    ThisHost,
    /// Nowhere: a proxy is asked for every address, those of this host included.
    Nowhere,
}

impl Checks<'_> {
    /// Refuses a query that would travel over `http://` farther than it may. Of an address that is not known here
    /// nothing can be said.
    pub(crate) fn no_plain_query(&mut self, path: &Path, url: Option<&str>, plaintext: Plaintext) {
        let uri = url.and_then(|url| plain(url, plaintext));
        if uri.is_some_and(|uri| uri.query().is_some_and(|query| !query.is_empty())) {
            self.wrong(path, refused("the query, which may hold a credential,", path));
        }
    }

    /// Refuses headers that would travel so to one of some addresses.
    pub(crate) fn no_plain_headers(
        &mut self,
        path: &Path,
        urls: &[impl AsRef<str>],
        headers: &BTreeMap<String, Text>,
        plaintext: Plaintext,
    ) {
        if !urls.iter().any(|url| plain(url.as_ref(), plaintext).is_some()) {
            return;
        }
        for name in headers.keys().filter(|name| !is_harmless(name)) {
            let refused = refused("the header, which may be a credential,", path);
            self.wrong_key(&path.key(name), refused);
        }
    }

    /// Refuses credentials for some addresses, likewise.
    pub(crate) fn no_plain_credentials(
        &mut self,
        path: &Path,
        urls: impl IntoIterator<Item: AsRef<str>>,
        plaintext: Plaintext,
    ) {
        if urls.into_iter().any(|url| plain(url.as_ref(), plaintext).is_some()) {
            self.wrong_key(path, refused("the credentials", path));
        }
    }

    /// Refuses user and password for a proxy on another host that is spoken to without TLS.
    pub(crate) fn no_plain_proxy(&mut self, path: &Path, proxy: &Proxy, hint: &'static str) {
        for (variable, url) in proxy.addresses() {
            let Ok(uri) = url.parse::<Uri>() else { continue };
            let named = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
            if named && uri.scheme_str() != Some("https") && !uri.host().is_some_and(is_loopback) {
                let of =
                    variable.map(|name| format!(" in the variable {name}")).unwrap_or_default();
                let wrong = wrong(format!(
                    "user and password of the proxy{of} would travel in plain text: expected \
                     `https://` or an address of this host, found neither",
                ));
                return self.wrong(path, wrong.hint(hint));
            }
        }
    }

    /// Notes a secret that stands in the file itself.
    pub(crate) fn note_plain(&mut self, path: &Path, text: &Text) {
        if matches!(text, Text::Plain(text) if !text.is_empty()) {
            self.plain_secrets.push(path.to_string());
        }
    }

    /// The same of headers, but for those that are none.
    pub(crate) fn note_plain_headers(&mut self, path: &Path, headers: &BTreeMap<String, Text>) {
        // Of a template, pieces that look like keys are.
        let holds_key = |value: &Text| match value {
            Text::Plain(text) if Template::is_in(text) => {
                Template::literals(text).chain(Template::quoted(text)).any(looks_secret)
            }
            _ => true,
        };
        let may_be = |(name, value): &(&String, &Text)| !is_harmless(name) && holds_key(value);
        for (name, value) in headers.iter().filter(may_be) {
            self.note_plain(&path.key(name), value);
        }
    }

    /// The same of an address, if it holds what looks like a key.
    pub(crate) fn note_plain_address(&mut self, path: &Path, text: &Text) {
        let holds_key = |url: &str| {
            let (url, query) = url.split_once('?').unwrap_or((url, ""));
            let (_, rest) = url.split_once("://").unwrap_or(("", url));
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let mut values =
                query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(_, v)| v));
            authority.contains('@')
                || values.any(|value| !value.is_empty())
                || path.split('/').any(looks_secret)
        };
        let may_be = |url: &str| {
            holds_key(&Template::literals(url).collect::<String>())
                || Template::quoted(url).any(looks_secret)
        };
        if matches!(text, Text::Plain(url) if may_be(url)) {
            self.note_plain(path, text);
        }
    }
}

/// An address to which credentials would travel over `http://` farther than they may.
fn plain(url: &str, plaintext: Plaintext) -> Option<Uri> {
    let uri: Uri = url.parse().ok()?;
    let may = match plaintext {
        Plaintext::Anywhere => true,
        Plaintext::ThisHost => uri.host().is_some_and(is_loopback),
        Plaintext::Nowhere => false,
    };
    (uri.scheme_str() == Some("http") && !may).then_some(uri)
}

fn refused(what: &str, path: &Path) -> Wrong {
    let of_sink = path.to_string().starts_with("sinks.");
    let place = if of_sink { "on the sink" } else { "below `telemetry`" };
    wrong(format!(
        "{what} would travel in plain text: expected `https://` or an address of this host without a \
         proxy, found `http://`"
    ))
    .hint(format!("use `https://`; if it is meant, write `allowPlaintext: true` {place}"))
}

/// Whether a host, as it stands in an address, is this one.
fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host == "localhost",
    }
}
