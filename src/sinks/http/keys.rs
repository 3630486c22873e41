//! The keys that sinks over HTTP have in common: address, headers, TLS, proxy, connections.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue, Uri};

use super::{HttpOptions, address::MOST_BYTES, auth::AuthKeys};
use crate::{
    document::{Checks, Misplaced, Path, Text, Wrong, is_word, wrong},
    sinks::{
        Proxy, Secret, is_reserved_header,
        keys::{Shared, stand_ins, tls::TlsModel},
    },
    template::{Escape, Template},
};

/// The keys of a kind over HTTP, as they are written.
pub(crate) struct HttpModel<'a> {
    /// The way to the kind.
    pub(crate) path: Path,
    /// The key of the addresses.
    pub(crate) key: &'static str,
    pub(crate) urls: Urls<'a>,
    pub(crate) headers: &'a BTreeMap<String, Text>,
    pub(crate) auth: Option<AuthKeys<'a>>,
    /// The key of a credential of the kind's own.
    pub(crate) token: Option<&'static str>,
    pub(crate) tls: Option<&'a TlsModel>,
    /// Whether it is gRPC, which uses no proxy and has binary headers.
    pub(crate) grpc: bool,
    /// Whether the values of headers may be templates.
    pub(crate) templates: bool,
    /// Whether the type of the content is a header of the configuration.
    pub(crate) content_type: bool,
}

