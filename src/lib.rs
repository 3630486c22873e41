//! Tidings: a Kubernetes event bridge that loses nothing. client-go's machinery under it is the crate
//! [`tidings_kube`], the log under its journal the crate [`tidings_log`].
//!
//! The module map is the architecture. Events flow from the API server to the sinks:
//!
//! ```text
//! API server ─list/watch─▶ reflector ─▶ bridge::ingest ─▶ journal ─▶ broadcaster ─┬▶ a bridge watcher ─▶ Kafka
//!                                                        (durable,   (live        ├▶ a bridge watcher ─▶ OTLP logs
//!                                                         ordered)    fan-out)    └▶ a bridge watcher ─▶ webhook
//! ```
//!
//! The reflector and the broadcaster are those of `tidings_kube`. A module uses only modules above it
//! (`tests/program/layering.rs` holds that).

// What an event is, and words of others made fit for a terminal; no I/O.
pub mod event;
pub(crate) mod plain;

// The state beside the log that keeps events.
pub mod journal;

// Texts made of an event, by templates.
pub mod template;

// From the log to the sinks: match, batch, deliver, account.
pub mod bridge;

// The document that a configuration is read from.
pub(crate) mod document;
pub(crate) mod suggest;

// The kinds of sinks, and the formats that they need.
pub(crate) mod encode;
pub mod sinks;

// The file that says what to run.
pub mod config;

// What one sees of it while it runs, and without a cluster; the program.
pub mod admin;
pub mod cli;
#[cfg(feature = "demo")]
pub mod demo;
