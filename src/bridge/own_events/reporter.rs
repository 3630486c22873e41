//! Changes that are worth an Event, and what was said already.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    bridge::{HeldUp, Overflow, SinkCondition, SinkSnapshot, gap::GapSum},
    journal::Damage,
    record::EventType,
};

/// For each sink and reason one Event in this time, at most.
const ONE_IN: Duration = Duration::from_secs(60);
/// A sink that fails for no longer is not worth one.
const PATIENCE: Duration = Duration::from_secs(5);
/// Parts of the journal's size that a sink has not had: from here on it is nearly full, below
/// there no more, in percent.
const NEARLY_FULL: u64 = 80;
const FULL_NO_MORE: u64 = 60;

/// The statements of the bridge about itself at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) sinks: Vec<SinkView>,
    /// In bytes.
    pub(super) retention_size: u64,
    /// The gaps of all sources since the last look.
    pub(super) gaps: Vec<GapSum>,
    /// Of which namespaces Events were shed since the start, and how many.
    pub(super) shed: Vec<(String, u64)>,
    /// How many places of the journal were found damaged, and the last of them.
    pub(super) damages: u64,
    pub(super) damage: Option<Damage>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SinkView {
    pub(super) sink: SinkSnapshot,
    /// Bytes of the journal that the sink has not had.
    pub(super) unsettled_bytes: u64,
    /// Intake has stopped because they are too many.
    pub(super) blocked: bool,
}

/// One Event to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) event_type: EventType,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Report {
    fn warning(reason: &'static str, message: String) -> Self {
        Self { event_type: EventType::Warning, reason, message }
    }

    fn normal(reason: &'static str, message: String) -> Self {
        Self { event_type: EventType::Normal, reason, message }
    }
}

/// The state of a sink as it was said last.
#[derive(Debug, Default)]
struct SinkHistory {
    /// Since when it has been in trouble.
    since: Option<Instant>,
    trouble: Option<SinkCondition>,
    lost: u64,
    nearly_full: bool,
    blocked: bool,
    /// The ids of the events that others wait behind: since when, and whether they were named.
    heads: HashMap<String, (Instant, bool)>,
    /// When the last Event of each reason was recorded.
    last: HashMap<&'static str, Instant>,
}

/// The memory of what was said in Events. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Reporter {
    sinks: HashMap<String, SinkHistory>,
    sources: HashMap<Arc<str>, SourceHistory>,
    /// The count that each sink had lost when the runs before saved it last: they said it, or nobody was there
    /// to say it.
    lost_before: HashMap<String, u64>,
    journal: SinkHistory,
    damages: u64,
    /// The number said to be shed of each namespace, and when.
    shed: HashMap<String, (u64, Instant)>,
}

impl Reporter {
    /// With what each sink had lost in the runs before.
    pub(super) fn new(lost_before: HashMap<String, u64>) -> Self {
        Self { lost_before, ..Self::default() }
    }

    /// The Events for what is new since the last call, or since the runs before.
    pub(super) fn since(&mut self, facts: &Snapshot, now: Instant) -> Vec<Report> {
        let mut items = Vec::new();
        for view in &facts.sinks {
            let sink = &view.sink;
            let said = self.sinks.entry(sink.name.clone()).or_insert_with(|| {
                let lost = self.lost_before.get(&sink.name).copied().unwrap_or_default();
                SinkHistory { lost, ..SinkHistory::default() }
            });
            said.trouble(sink, now, &mut items);
            said.losses(sink, now, &mut items);
            said.fullness(view, facts.retention_size, now, &mut items);
            said.blocking(view, now, &mut items);
            said.holding(sink, now, &mut items);
        }
        for gaps in &facts.gaps {
            self.sources.entry(Arc::clone(&gaps.all.source)).or_default().add(gaps);
        }
        for (source, told) in &mut self.sources {
            told.tell(source, now, &mut items);
        }
        self.shed.retain(|known, _| facts.shed.iter().any(|(namespace, _)| namespace == known));
        for (namespace, all) in &facts.shed {
            let (said, last) = self.shed.get(namespace).copied().unzip();
            let shed = all.saturating_sub(said.unwrap_or_default());
            if shed == 0 || last.is_some_and(|last| now.duration_since(last) < ONE_IN) {
                continue;
            }
            self.shed.insert(namespace.clone(), (*all, now));
            let message = format!(
                "{shed} events of namespace {namespace} were shed, and are lost for every sink: it had more than half of what the journal keeps for a sink that is behind"
            );
            items.push(Report::warning("EventsShed", message));
        }
        // What opening found is news, too: no run before has said it.
        if let Some(damage) = facts.damage.as_ref().filter(|_| facts.damages > self.damages)
            && self.journal.may_say("JournalDamaged", now)
        {
            let message = match facts.damages - self.damages {
                1 => format!("The journal is damaged: {damage}"),
                n => format!("The journal is damaged in {n} places; the last: {damage}"),
            };
            items.push(Report::warning("JournalDamaged", message));
            self.damages = facts.damages;
        }
        items
    }
}

