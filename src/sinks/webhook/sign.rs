//! Standard Webhooks signatures, symmetric.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::super::{Secret, SinkBuildError};

/// Signs with one secret.
pub(super) struct Signer {
    keyed: Hmac<Sha256>,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer(…)")
    }
}

impl Signer {
    /// Reads a secret: `whsec_` and base64, or any text taken as it is.
    pub(super) fn new(secret: &Secret) -> Result<Self, SinkBuildError> {
        let key = match secret.expose().strip_prefix("whsec_") {
            Some(encoded) => STANDARD
                .decode(encoded.trim())
                .map_err(|_| SinkBuildError::SigningSecret("not base64 after whsec_"))?,
            None => secret.expose().as_bytes().to_vec(),
        };
        if key.is_empty() {
            return Err(SinkBuildError::SigningSecret("is empty"));
        }
        let keyed = Hmac::new_from_slice(&key)
            .map_err(|_| SinkBuildError::SigningSecret("cannot be used as a key"))?;
        Ok(Self { keyed })
    }

    /// The value of `webhook-signature`.
    pub(super) fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut mac = self.keyed.clone();
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_specification() {
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let signature = Signer::new(&secret).unwrap().sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn other_secrets_are_taken_as_they_are() {
        let with = |secret: &str| Signer::new(&Secret::new(secret)).map(|s| s.sign("i", 1, b"{}"));
        assert_eq!(with("whsec_c2VjcmV0"), with("secret"));
        assert!(with("whsec_not base64").is_err());
        assert!(with("whsec_").is_err() && with("").is_err());
    }
}
