//! Calls of code that is the program's own: sinks, handlers, index functions. A panic there is caught, so that it
//! takes the one call with it and nothing else.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;

use crate::text::panic_message;

/// The answer of a call, or the message that it panicked with.
#[cfg(any(feature = "informer", feature = "recorder"))]
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(AssertUnwindSafe(call))
        .map_err(|panic| panic_message(&*panic).to_owned())
}

/// The same of a future.
pub(crate) async fn caught_future<T>(call: impl Future<Output = T>) -> Result<T, String> {
    let caught = AssertUnwindSafe(call).catch_unwind().await;
    caught.map_err(|panic| panic_message(&*panic).to_owned())
}
