//! What is worth an Event, and what was said already.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tidings_kube::recorder::EventType;
use tidings_log::Damage;
use tokio::time::Instant;

use crate::bridge::{SinkCondition, gap::GapSum};

/// For each sink and reason one Event in this time, at most.
const ONE_IN: Duration = Duration::from_secs(60);
/// A sink that fails for no longer is not worth one.
const PATIENCE: Duration = Duration::from_secs(5);
/// Parts of the journal's size that a sink has not had: from here on it is nearly full, below
/// there no more, in percent.
const NEARLY_FULL: u64 = 80;
const FULL_NO_MORE: u64 = 60;

/// What the bridge states of itself at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) sinks: Vec<SinkFacts>,
    /// In bytes.
    pub(super) retention_size: u64,
    /// The gaps of all sources since the last look.
    pub(super) gaps: Vec<GapSum>,
    /// How many places of the journal were found damaged, and the last of them.
    pub(super) damages: u64,
    pub(super) damage: Option<Damage>,
    /// Why the configuration file is not taken.
    pub(super) rejected: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SinkFacts {
    pub(super) name: String,
    pub(super) trouble: Option<SinkCondition>,
    pub(super) last_error: Option<String>,
    pub(super) lost: u64,
    /// Events that were parked since the start, and the last of them.
    pub(super) parked: u64,
    pub(super) last_parked: Option<String>,
    /// Bytes of the journal that the sink has not had.
    pub(super) unsettled_bytes: u64,
    /// Intake stops when they are too many,
    pub(super) blocks: bool,
    /// and has.
    pub(super) blocked: bool,
}

/// One Event to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) event_type: EventType,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What has been said of a sink.
#[derive(Debug, Default)]
struct Said {
    /// Since when it has been in trouble.
    since: Option<Instant>,
    trouble: Option<SinkCondition>,
    lost: u64,
    parked: u64,
    nearly_full: bool,
    blocked: bool,
    /// When the last Event of each reason was recorded.
    last: HashMap<&'static str, Instant>,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct News {
    sinks: HashMap<String, Said>,
    sources: HashMap<Arc<str>, Told>,
    /// What each sink had lost when the runs before saved it last: they said it, or nobody was there
    /// to say it.
    lost_before: HashMap<String, u64>,
    journal: Said,
    damages: u64,
    configuration: Said,
    /// The last rejection that was told, while it stands.
    rejected: Option<String>,
}

impl News {
    /// With what each sink had lost in the runs before.
    pub(super) fn new(lost_before: HashMap<String, u64>) -> Self {
        Self { lost_before, ..Self::default() }
    }

    /// What is new since the last call, or since the runs before.
    pub(super) fn since(&mut self, facts: &Facts, now: Instant) -> Vec<Item> {
        let mut items = Vec::new();
        for sink in &facts.sinks {
            let said = self.sinks.entry(sink.name.clone()).or_insert_with(|| {
                let lost = self.lost_before.get(&sink.name).copied().unwrap_or_default();
                Said { lost, ..Said::default() }
            });
            said.trouble(sink, now, &mut items);
            said.losses(sink, now, &mut items);
            said.parkings(sink, now, &mut items);
            said.fullness(sink, facts.retention_size, now, &mut items);
            said.blocking(sink, now, &mut items);
        }
        for gaps in &facts.gaps {
            self.sources.entry(Arc::clone(&gaps.all.source)).or_default().add(gaps);
        }
        for (source, told) in &mut self.sources {
            told.tell(source, now, &mut items);
        }
        // What opening found is news, too: no run before has said it.
        if let Some(damage) = facts.damage.as_ref().filter(|_| facts.damages > self.damages)
            && self.journal.may_say("JournalDamaged", now)
        {
            let message = match facts.damages - self.damages {
                1 => format!("The journal is damaged: {damage}"),
                n => format!("The journal is damaged in {n} places; the last: {damage}"),
            };
            items.push(Item { event_type: EventType::Warning, reason: "JournalDamaged", message });
            self.damages = facts.damages;
        }
        items.extend(self.rejection(facts.rejected.as_deref(), now));
        items
    }
}

