//! client-go's machinery through its public doors: the informers and the recorder; and its examples.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod examples;
mod informer;
mod log;
mod readme;
mod recorder;
