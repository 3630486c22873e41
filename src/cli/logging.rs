//! Logs, to stderr.

use std::io::IsTerminal as _;

use tracing_subscriber::{
    EnvFilter, Layer as _, Registry,
    layer::SubscriberExt as _,
    reload::{self, Handle},
    util::SubscriberInitExt as _,
};

use crate::config::{LogFormat, LogLevel, LogSettings};

/// Changes the level of the log.
pub(super) struct Logging(Handle<EnvFilter, Registry>);

impl Logging {
    /// Writes lines of this level and above from now on.
    pub(super) fn set_level(&self, level: LogLevel) {
        // A program that embeds this one may have installed a subscriber of its own.
        let _ = self.0.reload(filter(level));
    }
}

/// Installs the subscriber of the process.
pub(super) fn start(settings: LogSettings) -> Logging {
    let (filter, handle) = reload::Layer::new(filter(settings.level));
    let logs = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let logs = match settings.format {
        LogFormat::Json => logs.json().flatten_event(true).boxed(),
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            logs.with_ansi(colours).with_target(false).boxed()
        }
    };
    let installed = tracing_subscriber::registry().with(filter).with(logs).try_init();
    // A program that embeds this one may have installed its own.
    drop(installed);
    Logging(handle)
}

fn filter(level: LogLevel) -> EnvFilter {
    let word = match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    // Libraries under it speak of every connection; below warnings that is for whoever debugs them.
    match level {
        // Those that carry what sinks send and hear (h2, hyper, reqwest, rustls and what is to come)
        // are not heard: they would show headers, and receivers' words as they were said. What
        // librdkafka says passes through the sink's secrets.
        LogLevel::Trace => EnvFilter::new("warn,kube_client=trace,librdkafka=trace,tidings=trace"),
        // The client reports each failed request as an error of its own; the reflector says what it
        // means, and once.
        _ => EnvFilter::new(format!("warn,kube_client=off,tidings={word}")),
    }
}
