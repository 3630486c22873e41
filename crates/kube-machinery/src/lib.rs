#![cfg_attr(all(feature = "cache", feature = "record"), doc = include_str!("../README.md"))]
#![cfg_attr(
    not(all(feature = "cache", feature = "record")),
    doc = "client-go's machinery for kube; the features `cache` and `record` have its documentation."
)]

#[cfg(feature = "cache")]
pub mod cache;
#[cfg(feature = "correlate")]
pub mod correlate;
#[cfg(feature = "record")]
pub mod record;
#[cfg(feature = "watch")]
pub mod watch;

/// A client that does not try again by itself.
///
/// kube's own tries a request again that was answered 429, 503 or 504, below whoever asked. A reflector and
/// a sink of events have waits of their own, and an error handler that wants to know.
///
/// # Errors
///
/// As [`Client::try_from`](kube::Client).
pub fn client_without_retry(mut config: kube::Config) -> kube::Result<kube::Client> {
    config.default_retry = false;
    kube::Client::try_from(config)
}

#[cfg(any(feature = "cache", feature = "record"))]
#[doc(hidden)]
pub mod panics;
#[cfg(any(feature = "cache", feature = "record"))]
#[doc(hidden)]
pub mod plain;
#[cfg(any(feature = "cache", feature = "record"))]
#[doc(hidden)]
pub mod token_bucket;
#[cfg(any(feature = "cache", feature = "record"))]
#[doc(hidden)]
pub mod words;
