//! Grafana Loki: events as entries of streams.

mod keys;
#[cfg(feature = "loki")]
mod sink;

pub(crate) use self::keys::LokiModel;
pub use self::keys::LokiOptions;
