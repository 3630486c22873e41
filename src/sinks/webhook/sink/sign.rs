//! Standard Webhooks signatures.

use aws_lc_rs::signature::Ed25519KeyPair;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::super::signing_key::{self, SigningKey, SigningKeyError};
use crate::sinks::{Secret, SinkBuildError};

/// Signs with each of its keys: while keys are exchanged, a receiver that has either accepts.
pub(super) struct Signer {
    keys: Vec<Key>,
}

enum Key {
    Symmetric(Hmac<Sha256>),
    Ed25519(Box<Ed25519KeyPair>),
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer(…)")
    }
}

impl Signer {
    /// Reads the secrets; nothing where there is none.
    pub(super) fn new(secrets: &[Secret]) -> Result<Option<Self>, SinkBuildError> {
        let keys = secrets.iter().map(|secret| Key::new(secret.expose()));
        let keys: Vec<_> = keys
            .collect::<Result<_, _>>()
            .map_err(|error| SinkBuildError::at(&["signing", "secret"], error))?;
        Ok((!keys.is_empty()).then_some(Self { keys }))
    }

    /// The value of `webhook-signature`: of each key one over each form of the body.
    pub(super) fn sign(&self, id: &str, timestamp: &str, bodies: &[&[u8]]) -> String {
        let head = format!("{id}.{timestamp}.");
        let of_key = |key| bodies.iter().map(move |body| (key, body));
        let signatures: Vec<_> =
            self.keys.iter().flat_map(of_key).map(|(key, body)| key.sign(&head, body)).collect();
        signatures.join(" ")
    }
}

impl Key {
    fn new(secret: &str) -> Result<Self, SigningKeyError> {
        match signing_key::parse(secret)? {
            SigningKey::Symmetric(key) => Hmac::new_from_slice(&key)
                .map(Self::Symmetric)
                .map_err(|_| SigningKeyError::TooShort(key.len())),
            SigningKey::Ed25519(seed, public) => {
                let pair = match public {
                    Some(public) => Ed25519KeyPair::from_seed_and_public_key(&seed, &public),
                    None => Ed25519KeyPair::from_seed_unchecked(&seed),
                };
                let pair = pair.map_err(|_| SigningKeyError::NotEd25519)?;
                Ok(Self::Ed25519(Box::new(pair)))
            }
        }
    }

    fn sign(&self, head: &str, body: &[u8]) -> String {
        match self {
            Self::Symmetric(keyed) => {
                let mut mac = keyed.clone();
                mac.update(head.as_bytes());
                mac.update(body);
                format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
            }
            Self::Ed25519(pair) => {
                let signature = pair.sign(&[head.as_bytes(), body].concat());
                format!("v1a,{}", STANDARD.encode(signature))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMMETRIC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    fn signer(secrets: &[&str]) -> Result<Signer, String> {
        let secrets: Vec<_> = secrets.iter().map(|secret| Secret::new(*secret)).collect();
        Signer::new(&secrets).map(Option::unwrap).map_err(|error| error.to_string())
    }

    fn sign(secrets: &[&str], bodies: &[&[u8]]) -> String {
        signer(secrets).unwrap().sign(ID, "1614265330", bodies)
    }

    #[test]
    fn a_signature_equals_the_example_of_the_specification() {
        let signature = sign(&[SYMMETRIC], &[BODY]);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    /// Computed with the cryptography package of Python.
    #[test]
    fn ed25519_signs_as_others_do() {
        let seed = "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let signature = sign(&[seed], &[BODY]);
        assert_eq!(
            signature,
            "v1a,yoUrgEkc12aGqm0n4Sydmdz55xJfTz4AsAgieHFjmkR7LJtqVCZOQYzvvHjI5kAey+r4iaBGxTFRrl2iBQxtDQ=="
        );
        assert_eq!(
            sign(
                &[
                    "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8DoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuA=="
                ],
                &[BODY]
            ),
            signature
        );
        assert!(signer(&["whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+4MVUSZIbcHV8NpZsw1uRnmcBL5xjdcB2+EM7zvwehAw=="]).is_err());
    }

    #[test]
    fn each_key_signs_each_form_of_the_body() {
        let other = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
        let all = sign(&[SYMMETRIC, other], &[b"sent", BODY]);
        let each = [
            sign(&[SYMMETRIC], &[b"sent"]),
            sign(&[SYMMETRIC], &[BODY]),
            sign(&[other], &[b"sent"]),
            sign(&[other], &[BODY]),
        ];
        assert_eq!(all, each.join(" "));
    }

    #[test]
    fn secrets_that_receivers_could_not_read_are_refused() {
        for (secret, why) in [
            ("", "expected a secret, found an empty text"),
            (
                "a text of twenty-four bytes",
                "expected whsec_ or whsk_ and base64, found neither prefix",
            ),
            ("whsec_not base64", "expected base64 behind `whsec_`, found something else"),
            (
                "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRY=",
                "expected at least 24 bytes behind `whsec_`, found 23",
            ),
            (
                "whsk_AAEC",
                "expected a private key of ed25519 behind `whsk_`, 32 bytes, or 64 with its public key, \
                 found something else",
            ),
        ] {
            assert_eq!(signer(&[secret]).unwrap_err(), format!("signing.secret: {why}"));
        }
    }
}
