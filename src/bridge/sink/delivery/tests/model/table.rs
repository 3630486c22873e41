//! The table of scenes, with the p99 of others' delay, in seconds, that a simulation of the policy had in
//! them before it was built.

use super::{
    Destinations, World,
    receiver::{NO_LEADER, SETS, Script, Wrong},
    scenes::{FROM, NAMESPACES, Scene},
};

/// Batches of 500 in one lane, of 500 in eight, single records in eight, and single records in one.
const B500X1: World = World {
    batch: 500,
    lanes: 1,
    latency: 50,
    retention: 1 << 30,
    destinations: Destinations::One,
    kills: &[],
    full_each: 0,
    seed: 0,
};
const B500X8: World = World { lanes: 8, ..B500X1 };
const B1X8: World = World { batch: 1, lanes: 8, ..B500X1 };
const B1X1: World = World { batch: 1, latency: 5, ..B500X1 };

/// The bridge is killed at these times.
const KILLS: &[u64] = &[70_000, 75_300, 120_000, 300_000];

/// The sink's own faults last so long.
const LASTS: u64 = 600_000;

/// Culprits in a row.
fn culprits(what: &str, world: World, culprits: usize, wrong: Wrong) -> Scene {
    Scene { culprits, ..Scene::new(what, world, vec![(FROM..u64::MAX, Script::Culprit(wrong))]) }
}

/// The sink's own fault, for so long.
fn fault(what: &str, world: World, lasts: u64, script: Script) -> Scene {
    let until = FROM + lasts + LASTS;
    Scene { until, ..Scene::new(what, world, vec![(FROM..FROM + lasts, script)]) }
}

/// A scene in several worlds.
fn add(scenes: &mut Vec<Scene>, worlds: &[(World, f64)], scene: impl Fn(World) -> Scene) {
    for (world, reference) in worlds {
        scenes.push(Scene { reference: Some(*reference), ..scene(*world) });
    }
}

pub(super) fn scenes() -> Vec<Scene> {
    let mut scenes = Vec::new();
    of_culprits(&mut scenes);
    of_sinks(&mut scenes);
    of_attackers(&mut scenes);
    of_destinations(&mut scenes);
    of_kills(&mut scenes);
    of_full_journals(&mut scenes);
    scenes
}

fn of_culprits(scenes: &mut Vec<Scene>) {
    let refused = Wrong::Http(403);
    let broken = Wrong::Http(500);
    let one: &[_] = &[(B500X1, 8.6), (B1X8, 0.26)];
    add(scenes, one, |world| culprits("a 403 x1", world, 1, refused));
    add(scenes, &[(B500X1, 4.1)], |world| culprits("a 403 x500", world, 500, refused));
    let all = |of: [f64; 4]| [(B500X1, of[0]), (B500X8, of[1]), (B1X8, of[2]), (B1X1, of[3])];
    add(scenes, &all([24.0, 6.0, 12.0, 15.0]), |world| {
        culprits("a 403 x10000", world, 10_000, refused)
    });
    // More than is in hand. The simulation had all of the journal in sight.
    add(scenes, &[(B500X1, 24.0), (B1X8, 24.0), (B1X1, 24.0)], |world| Scene {
        at_once: true,
        ..culprits("a 403 x10000 at once", world, 10_000, refused)
    });
    add(scenes, &[(B500X1, 10.0), (B1X8, 6.6)], |world| Scene {
        each: 3,
        ..culprits("a 403 of a third", world, 0, refused)
    });
    for (what, count) in [("b 500 x1", 1), ("b 500 x21", 21), ("b 500 x10000", 10_000)] {
        add(scenes, &[(B500X1, 24.0), (B1X8, 17.0)], |world| culprits(what, world, count, broken));
    }
    for (what, count) in [("b reset x1", 1), ("b reset x10000", 10_000)] {
        add(scenes, &[(B500X1, 0.11), (B1X8, 0.2)], |world| {
            culprits(what, world, count, Wrong::Reset)
        });
    }
    // All forty objects of a namespace, and the receiver is away for two seconds each time. The simulation had no
    // such receiver.
    for world in [B500X1, B500X8, B1X8] {
        scenes.push(culprits("b crash x400", world, 400, Wrong::Crash(2000)));
    }
    add(scenes, &all([32.0, 0.11, 0.7, 35.0]), |world| {
        culprits("b hang x1", world, 1, Wrong::Hang)
    });
    add(scenes, &[(B500X1, 32.0), (B1X8, 36.0)], |world| {
        culprits("b hang x21", world, 21, Wrong::Hang)
    });
    add(scenes, &all([33.0, 31.0, 36.0, 35.0]), |world| {
        culprits("b hang x10000", world, 10_000, Wrong::Hang)
    });
}

