//! Holds what the bridge says against what was written and what arrived.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use serde_json::Value;

use super::world::{Sink, Sources};
use super::written::Version;
use crate::accounts::number;
use crate::bridge::metric;
use crate::judge::{self, Arrival, Key};
use crate::mixed::stated::Stated;

/// Statements that were found to be false, over all rounds.
#[derive(Default)]
pub(super) struct Oracle {
    findings: Vec<String>,
    /// The versions that are in the journal, or were.
    journalled: HashMap<Key, Journalled>,
    /// Of each sink.
    accounts: HashMap<&'static str, Account>,
    /// Sink and law of each: what is false once stays so.
    broken: HashSet<(String, &'static str)>,
    sources_changed: usize,
}

impl Oracle {
    pub(super) fn findings(self) -> Vec<String> {
        self.findings
    }

    /// How often the sources have been changed.
    pub(super) fn changed(&mut self, once_more: bool) -> usize {
        self.sources_changed += usize::from(once_more);
        self.sources_changed
    }

    /// The dead letters of a sink are what its receiver refuses.
    pub(super) fn letters(&mut self, sink: &Sink, versions: &[Version], letters: &HashSet<Key>) {
        let refused = versions.iter().filter(|version| version.poison);
        let refused: HashSet<Key> = refused.map(|version| version.produced.id).collect();
        if !letters.is_subset(&refused) {
            self.findings.push(format!("{}: dead letters that nobody refused", sink.name));
        }
    }
}

/// The statements that a sink had left out at its last check, as it cannot know better: a kill kept it from reading
/// answers. A later check may only add those of its own kills.
#[derive(Default)]
struct Account {
    /// Versions that are stated as lost, or arrived and may be stated as filtered.
    arguable: u64,
    /// Versions that arrived and are stated as one of these.
    unread: u64,
    /// Repeats that are not stated.
    unstated_repeats: u64,
    /// Versions that a kill found without an answer while there was more that is arguable.
    doubtful: HashSet<Key>,
}

/// The versions that are in the journal, by what was to become of them at a sink.
#[derive(Default)]
struct Tally {
    /// A match that may have been asked refuses them.
    may_filter: u64,
    /// Every one does.
    must_filter: u64,
    had_and_may_filter: u64,
    /// They are wanted, and did not arrive.
    missing: u64,
    /// They are refused, and did not arrive.
    refused: u64,
    refused_increments: u64,
    /// The deltas of all else that did not arrive.
    absent: Vec<u64>,
}

/// How a version came into the journal.
#[derive(Clone, Copy)]
struct Journalled {
    delta: u64,
    /// The life of the bridge at whose first check it was there: it was journalled in this one, or in
    /// the one before.
    life: usize,
}

/// The state of things after a kill.
pub(super) struct Law<'a> {
    oracle: &'a mut Oracle,
    when: String,
    versions: &'a [Version],
    /// By life of the bridge.
    sources: &'a [Sources],
    /// The moment before the first kill since the last check.
    killed: Instant,
}

impl<'a> Law<'a> {
    pub(super) fn new(
        oracle: &'a mut Oracle,
        when: String,
        versions: &'a [Version],
        sources: &'a [Sources],
        killed: Instant,
    ) -> Self {
        Self { oracle, when, versions, sources, killed }
    }

    fn hold(&mut self, of: &str, law: &'static str, holds: bool, found: impl FnOnce() -> String) {
        if !holds && self.oracle.broken.insert((of.to_owned(), law)) {
            self.oracle.findings.push(format!("{of}: {law}: {} ({})", found(), self.when));
        }
    }

