//! What stands for values that are not here, so that a check without secrets checks all else: a sink
//! can be built of them, and is, as far as nothing has to be asked.

use crate::{
    config::{error::Problem, load::Loaded, path::Path, settings::SinkSettings},
    sinks::{Proxy, Secret, SinkBuildError},
};

/// A value, a topic, a header, a user.
pub(super) const TEXT: &str = "stand-in";
/// A host that there is none of.
pub(super) const HOST: &str = "stand-in.invalid";
/// A broker there.
pub(super) const BROKER: &str = "stand-in.invalid:9092";
/// A key to sign with.
pub(super) const SIGNING_SECRET: &str = "whsec_c3RhbmQtaW4gc3RhbmQtaW4gc3RhbmQtaW4h";
/// An authority that has signed nothing but itself.
pub(super) const AUTHORITY: &str = include_str!("stand_in.pem");

/// An address of that host. Without TLS, it needs no authorities of the system either.
pub(super) fn url(tls: bool) -> String {
    format!("http{}://{HOST}", if tls { "s" } else { "" })
}

/// A proxy there.
pub(super) fn proxy() -> Proxy {
    Proxy::Url(Secret::new(url(false)))
}

/// What the transport itself has against a sink, for which it is built: where, and what.
pub(super) fn refusal(loaded: &Loaded, sink: &SinkSettings) -> Option<Problem> {
    let error = sink.kind.try_build().err()?;
    let sink_path = Path::root("sinks").key(&sink.name);
    let path = sink_path.key(sink.kind.name());
    let (path, what) = match error {
        SinkBuildError::Proxy(what) => (sink_path.key("proxy"), what.to_owned()),
        SinkBuildError::Address { key, reason } => (path.key(key), reason),
        SinkBuildError::Tls { key, reason } => (path.key("tls").key(key), reason),
        SinkBuildError::Header { name, reason } => (path.key("headers").key(&name), reason),
        other => (path, other.to_string()),
    };
    Some(loaded.file.problem(path.origin(&loaded.root), format!("`{path}`: {what}")))
}