/// The state of a source as it was told, and what has not been told.
#[derive(Debug, Default)]
struct SourceHistory {
    said: SinkHistory,
    gaps: Option<GapSum>,
    epochs: Option<GapSum>,
}

impl SourceHistory {
    fn add(&mut self, gaps: &GapSum) {
        let untold = if gaps.all.epoch { &mut self.epochs } else { &mut self.gaps };
        match untold {
            Some(untold) => untold.add(gaps),
            none => *none = Some(gaps.clone()),
        }
    }

    fn tell(&mut self, source: &str, now: Instant, items: &mut Vec<Report>) {
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
            items.push(Report::warning(reason, message));
        }
    }
}

impl SinkHistory {
    /// Whether another Event for this reason may be recorded now; if so, it counts as recorded.
    fn may_say(&mut self, reason: &'static str, now: Instant) -> bool {
        let may = self.last.get(reason).is_none_or(|last| now.duration_since(*last) >= ONE_IN);
        if may {
            self.last.insert(reason, now);
        }
        may
    }

    fn trouble(&mut self, sink: &SinkSnapshot, now: Instant, items: &mut Vec<Report>) {
        let name = &sink.name;
        let Some(trouble) = sink.trouble else {
            self.since = None;
            if self.trouble.is_some() && self.may_say("SinkRecovered", now) {
                self.trouble = None;
                let message = format!("Sink {name} takes events again");
                items.push(Report::normal("SinkRecovered", message));
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
            let why = sink.last_error.as_deref().unwrap_or("no reason is known");
            let message = if misconfigured {
                format!(
                    "Sink {name} is misconfigured and needs attention; its events are kept: {why}"
                )
            } else {
                format!("Sink {name} does not take events; they are kept for it: {why}")
            };
            items.push(Report::warning(reason, message));
        }
    }

    fn losses(&mut self, sink: &SinkSnapshot, now: Instant, items: &mut Vec<Report>) {
        let lost = sink.totals.lost.saturating_sub(self.lost);
        if lost > 0 && self.may_say("EventsLost", now) {
            self.lost = sink.totals.lost;
            let message = format!(
                "{lost} events were lost for sink {}: the journal dropped them, or what was held back of \
                 them, before the sink took them, or shed them",
                sink.name
            );
            items.push(Report::warning("EventsLost", message));
        }
    }

    fn fullness(&mut self, view: &SinkView, size: u64, now: Instant, items: &mut Vec<Report>) {
        let percent = view.unsettled_bytes.saturating_mul(100) / size.max(1);
        if percent < FULL_NO_MORE {
            self.nearly_full = false;
        } else if percent >= NEARLY_FULL
            && !self.nearly_full
            && self.may_say("JournalNearFull", now)
        {
            self.nearly_full = true;
            let then = match view.sink.overflow {
                Overflow::Block => "intake stops",
                Overflow::DropOldest => "the oldest are dropped",
            };
            let message = format!(
                "Events that sink {} has not taken fill {percent} % of the journal; {then} when it is full",
                view.sink.name
            );
            items.push(Report::warning("JournalNearFull", message));
        }
    }

    fn blocking(&mut self, view: &SinkView, now: Instant, items: &mut Vec<Report>) {
        let name = &view.sink.name;
        if view.blocked && !self.blocked && self.may_say("IntakeBlocked", now) {
            self.blocked = true;
            let message = format!(
                "Nothing is read from the API server until sink {name}, which has overflow: block, takes \
                 some of the {} bytes that wait for it",
                view.unsettled_bytes
            );
            items.push(Report::warning("IntakeBlocked", message));
        } else if !view.blocked && self.blocked && self.may_say("IntakeResumed", now) {
            self.blocked = false;
            let message = format!("Sink {name} has made room in the journal; intake goes on");
            items.push(Report::normal("IntakeResumed", message));
        }
    }

    /// Names whoever holds others up for a while, once; several at a time by the first.
    fn holding(&mut self, sink: &SinkSnapshot, now: Instant, items: &mut Vec<Report>) {
        self.heads.retain(|id, _| sink.heads.iter().any(|held| held.id == *id));
        let mut due = Vec::new();
        // Those that the journal no longer has cannot be named.
        for held in sink.heads.iter().filter(|held| !held.id.is_empty()) {
            let (since, said) = *self.heads.entry(held.id.clone()).or_insert((now, false));
            if !said && now.duration_since(since) >= PATIENCE {
                due.push(held);
            }
        }
        let Some(first) = due.first() else { return };
        if !self.may_say("EventsHeldUp", now) {
            return;
        }
        let HeldUp { by, namespace, object, id, events, reason } = first;
        let reason = reason.as_deref().unwrap_or("it has not been retried yet");
        let others = match due.len() - 1 {
            0 => String::new(),
            others => format!(" ({others} more like it)"),
        };
        let message = format!(
            "{events} events wait at sink {} in a {} behind {id}, about {object} in {namespace}{others}: {reason}",
            sink.name,
            by.as_str(),
        );
        items.push(Report::warning("EventsHeldUp", message));
        for held in due {
            self.heads.insert(held.id.clone(), (now, true));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bridge::{Gap, HeldBy, Secrets},
        journal::DamageKind,
    };

    fn facts(change: impl FnOnce(&mut SinkView)) -> Snapshot {
        let mut view = SinkView::default();
        view.sink.name = "audit".to_owned();
        change(&mut view);
        Snapshot { sinks: vec![view], retention_size: 1000, ..Snapshot::default() }
    }

    fn troubled(trouble: SinkCondition) -> Snapshot {
        facts(|view| {
            view.sink.trouble = Some(trouble);
            view.sink.last_error = Some(Secrets::none().reason("connection refused"));
        })
    }

    /// The reasons of what is said at so many seconds after the start.
    struct Telling(Reporter, Instant);
    impl Telling {
        fn new() -> Self {
            Self(Reporter::default(), Instant::now())
        }
        fn at(&mut self, second: u64, facts: &Snapshot) -> Vec<&'static str> {
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
    fn of_each_namespace_of_which_events_are_shed_it_is_said_once_a_minute() {
        let mut told = Telling::new();
        let shed = |counts: &[(&str, u64)]| Snapshot {
            shed: counts.iter().map(|(namespace, shed)| ((*namespace).to_owned(), *shed)).collect(),
            ..facts(|_| {})
        };
        let mut said = |second, counts: &[(&str, u64)]| -> Vec<String> {
            let items = told.0.since(&shed(counts), told.1 + Duration::from_secs(second));
            assert!(items.iter().all(|item| item.reason == "EventsShed"));
            items.into_iter().map(|item| item.message[..24].to_owned()).collect()
        };
        assert_eq!(said(0, &[("cut", 0), ("loud", 7)]), ["7 events of namespace lo"]);
        assert!(said(1, &[("cut", 0), ("loud", 700)]).is_empty());
        // The one that was shed is named, whichever has more.
        assert_eq!(said(2, &[("loud", 900), ("less", 2)]), ["2 events of namespace le"]);
        assert_eq!(said(60, &[("loud", 907), ("less", 2)]), ["900 events of namespace "]);
        assert!(said(200, &[("loud", 907), ("less", 2)]).is_empty());
    }

    #[test]
    fn an_event_that_came_too_soon_is_recorded_later() {
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
        let mut told = Telling(Reporter::new(before), Instant::now());
        let lost = |lost| facts(move |view| view.sink.totals.lost = lost);
        assert_eq!(told.at(0, &lost(7)), NOTHING, "an earlier run's");
        assert_eq!(told.at(1, &lost(9)), ["EventsLost"]);
        assert_eq!(told.at(2, &lost(12)), NOTHING);
        let items = told.0.since(&lost(14), told.1 + Duration::from_secs(61));
        assert!(items[0].message.starts_with("5 events were lost for sink audit"), "{items:?}");
    }

    #[test]
    fn losses_that_the_start_found_are_news() {
        let before = HashMap::from([("audit".to_owned(), 7)]);
        let mut told = Telling(Reporter::new(before), Instant::now());
        let items = told.0.since(&facts(|view| view.sink.totals.lost = 9), told.1);
        assert!(items[0].message.starts_with("2 events were lost for sink audit"), "{items:?}");
    }

    #[test]
    fn a_journal_is_nearly_full_once_until_it_has_emptied() {
        let mut told = Telling::new();
        let takes = |bytes| facts(move |view| view.unsettled_bytes = bytes);
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

    fn with(gaps: &[GapSum]) -> Snapshot {
        Snapshot { gaps: gaps.to_vec(), ..facts(|_| {}) }
    }

    #[test]
    fn a_sink_that_blocks_is_told_of_when_it_does_and_when_it_does_no_longer() {
        let mut told = Telling::new();
        let with = |blocked| {
            facts(move |view| {
                (view.sink.overflow, view.blocked) = (Overflow::Block, blocked);
                view.unsettled_bytes = if blocked { 1_000 } else { 850 };
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
    fn a_record_that_holds_others_up_is_named_once_until_another_does() {
        let held = |ids: &[&str]| {
            facts(|view| {
                let named = |id: &&str| HeldUp {
                    by: HeldBy::Queue,
                    namespace: "shop".to_owned(),
                    object: "Pod/web".to_owned(),
                    id: (*id).to_owned(),
                    events: 3,
                    reason: Some("HTTP 403".to_owned()),
                };
                view.sink.heads = ids.iter().map(named).collect();
            })
        };
        let mut telling = Telling::new();
        assert!(telling.at(0, &held(&["a"])).is_empty());
        assert_eq!(telling.at(5, &held(&["a"])), ["EventsHeldUp"]);
        assert!(telling.at(60, &held(&["a", "b"])).is_empty());
        assert_eq!(telling.at(66, &held(&["a", "b"])), ["EventsHeldUp"]);
        assert!(telling.at(120, &held(&["b"])).is_empty());
        assert!(telling.at(190, &held(&["a", "b"])).is_empty());
        assert_eq!(telling.at(195, &held(&["a"])), ["EventsHeldUp"]);
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
            Snapshot { damages, damage, ..facts(|_| {}) }
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
}
