//! The drills `truth`: what the bridge says of itself, held after each kill against what its
//! receivers got and what the API server was told, version by version.
//!
//! Each has a journal of its own size. There are sinks with every `correlate.mode` and every `overflow`; they are away in turn until the journal is past its
//! retention, `match` and the sources are changed between runs, and the bridge is killed at random
//! points. The oracle computes nothing from what the bridge says: how many versions there are it
//! has from the API server, how many were delivered from the receivers.

mod oracle;
mod world;
mod written;

use futures_util::future::LocalBoxFuture;

use self::world::{Act, World};
use crate::frame::{Company, Drill, Page, Row, Run};
use crate::judge::Verdict;

pub(crate) const DRILLS: [Drill; 4] = [
    drill("truth-1", |run| Box::pin(truth(run, 1))),
    drill("truth-4", |run| Box::pin(truth(run, 4))),
    drill("truth-16", |run| Box::pin(truth(run, 16))),
    drill("truth-64", |run| Box::pin(truth(run, 64))),
];

const fn drill(name: &'static str, run: fn(Run) -> LocalBoxFuture<'static, Page>) -> Drill {
    Drill {
        name,
        what: "kill -9 at random points of a bridge with so many MiB of journal, sinks away past \
               retention, matches and sources changed: each statement is exact",
        full: "50 kills",
        short: Some("5 kills"),
        company: Company::Any,
        long: true,
        run,
    }
}

async fn truth(run: Run, mib: u64) -> Page {
    let kills = run.size(50, 5);
    let seed = run.seed.wrapping_add(mib);
    let mut world = World::set(mib << 20, seed).await;
    for act in acts(kills, seed) {
        world.round(act).await;
    }
    let (found, findings) = world.finish().await;
    let fault = format!("{kills} × kill -9, {mib} MiB of journal");
    let said = |(sink, verdict, said): (_, Verdict, String)| {
        // Where `suppress` sums up, or a match refuses, versions do not arrive and are not lost.
        Row { lost: None, notes: said, ..verdict.row(&fault, sink) }
    };
    let rows: Vec<Row> = found.into_iter().map(said).collect();
    if !findings.is_empty() {
        for row in rows {
            eprintln!("  {}: {}", row.sink, row.notes);
        }
        let (count, seed) = (findings.len(), run.seed);
        let findings = findings.join("\n  ");
        panic!("{count} false statements, the first of each kind; --seed {seed}\n  {findings}");
    }
    Page::Rows(rows)
}

/// The acts before each kill: all that there are, again and again, in an order left to chance.
fn acts(kills: usize, seed: u64) -> Vec<Act> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut acts = Vec::new();
    while acts.len() < kills {
        let mut all = Act::ALL;
        random.shuffle(&mut all);
        acts.extend(all);
    }
    acts.truncate(kills);
    acts
}
