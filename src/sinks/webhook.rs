//! Webhooks: events by HTTP, in a format or in the words of a template, signed on demand.

mod keys;
mod signing_key;
#[cfg(feature = "webhook")]
mod sink;

pub(super) use self::keys::WebhookModel;
#[cfg(fuzzing)]
pub(super) use self::sink::Webhook;
pub use self::{
    keys::{WebhookBody, WebhookMethod, WebhookOptions},
    signing_key::SigningKeyError,
};
