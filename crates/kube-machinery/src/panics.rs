//! The message of a panic in code that is not ours.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Calls code that is not ours; its panic in words, if it panics.
pub fn caught<R>(call: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| message(&*panic).to_owned())
}

/// The message of a panic.
pub fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}
