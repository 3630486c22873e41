//! Syslog: messages of RFC 5424 over TLS, TCP or UDP.

mod keys;
#[cfg(feature = "syslog")]
mod sink;

pub(crate) use self::keys::SyslogModel;
pub use self::keys::{SyslogFacility, SyslogOptions, SyslogTransport};
