//! Webhooks: envelopes by HTTP POST, signed on demand.

mod keys;
mod signing_key;
#[cfg(feature = "webhook")]
mod sink;

pub(super) use self::keys::WebhookModel;
#[cfg(fuzzing)]
pub(super) use self::sink::Webhook;
pub use self::{
    keys::{WebhookMethod, WebhookOptions},
    signing_key::SigningKeyError,
};
