//! One namespace's Events that a receiver fails at: the others' go on.

mod play;
mod receiving;
mod scenes;

use std::fmt::Write as _;
use std::time::Duration;

pub(crate) use self::play::stated;
use self::play::{Played, play};
use self::scenes::{FAULTS, Scene, scenes};
use crate::frame::{Company, Drill, Page, Row, Run};
use crate::judge::Verdict;
use crate::parts::Kafka;
use crate::several::play_all;

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "tenant",
    what: "a receiver fails at the Events of one namespace: those of the others arrive, none of them is \
           given up, and it is said whose fault it is",
    full: "17 faults, 1 to 10 000 Events, batches of 1 and 500, lanes 1 and 8: 234 scenes",
    short: Some("12 scenes"),
    company: Company::Never,
    long: true,
    run: |run| Box::pin(tenant(run)),
}];

/// So many scenes at once, in full and in short.
const AT_ONCE: (usize, usize) = (10, 4);

async fn tenant(run: Run) -> Page {
    let scenes = scenes(run);
    let needs_kafka = scenes.iter().any(|scene| scene.fault.needs_kafka());
    let kafka = if needs_kafka { Some(Kafka::start(&[]).await) } else { None };
    let kafka = kafka.as_ref();
    let played = play_all(scenes, run.size(AT_ONCE.0, AT_ONCE.1), async |scene: Scene| {
        play(scene, run, kafka.filter(|_| scene.fault.needs_kafka())).await
    })
    .await;
    Page::Rows(rows(&played))
}

/// One for each fault, of all its scenes.
fn rows(played: &[Played]) -> Vec<Row> {
    let of = |fault| played.iter().filter(move |played| played.scene.fault == fault);
    let faults = FAULTS.into_iter().filter(|fault| of(*fault).count() > 0);
    let rows = faults.map(|fault| {
        let mut sum = Verdict::default();
        let (mut dead_lettered, mut set_aside, mut queued, mut scenes) = (0, 0, 0, 0);
        let mut latest: Option<&Played> = None;
        for one in of(fault) {
            sum += one.verdict.clone();
            dead_lettered += one.dead_lettered;
            set_aside += one.set_aside;
            queued += one.queued;
            scenes += 1;
            latest = latest.filter(|before| before.delays.1 >= one.delays.1).or(Some(one));
        }
        let mut notes = format!(
            "{scenes} scenes; of the culprit's {dead_lettered} dead letters, {set_aside} set aside, \
             {queued} queued"
        );
        if let Some(Played { scene, delays: (_, most), .. }) = latest {
            let most = Duration::as_secs_f64(most);
            write!(notes, "; others' p99 {most:.1} s at most ({scene})").expect("a string");
        }
        Row { notes, lost: Some(0), ..sum.row(&fault.to_string(), "siem") }
    });
    rows.collect()
}
