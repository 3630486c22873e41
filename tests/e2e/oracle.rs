//! Holds what arrived against what the API server showed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

use crate::truth::Version;
use tidings_testkit::ledger::{Delivery, Ledger};

/// How many of each kind of mistake a failure shows.
const SHOWN: usize = 5;

/// What a version has to be when it arrives.
#[derive(Clone, Debug)]
struct Wanted {
    object: String,
    resource_version: u64,
    occurrences: u64,
    delta: u64,
}

/// What has to arrive, and what may.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    wanted: HashMap<String, Wanted>,
    /// Ids of an epoch that is over: they may have arrived, and may do so again, told anew.
    earlier: HashSet<String>,
}

/// What a gap hides: versions after the first resourceVersion, and up to the second.
pub(crate) type Gap = (u64, u64);

impl Expected {
    /// Every version.
    pub(crate) fn every(versions: &[Version]) -> Self {
        Self::but_for(versions, (0, 0))
    }

    /// Every version in these namespaces: the API server now and then writes an Event of its own elsewhere.
    pub(crate) fn within(namespaces: &[String], versions: &[Version]) -> Self {
        let within = |version: &&Version| namespaces.contains(&version.namespace);
        Self::every(&versions.iter().filter(within).cloned().collect::<Vec<_>>())
    }

    /// Every version, but of those that came in a gap only the newest of each Event that still
    /// existed at its end.
    pub(crate) fn but_for(versions: &[Version], (after, up_to): Gap) -> Self {
        let in_gap = |version: &&Version| {
            version.resource_version > after && version.resource_version <= up_to
        };
        let newest: HashMap<&str, u64> = versions
            .iter()
            .filter(in_gap)
            .map(|version| (&*version.uid, version.resource_version))
            .collect();
        let mut expected = Self::default();
        // Versions are in their order, so this is what had been exported of each Event before.
        let mut before = HashMap::<&str, u64>::new();
        for version in versions {
            if version.deleted {
                before.remove(&*version.uid);
                continue;
            }
            if in_gap(&version) && newest[&*version.uid] != version.resource_version {
                continue;
            }
            let had = before.insert(&version.uid, version.occurrences).unwrap_or(0);
            let wanted = Wanted {
                object: version.object.clone(),
                resource_version: version.resource_version,
                occurrences: version.occurrences,
                delta: version.occurrences.saturating_sub(had),
            };
            expected.wanted.insert(version.id(), wanted);
        }
        expected
    }

    /// In an epoch that began after these.
    pub(crate) fn after(mut self, earlier: &[Version]) -> Self {
        self.earlier = earlier.iter().map(Version::id).collect();
        self
    }

    /// Whether all of it has arrived.
    pub(crate) fn arrived(&self, ledger: &Ledger) -> bool {
        ledger.ids.len() >= self.wanted.len()
            && self.wanted.keys().all(|id| ledger.ids.contains(id))
    }

    /// Whether all that has arrived may have.
    pub(crate) fn knows(&self, ledger: &Ledger) -> bool {
        ledger.ids.iter().all(|id| self.wanted.contains_key(id) || self.earlier.contains(id))
    }

    /// Increments that are seen only as part of larger ones.
    pub(crate) fn skipped_increments(&self, (after, up_to): Gap) -> u64 {
        let in_gap = self
            .wanted
            .values()
            .filter(|wanted| wanted.resource_version > after && wanted.resource_version <= up_to);
        in_gap.map(|wanted| wanted.delta.saturating_sub(1)).sum()
    }

    /// Judges what a sink received, prints a line about it, and fails the test if it is not right.
    pub(crate) fn judge(&self, sink: &str, ledger: &Ledger) -> Score {
        let (score, faults) = self.compare(ledger);
        eprintln!(
            "  {sink}: produced {}, received {}, lost {}, repeated {}",
            score.produced, score.received, score.lost, score.repeated
        );
        assert!(faults.0.is_empty(), "{sink}:{}", faults.text());
        score
    }

