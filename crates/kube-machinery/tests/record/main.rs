//! The recorder, from a call to the sink, through public doors. Time is paused, so that waits cost
//! nothing and can be told to the millisecond.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod api_server;
mod conservation;
mod flush;
mod log;
mod queues;
mod shutdown;
mod support;
mod watchers;
mod writing;