fn of_sinks(scenes: &mut Vec<Scene>) {
    let half = Script::HalfOfNamespaces(Wrong::Http(500));
    add(scenes, &[(B500X8, 15.0), (B1X8, 110.0), (B500X1, 37.0)], |world| {
        fault("c 500 for half of the namespaces", world, LASTS, half.clone())
    });
    for (what, worlds, wrong) in [
        ("d 503 at random", [(B500X1, 16.0), (B500X8, 16.0), (B1X8, 197.0)], Wrong::Http(503)),
        ("d 429 at random", [(B500X1, 16.0), (B500X8, 16.0), (B1X8, 197.0)], Wrong::Http(429)),
    ] {
        let script = Script::Random(30, wrong);
        add(scenes, &worlds, |world| fault(what, world, LASTS, script.clone()));
    }
    let refused = Wrong::Http(403);
    let many = f64::INFINITY;
    add(scenes, &[(B500X8, many), (B1X8, many)], |world| {
        fault("d2 403 at random", world, LASTS, Script::Random(30, refused))
    });
    add(scenes, &[(B500X8, 156.0)], |world| {
        fault("d3 403 for half at random", world, LASTS, Script::Random(50, refused))
    });
    for (what, wrong) in [("e 401 for all", Wrong::Http(401)), ("e 403 for all", refused)] {
        add(scenes, &[(B500X8, many), (B1X8, many), (B1X1, many)], |world| {
            fault(what, world, 300_000, Script::All(wrong))
        });
    }
    let all = (FROM + 60_000..FROM + 360_000, Script::All(refused));
    let after_a_culprit = |what, namespaces, world| {
        let mut scene = culprits(what, world, 1, refused);
        scene.faults.push(all.clone());
        Scene { namespaces, ..scene }
    };
    let worlds = [(B500X8, many), (B1X8, many), (B500X1, many)];
    add(scenes, &worlds, |world| after_a_culprit("e2 a culprit, 403 for all", NAMESPACES, world));
    add(scenes, &worlds, |world| after_a_culprit("e3 the same, one namespace", 1, world));
    let periods = |on, of, wrong| Script::Periods { on, of, wrong };
    add(scenes, &[(B500X8, 101.0), (B1X8, 427.0), (B500X1, 34.0)], |world| {
        fault("f 502 for 3 s of 6", world, LASTS, periods(3000, 6000, Wrong::Http(502)))
    });
    let worlds = [(B500X8, 61.0), (B1X8, 439.0), (B500X1, 45.0)];
    add(scenes, &worlds, |world| {
        fault("g 403 for 10 s of 20", world, LASTS, periods(10_000, 20_000, refused))
    });
    add(scenes, &[(B500X8, 82.0), (B1X8, 348.0), (B500X1, 50.0)], |world| {
        let mut scene = culprits("g2 a culprit, 403 for 10 s of 20", world, 1, refused);
        let times = FROM + 60_000..FROM + LASTS;
        scene.faults.push((times, periods(10_000, 20_000, refused)));
        scene
    });
    let quarter = Script::QuarterOfObjects(Wrong::Http(500));
    add(scenes, &[(B500X8, 19.0), (B1X8, 141.0)], |world| {
        fault("h 500 for a quarter of the objects", world, 3_600_000, quarter.clone())
    });
}