    /// Holds that what was journalled is what was written within the sources, but for what is stated as
    /// skipped; and each Event's deltas add up. A sink that is to have all of it says what it is.
    pub(super) fn journal(&mut self, all: &Sink, log: &[Value]) {
        let sources = self.sources.last().expect("it was configured");
        let life = all.matches.len() - 1;
        for arrival in all.receiver.arrivals().iter() {
            let journalled = Journalled { delta: arrival.delta, life };
            self.oracle.journalled.entry(arrival.id).or_insert(journalled);
        }
        let stated: u64 = Stated::all(log).iter().map(|gap| gap.skipped).sum();
        // By Event: the newest occurrences that were seen, and the sum of the deltas.
        let mut events = HashMap::<Key, (u64, u64)>::new();
        for version in self.versions {
            if let Some(journalled) = self.oracle.journalled.get(&version.produced.id) {
                let (occurrences, sum) = events.entry(version.produced.event).or_default();
                *occurrences = version.produced.occurrences;
                *sum += journalled.delta;
            }
        }
        let (mut skipped, mut unseen) = (0, 0);
        for version in self.versions {
            let produced = &version.produced;
            if !self.oracle.journalled.contains_key(&produced.id) {
                let seen =
                    events.get(&produced.event).is_some_and(|(n, _)| *n > produced.occurrences);
                skipped += u64::from(seen);
                unseen += u64::from(!seen && sources.cover(version));
            }
        }
        self.hold("journal", "what the sources cover is there", unseen == 0, || {
            format!("{unseen} versions are not, nor later ones of their Events")
        });
        self.hold("journal", "what is missing is stated as skipped", skipped == stated, || {
            format!("{skipped} versions were skipped, stated {stated}")
        });
        let wrong = events.values().filter(|(occurrences, sum)| occurrences != sum).count();
        self.hold("journal", "the deltas of an Event are its occurrences", wrong == 0, || {
            let (mut many, mut few) = (0, 0);
            for (occurrences, sum) in events.values() {
                many += sum.saturating_sub(*occurrences);
                few += occurrences.saturating_sub(*sum);
            }
            format!("{wrong} Events, {many} too many and {few} too few")
        });
    }

    /// The fates of a sink are what its receiver got.
    pub(super) fn sink(&mut self, sink: &Sink, said: &Value, before: &Value) {
        let arrivals = sink.receiver.arrivals();
        let produced: Vec<_> = self.versions.iter().map(|version| version.produced).collect();
        let verdict = judge::judge(&produced, &arrivals);
        let (name, seen) = (sink.name, self.oracle.journalled.len() as u64);
        let honest = (verdict.strangers, verdict.mistold, verdict.retold);
        self.hold(name, "each id is told once and for all", honest == (0, 0, 0), || {
            format!("(never produced, told wrongly, told otherwise) = {honest:?}")
        });
        let in_order = self.in_order(sink, &arrivals);
        let breaks = judge::judge(&produced, &in_order).order_breaks;
        self.hold(name, "what is about one object comes in order", breaks == 0, || {
            format!("{breaks} are out of it")
        });
        let fate = |fate: &str| number(said, fate);
        self.hold(name, "seen is what was journalled", fate("seen") == seen, || {
            format!("stated {}, journalled {seen}", fate("seen"))
        });

        let mut account = self.oracle.accounts.remove(name).unwrap_or_default();
        let unanswered = sink.receiver.unanswered_since(self.killed);
        let unanswered: Vec<_> = unanswered.into_iter().flat_map(|at| &arrivals[at]).collect();
        self.arrived(sink, said, &arrivals, &unanswered, &mut account);
        self.repeats(sink, said, verdict.repeated, &arrivals, &unanswered, &mut account);
        self.oracle.accounts.insert(name, account);
        self.totals(sink, said, before);
    }

    /// Holds that what arrived is delivered, and what did not has the fate that is due to it.
    fn arrived(
        &mut self,
        sink: &Sink,
        said: &Value,
        arrivals: &[Arrival],
        unanswered: &[&Arrival],
        account: &mut Account,
    ) {
        let (name, fate) = (sink.name, |fate: &str| number(said, fate));
        let had = first_of_each(arrivals);
        let (delivered, lost, had_count) = (fate("delivered"), fate("lost"), had.len() as u64);
        let tally = self.tally(sink, &had);
        let Tally { may_filter, must_filter, had_and_may_filter, missing, .. } = tally;
        // Before an answer was read it may be gone from the journal, or another match be asked.
        let unanswered: HashSet<Key> = unanswered.iter().map(|arrival| arrival.id).collect();
        let arguable = lost + had_and_may_filter;
        let more = arguable.saturating_sub(account.arguable).min(unanswered.len() as u64);
        let unread = account.unread..=account.unread + more;
        if more > 0 {
            account.doubtful.extend(unanswered);
        }
        account.arguable = arguable;
        account.unread = had_count.saturating_sub(delivered);

        let holds = delivered <= had_count && unread.contains(&account.unread);
        self.hold(name, "delivered is what arrived", holds, || {
            format!("stated {delivered}, arrived {had_count}, of which {unread:?} before a kill")
        });
        let filtered = fate("filtered");
        let holds = filtered <= may_filter && filtered + lost >= must_filter;
        self.hold(name, "filtered is what match refuses", holds, || {
            format!("stated {filtered}, refused {must_filter} to {may_filter}, lost {lost}")
        });
        let poison = if sink.refuses { self.poison(&had) } else { 0 };
        let dead = fate("deadLettered");
        self.hold(name, "dead-lettered is what was refused", dead == poison, || {
            format!("stated {dead}, refused {poison}")
        });
        self.hold(name, "what blocks loses nothing", !sink.blocks || lost == 0, || {
            format!("stated lost {lost}")
        });
        let (away, held) = (fate("correlatedAway"), fate("held"));
        let others = dead + lost + away + held;
        // What match refuses may have been lost before it was asked.
        let undecided = may_filter - filtered.min(may_filter);
        let may = missing..=missing + undecided + unread.end();
        self.hold(name, "what is missing is stated", may.contains(&others), || {
            format!("missing {missing}, stated: dead {dead}, lost {lost}, away {away}, held {held}")
        });
        self.hold(name, "only suppress holds", sink.mode == "suppress" || away + held == 0, || {
            format!("correlated away {away}, held {held}")
        });
        self.increments(sink, said, &had, tally, account);
    }

