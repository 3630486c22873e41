//! Stand-ins for values that are not here, so that a check without secrets checks all else: a sink
//! can be built of them, and is, as far as nothing has to be asked.

use crate::sinks::{Proxy, Secret};

/// A value, a topic, a header, a user.
pub(crate) const TEXT: &str = "stand-in";
/// A host that there is none of.
pub(crate) const HOST: &str = "stand-in.invalid";
/// An authority that has signed nothing but itself.
pub(crate) const AUTHORITY: &str = include_str!("stand_in.pem");

/// An address of that host. Without TLS, it needs no authorities of the system either.
pub(crate) fn url(tls: bool) -> String {
    format!("http{}://{HOST}", if tls { "s" } else { "" })
}

/// A proxy there.
pub(crate) fn proxy() -> Proxy {
    Proxy::Url(Secret::new(url(false)))
}
