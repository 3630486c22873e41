//! Parts that need no cluster: the in-process API server of the test kit, and `tidings demo`.

pub use kube_testkit::{api_server, story};

#[cfg(feature = "demo")]
mod picture;
#[cfg(feature = "demo")]
pub mod receivers;
#[cfg(feature = "demo")]
mod run;

#[cfg(feature = "demo")]
pub use run::{DemoArguments, DemoError, run};
