//! The scenes of the model: who fails, and how the others fare.

use std::{env, ops::Range};

use super::{
    Destinations, Record, Report, World,
    receiver::{NO_LEADER, Receiver, Script, Wrong},
    run,
};

/// When faults begin.
const FROM: u64 = 60_000;
const NAMESPACES: u64 = 50;
const OBJECTS: u64 = 2000;
/// The namespace of culprits.
const CULPRIT: u64 = 7;

const B500X1: World = World {
    batch: 500,
    lanes: 1,
    latency: 50,
    retention: 1 << 30,
    destinations: Destinations::One,
    kills: &[],
    seed: 0,
};
const B500X8: World = World { lanes: 8, ..B500X1 };
const B1X8: World = World { batch: 1, lanes: 8, ..B500X1 };
const B1X1: World = World { batch: 1, latency: 5, ..B500X1 };

/// A scene.
#[derive(Clone)]
struct Scene {
    name: &'static str,
    world: World,
    /// Culprits in a row, from each of so many namespaces.
    culprits: usize,
    attackers: u64,
    /// Every so manieth record of the culprit's namespace is one, too.
    each: u64,
    namespaces: u64,
    faults: Vec<(Range<u64>, Script)>,
    /// Records a second.
    rate: f64,
    until: u64,
    /// The reference's p99 and maximum of others' delay, in seconds.
    reference: Option<(f64, f64)>,
}

fn scene(name: &'static str, world: World, faults: Vec<(Range<u64>, Script)>) -> Scene {
    let rate = if world.batch > 1 { 400.0 } else { 80.0 };
    Scene {
        name,
        world,
        culprits: 0,
        attackers: 1,
        each: 0,
        namespaces: NAMESPACES,
        faults,
        rate,
        until: 600_000,
        reference: None,
    }
}

fn culprit(name: &'static str, world: World, culprits: usize, wrong: Wrong) -> Scene {
    let faults = vec![(FROM..u64::MAX, Script::Culprit(wrong))];
    Scene { culprits, ..scene(name, world, faults) }
}

impl Scene {
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
        let mut at = 0.0;
        while at < self.until as f64 - 60_000.0 {
            records.push(record(at as u64, None));
            at += 1000.0 / self.rate;
        }
        for number in 0..self.culprits {
            let namespace = CULPRIT + number as u64 % self.attackers;
            records.push(record(FROM + number as u64, Some(namespace % self.namespaces)));
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
        };
        let world = World { seed, ..self.world };
        let report = run(world, &records, &mut receiver, self.until);
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
            Script::HalfOfNamespaces(_) => record.namespace % 2 == 0,
            Script::Destination(_) => record.object % 8 == 0,
            Script::QuarterOfObjects(_) => record.object % 4 == 0,
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
        let at = |part: f64| delays[((delays.len() - 1) as f64 * part) as usize] as f64 / 1000.0;
        [at(0.5), at(0.99), at(1.0)]
    }
}

