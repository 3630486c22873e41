//! Splunk's HTTP Event Collector (HEC), with the acknowledgement of indexers where it is asked for.

#[cfg(feature = "splunk")]
mod answer;
#[cfg(feature = "splunk")]
mod channel;
mod keys;
#[cfg(feature = "splunk")]
mod sink;

pub(crate) use self::keys::SplunkModel;
pub use self::keys::SplunkOptions;
