//! The kinds of values that a configuration is written in.

pub(crate) mod values;

pub use self::values::{Size, Span, Text};
