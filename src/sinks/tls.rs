//! TLS material, checked before any client sees it: the clients themselves skip what is not PEM
//! in silence, and then fail at the first handshake with a message about something else.

use ::http::uri::Scheme;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};

use super::{SinkBuildError, TlsOptions};

fn bad(key: &'static str, reason: impl Into<String>) -> SinkBuildError {
    SinkBuildError::Tls { key, reason: reason.into() }
}

/// Checks what `options` hold: PEM where PEM is due, a certificate only with its key, a name where
/// a name is due, and all of it only where TLS is spoken.
pub(super) fn check(options: &TlsOptions, scheme: Option<&Scheme>) -> Result<(), SinkBuildError> {
    let TlsOptions { ca, cert, key, server_name } = options;
    if let Some(pem) = ca {
        check_certificates("ca", pem)?;
    }
    match (cert, key) {
        (Some(cert), Some(key)) => {
            check_certificates("cert", cert)?;
            PrivateKeyDer::from_pem_slice(key.expose().as_bytes())
                .map_err(|_| bad("key", "not a private key in PEM"))?;
        }
        (None, None) => {}
        (Some(_), None) => return Err(bad("key", "is missing; cert and key go together")),
        (None, Some(_)) => return Err(bad("cert", "is missing; cert and key go together")),
    }
    if let Some(name) = server_name
        && !matches!(ServerName::try_from(name.as_str()), Ok(ServerName::DnsName(_)))
    {
        return Err(bad("serverName", format!("{name:?} is not a DNS name")));
    }
    let set =
        [("ca", ca.is_some()), ("cert", cert.is_some()), ("serverName", server_name.is_some())];
    if scheme != Some(&Scheme::HTTPS)
        && let Some((key, _)) = set.into_iter().find(|(_, set)| *set)
    {
        return Err(bad(key, "is set, but the address is http://; write https://"));
    }
    Ok(())
}

fn check_certificates(key: &'static str, pem: &[u8]) -> Result<(), SinkBuildError> {
    let mut found = 0;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        certificate.map_err(|_| bad(key, "not certificates in PEM"))?;
        found += 1;
    }
    if found == 0 {
        return Err(bad(key, "holds no certificate in PEM"));
    }
    Ok(())
}
