//! `tidings demo`: the whole bridge at work on a story, with receivers that go away, and no cluster.

pub mod picture;
pub mod receivers;
mod run;

pub use run::{DemoArguments, DemoError, run};
