//! Times as the journal has them.

use jiff::Timestamp;

/// How much earlier than its creation an Event may say that it occurred.
#[cfg(any(feature = "kafka", feature = "otlp"))]
const BEFORE_CREATION: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

/// The time by which a receiver may order, index or expire an event, from texts of RFC 3339 and when it was
/// observed.
///
/// `time` is the reporter's claim, and whoever may create Events can write any: one of two hours ahead
/// is refused by Kafka, one of 1970 rolls a segment. So it is taken for not earlier than an hour before
/// `created` and not later than `observed`, which are the API server's word and ours. Nothing for a
/// `time` that is none.
#[cfg(any(feature = "kafka", feature = "otlp"))]
pub(crate) fn bounded(time: &str, created: &str, observed: Option<Timestamp>) -> Option<Timestamp> {
    let mut time = parse(time)?;
    if let Ok(created) = created.parse::<Timestamp>() {
        time = time.max(created.saturating_sub(BEFORE_CREATION).unwrap_or(created));
    }
    Some(observed.map_or(time, |observed| time.min(observed)))
}

/// Parses a time of RFC 3339 in UTC. The API server takes times of the last day of the year 9999, which are later than
/// the latest timestamp that there is: they are taken for that.
#[cfg(any(feature = "kafka", feature = "otlp"))]
fn parse(time: &str) -> Option<Timestamp> {
    let is_time = |time: &str| time.parse::<jiff::civil::DateTime>().is_ok();
    let later = || time.strip_suffix('Z').is_some_and(is_time).then_some(Timestamp::MAX);
    time.parse().ok().or_else(later)
}

/// The time that is so many milliseconds after the epoch; what is no time is the epoch.
pub(crate) fn timestamp(ms: u64) -> Timestamp {
    Timestamp::from_millisecond(ms.cast_signed()).unwrap_or_default()
}

#[cfg(all(test, any(feature = "kafka", feature = "otlp")))]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_between_the_creation_and_the_observation() {
        let created = "2026-11-21T10:00:00Z";
        let observed = "2026-11-21T12:00:00.5Z".parse().ok();
        for (time, bounded_to) in [
            ("2026-11-21T11:00:00.123456Z", "2026-11-21T11:00:00.123456Z"),
            ("2026-11-21T09:00:00Z", "2026-11-21T09:00:00Z"),
            ("2026-11-21T08:59:59Z", "2026-11-21T09:00:00Z"),
            ("1970-01-01T00:00:00Z", "2026-11-21T09:00:00Z"),
            ("0001-01-01T00:00:00Z", "2026-11-21T09:00:00Z"),
            ("2026-11-21T14:00:00Z", "2026-11-21T12:00:00.5Z"),
            ("9999-12-30T00:00:00Z", "2026-11-21T12:00:00.5Z"),
            ("9999-12-31T23:59:59Z", "2026-11-21T12:00:00.5Z"),
            ("9999-12-31T23:59:59.999999Z", "2026-11-21T12:00:00.5Z"),
        ] {
            let expected: Timestamp = bounded_to.parse().unwrap();
            assert_eq!(bounded(time, created, observed), Some(expected), "{time}");
        }
        for no_time in ["", "Z", "never", "9999-12-32T00:00:00Z"] {
            assert_eq!(bounded(no_time, created, observed), None, "{no_time}");
        }
        // The API server's clock is ahead of ours; and what is not known bounds nothing.
        let observed_first = bounded("2026-11-21T12:30:00Z", "2026-11-21T14:00:00Z", observed);
        assert_eq!(observed_first, observed);
        let time = "2026-11-21T14:00:00Z";
        assert_eq!(bounded(time, "", None), time.parse().ok());
    }
}
