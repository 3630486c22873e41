//! Times as the journal has them.

use jiff::Timestamp;

/// How much earlier than its creation an Event may say that it occurred.
pub(crate) const BEFORE_CREATION: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

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

/// How much later than its creation an Event may say that it occurred, to be of that day.
const BEHIND_CREATION: jiff::SignedDuration = jiff::SignedDuration::from_hours(30 * 24);

/// The UTC date `YYYY.MM.DD` that an event is kept under, from texts of RFC 3339: the same for an id at all times.
///
/// The date is that of `time`, if that lies between an hour before `created` and 30 days behind it, and else that of
/// `created`.
pub(crate) fn day(time: &str, created: &str) -> String {
    stable_time(time, created).strftime("%Y.%m.%d").to_string()
}

/// The time that such a day is of.
pub(crate) fn stable_time(time: &str, created: &str) -> Timestamp {
    let (time, created) = (time.parse::<Timestamp>().ok(), created.parse::<Timestamp>().ok());
    let is_near = |time: &Timestamp| {
        created.is_none_or(|created| {
            (-BEFORE_CREATION..=BEHIND_CREATION).contains(&time.duration_since(created))
        })
    };
    time.filter(is_near).or(created).unwrap_or_default()
}

/// The time that is so many milliseconds after the epoch; what is no time is the epoch.
pub(crate) fn timestamp(ms: u64) -> Timestamp {
    Timestamp::from_millisecond(ms.cast_signed()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_that_of_the_time_unless_that_is_far_from_the_creation() {
        let created = "2026-11-21T00:30:00Z";
        for (time, of) in [
            ("2026-11-21T23:59:59.999999Z", "2026.11.21"),
            ("2026-11-22T01:30:00+02:00", "2026.11.21"),
            ("2026-11-20T23:30:00Z", "2026.11.20"),
            ("2026-11-20T23:29:59Z", "2026.11.21"),
            ("2026-12-21T00:30:00Z", "2026.12.21"),
            ("2026-12-21T00:30:01Z", "2026.11.21"),
            ("9999-12-30T00:00:00Z", "2026.11.21"),
            ("1970-01-01T00:00:00Z", "2026.11.21"),
            ("", "2026.11.21"),
        ] {
            assert_eq!(day(time, created), of, "{time}");
        }
        assert_eq!(day("2026-11-22T10:00:00Z", ""), "2026.11.22");
        assert_eq!(day("", ""), "1970.01.01");
    }

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
