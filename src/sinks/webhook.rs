//! Webhooks: envelopes by HTTP POST, signed on demand.

mod keys;
mod signing_key;
#[cfg(feature = "webhook")]
mod sink;

pub(super) use self::keys::WebhookModel;
#[cfg(feature = "webhook")]
pub use self::sink::WebhookSink;
pub use self::{keys::WebhookOptions, signing_key::SigningKeyError};