impl News {
    /// A rejection of the configuration that has not been told for this reason.
    fn rejection(&mut self, rejected: Option<&str>, now: Instant) -> Option<Item> {
        let Some(error) = rejected else {
            self.rejected = None;
            return None;
        };
        let is_told = self.rejected.as_deref() == Some(error);
        if is_told || !self.configuration.may_say("ConfigRejected", now) {
            return None;
        }
        self.rejected = Some(error.to_owned());
        let message = format!(
            "The configuration file is rejected, and the content before stays in force: {error}"
        );
        Some(Item { event_type: EventType::Warning, reason: "ConfigRejected", message })
    }
}

/// What has been told of a source, and what has not.
#[derive(Debug, Default)]
struct Told {
    said: Said,
    gaps: Option<GapSum>,
    epochs: Option<GapSum>,
}

impl Told {
    fn add(&mut self, gaps: &GapSum) {
        let untold = if gaps.all.epoch { &mut self.epochs } else { &mut self.gaps };
        match untold {
            Some(untold) => untold.add(gaps),
            none => *none = Some(gaps.clone()),
        }
    }

    fn tell(&mut self, source: &str, now: Instant, items: &mut Vec<Item>) {
        for (reason, untold) in [("WatchGap", &mut self.gaps), ("NewEpoch", &mut self.epochs)] {
            if untold.is_none() || !self.said.may_say(reason, now) {
                continue;
            }
            let Some(GapSum { count, all }) = untold.take() else { continue };
            let message = if count == 1 {
                all.to_string()
            } else {
                format!("{count} times in the watch of {source}; all together: {all}")
            };
            items.push(Item { event_type: EventType::Warning, reason, message });
        }
    }
}

impl Said {
    /// Whether another Event for this reason may be recorded now; if so, it counts as recorded.
    fn may_say(&mut self, reason: &'static str, now: Instant) -> bool {
        let may = self.last.get(reason).is_none_or(|last| now.duration_since(*last) >= ONE_IN);
        if may {
            self.last.insert(reason, now);
        }
        may
    }

    fn trouble(&mut self, sink: &SinkFacts, now: Instant, items: &mut Vec<Item>) {
        let name = &sink.name;
        let Some(trouble) = sink.trouble else {
            self.since = None;
            if self.trouble.is_some() && self.may_say("SinkRecovered", now) {
                self.trouble = None;
                let message = format!("Sink {name} takes events again");
                items.push(Item {
                    event_type: EventType::Normal,
                    reason: "SinkRecovered",
                    message,
                });
            }
            return;
        };
        let since = *self.since.get_or_insert(now);
        let misconfigured = trouble == SinkCondition::Misconfigured;
        if self.trouble == Some(trouble) || !misconfigured && now.duration_since(since) < PATIENCE {
            return;
        }
        let reason = if misconfigured { "SinkMisconfigured" } else { "SinkUnavailable" };
        if self.may_say(reason, now) {
            self.trouble = Some(trouble);
            let why = sink.last_error.as_deref().unwrap_or("it does not say why");
            let message = if misconfigured {
                format!(
                    "Sink {name} is misconfigured and needs attention; its events are kept: {why}"
                )
            } else {
                format!("Sink {name} does not take events; they are kept for it: {why}")
            };
            items.push(Item { event_type: EventType::Warning, reason, message });
        }
    }

    fn parkings(&mut self, sink: &SinkFacts, now: Instant, items: &mut Vec<Item>) {
        let SinkFacts { name, last_parked: Some(last), parked, .. } = sink else { return };
        if *parked > self.parked && self.may_say("EventsParked", now) {
            let message = match parked - self.parked {
                1 => format!("Sink {name} takes events but fails for one, which is parked: {last}"),
                n => format!(
                    "Sink {name} takes events but fails for {n}, which are parked. The last: {last}"
                ),
            };
            self.parked = *parked;
            items.push(Item { event_type: EventType::Warning, reason: "EventsParked", message });
        }
    }

    fn losses(&mut self, sink: &SinkFacts, now: Instant, items: &mut Vec<Item>) {
        let lost = sink.lost.saturating_sub(self.lost);
        if lost > 0 && self.may_say("EventsLost", now) {
            self.lost = sink.lost;
            let message = format!(
                "{lost} events were lost for sink {}: the journal no longer had them, or what was held back of them, when it could take them",
                sink.name
            );
            items.push(Item { event_type: EventType::Warning, reason: "EventsLost", message });
        }
    }