fn of_attackers(scenes: &mut Vec<Scene>) {
    let refused = Wrong::Http(403);
    // The simulation had 0.1 and 1.8 with batches of 500: how many its attackers sent is not known.
    add(scenes, &[(B500X8, 2.0), (B1X8, 22.0), (B500X1, 2.7)], |world| Scene {
        attackers: 3,
        ..culprits("i 403 of three namespaces", world, 3000, refused)
    });
    add(scenes, &[(B500X8, 56.0), (B1X8, 64.0), (B500X1, 69.0)], |world| Scene {
        attackers: 3,
        ..culprits("i hang of three namespaces", world, 3000, Wrong::Hang)
    });
    add(scenes, &[(B500X8, 8.0), (B1X8, 25.0), (B500X1, 37.0)], |world| Scene {
        attackers: 3,
        apart: 220_000,
        ..culprits("i2 hang of three, one after the other", world, 3, Wrong::Hang)
    });
    add(scenes, &[(B500X8, 29.0), (B1X8, 23.0), (B500X1, 39.0)], |world| Scene {
        namespaces: 1,
        ..culprits("j 403 x21, one namespace", world, 21, refused)
    });
    let small = World { retention: 16 << 20, ..B500X8 };
    for (what, attackers, p99) in [("k one fills", 1, 14.0), ("k five fill", 5, 11.0)] {
        add(scenes, &[(small, p99)], |world| Scene {
            attackers,
            ..culprits(what, world, 20_000, Wrong::Http(500))
        });
    }
    add(scenes, &[(B1X1, 4.8), (B1X8, 5.5)], |world| {
        let mut scene = culprits("l 400 x1, one a second", world, 1, Wrong::Http(400));
        scene.faults.push((0..u64::MAX, Script::Rate(1000)));
        Scene { each_us: 2_000_000, ..scene }
    });
}

fn of_destinations(scenes: &mut Vec<Scene>) {
    let by_namespace = |world| World { destinations: Destinations::ByNamespace, ..world };
    add(scenes, &[(B1X8, 0.3), (B1X1, 4.9)], |world| {
        culprits("m 403 x1, a URL each", by_namespace(world), 1, Wrong::Http(403))
    });
    for world in [B500X1, B500X8, B1X8] {
        let world = World { destinations: Destinations::ByObject(SETS), ..world };
        scenes.push(Scene {
            at_once: true,
            until: 240_000,
            ..culprits(
                "o 400 x10000 at once, a partition's set each",
                world,
                10_000,
                Wrong::Sets(400),
            )
        });
    }
    for (what, wrong, worlds) in [
        ("n no leader", Wrong::Named(NO_LEADER), [B500X1, B500X8]),
        ("n a URL that is away", Wrong::Http(NO_LEADER), [B1X8, B1X1]),
        ("n an index forbidden", Wrong::Named(403), [B500X1, B500X8]),
        ("n a URL forbidden", Wrong::Http(403), [B1X8, B1X1]),
        ("n a topic forbidden", Wrong::Http(403), [B500X1, B500X8]),
    ] {
        // It is set aside after 30 s, and 10 s where the receiver says that it is the record.
        add(scenes, &worlds.map(|world| (world, 30.0)), |world| {
            let world = World { destinations: Destinations::ByObject(8), ..world };
            fault(what, world, LASTS, Script::Destination(wrong))
        });
    }
}

fn of_kills(scenes: &mut Vec<Scene>) {
    for (what, world, wrong) in [
        ("kills, 403 x500", B500X8, Wrong::Http(403)),
        ("kills, 500 x500", B1X8, Wrong::Http(500)),
        ("kills, hang x500", B500X1, Wrong::Hang),
        ("kills, 400 by itself x500", B500X8, Wrong::Named(400)),
    ] {
        scenes.push(culprits(what, World { kills: KILLS, ..world }, 500, wrong));
    }
}

fn of_full_journals(scenes: &mut Vec<Scene>) {
    let full = |world| World { full_each: 50, ..world };
    for (what, wrong) in [
        ("full, 403 x500", Wrong::Http(403)),
        ("full, 500 x500", Wrong::Http(500)),
        ("full, hang x500", Wrong::Hang),
    ] {
        for world in [B500X1, B500X8, B1X8] {
            scenes.push(culprits(what, full(world), 500, wrong));
        }
    }
    for world in [B500X8, B1X8] {
        scenes.push(Scene {
            attackers: 3,
            ..culprits("full, 500 of three namespaces", full(world), 3000, Wrong::Http(500))
        });
        for (what, wrong) in [
            ("full, 403 for all", Wrong::Http(403)),
            ("full, 500 for all", Wrong::Http(500)),
            ("full, hang for all", Wrong::Hang),
        ] {
            let mut scene = culprits(what, full(world), 1, Wrong::Http(500));
            scene.faults.push((FROM + 60_000..FROM + 360_000, Script::All(wrong)));
            scenes.push(scene);
        }
    }
    scenes.push(culprits(
        "full, kills, 500 x500",
        World { kills: KILLS, ..full(B500X8) },
        500,
        Wrong::Http(500),
    ));
}
