//! client-go's machinery for Rust.

pub mod broadcaster;
pub mod correlator;
pub mod informer;
pub mod object;
pub mod recorder;
pub mod reflector;
pub mod text;
pub mod workqueue;
