//! client-go's machinery through its public doors: the cache and the recorder.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod cache;
mod record;