    /// Counts what is in the journal, of which a sink had this.
    fn tally(&self, sink: &Sink, had: &HashMap<Key, u64>) -> Tally {
        let mut tally = Tally::default();
        for version in self.versions {
            let id = &version.produced.id;
            let Some(journalled) = self.oracle.journalled.get(id) else { continue };
            let wanted = sink.wanted(version, journalled.life);
            tally.may_filter += u64::from(wanted != Wanted::Yes);
            tally.must_filter += u64::from(wanted == Wanted::No);
            match (had.get(id), wanted) {
                (Some(_), Wanted::Yes) => {}
                (Some(_), _) => tally.had_and_may_filter += 1,
                (None, Wanted::No) => {
                    tally.refused += 1;
                    tally.refused_increments += journalled.delta;
                }
                (None, wanted) => {
                    tally.missing += u64::from(wanted == Wanted::Yes);
                    tally.absent.push(journalled.delta);
                }
            }
        }
        tally
    }

    /// How many versions that are in the journal a receiver refuses, which has had these.
    fn poison(&self, had: &HashMap<Key, u64>) -> u64 {
        let poison = self.versions.iter().filter(|version| {
            let id = &version.produced.id;
            version.poison && self.oracle.journalled.contains_key(id) && !had.contains_key(id)
        });
        poison.count() as u64
    }

    /// The arrivals of versions that are to come in order: of those that each life of the bridge
    /// covered in which they could be journalled, and that every match that was asked wants.
    fn in_order(&self, sink: &Sink, arrivals: &[Arrival]) -> Vec<Arrival> {
        let mut ordered = HashSet::new();
        for version in self.versions {
            let Some(journalled) = self.oracle.journalled.get(&version.produced.id) else {
                continue;
            };
            let lives = &self.sources[version.life..=journalled.life];
            let wanted = sink.wanted(version, journalled.life) == Wanted::Yes;
            if wanted && lives.iter().all(|sources| sources.cover(version)) {
                ordered.insert(version.produced.id);
            }
        }
        arrivals.iter().filter(|arrival| ordered.contains(&arrival.id)).copied().collect()
    }

    /// The metrics say what the status says.
    pub(super) fn metrics(&mut self, sink: &str, said: &Value, metrics: &str) {
        let fate = |fate| format!("tidings_sink_events_total{{sink=\"{sink}\",fate=\"{fate}\"}}");
        let own = |name| format!("tidings_sink_{name}{{sink=\"{sink}\"}}");
        for (of, name) in [
            ("delivered", fate("delivered")),
            ("filtered", fate("filtered")),
            ("correlatedAway", fate("correlated-away")),
            ("deadLettered", fate("dead-lettered")),
            ("lost", fate("lost")),
            ("redelivered", own("redelivered_total")),
            ("pending", own("pending")),
            ("held", own("held")),
        ] {
            let (stated, found) = (number(said, of), metric(metrics, &name));
            let holds = found.and_then(|value| value.parse().ok()) == Some(stated);
            self.hold(sink, "the metrics are the status", holds, || {
                format!("{name} {found:?}, {of} {stated}")
            });
        }
    }