    fn fullness(&mut self, sink: &SinkFacts, size: u64, now: Instant, items: &mut Vec<Item>) {
        let percent = sink.unsettled_bytes.saturating_mul(100) / size.max(1);
        if percent < FULL_NO_MORE {
            self.nearly_full = false;
        } else if percent >= NEARLY_FULL
            && !self.nearly_full
            && self.may_say("JournalNearFull", now)
        {
            self.nearly_full = true;
            let then = if sink.blocks { "intake stops" } else { "the oldest of it goes" };
            let message = format!(
                "What sink {} has not had takes {percent} % of the journal's size; {then} when it is full",
                sink.name
            );
            items.push(Item { event_type: EventType::Warning, reason: "JournalNearFull", message });
        }
    }

    fn blocking(&mut self, sink: &SinkFacts, now: Instant, items: &mut Vec<Item>) {
        let name = &sink.name;
        if sink.blocked && !self.blocked && self.may_say("IntakeBlocked", now) {
            self.blocked = true;
            let message = format!(
                "Nothing is read from the API server until sink {name}, which blocks, has had some of the {} bytes that wait for it",
                sink.unsettled_bytes
            );
            items.push(Item { event_type: EventType::Warning, reason: "IntakeBlocked", message });
        } else if !sink.blocked && self.blocked && self.may_say("IntakeResumed", now) {
            self.blocked = false;
            let message = format!("Sink {name} has made room in the journal; intake goes on");
            items.push(Item { event_type: EventType::Normal, reason: "IntakeResumed", message });
        }
    }
}

#[cfg(test)]
mod tests {
    use tidings_log::DamageKind;

    use super::*;
    use crate::bridge::Gap;

    fn facts(change: impl FnOnce(&mut SinkFacts)) -> Facts {
        let mut sink = SinkFacts { name: "audit".to_owned(), ..SinkFacts::default() };
        change(&mut sink);
        Facts { sinks: vec![sink], retention_size: 1000, ..Facts::default() }
    }

    fn troubled(trouble: SinkCondition) -> Facts {
        facts(|sink| {
            sink.trouble = Some(trouble);
            sink.last_error = Some("connection refused".to_owned());
        })
    }

