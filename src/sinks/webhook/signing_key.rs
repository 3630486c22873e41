//! Secrets of Standard Webhooks: `whsec_` and base64 for HMAC-SHA256, `whsk_` and base64 for ed25519.

use std::fmt;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};

/// How many bytes a symmetric secret has at least. The specification asks for 24 to 64.
const LEAST: usize = 24;
/// A private key of ed25519, without and with the public one behind it.
const SEED: usize = 32;
const PAIR: usize = 64;

/// With padding or without, as the standard libraries take it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A secret that was read.
#[cfg_attr(not(feature = "webhook"), allow(dead_code, reason = "without it they are only checked"))]
pub(crate) enum SigningKey {
    /// Of `whsec_`.
    Symmetric(Vec<u8>),
    /// Of `whsk_`: the private key, and the public one where it is there.
    Ed25519(Vec<u8>, Option<Vec<u8>>),
}

/// The fault of a secret; without the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningKeyError {
    /// The key is empty.
    Empty,
    /// Neither `whsec_` nor `whsk_` stands in front of it.
    NoPrefix,
    /// The text behind the prefix is not base64.
    NotBase64(&'static str),
    /// The key has so few bytes.
    TooShort(usize),
    /// The key is no private key of ed25519, by its length or because its public half is another's.
    NotEd25519,
}

impl fmt::Display for SigningKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("expected a secret, found an empty text"),
            Self::NoPrefix => {
                f.write_str("expected whsec_ or whsk_ and base64, found neither prefix")
            }
            Self::NotBase64(prefix) => write!(f, "expected base64 behind `{prefix}`, found something else"),
            Self::TooShort(found) => {
                write!(f, "expected at least {LEAST} bytes behind `whsec_`, found {found}")
            }
            Self::NotEd25519 => f.write_str(
                "expected a private key of ed25519 behind `whsk_`, 32 bytes, or 64 with its public key, \
                 found something else",
            ),
        }
    }
}

impl std::error::Error for SigningKeyError {}

impl SigningKeyError {
    /// How to mend a secret; without the secret.
    pub(crate) fn hint(self, secret: &str) -> &'static str {
        match self {
            Self::NoPrefix if prefixed(secret).is_some() => {
                "receivers decode every secret: `tidings check` prints this one as they read it"
            }
            Self::NotEd25519 => "take the private key as its maker shows it",
            _ => "make one: `echo whsec_$(openssl rand -base64 32)`",
        }
    }
}

/// The bytes of a secret that has no prefix, as the standard libraries read them: none if they are too
/// few.
pub(crate) fn prefixed(secret: &str) -> Option<String> {
    (parse(secret).err() == Some(SigningKeyError::NoPrefix) && secret.len() >= LEAST)
        .then(|| format!("whsec_{}", STANDARD.encode(secret)))
}

/// Reads a secret.
pub(crate) fn parse(secret: &str) -> Result<SigningKey, SigningKeyError> {
    let decode = |prefix: &'static str, encoded: &str| {
        BASE64.decode(encoded.trim()).map_err(|_| SigningKeyError::NotBase64(prefix))
    };
    if let Some(encoded) = secret.strip_prefix("whsec_") {
        let key = decode("whsec_", encoded)?;
        return match key.len() {
            LEAST.. => Ok(SigningKey::Symmetric(key)),
            found => Err(SigningKeyError::TooShort(found)),
        };
    }
    if let Some(encoded) = secret.strip_prefix("whsk_") {
        let mut seed = decode("whsk_", encoded)?;
        return match seed.len() {
            SEED => Ok(SigningKey::Ed25519(seed, None)),
            PAIR => {
                let public = seed.split_off(SEED);
                Ok(SigningKey::Ed25519(seed, Some(public)))
            }
            _ => Err(SigningKeyError::NotEd25519),
        };
    }
    Err(if secret.is_empty() { SigningKeyError::Empty } else { SigningKeyError::NoPrefix })
}
