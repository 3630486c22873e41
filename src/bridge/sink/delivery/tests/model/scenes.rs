//! The scenes of the model: who fails, and how the others fare.

use std::{env, ops::Range};

use super::{
    Record, Report, World,
    receiver::{Receiver, Script},
    run,
    table::scenes,
};

/// When faults begin.
pub(super) const FROM: u64 = 60_000;
pub(super) const NAMESPACES: u64 = 50;
const OBJECTS: u64 = 2000;
/// The namespace of culprits.
const CULPRIT: u64 = 7;

/// A scene.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) name: String,
    pub(super) world: World,
    /// Culprits in a row, from each of so many namespaces.
    pub(super) culprits: usize,
    pub(super) attackers: u64,
    /// Each attacker begins so long after the one before.
    pub(super) apart: u64,
    /// All culprits come at once.
    pub(super) at_once: bool,
    /// Every so manieth record of the culprit's namespace is one, too.
    pub(super) each: u64,
    pub(super) namespaces: u64,
    pub(super) faults: Vec<(Range<u64>, Script)>,
    /// One record in so many microseconds.
    pub(super) each_us: usize,
    pub(super) until: u64,
    /// The reference's p99 of others' delay, in seconds.
    pub(super) reference: Option<f64>,
}

impl Scene {
    /// A scene in which nobody fails but by these faults.
    pub(super) fn new(what: &str, world: World, faults: Vec<(Range<u64>, Script)>) -> Self {
        Self {
            name: format!("{what} {}x{}", world.batch, world.lanes),
            world,
            culprits: 0,
            attackers: 1,
            apart: 0,
            at_once: false,
            each: 0,
            namespaces: NAMESPACES,
            faults,
            each_us: if world.batch > 1 { 2_500 } else { 12_500 },
            until: 960_000,
            reference: None,
        }
    }

    /// The records that arrive, in order.
    fn records(&self, seed: u64) -> Vec<Record> {
        let mut random = fastrand::Rng::with_seed(seed);
        // Zipf's law for namespaces, and each has its share of the objects.
        let weights: Vec<f64> = (1..=self.namespaces).map(|n| 1.0 / n as f64).collect();
        let total: f64 = weights.iter().sum();
        let mut record = |at: u64, culprit: Option<u64>| {
            let mut left = random.f64() * total;
            let drawn = weights.iter().position(|weight| {
                left -= weight;
                left < 0.0
            });
            let namespace = culprit.unwrap_or(drawn.unwrap_or(0) as u64);
            let each = OBJECTS / self.namespaces;
            let object = namespace * each + random.u64(0..each);
            let mine = self.each > 0 && namespace == CULPRIT % self.namespaces && at >= FROM;
            let culprit = culprit.is_some() || mine && random.u64(0..self.each) == 0;
            Record { at, namespace, object, culprit }
        };
        let mut records = Vec::new();
        for at in (0..1000 * (self.until - 60_000)).step_by(self.each_us) {
            records.push(record(at / 1000, None));
        }
        for number in 0..self.culprits {
            let attacker = number as u64 % self.attackers;
            let after = if self.at_once { 0 } else { number as u64 };
            let at = FROM + attacker * self.apart + after;
            records.push(record(at, Some((CULPRIT + attacker) % self.namespaces)));
        }
        records.sort_by_key(|record| record.at);
        records
    }

    fn run(&self, seed: u64) -> (Vec<Record>, Report) {
        let records = self.records(seed);
        let mut receiver = Receiver {
            scripts: self.faults.clone(),
            latency: self.world.latency,
            timeout: 10_000,
            random: fastrand::Rng::with_seed(seed + 1),
            last: 0,
            down_until: 0,
            crashes: 0,
        };
        let world = World { seed, ..self.world };
        let mut report = run(world, &records, &mut receiver, self.until);
        report.crashes = receiver.crashes;
        (records, report)
    }

    /// Whether a record is of others: the receiver takes them, and nobody of their namespace fails.
    fn is_of_others(&self, record: &Record) -> bool {
        let fails = self.faults.iter().any(|(_, script)| match script {
            Script::Culprit(_) => {
                (CULPRIT..CULPRIT + self.attackers).contains(&record.namespace)
                    && (self.culprits > 0 || self.each > 0)
                    && self.namespaces > 1
                    || record.culprit
            }
            Script::HalfOfNamespaces(_) => record.namespace.is_multiple_of(2),
            Script::Destination(_) => record.object.is_multiple_of(8),
            Script::QuarterOfObjects(_) => record.object.is_multiple_of(4),
            _ => false,
        });
        !fails
    }

