//! Tidings: a Kubernetes event bridge that loses nothing, and the library under it.
//!
//! The module map is the architecture; data flows from top to bottom, and a module uses only
//! modules above it (`tests/layering.rs` holds that).
//!
//! ```text
//! API server ──list/watch──▶ cache::Reflector ─▶ bridge::ingest ─▶ journal ─▶ watch::Broadcaster ─▶ bridge::watcher ─▶ sinks
//! ```

mod suggest;

pub mod event;

pub mod bridge;

pub mod sinks;

pub mod config;