    /// The reasons of what is said at so many seconds after the start.
    struct Telling(News, Instant);
    impl Telling {
        fn new() -> Self {
            Self(News::default(), Instant::now())
        }
        fn at(&mut self, second: u64, facts: &Facts) -> Vec<&'static str> {
            let items = self.0.since(facts, self.1 + Duration::from_secs(second));
            items.into_iter().map(|item| item.reason).collect()
        }
    }

    const NOTHING: [&str; 0] = [];

    #[test]
    fn a_sink_that_fails_for_a_while_and_recovers() {
        let mut told = Telling::new();
        let (well, failing) = (facts(|_| {}), troubled(SinkCondition::Retrying));
        assert_eq!(told.at(0, &well), NOTHING);
        assert_eq!(told.at(1, &failing), NOTHING);
        assert_eq!(told.at(3, &well), NOTHING, "a hiccup");
        assert_eq!(told.at(4, &failing), NOTHING);
        assert_eq!(told.at(9, &failing), ["SinkUnavailable"]);
        assert_eq!(told.at(10, &failing), NOTHING);
        assert_eq!(told.at(11, &well), ["SinkRecovered"]);
        assert_eq!(told.at(12, &well), NOTHING);
    }

    #[test]
    fn a_sink_that_flaps_is_said_to_once_a_minute_and_reason() {
        let mut told = Telling::new();
        let (well, failing) = (facts(|_| {}), troubled(SinkCondition::Misconfigured));
        let mut count = 0;
        for second in 0..600 {
            let now = if second % 2 == 0 { &well } else { &failing };
            count += told.at(second, now).len();
        }
        assert_eq!(count, 20, "each of the two reasons ten times in ten minutes");
    }

    #[test]
    fn what_was_not_said_for_want_of_time_is_said_when_there_is() {
        let mut told = Telling::new();
        let (well, failing) = (facts(|_| {}), troubled(SinkCondition::Misconfigured));
        assert_eq!(told.at(0, &failing), ["SinkMisconfigured"]);
        assert_eq!(told.at(1, &well), ["SinkRecovered"]);
        assert_eq!(told.at(2, &failing), NOTHING);
        assert_eq!(told.at(59, &failing), NOTHING);
        assert_eq!(told.at(60, &failing), ["SinkMisconfigured"]);
    }

    #[test]
    fn losses_are_summed_up_while_nothing_may_be_said() {
        let before = HashMap::from([("audit".to_owned(), 7)]);
        let mut told = Telling(News::new(before), Instant::now());
        let lost = |lost| facts(move |sink| sink.lost = lost);
        assert_eq!(told.at(0, &lost(7)), NOTHING, "an earlier run's");
        assert_eq!(told.at(1, &lost(9)), ["EventsLost"]);
        assert_eq!(told.at(2, &lost(12)), NOTHING);
        let items = told.0.since(&lost(14), told.1 + Duration::from_secs(61));
        assert!(items[0].message.starts_with("5 events were lost for sink audit"), "{items:?}");
    }

    #[test]
    fn events_that_are_parked_are_summed_up_while_nothing_may_be_said() {
        let mut told = Telling::new();
        let parked = |parked| {
            facts(move |sink| {
                sink.parked = parked;
                sink.last_parked = Some("Pod shop/web: HTTP 403".to_owned());
            })
        };
        let items = told.0.since(&parked(1), told.1);
        let message =
            "Sink audit takes events but fails for one, which is parked: Pod shop/web: HTTP 403";
        assert_eq!(items[0].message, message);
        assert_eq!(told.at(1, &parked(3)), NOTHING);
        let items = told.0.since(&parked(4), told.1 + Duration::from_secs(61));
        assert!(items[0].message.contains("fails for 3, which are parked. The last: Pod"));
        assert_eq!(told.at(200, &parked(4)), NOTHING);
    }

    #[test]
    fn losses_that_the_start_found_are_news() {
        let before = HashMap::from([("audit".to_owned(), 7)]);
        let mut told = Telling(News::new(before), Instant::now());
        let items = told.0.since(&facts(|sink| sink.lost = 9), told.1);
        assert!(items[0].message.starts_with("2 events were lost for sink audit"), "{items:?}");
    }

    #[test]
    fn a_journal_is_nearly_full_once_until_it_has_emptied() {
        let mut told = Telling::new();
        let takes = |bytes| facts(move |sink| sink.unsettled_bytes = bytes);
        assert_eq!(told.at(0, &takes(799)), NOTHING);
        assert_eq!(told.at(1, &takes(800)), ["JournalNearFull"]);
        assert_eq!(told.at(90, &takes(700)), NOTHING);
        assert_eq!(told.at(91, &takes(900)), NOTHING);
        assert_eq!(told.at(200, &takes(100)), NOTHING);
        assert_eq!(told.at(201, &takes(900)), ["JournalNearFull"]);
    }

    fn gap(source: &str, to_ms: u64, epoch: bool) -> GapSum {
        Gap { source: source.into(), from_ms: 1_000, to_ms, replayed: 9, skipped: 3, epoch }.into()
    }

    fn with(gaps: &[GapSum]) -> Facts {
        Facts { gaps: gaps.to_vec(), ..facts(|_| {}) }
    }

    #[test]
    fn a_sink_that_blocks_is_told_of_when_it_does_and_when_it_does_no_longer() {
        let mut told = Telling::new();
        let with = |blocked| {
            facts(move |sink| {
                (sink.blocks, sink.blocked) = (true, blocked);
                sink.unsettled_bytes = if blocked { 1_000 } else { 850 };
            })
        };
        let items = told.0.since(&with(false), told.1);
        assert!(items[0].message.contains("85 %") && items[0].message.contains("intake stops"));
        let items = told.0.since(&with(true), told.1 + Duration::from_secs(1));
        assert_eq!(items[0].reason, "IntakeBlocked");
        assert!(items[0].message.contains("sink audit"), "{}", items[0].message);
        assert_eq!(told.at(2, &with(true)), NOTHING);
        assert_eq!(told.at(3, &with(false)), ["IntakeResumed"]);
        assert_eq!(told.at(4, &with(true)), NOTHING, "once a minute");
        assert_eq!(told.at(61, &with(true)), ["IntakeBlocked"]);
    }

    #[test]
    fn a_gap_is_told_with_its_interval() {
        let mut told = Telling::new();
        let items = told.0.since(&with(&[gap("*", 5_000, false)]), told.1);
        assert_eq!(items[0].reason, "WatchGap");
        for part in ["1970-01-01T00:00:01Z", "1970-01-01T00:00:05Z", "3 increments"] {
            assert!(items[0].message.contains(part), "{}", items[0].message);
        }
        assert_eq!(told.at(70, &with(&[])), NOTHING);
        assert_eq!(told.at(71, &with(&[gap("*", 9_000, false)])), ["WatchGap"]);
    }

    #[test]
    fn gaps_of_two_sources_and_a_new_epoch_are_all_told_and_more_in_a_minute_are_summed_up() {
        let mut told = Telling::new();
        let gaps = [gap("a", 5_000, false), gap("b", 5_000, false), gap("b", 6_000, true)];
        let mut first = told.at(0, &with(&gaps));
        first.sort_unstable();
        assert_eq!(first, ["NewEpoch", "WatchGap", "WatchGap"]);
        for number in 4..8 {
            let another = gap("a", 1_000 * number, false);
            assert_eq!(told.at(number, &with(&[another])), NOTHING);
        }
        let items = told.0.since(&with(&[]), told.1 + Duration::from_secs(61));
        let message = &items[0].message;
        for part in [
            "4 times",
            "watch of a",
            "from 1970-01-01T00:00:01Z to 1970-01-01T00:00:07Z",
            "36 Events",
            "12 increments",
        ] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(items.len(), 1);
        assert_eq!(told.at(200, &with(&[])), NOTHING);
    }

    #[test]
    fn damage_is_told_also_of_what_the_start_found() {
        let damage = |reason: &str| Damage {
            kind: DamageKind::File,
            file: "state.redb".to_owned(),
            offset: 0,
            bytes: 0,
            from_ms: None,
            to_ms: 9,
            records: 0,
            reason: reason.to_owned(),
        };
        let with = |damages, reason| {
            let damage = Some(damage(reason));
            Facts { damages, damage, ..facts(|_| {}) }
        };
        let mut told = Telling::new();
        let items = told.0.since(&with(1, "torn"), told.1);
        assert_eq!(items[0].message, "The journal is damaged: state.redb: torn");
        assert_eq!(told.at(1, &with(3, "worn")), NOTHING, "once a minute");
        let items = told.0.since(&with(4, "gone"), told.1 + Duration::from_secs(60));
        let said = "The journal is damaged in 3 places; the last: state.redb: gone";
        assert_eq!((items[0].reason, &*items[0].message), ("JournalDamaged", said));
        assert_eq!(told.at(200, &with(4, "gone")), NOTHING);
    }

    #[test]
    fn a_rejected_configuration_is_told_once_for_each_reason() {
        let mut told = Telling::new();
        let with = |rejected: Option<&str>| Facts {
            rejected: rejected.map(str::to_owned),
            ..facts(|_| {})
        };
        assert_eq!(told.at(0, &with(None)), NOTHING);
        let items = told.0.since(&with(Some("unknown key")), told.1);
        let said = "The configuration file is rejected, and the content before stays in force: unknown key";
        assert_eq!((items[0].reason, &*items[0].message), ("ConfigRejected", said));
        assert_eq!(told.at(100, &with(Some("unknown key"))), NOTHING);
        assert_eq!(told.at(101, &with(Some("no sinks"))), ["ConfigRejected"]);
        assert_eq!(told.at(102, &with(Some("unknown key"))), NOTHING, "once a minute");
        assert_eq!(told.at(161, &with(Some("unknown key"))), ["ConfigRejected"]);
        assert_eq!(told.at(162, &with(None)), NOTHING, "it is mended");
        assert_eq!(told.at(300, &with(Some("unknown key"))), ["ConfigRejected"]);
    }
}
