//! Logs, to stderr.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, LogLevel, LogSettings};

/// Installs the subscriber of the process.
pub(super) fn start(settings: LogSettings) {
    let level = match settings.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    // Libraries under it speak of every connection; below warnings that is for whoever debugs them.
    let filter = match settings.level {
        // Those that carry what sinks send and hear (h2, hyper, reqwest, rustls and what is to come)
        // are not heard: they would show headers, and receivers' words as they were said. What
        // librdkafka says passes through the sink's secrets.
        LogLevel::Trace => EnvFilter::new("warn,kube_client=trace,librdkafka=trace,tidings=trace"),
        // The client reports each failed request as an error of its own; the reflector says what it
        // means, and once.
        _ => EnvFilter::new(format!("warn,kube_client=off,tidings={level}")),
    };
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let installed = match settings.format {
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            logs.with_ansi(colours).with_target(false).try_init()
        }
    };
    // A program that embeds this one may have installed its own.
    drop(installed);
}
