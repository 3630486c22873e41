//! Times as the journal has them.

use jiff::Timestamp;

/// The time that is so many milliseconds after the epoch; what is no time is the epoch.
pub(crate) fn timestamp(ms: u64) -> Timestamp {
    Timestamp::from_millisecond(ms.cast_signed()).unwrap_or_default()
}
