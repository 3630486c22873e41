//! Commands of an operator beside a bridge: `tidings dead-letters` and `tidings replay`, in
//! processes of their own, over the control socket or on the journal of a bridge that is stopped.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../bridge/support.rs"]
#[expect(dead_code, reason = "shared with the bridge's tests, which use more of it")]
mod support;

#[cfg(feature = "kafka")]
mod client_id;
mod commands;
mod dead_letters;
mod files;
#[cfg(all(feature = "kafka", feature = "otlp", feature = "webhook"))]
mod planted;
mod process;
#[cfg(feature = "webhook")]
mod proxies;
mod replay;
mod socket;
mod stage;
mod stderr;
mod stdout;
#[cfg(all(feature = "kafka", feature = "webhook"))]
mod terminal;
mod usage;
