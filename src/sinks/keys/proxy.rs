//! The keys of a proxy: of a sink over HTTP, and between the bridge and the API server.

use http::Uri;

use super::{Shared, stand_ins};
use crate::{
    document::{Checks, Path, Text, Wrong, decode::list, wrong},
    sinks::{Proxy, Secret},
};

/// The schemes of a sink's proxy.
const SCHEMES: [&str; 4] = ["http", "https", "socks5", "socks5h"];

impl Shared<'_> {
    /// The proxy of a sink that can have one.
    pub(crate) fn proxy(&self, checks: &mut Checks<'_>) -> Proxy {
        let Some(text) = self.proxy else { return Proxy::None };
        let path = self.path.key("proxy");
        checks.note_plain_address(&path, text);
        let proxy = checks.parsed(&path, text, |text| parse(text, &SCHEMES));
        let proxy = proxy.unwrap_or_else(stand_ins::proxy);
        if !self.allow_plaintext {
            let hint = "if it is meant, write `allowPlaintext: true` on the sink";
            checks.no_plain_proxy(&path, &proxy, hint);
        }
        proxy
    }
}

impl Checks<'_> {
    /// The proxy before the API server.
    pub(crate) fn source_proxy(
        &mut self,
        path: &Path,
        text: Option<&Text>,
        allow_plaintext: bool,
    ) -> Proxy {
        let Some(text) = text else { return Proxy::None };
        self.note_plain_address(path, text);
        let parse = |text: &str| {
            match parse(text, &Proxy::SCHEMES_OF_SOURCE)? {
            Proxy::Url(url) if url.expose().starts_with("socks") && url.expose().contains('@') => {
                Err(wrong("expected a SOCKS proxy without a user before the API server, found one with a user")
                    .hint("remove them, or use `http://` or `https://`"))
            }
            proxy => Ok(proxy),
        }
        };
        let proxy = self.parsed(path, text, parse).unwrap_or_default();
        if !allow_plaintext {
            let hint = "if it is meant, write `source.allowPlaintext: true`";
            self.no_plain_proxy(path, &proxy, hint);
        }
        proxy
    }
}

/// Reads `env` or an address. No message repeats it: it may hold a password.
fn parse(text: &str, schemes: &[&str]) -> Result<Proxy, Wrong> {
    if text == "env" {
        return Ok(Proxy::Env);
    }
    let known = |uri: &Uri| uri.scheme_str().is_some_and(|scheme| schemes.contains(&scheme));
    match text.parse::<Uri>() {
        Ok(uri) if known(&uri) && uri.host().is_some_and(|host| !host.is_empty()) => {
            Ok(Proxy::Url(Secret::new(text)))
        }
        _ => {
            let schemes: Vec<_> = schemes.iter().map(|scheme| format!("{scheme}://")).collect();
            Err(wrong("expected `env` or the address of a proxy, found neither")
                .hint(format!("write `env`, or one of {} with host and port", list(&schemes))))
        }
    }
}