    /// p50, p99 and maximum of others' delay in seconds, over records that arrive with the fault.
    fn delays(&self, records: &[Record], report: &Report) -> [f64; 3] {
        let others = records
            .iter()
            .enumerate()
            .filter(|(_, record)| record.at >= FROM && self.is_of_others(record));
        let mut delays: Vec<u64> = others
            .map(|(at, record)| report.delays.get(&at).copied().unwrap_or(self.until - record.at))
            .collect();
        delays.sort_unstable();
        [50, 99, 100].map(|percent| delays[(delays.len() - 1) * percent / 100] as f64 / 1000.0)
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// The complaints about the runs of a scene, whose median of p99 is `p99`.
fn complaints(scene: &Scene, runs: &[(Vec<Record>, Report)], p99: f64) -> Vec<String> {
    let mut complaints = Vec::new();
    for (seed, (records, report)) in runs.iter().enumerate() {
        // Where there is no room, those go that wait behind culprits of their namespace.
        let innocent = |record: &&usize| {
            let record = &records[**record];
            if scene.world.full_each > 0 { scene.is_of_others(record) } else { !record.culprit }
        };
        let innocents = report.letters.iter().filter(innocent).count();
        let others =
            report.open.iter().filter(|record| scene.is_of_others(&records[**record])).count();
        let no_culprit = !records.iter().any(|record| record.culprit);
        let lags = scene.world.batch == 1;
        for (what, count) in [
            ("innocents are given up", innocents),
            ("records of others are not delivered", others),
            (
                "records are set aside for the sink's faults",
                if no_culprit && !lags { report.aside_at_end } else { 0 },
            ),
        ] {
            if count > 0 {
                complaints.push(format!("{}, seed {seed}: {count} {what}", scene.name));
            }
        }
        if report.copied_bytes > scene.world.retention / 8 {
            complaints.push(format!("{}: copies of {} bytes", scene.name, report.copied_bytes));
        }
    }
    if let Some(reference) = scene.reference.filter(|reference| p99 > 1.25 * reference) {
        complaints
            .push(format!("{}: p99 {p99:.2} s, in the reference {reference:.2} s", scene.name));
    }
    complaints
}

#[test]
fn others_go_on_in_short_scenes() {
    let names = [
        "a 403 x500 500x1",
        "a 403 x10000 1x8",
        "a 403 x10000 at once 1x1",
        "b 500 x10000 500x1",
        "b reset x10000 1x8",
        "b hang x21 500x1",
        "b crash x400 500x8",
        "c 500 for half of the namespaces 500x8",
        "d3 403 for half at random 500x8",
        "e3 the same, one namespace 500x8",
        "g2 a culprit, 403 for 10 s of 20 500x1",
        "i hang of three namespaces 500x8",
        "j 403 x21, one namespace 1x8",
        "m 403 x1, a URL each 1x1",
        "n no leader 500x1",
        "kills, 403 x500 500x8",
        "full, 500 x500 1x8",
        "full, 500 for all 500x8",
        "full, kills, 500 x500 500x8",
    ];
    let scenes = scenes();
    for name in names {
        let scene = scenes.iter().find(|scene| scene.name == name).unwrap();
        let mut scene = Scene { until: 240_000, reference: None, ..scene.clone() };
        for (times, _) in &mut scene.faults {
            if times.end < u64::MAX {
                times.end = times.start + 60_000;
            }
        }
        let complaints = complaints(&scene, &[scene.run(1)], 0.0);
        assert!(complaints.is_empty(), "{complaints:#?}");
    }
}

/// Takes a minute: `cargo test --release others_go_on_in_every_scene -- --ignored --nocapture`.
#[test]
#[ignore = "takes a minute, and more without optimisation"]
fn others_go_on_in_every_scene() {
    let only = env::var("TIDINGS_MODEL_SCENE").unwrap_or_default();
    println!(
        "{:48} {:>23} {:>9}",
        "scene (others' delay in seconds)", "p50 / p99 / max", "reference"
    );
    let mut complaints = Vec::new();
    for scene in scenes().iter().filter(|scene| scene.name.contains(&only)) {
        let runs: Vec<_> = (0..5).map(|seed| scene.run(seed)).collect();
        let delays: Vec<_> =
            runs.iter().map(|(records, report)| scene.delays(records, report)).collect();
        let of = |at: usize| median(delays.iter().map(|delays| delays[at]).collect());
        let [p50, p99, most] = [0, 1, 2].map(of);
        let reference =
            scene.reference.map_or_else(String::new, |reference| format!("{reference:.2}"));
        let (_, report) = &runs[0];
        let Report {
            letters, relieved, open, set_aside, aside_at_end, redelivered, crashes, ..
        } = report;
        println!(
            "{:48} {p50:>7.2} {p99:>7.2} {most:>7.1} {reference:>9}  letters {}, for room {relieved}, \
             open {}, set aside {set_aside}, at the end {aside_at_end}, twice {redelivered}, crashes \
             {crashes}, first verdict {:?} s",
            scene.name,
            letters.len(),
            open.len(),
            report.first_letter.map(|at| at.saturating_sub(FROM) / 1000),
        );
        complaints.extend(self::complaints(scene, &runs, p99));
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
}
