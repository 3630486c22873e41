//! client-go's machinery for Rust.

pub mod cache;
pub mod correlate;
pub mod plain;
pub mod record;
pub mod watch;
