//! TLS material, checked before any client sees it: the clients themselves skip what is not PEM
//! in silence, and then fail at the first handshake with a message about something else.

use rustls::pki_types::ServerName;

use crate::sinks::{
    SinkBuildError, TlsOptions,
    keys::tls::{Pem, pem},
};

pub(crate) fn bad(key: &str, reason: impl std::fmt::Display) -> SinkBuildError {
    SinkBuildError::at(&["tls", key], reason)
}

/// Checks what `options` hold: PEM where PEM is due, a certificate only with its key, a name where
/// a name is due, and all of it only where TLS is spoken.
pub(crate) fn check(options: &TlsOptions, https: bool) -> Result<(), SinkBuildError> {
    let pem = |key, text: &[u8], kind| {
        pem(&String::from_utf8_lossy(text), kind).map_err(|wrong| bad(key, wrong.what))
    };
    if let Some(ca) = &options.ca {
        pem("ca", ca, Pem::Certificate)?;
    }
    if let Some((cert, key)) = options.identity()? {
        pem("cert", cert, Pem::Certificate)?;
        pem("key", key.expose().as_bytes(), Pem::PrivateKey)?;
    }
    if let Some(name) = &options.server_name
        && !matches!(ServerName::try_from(name.as_str()), Ok(ServerName::DnsName(_)))
    {
        // It may have come by reference, and then it may be a secret in a wrong place.
        return Err(bad("serverName", "expected a DNS name, found something else"));
    }
    let set = [
        ("ca", options.ca.is_some()),
        ("cert", options.cert.is_some()),
        ("serverName", options.server_name.is_some()),
    ];
    if !https && let Some((key, _)) = set.into_iter().find(|(_, set)| *set) {
        return Err(bad(key, "expected an address with https:// beside it, found http://"));
    }
    Ok(())
}
