//! Tidings: a Kubernetes event bridge that loses nothing, on [`kube_machinery`].
//!
//! The module map is the architecture. Events flow from the API server to the sinks:
//!
//! ```text
//! API server ──list/watch──▶ cache ─▶ bridge::ingest ─▶ journal ─▶ watch ─┬▶ a bridge watcher ─▶ Kafka
//!                                                     (durable,  (live    ├▶ a bridge watcher ─▶ OTLP logs
//!                                                      ordered)  fan-out) └▶ a bridge watcher ─▶ webhook
//! ```
//!
//! A module uses only modules above it (`tests/layering.rs` holds that).

// The reflector, the broadcaster's live channels, the correlator, client-go's event recorders; and
// words of others made fit for a terminal.
pub(crate) use kube_machinery::plain;
pub use kube_machinery::{cache, correlate, record, watch};

// What an event is; no I/O.
pub mod event;

// What keeps events: the durable log; numbers in few bytes; locks.
pub mod journal;
pub(crate) mod locks;
pub(crate) mod varint;

// From the log to the sinks: match, batch, deliver, account.
pub mod bridge;

// The document that a configuration is read from.
pub(crate) mod document;
pub(crate) mod suggest;

// The transports, and the formats that they need.
pub(crate) mod encode;
pub mod sinks;

// The file that says what to run.
pub mod config;

// What one sees of it while it runs, and without a cluster; the program.
pub mod admin;
pub mod cli;
pub mod demo;