/// The addresses of a kind.
#[derive(Clone, Copy)]
pub(crate) enum Urls<'a> {
    /// The key holds one.
    One(&'a Text),
    /// The key holds a list: servers of one receiver.
    List(&'a [Text]),
}

impl<'a> HttpModel<'a> {
    /// Addresses alone.
    pub(crate) fn new(path: &Path, key: &'static str, urls: Urls<'a>) -> Self {
        static NONE: BTreeMap<String, Text> = BTreeMap::new();
        Self {
            path: path.clone(),
            key,
            urls,
            headers: &NONE,
            auth: None,
            token: None,
            tls: None,
            grpc: false,
            templates: false,
            content_type: false,
        }
    }

    /// Checks the keys and resolves them, for one address; `check` is of that.
    pub(crate) fn resolve(
        &self,
        sink: &Shared<'_>,
        checks: &mut Checks<'_>,
        check: impl Fn(&str) -> Result<(), Misplaced>,
    ) -> HttpOptions {
        let all = self.resolve_all(sink, checks, check);
        all.into_iter().next().unwrap_or_else(|| HttpOptions::new(stand_ins::url(false)))
    }

    /// Checks the keys and resolves them, for each address; `check` is of one.
    pub(crate) fn resolve_all(
        &self,
        sink: &Shared<'_>,
        checks: &mut Checks<'_>,
        check: impl Fn(&str) -> Result<(), Misplaced>,
    ) -> Vec<HttpOptions> {
        let urls = self.urls(sink, checks, check);
        let fixed: Vec<String> =
            urls.iter().flatten().map(|url| Template::literals(url).collect()).collect();
        self.tls_needs_https(&fixed, checks);
        checks.no_plain_headers(&self.path.key("headers"), &fixed, self.headers, sink.plaintext());
        let auth = self.path.key("auth");
        let credentials = [self.auth.map(|_| "auth"), self.token];
        for key in credentials.into_iter().flatten() {
            checks.no_plain_credentials(&self.path.key(key), &fixed, sink.plaintext());
        }
        let auth =
            self.auth.and_then(|keys| keys.resolve(&auth, self.headers, sink.plaintext(), checks));
        let proxy = if self.grpc {
            let hint = "remove it, or use `protocol: http`";
            sink.no_proxy(checks, "a sink over gRPC cannot use a proxy", hint);
            Proxy::None
        } else {
            sink.proxy(checks)
        };
        let default = HttpOptions::new("");
        let options = HttpOptions {
            headers: self.headers(checks),
            auth,
            tls: self.tls.map(|tls| checks.tls(&self.path.key("tls"), tls)),
            proxy,
            compression: sink.compression,
            connection_max_age: sink.max_age(checks).unwrap_or(default.connection_max_age),
            timeout: sink.timeout,
            ..default
        };
        let urls =
            urls.into_iter().map(|url| url.unwrap_or_else(|| stand_ins::url(self.tls.is_some())));
        urls.map(|url| HttpOptions { url: Secret::new(url), ..options.clone() }).collect()
    }

    /// The addresses; nothing for one that cannot be had.
    fn urls(
        &self,
        sink: &Shared<'_>,
        checks: &mut Checks<'_>,
        check: impl Fn(&str) -> Result<(), Misplaced>,
    ) -> Vec<Option<String>> {
        let path = self.path.key(self.key);
        let texts: Vec<_> = match self.urls {
            Urls::One(text) => vec![(path, text)],
            Urls::List(texts) => {
                if texts.is_empty() {
                    let wrong = wrong("expected at least one address, found none");
                    checks.wrong(&path, wrong.hint("write for instance `[\"https://host\"]`"));
                }
                texts.iter().enumerate().map(|(i, text)| (path.index(i), text)).collect()
            }
        };
        let mut urls = Vec::with_capacity(texts.len());
        for (path, text) in texts {
            let url = checks.checked(&path, text, &check);
            checks.note_plain_address(&path, text);
            let fixed = url.as_ref().map(|url| Template::literals(url).collect::<String>());
            checks.no_plain_query(&path, fixed.as_deref(), sink.plaintext());
            urls.push(url);
        }
        urls
    }

    /// Refuses TLS settings beside a plain address: they would be a false sense of safety.
    fn tls_needs_https(&self, urls: &[String], checks: &mut Checks<'_>) {
        if self.tls.is_some() && urls.iter().any(|url| url.starts_with("http://")) {
            let key = self.key;
            let wrong =
                wrong(format!("expected `https://` in `{key}` beside `tls`, found `http://`"));
            let hint = "use `https://`, or remove `tls`";
            checks.wrong_key(&self.path.key("tls"), wrong.hint(hint));
        }
    }

    fn headers(&self, checks: &mut Checks<'_>) -> Vec<(String, Secret)> {
        let headers = self.path.key("headers");
        checks.note_plain_headers(&headers, self.headers);
        let mut all: Vec<(String, Secret)> = Vec::with_capacity(self.headers.len());
        for (name, value) in self.headers {
            let path = if is_word(name) { headers.key(name) } else { headers.clone() };
            let is_type = self.content_type && name.eq_ignore_ascii_case("content-type");
            if let Err(wrong) = header_name(name, self.grpc)
                && !is_type
            {
                checks.wrong_key(&path, wrong);
            }
            if all.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
                let wrong =
                    wrong("expected each header once, found it twice, in different letter cases");
                checks.wrong_key(&path, wrong.hint("remove one of the two"));
            }
            let value = checks.checked(&path, value, |value| -> Result<(), Misplaced> {
                if self.templates && Template::is_in(value) {
                    if is_type {
                        return Err(wrong("expected a fixed type, found a template").into());
                    }
                    Template::compile(value, Escape::Plain)?;
                    let fixed: String = Template::literals(value).collect();
                    if fixed.len() > MOST_BYTES {
                        let what = format!("expected at most {MOST_BYTES} bytes, found more");
                        return Err(wrong(what).into());
                    }
                    return Ok(header_value(&fixed).map(drop)?);
                }
                if is_type && value.trim().is_empty() {
                    return Err(wrong("expected a type, found none").into());
                }
                Ok(header_value(value).map(drop)?)
            });
            let value = value.unwrap_or_else(|| stand_ins::TEXT.to_owned());
            all.push((name.clone(), Secret::new(value)));
        }
        all
    }
}

const HINT: &str = "write `https://host/path` or `http://host:port/path`";

