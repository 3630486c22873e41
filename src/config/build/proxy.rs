//! Through what a sink sends, and what is between the bridge and the API server.

use http::Uri;

use super::{Builder, stand_ins};
use crate::{
    config::{
        model::{ProtocolModel, SinkModel, SourceModel},
        path::Path,
        settings::SinkKind,
        validate::{Wrong, wrong},
    },
    sinks::{Proxy, Secret},
};

/// The schemes of a sink's proxy.
const SCHEMES: [&str; 4] = ["http", "https", "socks5", "socks5h"];

impl Builder<'_> {
    /// Sets the proxy of a sink; one that cannot have any is refused by name.
    pub(super) fn proxy(&mut self, sink: &Path, model: &SinkModel, kind: &mut SinkKind) {
        let Some(text) = &model.proxy else { return };
        let path = sink.key("proxy");
        self.note_plain_address(&path, text);
        let grpc =
            model.otlp.as_ref().is_some_and(|otlp| matches!(otlp.protocol, ProtocolModel::Grpc));
        let into = match kind {
            SinkKind::Webhook(options) => &mut options.proxy,
            SinkKind::Otlp(options) if !grpc => &mut options.proxy,
            SinkKind::Otlp(_) => {
                let wrong = wrong("a sink over gRPC cannot use a proxy");
                return self.wrong_key(&path, wrong.hint("remove it, or use `protocol: http`"));
            }
            SinkKind::Kafka(_) | SinkKind::Stdout => {
                let what = format!("a `{}` sink cannot use a proxy", kind.name());
                return self.wrong_key(&path, wrong(what).hint("remove it"));
            }
        };
        let parse = |text: &str| parse(text, &SCHEMES);
        *into = self.parsed(&path, text, parse).unwrap_or_else(stand_ins::proxy);
        if !model.allow_plaintext {
            self.no_plain_proxy(
                &path,
                into,
                "if it is meant, write `allowPlaintext: true` on the sink",
            );
        }
    }

    /// The proxy before the API server.
    pub(super) fn source_proxy(&mut self, path: &Path, model: &SourceModel) -> Proxy {
        let Some(text) = &model.proxy else { return Proxy::None };
        self.note_plain_address(path, text);
        let parse = |text: &str| match parse(text, &Proxy::SCHEMES_OF_SOURCE)? {
            Proxy::Url(url) if url.expose().starts_with("socks") && url.expose().contains('@') => {
                Err(wrong("user and password are not given to a SOCKS proxy before the API server")
                    .hint("remove them, or use `http://` or `https://`"))
            }
            proxy => Ok(proxy),
        };
        let proxy = self.parsed(path, text, parse).unwrap_or_default();
        if !model.allow_plaintext {
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
            let schemes: Vec<_> = schemes.iter().map(|scheme| format!("`{scheme}://`")).collect();
            Err(wrong("expected `env` or the address of a proxy, found neither")
                .hint(format!("write `env`, or {}, host and port", or(&schemes))))
        }
    }
}

/// Words in a row, with "or" before the last one.
fn or(words: &[String]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        words => words.concat(),
    }
}
