//! A file: an event as a line of JSON, with rotation by size and age.

mod keys;
mod rotating;
mod sink;

pub(super) use keys::FileModel;
pub use keys::{FileOptions, RotateOptions};
