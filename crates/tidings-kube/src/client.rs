//! The client for what decides by itself when to ask again.

use kube::{Client, Config};

/// A client without retries of its own.
///
/// kube's client sends a request again that was answered 429, 503 or 504, and tells nobody. A
/// reflector and a recording have waits of their own, as client-go's have, and report each failure; with such
/// retries below them they are blind to it.
///
/// # Errors
///
/// As [`Client::try_from`].
pub fn client_without_retry(mut config: Config) -> kube::Result<Client> {
    config.default_retry = false;
    Client::try_from(config)
}
