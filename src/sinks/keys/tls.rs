//! The keys of TLS towards a receiver.

use schemars::JsonSchema;
use serde::Deserialize;

use super::stand_ins;
use crate::{
    document::{Checks, Path, Text, Wrong, wrong},
    sinks::{Secret, TlsOptions},
};

/// TLS towards a receiver. A plain text of `ca`, `cert` and `key` is the path of a PEM file; with
/// `{env: NAME}` or `{file: PATH}` the variable or file holds the PEM text itself.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Tls")]
pub(crate) struct TlsModel {
    /// Certificates of the authorities to trust. Default: the system's.
    #[schemars(extend("x-shown" = true))]
    pub(crate) ca: Option<Text>,
    /// The client's certificate chain; together with `key`.
    #[schemars(extend("x-shown" = true))]
    pub(crate) cert: Option<Text>,
    /// The client's private key; together with `cert`.
    pub(crate) key: Option<Text>,
    /// The name that the receiver's certificate carries, if it is not the host's.
    #[schemars(extend("x-shown" = true))]
    pub(crate) server_name: Option<Text>,
}

/// The contents that a PEM text must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pem {
    Certificate,
    PrivateKey,
}

impl Checks<'_> {
    pub(crate) fn tls(&mut self, path: &Path, model: &TlsModel) -> TlsOptions {
        let alone = match (&model.cert, &model.key) {
            (Some(_), None) => Some(("cert", "key")),
            (None, Some(_)) => Some(("key", "cert")),
            _ => None,
        };
        if let Some((there, missing)) = alone {
            let wrong = wrong(format!("expected `{missing}` beside `{there}`, found none"));
            let hint = "a client certificate needs both, or neither";
            self.wrong_key(&path.key(there), wrong.hint(hint));
        }
        let ca = self.pem(&path.key("ca"), model.ca.as_ref(), Pem::Certificate);
        let cert = self.pem(&path.key("cert"), model.cert.as_ref(), Pem::Certificate);
        let key = self.pem(&path.key("key"), model.key.as_ref(), Pem::PrivateKey);
        let name = self.optional(&path.key("serverName"), model.server_name.as_ref());
        let ca = ca.or_else(|| model.ca.as_ref().map(|_| stand_ins::AUTHORITY.to_owned()));
        // They are of no use to anybody without each other, and no stand-in fits the one of them.
        let (cert, key) = cert.zip(key).unzip();
        TlsOptions {
            ca: ca.map(String::into_bytes),
            cert: cert.map(String::into_bytes),
            key: key.map(Secret::new),
            server_name: name
                .or_else(|| model.server_name.as_ref().map(|_| stand_ins::HOST.to_owned())),
        }
    }

    /// A PEM text. A plain value is the path of a file, for that is what everyone writes there.
    fn pem(&mut self, path: &Path, text: Option<&Text>, kind: Pem) -> Option<String> {
        let as_reference = match text? {
            Text::Plain(pem) if pem.contains("-----BEGIN") => {
                let wrong =
                    wrong("expected the path of a file with a PEM text, found the text itself");
                self.wrong(path, wrong.hint("write the path, or `{env: NAME}` for a variable"));
                return None;
            }
            // A key pasted without its frame is no path, and must not be shown as one.
            Text::Plain(key)
                if kind == Pem::PrivateKey && !key.contains('.') && !key.starts_with('/') =>
            {
                let wrong = wrong("expected the path of a PEM file, found something else");
                self.wrong(path, wrong.hint("write the path of a PEM file"));
                return None;
            }
            Text::Plain(file) => Text::File(file.clone()),
            reference => reference.clone(),
        };
        self.checked(path, &as_reference, |text| pem(text, kind))
    }
}

/// Checks that a text is PEM of a kind.
pub(crate) fn pem(text: &str, kind: Pem) -> Result<(), Wrong> {
    let (label, name) = match kind {
        Pem::Certificate => ("CERTIFICATE-----", "certificate"),
        Pem::PrivateKey => ("PRIVATE KEY-----", "private key"),
    };
    let begins = |line: &str| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(label);
    if !text.lines().any(begins) {
        return Err(wrong(format!("expected a {name} in PEM, found none"))
            .hint("PEM starts with `-----BEGIN`"));
    }
    if !readable(text, kind) {
        return Err(wrong(format!("expected a {name} in PEM, found one that cannot be read"))
            .hint("it must be whole: base64 up to `-----END`"));
    }
    Ok(())
}

/// Whether the frames of a PEM text hold base64 of what they say. A build without TLS leaves it to the
/// transport.
fn readable(text: &str, kind: Pem) -> bool {
    #[cfg(feature = "tls")]
    {
        use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
        match kind {
            Pem::Certificate => CertificateDer::pem_slice_iter(text.as_bytes()).all(|c| c.is_ok()),
            Pem::PrivateKey => PrivateKeyDer::from_pem_slice(text.as_bytes()).is_ok(),
        }
    }
    #[cfg(not(feature = "tls"))]
    {
        let _ = (text, kind);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::refused;

    #[test]
    fn text_without_pem_is_refused() {
        let texts = ["", "-----BEGIN PRIVATE KEY-----"];
        insta::assert_snapshot!(refused(texts.map(|text| (text, pem(text, Pem::Certificate)))));
    }
}
