//! What needs no cluster: an in-process Kubernetes API server that tells a cluster's stories and
//! can be told to misbehave. It serves `tidings demo`, the tests and the bench.

pub mod api_server;
#[cfg(feature = "demo")]
pub mod picture;
#[cfg(feature = "demo")]
pub mod receivers;
#[cfg(feature = "demo")]
mod run;
pub mod story;

#[cfg(feature = "demo")]
pub use run::{DemoArguments, DemoError, run};