    /// Holds that what comes out is what goes in, less what is stated.
    fn increments(
        &mut self,
        sink: &Sink,
        said: &Value,
        had: &HashMap<Key, u64>,
        tally: Tally,
        account: &Account,
    ) {
        if sink.mode != "suppress" {
            let given = |id| self.oracle.journalled.get(id).map(|journalled| &journalled.delta);
            let other = had.iter().filter(|(id, delta)| given(*id) != Some(*delta)).count();
            self.hold(sink.name, "each delta is that of the journal", other == 0, || {
                format!("{other} are others")
            });
            return;
        }
        let arrived: u64 = had.values().sum();
        let deltas = self.oracle.journalled.values().map(|journalled| journalled.delta);
        let journalled: u64 = deltas.sum();
        let fates = ["filtered", "deadLettered", "lost", "held"];
        let stated: u64 = fates.iter().map(|fate| number(said, fate)).sum();
        // What is refused is known by name. Which else has these fates is not, only how much.
        let other = stated.saturating_sub(tally.refused);
        let due = journalled.saturating_sub(tally.refused_increments);
        let gone = the_most(tally.absent, other);
        let doubtful = account.doubtful.iter().filter_map(|id| had.get(id)).copied().collect();
        let most = due.saturating_sub(other) + the_most(doubtful, account.unread);
        let least = due.saturating_sub(gone);
        let holds = (least..=most).contains(&arrived);
        self.hold(sink.name, "the increments that go in come out", holds, || {
            let fates = fates.map(|fate| format!("{fate} {}", number(said, fate))).join(", ");
            format!("in {journalled}, out {arrived}, stated: {fates}; so {least} to {most}")
        });
    }

    /// Holds that what was taken again is stated, but what a kill found without an answer.
    fn repeats(
        &mut self,
        sink: &Sink,
        said: &Value,
        repeated: u64,
        arrivals: &[Arrival],
        unanswered: &[&Arrival],
        account: &mut Account,
    ) {
        let mut times = HashMap::<Key, usize>::new();
        for arrival in arrivals {
            *times.entry(arrival.id).or_default() += 1;
        }
        let again = unanswered.iter().filter(|arrival| times[&arrival.id] > 1).count() as u64;
        let stated = number(said, "redelivered");
        let unstated = account.unstated_repeats..=account.unstated_repeats + again;
        account.unstated_repeats = repeated.saturating_sub(stated);
        let holds = stated <= repeated && unstated.contains(&account.unstated_repeats);
        self.hold(sink.name, "redelivered is what was taken again", holds, || {
            format!("stated {stated}, taken again {repeated}, of which {unstated:?} at a kill")
        });
    }

    /// No total is less than it was before the kill.
    fn totals(&mut self, sink: &Sink, said: &Value, before: &Value) {
        let lives = &sink.matches[sink.matches.len().saturating_sub(2)..];
        let same = lives.iter().all(|one| *one == lives[0]);
        for (fate, law) in [
            ("lost", "lost does not go down"),
            ("deadLettered", "deadLettered does not go down"),
            ("redelivered", "redelivered does not go down"),
            ("delivered", "delivered does not go down"),
            ("filtered", "filtered does not go down"),
            ("correlatedAway", "correlatedAway does not go down"),
        ] {
            let steady = same || ["lost", "deadLettered", "redelivered"].contains(&fate);
            let (now, then) = (number(said, fate), number(before, fate));
            let holds = !steady || now >= then;
            self.hold(sink.name, law, holds, || format!("{then}, then {now}"));
        }
    }
}

/// The sum of so many of these, the largest.
fn the_most(mut numbers: Vec<u64>, count: u64) -> u64 {
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers.iter().take(usize::try_from(count).expect("a count")).sum()
}

/// Each id with the delta that it was first told with.
fn first_of_each(arrivals: &[Arrival]) -> HashMap<Key, u64> {
    let mut had = HashMap::new();
    for arrival in arrivals {
        had.entry(arrival.id).or_insert(arrival.delta);
    }
    had
}

/// Whether a sink wants a version, by the matches that may have been asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Yes,
    No,
    /// The answer is up to which life decided.
    Either,
}

impl Sink {
    /// A version is decided in the life of the bridge at whose first check it was in the journal, or
    /// in the one before; and again in the next one where a kill takes the decision, which asks the
    /// same: a change of `match` waits until every decision has been saved.
    fn wanted(&self, version: &Version, life: usize) -> Wanted {
        let asked = &self.matches[life.saturating_sub(1)..=life];
        let wants = asked.iter().filter(|one| one.wants(version)).count();
        match wants {
            0 => Wanted::No,
            all if all == asked.len() => Wanted::Yes,
            _ => Wanted::Either,
        }
    }
}