fn scenes() -> Vec<Scene> {
    let during = FROM..FROM + 600_000;
    let mut scenes = Vec::new();
    let mut add = |scene: Scene, reference: Option<(f64, f64)>| {
        scenes.push(Scene { reference, ..scene });
    };
    add(culprit("a 403 x1 500x1", B500X1, 1, Wrong::Http(403)), Some((8.6, 17.0)));
    add(culprit("a 403 x1 1x8", B1X8, 1, Wrong::Http(403)), Some((0.26, 27.0)));
    add(culprit("a 403 x500 500x1", B500X1, 500, Wrong::Http(403)), Some((4.1, 13.0)));
    for (world, name, p99) in [
        (B500X1, "a 403 x10000 500x1", 24.0),
        (B500X8, "a 403 x10000 500x8", 6.0),
        (B1X8, "a 403 x10000 1x8", 12.0),
        (B1X1, "a 403 x10000 1x1", 15.0),
    ] {
        add(culprit(name, world, 10_000, Wrong::Http(403)), Some((p99, 1e9)));
    }
    for (world, name, p99) in [(B500X1, "a 403 30 % 500x1", 10.0), (B1X8, "a 403 30 % 1x8", 6.6)] {
        let scene = culprit(name, world, 0, Wrong::Http(403));
        add(Scene { each: 3, ..scene }, Some((p99, 1e9)));
    }
    add(culprit("b 500 x21 500x1", B500X1, 21, Wrong::Http(500)), Some((24.0, 1e9)));
    add(culprit("b 500 x10000 500x1", B500X1, 10_000, Wrong::Http(500)), Some((24.0, 1e9)));
    add(culprit("b 500 x10000 1x8", B1X8, 10_000, Wrong::Http(500)), Some((17.0, 1e9)));
    add(culprit("b reset x10000 500x1", B500X1, 10_000, Wrong::Reset), Some((0.11, 1e9)));
    add(culprit("b reset x10000 1x8", B1X8, 10_000, Wrong::Reset), Some((0.2, 1e9)));
    for (world, name, count, p99) in [
        (B500X1, "b hang x1 500x1", 1, 32.0),
        (B500X8, "b hang x1 500x8", 1, 0.11),
        (B1X8, "b hang x1 1x8", 1, 0.7),
        (B1X1, "b hang x1 1x1", 1, 35.0),
        (B500X1, "b hang x21 500x1", 21, 32.0),
        (B1X8, "b hang x21 1x8", 21, 36.0),
        (B500X1, "b hang x10000 500x1", 10_000, 33.0),
        (B500X8, "b hang x10000 500x8", 10_000, 31.0),
        (B1X8, "b hang x10000 1x8", 10_000, 36.0),
        (B1X1, "b hang x10000 1x1", 10_000, 35.0),
    ] {
        add(culprit(name, world, count, Wrong::Hang), Some((p99, 41.0)));
    }
    let long = 1_200_000;
    for (world, name, p99, most) in [
        (B500X8, "c half of namespaces 500 500x8", 15.0, 29.0),
        (B1X8, "c half of namespaces 500 1x8", 110.0, 128.0),
        (B500X1, "c half of namespaces 500 500x1", 37.0, 41.0),
    ] {
        let faults = vec![(during.clone(), Script::HalfOfNamespaces(Wrong::Http(500)))];
        add(Scene { until: long, ..scene(name, world, faults) }, Some((p99, most)));
    }
    for (world, script, name, p99) in [
        (B500X1, Script::Random(30, Wrong::Http(503)), "d random 503 500x1", 16.0),
        (B500X8, Script::Random(30, Wrong::Http(429)), "d random 429 500x8", 16.0),
        (B1X8, Script::Random(30, Wrong::Http(429)), "d random 429 1x8", 197.0),
        (B500X8, Script::Random(30, Wrong::Http(403)), "d2 random 403 500x8", 1e9),
        (B500X8, Script::Random(50, Wrong::Http(403)), "d3 random half 403 500x8", 156.0),
        (B500X8, Script::All(Wrong::Http(401)), "e all 401 500x8", 1e9),
        (B500X8, Script::All(Wrong::Http(403)), "e all 403 500x8", 1e9),
        (B1X1, Script::All(Wrong::Http(403)), "e all 403 1x1", 1e9),
    ] {
        let faults = vec![(FROM..FROM + 300_000, script)];
        add(Scene { until: 900_000, ..scene(name, world, faults) }, Some((p99, 1e9)));
    }
    for (world, namespaces, name) in [
        (B500X8, 50, "e2 a culprit, then all 403 500x8"),
        (B500X8, 1, "e3 one namespace, a culprit, then all 403 500x8"),
        (B1X8, 1, "e3 one namespace, a culprit, then all 403 1x8"),
        (B500X1, 1, "e3 one namespace, a culprit, then all 403 500x1"),
    ] {
        let all = FROM + 60_000..FROM + 360_000;
        let mut scene = culprit(name, world, 1, Wrong::Http(403));
        scene.faults.push((all, Script::All(Wrong::Http(403))));
        add(Scene { namespaces, until: 900_000, ..scene }, None);
    }
    for (world, name, f, g) in [
        (B500X8, ["f 502 each 3 s 500x8", "g 403 10 s of 20 s 500x8", "g2 500x8"], 101.0, 61.0),
        (B1X8, ["f 502 each 3 s 1x8", "g 403 10 s of 20 s 1x8", "g2 1x8"], 427.0, 439.0),
        (B500X1, ["f 502 each 3 s 500x1", "g 403 10 s of 20 s 500x1", "g2 500x1"], 34.0, 45.0),
    ] {
        let script = Script::Periods { on: 3000, of: 6000, wrong: Wrong::Http(502) };
        let until = 900_000;
        let faults = vec![(during.clone(), script)];
        add(Scene { until, ..scene(name[0], world, faults) }, Some((f, 1e9)));
        let script = Script::Periods { on: 10_000, of: 20_000, wrong: Wrong::Http(403) };
        let faults = vec![(during.clone(), script.clone())];
        add(Scene { until, ..scene(name[1], world, faults) }, Some((g, 1e9)));
        let mut scene = culprit(name[2], world, 1, Wrong::Http(403));
        scene.faults.push((FROM + 60_000..FROM + 600_000, script));
        add(Scene { until, ..scene }, Some((g.max(82.0), 1e9)));
    }
    for (world, name, p99, most) in
        [(B500X8, "h quarter of objects 500 500x8", 19.0, 77.0), (B1X8, "h 1x8", 141.0, 201.0)]
    {
        let faults = vec![(FROM..3_660_000, Script::QuarterOfObjects(Wrong::Http(500)))];
        add(Scene { until: 4_200_000, ..scene(name, world, faults) }, Some((p99, most)));
    }
    for (world, names, refused, hangs) in [
        (B500X8, ["i three namespaces 403 500x8", "i three namespaces hang 500x8"], 0.1, 56.0),
        (B1X8, ["i three namespaces 403 1x8", "i three namespaces hang 1x8"], 22.0, 64.0),
        (B500X1, ["i three namespaces 403 500x1", "i three namespaces hang 500x1"], 1.8, 69.0),
    ] {
        for (name, wrong, p99) in
            [(names[0], Wrong::Http(403), refused), (names[1], Wrong::Hang, hangs)]
        {
            let scene = culprit(name, world, 3000, wrong);
            add(Scene { attackers: 3, ..scene }, Some((p99, 81.0)));
        }
    }
    for (world, name, p99) in [
        (B500X8, "j one namespace, 403 x21 500x8", 29.0),
        (B1X8, "j one namespace, 403 x21 1x8", 23.0),
        (B500X1, "j one namespace, 403 x21 500x1", 39.0),
    ] {
        let scene = culprit(name, world, 21, Wrong::Http(403));
        add(Scene { namespaces: 1, ..scene }, Some((p99, 1e9)));
    }
    let full = World { retention: 16 << 20, ..B500X8 };
    add(culprit("k a namespace fills 500x8", full, 20_000, Wrong::Http(500)), Some((14.0, 1e9)));
    let scene_k = culprit("k five namespaces fill 500x8", full, 20_000, Wrong::Http(500));
    add(Scene { attackers: 5, ..scene_k }, Some((11.0, 1e9)));
    for (world, name, p99) in [(B1X1, "l chat 1x1", 4.8), (B1X8, "l chat 1x8", 5.5)] {
        let mut scene = culprit(name, world, 1, Wrong::Http(400));
        scene.faults.push((0..u64::MAX, Script::Rate(1000)));
        add(Scene { rate: 0.5, ..scene }, Some((p99, 1e9)));
    }
    for (world, name, p99) in [(B1X8, "m a URL each 1x8", 0.3), (B1X1, "m a URL each 1x1", 4.9)] {
        let scene = culprit(
            name,
            World { destinations: Destinations::ByNamespace, ..world },
            1,
            Wrong::Http(403),
        );
        add(scene, Some((p99, 1e9)));
    }
    for (world, wrong, name, p99) in [
        (B500X1, Wrong::Named(NO_LEADER), "n a partition without a leader 500x1", 40.0),
        (B500X8, Wrong::Named(NO_LEADER), "n a partition without a leader 500x8", 40.0),
        (B1X8, Wrong::Http(NO_LEADER), "n a partition without a leader 1x8", 40.0),
        (B500X1, Wrong::Named(403), "n an index forbidden 500x1", 20.0),
        (B500X8, Wrong::Named(403), "n an index forbidden 500x8", 20.0),
        (B1X8, Wrong::Http(404), "n a URL wrong 1x8", 20.0),
        (B500X1, Wrong::Http(403), "n a topic forbidden 500x1", 20.0),
    ] {
        let world = World { destinations: Destinations::ByObject(8), ..world };
        let faults = vec![(during.clone(), Script::Destination(wrong))];
        add(Scene { until: long, ..scene(name, world, faults) }, Some((p99, 1e9)));
    }
    let kills: &[u64] = &[70_000, 75_300, 120_000, 300_000];
    for (world, wrong, name) in [
        (B500X8, Wrong::Http(403), "kills 403 x500 500x8"),
        (B1X8, Wrong::Http(500), "kills 500 x500 1x8"),
        (B500X1, Wrong::Hang, "kills hang x21 500x1"),
        (B500X8, Wrong::Named(400), "kills named 400 x500 500x8"),
    ] {
        add(culprit(name, World { kills, ..world }, 500, wrong), None);
    }
    scenes
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

#[test]
#[ignore = "takes minutes: make model"]
fn others_go_on_in_every_scene() {
    let seeds = env::var("TIDINGS_MODEL_SEEDS").map_or(5, |seeds| seeds.parse().unwrap());
    let only = env::var("TIDINGS_MODEL_SCENE").unwrap_or_default();
    println!("{:46} {:>24}   {:>15}", "scene", "p50 / p99 / max", "reference");
    for scene in scenes().iter().filter(|scene| scene.name.contains(&only)) {
        let runs: Vec<_> = (0..seeds).map(|seed| scene.run(seed)).collect();
        let delays: Vec<_> =
            runs.iter().map(|(records, report)| scene.delays(records, report)).collect();
        let of = |at: usize| median(delays.iter().map(|delays| delays[at]).collect());
        let convicted = |(records, report): &(Vec<Record>, Report)| {
            report.letters.iter().filter(|record| !records[**record].culprit).count()
        };
        let innocents: usize = runs.iter().map(convicted).sum();
        let (records, report) = &runs[0];
        let open = report.open.iter().filter(|record| scene.is_of_others(&records[**record]));
        let (p99, most) = scene.reference.unwrap_or((0.0, 0.0));
        println!(
            "{:46} {:>7.2} {:>7.2} {:>7.1}   {p99:>7.2} {most:>7.1}  innocents {innocents}, letters {}, \
             open {} ({} of others), aside {} ({} at the end, {} kB), twice {}, first letter {:?}",
            scene.name,
            of(0),
            of(1),
            of(2),
            report.letters.len(),
            report.open.len(),
            open.count(),
            report.set_aside,
            report.aside_at_end,
            report.copied_bytes / 1000,
            report.redelivered,
            report.first_letter.map(|at| at.saturating_sub(FROM) / 1000),
        );
    }
}
