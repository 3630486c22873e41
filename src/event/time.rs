//! Times as the journal has them.

use jiff::Timestamp;

/// How much earlier than its creation an Event may say that it occurred.
const BEFORE_CREATION: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

/// The time by which a receiver may order, index or expire an event, from texts of RFC 3339.
///
/// `time` is the reporter's claim, and whoever may create Events can write any: one of two hours ahead
/// is refused by Kafka, one of 1970 rolls a segment. So it is taken for not earlier than an hour before
/// `created` and not later than `observed`, which are the API server's word and ours. Nothing for a
/// `time` that is none.
pub(crate) fn bounded(time: &str, created: &str, observed: &str) -> Option<Timestamp> {
    let mut time: Timestamp = time.parse().ok()?;
    if let Ok(created) = created.parse::<Timestamp>() {
        time = time.max(created.saturating_sub(BEFORE_CREATION).unwrap_or(created));
    }
    Some(observed.parse().map_or(time, |observed| time.min(observed)))
}

/// The time that is so many milliseconds after the epoch; what is no time is the epoch.
pub(crate) fn timestamp(ms: u64) -> Timestamp {
    Timestamp::from_millisecond(ms.cast_signed()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_between_the_creation_and_the_observation() {
        let (created, observed) = ("2026-11-21T10:00:00Z", "2026-11-21T12:00:00.5Z");
        for (time, bounded_to) in [
            ("2026-11-21T11:00:00.123456Z", "2026-11-21T11:00:00.123456Z"),
            ("2026-11-21T09:00:00Z", "2026-11-21T09:00:00Z"),
            ("2026-11-21T08:59:59Z", "2026-11-21T09:00:00Z"),
            ("1970-01-01T00:00:00Z", "2026-11-21T09:00:00Z"),
            ("0001-01-01T00:00:00Z", "2026-11-21T09:00:00Z"),
            ("2026-11-21T14:00:00Z", "2026-11-21T12:00:00.5Z"),
            ("9999-12-30T00:00:00Z", "2026-11-21T12:00:00.5Z"),
        ] {
            let expected: Timestamp = bounded_to.parse().unwrap();
            assert_eq!(bounded(time, created, observed), Some(expected), "{time}");
        }
        assert_eq!(bounded("", created, observed), None);
        // The API server's clock is ahead of ours; and what is not known bounds nothing.
        let observed_first = bounded("2026-11-21T12:30:00Z", "2026-11-21T14:00:00Z", observed);
        assert_eq!(observed_first, observed.parse().ok());
        let time = "2026-11-21T14:00:00Z";
        assert_eq!(bounded(time, "", ""), time.parse().ok());
    }
}
