//! The keys of a syslog sink, and the options that come of them.

use std::{sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    bridge::{Sink, TIMEOUT},
    document::{Checks, Text, Wrong, wrong},
    sinks::{
        BuildSink, Format, HttpOptions, SinkBuildError, TlsOptions,
        keys::{Keys, Shared, host_and_port, stand_ins, tls::TlsModel},
    },
};

/// The longest message unless the sink says otherwise, in bytes: by default rsyslog cuts what is longer than 8096.
const MOST_BYTES: usize = 8000;
/// The longest message that fits into a datagram of UDP over IPv4, in bytes.
const MOST_UDP_BYTES: usize = 65_507;
/// More than stands before the event in any message, in bytes: host and application have up to 303 of them.
pub(super) const HEADER_BYTES: usize = 512;

/// Sends events as messages of syslog, RFC 5424. Nothing is acknowledged.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Syslog")]
pub(crate) struct SyslogModel {
    /// `host:port` of the receiver.
    #[schemars(extend("x-shown" = "address"))]
    address: Text,
    /// `tcp` and `tls` count the bytes of a message in front of it (RFC 6587, RFC 5425); `udp` sends a datagram for each
    /// message, which may get lost.
    #[serde(default)]
    #[schemars(extend("default" = "tcp"))]
    transport: SyslogTransport,
    /// The facility of messages.
    #[serde(default)]
    #[schemars(extend("default" = "local0"))]
    facility: SyslogFacility,
    /// The name of the application. Default: `tidings`.
    #[schemars(extend("default" = "tidings", "x-shown" = true))]
    app_name: Option<Text>,
    /// TLS, for `transport: tls`. Default: the system's authorities.
    tls: Option<TlsModel>,
}

/// The transport of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum SyslogTransport {
    #[default]
    Tcp,
    Tls,
    Udp,
}

/// The facility of messages, with its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum SyslogFacility {
    Kern = 0,
    User = 1,
    Mail = 2,
    Daemon = 3,
    Auth = 4,
    Syslog = 5,
    Lpr = 6,
    News = 7,
    Uucp = 8,
    Cron = 9,
    Authpriv = 10,
    Ftp = 11,
    #[default]
    Local0 = 16,
    Local1 = 17,
    Local2 = 18,
    Local3 = 19,
    Local4 = 20,
    Local5 = 21,
    Local6 = 22,
    Local7 = 23,
}

/// A receiver of syslog.
#[derive(Clone, Debug, PartialEq)]
pub struct SyslogOptions {
    /// `host:port` of the receiver.
    pub address: String,
    /// The transport of messages.
    pub transport: SyslogTransport,
    /// The facility of messages.
    pub facility: SyslogFacility,
    /// The name of the application: up to 48 characters of printable ASCII without blanks.
    pub app_name: String,
    /// TLS; `None`: with the system's authorities. For [`SyslogTransport::Tls`] alone.
    pub tls: Option<TlsOptions>,
    /// The format of an event in a message.
    pub format: Format,
    /// The longest message, in bytes. A longer event is cut, and refused where that is not enough.
    pub most_bytes: usize,
    /// For how long a connection is used.
    pub connection_max_age: Duration,
    /// How long one attempt may take.
    pub timeout: Duration,
}

impl SyslogOptions {
    /// The default options, over TCP.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            transport: SyslogTransport::default(),
            facility: SyslogFacility::default(),
            app_name: "tidings".to_owned(),
            tls: None,
            format: Format::default(),
            most_bytes: MOST_BYTES,
            connection_max_age: HttpOptions::new("").connection_max_age,
            timeout: TIMEOUT,
        }
    }
}

impl BuildSink for SyslogOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, SinkBuildError> {
        #[cfg(feature = "syslog")]
        return Ok(Arc::new(super::sink::Syslog::new(self)?));
        #[cfg(not(feature = "syslog"))]
        Err(SinkBuildError::at(&[], "expected a kind that is built in, found another"))
    }
}

impl Keys for SyslogModel {
    /// `maxEvent` is the bound of a message, with what stands before the event.
    fn max_event(&self, max_event: Option<usize>) -> Option<usize> {
        Some(max_event.unwrap_or(MOST_BYTES).saturating_sub(HEADER_BYTES))
    }

    fn options(&self, sink: &Shared<'_>, checks: &mut Checks<'_>) -> Arc<dyn BuildSink> {
        let path = sink.path.key("syslog");
        let address =
            checks.checked(&path.key("address"), &self.address, |text| address(text).map(drop));
        let place = path.key("appName");
        let app_name =
            self.app_name.as_ref().and_then(|name| checks.checked(&place, name, is_app_name));
        if self.tls.is_some() && self.transport != SyslogTransport::Tls {
            let wrong = wrong("expected `transport: tls` beside `tls`, found another");
            checks
                .wrong_key(&path.key("tls"), wrong.hint("write `transport: tls`, or remove `tls`"));
        }
        sink.one_at_a_time("syslog", checks);
        sink.no_compression("syslog", checks);
        sink.no_plaintext(checks, "a `syslog` sink sends no credentials");
        sink.no_proxy(checks, "a `syslog` sink cannot use a proxy", "remove it");
        let most_bytes = sink.max_event.unwrap_or(MOST_BYTES);
        if self.transport == SyslogTransport::Udp && most_bytes > MOST_UDP_BYTES {
            let what =
                format!("expected at most {MOST_UDP_BYTES} bytes with UDP, found {most_bytes}");
            checks.wrong(
                &sink.path.key("maxEvent"),
                wrong(what).hint("lower it, or write `transport: tcp`"),
            );
        }
        let defaults =
            SyslogOptions::new(address.unwrap_or_else(|| format!("{}:6514", stand_ins::HOST)));
        Arc::new(SyslogOptions {
            transport: self.transport,
            facility: self.facility,
            app_name: app_name.unwrap_or(defaults.app_name),
            tls: self.tls.as_ref().map(|tls| checks.tls(&path.key("tls"), tls)),
            format: sink.format.unwrap_or_default(),
            most_bytes,
            connection_max_age: sink.max_age(checks).unwrap_or(defaults.connection_max_age),
            timeout: sink.timeout,
            ..defaults
        })
    }
}

/// Reads the address of a receiver: its host, without the brackets of IPv6, and its port.
pub(super) fn address(text: &str) -> Result<(&str, u16), Wrong> {
    host_and_port(text, "rsyslog:6514")
}

/// Checks the name of an application.
pub(super) fn is_app_name(text: &str) -> Result<(), Wrong> {
    if (1..=48).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(wrong("expected the name of an application, found another text")
        .hint("a name is up to 48 characters of printable ASCII without blanks"))
}
