//! Through what a sink sends.

use http::Uri;

use super::{Builder, stand_ins};
use crate::{
    config::{
        model::{ProtocolModel, SinkModel},
        path::Path,
        settings::SinkKind,
        validate::{Wrong, wrong},
    },
    sinks::{Proxy, Secret},
};

/// What a proxy may speak.
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
        *into = self.parsed(&path, text, parse).unwrap_or_else(stand_ins::proxy);
        if !model.allow_plaintext {
            self.no_plain_proxy(&path, into);
        }
    }
}

/// Reads `env` or an address. No message repeats it: it may hold a password.
pub(super) fn parse(text: &str) -> Result<Proxy, Wrong> {
    if text == "env" {
        return Ok(Proxy::Env);
    }
    let known = |uri: &Uri| uri.scheme_str().is_some_and(|scheme| SCHEMES.contains(&scheme));
    match text.parse::<Uri>() {
        Ok(uri) if known(&uri) && uri.host().is_some_and(|host| !host.is_empty()) => {
            Ok(Proxy::Url(Secret::new(text)))
        }
        _ => Err(wrong("expected `env` or the address of a proxy, found neither").hint(
            "write `env`, or `http://`, `https://`, `socks5://` or `socks5h://`, host and port",
        )),
    }
}