/// Parses an address of HTTP, which has no user in it: that is a header. Addresses carry tokens, so none is
/// repeated.
pub(crate) fn url(text: &str) -> Result<Uri, Wrong> {
    let Some((scheme, _)) = text.split_once("://") else {
        return Err(wrong("expected `http://` or `https://` in front, found no scheme").hint(HINT));
    };
    if !matches!(scheme, "http" | "https") {
        let known = scheme.len() <= 10 && scheme.chars().all(|c| c.is_ascii_alphanumeric());
        let scheme = if known { format!("`{scheme}://`") } else { "another scheme".to_owned() };
        let what = format!("expected `http://` or `https://` in front, found {scheme}");
        return Err(wrong(what).hint(HINT));
    }
    let none = |found: &str| wrong(format!("expected an address, found {found}")).hint(HINT);
    let uri: Uri = text.parse().map_err(|_| none("something else"))?;
    let Some(authority) = uri.authority().filter(|authority| !authority.host().is_empty()) else {
        return Err(none("one without a host"));
    };
    if authority.as_str().contains('@') {
        return Err(wrong("expected an address, found one with a user and password in it")
            .hint("put them into the header `Authorization`, or into `auth` where there is one"));
    }
    let port = authority.as_str().rsplit_once(':').map(|(_, port)| port);
    if port.is_some_and(|port| !port.ends_with(']')) && !matches!(authority.port_u16(), Some(1..)) {
        return Err(wrong("expected a port from 1 to 65535, found another").hint(HINT));
    }
    Ok(uri)
}

/// Parses an address to which a path is appended.
pub(crate) fn base_url(text: &str) -> Result<Uri, Wrong> {
    let url = url(text)?;
    if url.query().is_some() {
        let wrong = wrong("expected an address without a query, found one with a query");
        return Err(wrong.hint("remove what follows `?`"));
    }
    Ok(url)
}

/// Checks the name of a header that a sink may be given.
pub(crate) fn header_name(name: &str, grpc: bool) -> Result<HeaderName, Wrong> {
    let Ok(parsed) = HeaderName::from_bytes(name.as_bytes()) else {
        // Which may be a value.
        let found = if is_word(name) { format!("`{name}`") } else { "another text".to_owned() };
        return Err(wrong(format!("expected the name of a header, found {found}"))
            .hint("a name is made of letters, digits and `-`"));
    };
    if is_reserved_header(parsed.as_str()) {
        return Err(wrong(format!(
            "expected another header, found `{name}`, which is set by the bridge"
        ))
        .hint("remove it"));
    }
    if grpc && parsed.as_str().ends_with("-bin") {
        return Err(wrong(format!(
            "expected a header of text, found `{name}`, which is binary in gRPC"
        ))
        .hint("remove `-bin` from its name"));
    }
    Ok(parsed)
}

/// Reads the value of a header, and marks it as the secret that it most often is.
pub(crate) fn header_value(value: &str) -> Result<HeaderValue, Wrong> {
    // The `http` crate takes Latin-1 too, gRPC does not.
    let printable = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    match HeaderValue::from_str(value) {
        Ok(mut value) if printable => {
            value.set_sensitive(true);
            Ok(value)
        }
        _ => {
            Err(wrong("expected printable ASCII, found other characters")
                .hint("write one line of it"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::refused;

    #[test]
    fn good_values_are_taken() {
        for address in ["http://a", "https://a.b/c?d=e", "http://[::1]:4317", "http://a:1/"] {
            assert!(url(address).is_ok(), "{address}");
        }
        assert!(header_name("Authorization", true).is_ok());
        assert!(header_value("Bearer a b").is_ok());
    }

    #[test]
    fn bad_values_are_refused() {
        let addresses = [
            "",
            "collector:4317",
            "htp://x",
            "https://",
            "http://a b",
            "http://u:p@h",
            "http://a:99999",
            "http://a:0",
            "file:///etc",
            "http://:80",
        ];
        let names = ["", "a b", "Content-Type", "webhook-id", "x-bin", "ä"];
        let shown = [
            refused(addresses.map(|text| (text, url(text)))),
            refused(names.map(|text| (text, header_name(text, true)))),
            refused(["a\nb", "ä"].map(|text| (text, header_value(text)))),
        ];
        insta::assert_snapshot!(shown.join("\n\n"));
    }
}
