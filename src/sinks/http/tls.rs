//! TLS material, checked before any client sees it: the clients themselves skip what is not PEM
//! in silence, and then fail at the first handshake with a message about something else.

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};

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
    let mut roots = RootCertStore::empty();
    if let Some(ca) = &options.ca {
        pem("ca", ca, Pem::Certificate)?;
        for certificate in CertificateDer::pem_slice_iter(ca) {
            let added = certificate.map(|certificate| roots.add(certificate));
            added.map_err(|e| bad("ca", e))?.map_err(|e| bad("ca", e))?;
        }
    }
    if let Some((cert, key)) = options.identity()? {
        pem("cert", cert, Pem::Certificate)?;
        pem("key", key.expose().as_bytes(), Pem::PrivateKey)?;
        let chain = CertificateDer::pem_slice_iter(cert).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes());
        let client = ClientConfig::builder().with_root_certificates(roots);
        let (chain, key) = (chain.map_err(|e| bad("cert", e))?, key.map_err(|e| bad("key", e))?);
        client.with_client_auth_cert(chain, key).map_err(|e| bad("cert", e))?;
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