    fn compare(&self, ledger: &Ledger) -> (Score, Faults) {
        let mut faults = Faults::default();
        let mut first = HashMap::<&str, &Delivery>::new();
        let mut newest = HashMap::<&str, (u64, &str)>::new();
        let mut repeated = 0;
        for delivery in &ledger.deliveries {
            if self.earlier.contains(&delivery.id) && !self.wanted.contains_key(&delivery.id) {
                continue;
            }
            let Some(wanted) = self.wanted.get(&delivery.id) else {
                faults.add("was never produced", &delivery.id);
                continue;
            };
            if let Some(before) = first.get(&*delivery.id) {
                repeated += 1;
                if before.body != delivery.body && !self.earlier.contains(&delivery.id) {
                    faults.add("repeated differently", (&before.body, &delivery.body));
                }
                continue;
            }
            first.insert(&delivery.id, delivery);
            let told = (&delivery.object, delivery.occurrences);
            if told != (&wanted.object, wanted.occurrences) {
                faults.add("object and occurrences told wrongly", (delivery, wanted));
            }
            if delivery.delta != wanted.delta && !self.earlier.contains(&delivery.id) {
                faults.add("delta told wrongly", (delivery, wanted));
            }
            let (version, id) = newest.entry(&wanted.object).or_default();
            if wanted.resource_version < *version && !self.earlier.contains(&delivery.id) {
                faults.add("came after a later one of its object", (&delivery.id, *id));
            } else {
                (*version, *id) = (wanted.resource_version, &delivery.id);
            }
        }
        for id in self.wanted.keys().filter(|id| !first.contains_key(&***id)) {
            faults.add("lost", id);
        }
        for complaint in &ledger.complaints {
            faults.add("the receiver complains", complaint);
        }
        let lost = self.wanted.len() - first.len();
        let score = Score { produced: self.wanted.len(), received: first.len(), lost, repeated };
        (score, faults)
    }
}

/// How a sink did, in versions of Events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Score {
    pub(crate) produced: usize,
    pub(crate) received: usize,
    pub(crate) lost: usize,
    pub(crate) repeated: usize,
}

/// What was found to be wrong, by kind, with how often and some of them.
#[derive(Default)]
struct Faults(BTreeMap<&'static str, (usize, Vec<String>)>);

impl Faults {
    fn add(&mut self, kind: &'static str, what: impl std::fmt::Debug) {
        let (count, shown) = self.0.entry(kind).or_default();
        *count += 1;
        if shown.len() < SHOWN {
            shown.push(format!("{what:?}"));
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (kind, (count, shown)) in &self.0 {
            let shown = shown.join("\n    ");
            write!(text, "\n  {kind}, {count}:\n    {shown}").expect("writing to a string");
        }
        text
    }
}

/// A judge who never finds fault would make every scenario pass.
#[test]
fn every_kind_of_fault_is_found() {
    let version = |uid: &str, resource_version, occurrences| Version {
        uid: uid.to_owned(),
        resource_version,
        namespace: String::new(),
        name: String::new(),
        object: "pod".to_owned(),
        occurrences,
        deleted: false,
        at: std::time::Instant::now(),
    };
    let versions = [version("a", 1, 1), version("b", 2, 1), version("a", 3, 4)];
    let delivery = |id: &str, occurrences, delta| Delivery {
        id: id.to_owned(),
        object: "pod".to_owned(),
        occurrences,
        delta,
        body: id.to_owned(),
        at: std::time::Instant::now(),
    };
    let received = |deliveries: Vec<Delivery>| {
        let ledger = tidings_testkit::ledger::SharedLedger::default();
        ledger.take(deliveries.into_iter().map(Ok));
        ledger
    };
    let right = [delivery("a-1", 1, 1), delivery("b-2", 1, 1), delivery("a-3", 4, 3)];
    let with = |change: &dyn Fn(&mut Vec<Delivery>)| {
        let mut deliveries = right.to_vec();
        change(&mut deliveries);
        let (score, faults) = Expected::every(&versions).compare(&received(deliveries).lock());
        ((score.lost, score.repeated), faults.0.into_keys().collect::<Vec<_>>())
    };
    let nothing = [""; 0];
    assert_eq!(with(&|_| {}), ((0, 0), nothing.to_vec()));
    assert_eq!(with(&|all| all.push(right[0].clone())), ((0, 1), nothing.to_vec()));
    assert_eq!(with(&|all| drop(all.remove(1))), ((1, 0), vec!["lost"]));
    assert_eq!(with(&|all| all.push(delivery("a-9", 1, 1))), ((0, 0), vec!["was never produced"]));
    let late = "came after a later one of its object";
    assert_eq!(with(&|all| all.swap(0, 1)), ((0, 0), vec![late]));
    assert_eq!(with(&|all| all[2].delta = 4), ((0, 0), vec!["delta told wrongly"]));
    let told = "object and occurrences told wrongly";
    assert_eq!(with(&|all| all[2].occurrences = 3), ((0, 0), vec![told]));
    assert_eq!(with(&|all| all[2].object.clear()), ((0, 0), vec![told]));
    let otherwise = Delivery { body: "else".to_owned(), ..right[0].clone() };
    let repeat = with(&|all| all.push(otherwise.clone()));
    assert_eq!(repeat, ((0, 1), vec!["repeated differently"]));

    // In a gap, only the newest version of each Event, with all that led to it.
    let expected = Expected::but_for(&versions, (0, 3));
    assert_eq!(expected.skipped_increments((0, 3)), 3);
    let deliveries = vec![right[1].clone(), delivery("a-3", 4, 4)];
    let (score, faults) = expected.compare(&received(deliveries).lock());
    assert_eq!((score.produced, faults.0.len()), (2, 0));
}
