//! The cache over API servers that do as a test says.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod informer;
mod informer_factory;
mod informer_support;
mod model_server;
