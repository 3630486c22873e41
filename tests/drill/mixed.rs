//! Everything at once, by seed.
//!
//! Faults of all kinds, each dealt as often as any other, one or two at a time, under one load, while
//! every kind of sink takes part. Between the chapters etcd is restored from a snapshot: under the
//! running bridge, behind what it knows, and while it is down, past that.

mod harm;
mod others;
mod play;
pub(crate) mod stated;
mod steady;
mod tally;

use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::time::sleep;

use self::harm::Harm;
use self::play::Play;
use self::steady::Life;
use self::tally::Tally;
use crate::accounts::number;
use crate::frame::{Company, Drill, Page, Run};
use crate::load::{Writer, Writing};
use crate::parts::Part as _;
use crate::receiver::Mode;
use crate::retention::dropped;
use crate::wait::until_within;

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "mixed",
    what: "faults of every kind at every kind of sink, one or two at a time, by seed; etcd restored \
           twice; in the second half no kills",
    full: "30 minutes at 300/s",
    short: Some("20 s at 200/s"),
    company: Company::Any,
    long: true,
    run: |run| Box::pin(mixed(run)),
}];

/// An open watch is probed every 15 s, and what is found is believed when it has stood for 30 s.
const EPOCH_IS_NOTICED_WITHIN: Duration = Duration::from_mins(5);
/// So many events behind what the laggard has had are dropped before it is back.
const OVERRUN: u64 = 500;

/// How large all is.
#[derive(Clone, Copy)]
struct Size {
    rate: u32,
    /// No fault of the deck lasts longer.
    longest: Duration,
    retention: &'static str,
    dark: Duration,
}

/// A fault that takes as long as it takes.
#[derive(Clone, Copy, Debug)]
enum Slow {
    Dark,
    Token,
    StandStill,
}

/// A stretch with one history of the API server.
struct Chapter {
    lasts: Duration,
    /// Whether the bridge may be ended; if not, it is looked at whether it is steady.
    ends: bool,
    slow: &'static [Slow],
    then: Then,
}

#[derive(Clone, Copy)]
enum Then {
    RestoredUnderTheBridge,
    RestoredWhileItIsDown,
    TheEnd,
}

async fn mixed(run: Run) -> Page {
    let length = run.size(Duration::from_mins(30), Duration::from_secs(20));
    let size = run.size(
        Size {
            rate: 300,
            longest: Duration::from_secs(8),
            retention: "8MiB",
            dark: Duration::from_secs(90),
        },
        Size {
            rate: 200,
            longest: Duration::from_millis(1_500),
            retention: "4MiB",
            dark: Duration::ZERO,
        },
    );
    let mut play = match Play::open(run.seed, size.retention).await {
        Ok(play) => play,
        Err(why) => return Page::Skipped(why),
    };
    let (mut random, mut tally) = (Rng::with_seed(run.seed), Tally::default());
    let (mut writer, mut harms, mut steady) = (play.stage.writer(), 0, String::new());
    for chapter in chapters(run, length) {
        let life = if chapter.ends { None } else { Some(Life::of(&play.stage.bridge).await) };
        let writing = Writing::start(writer, size.rate);
        harms += faults(&mut play, &chapter, size, &mut random).await;
        writer = writing.stop().await;
        if let Some(life) = life {
            play.stage.settle().await;
            steady = life.judge(&play.stage.bridge).await;
        }
        tally.close(&mut play).await;
        writer = match chapter.then {
            Then::RestoredUnderTheBridge => restored_under_it(&play, writer).await,
            Then::RestoredWhileItIsDown => restored_while_down(&mut play, writer).await,
            Then::TheEnd => writer,
        };
    }
    let fault = format!("{harms} faults in {length:?} at {}/s, seed {}", size.rate, run.seed);
    let rows = tally.rows(&play, &fault, &steady);
    play.stage.bridge.stop_in_order().await;
    Page::Rows(rows)
}

fn chapters(run: Run, length: Duration) -> Vec<Chapter> {
    let (quarter, half) = (length / 4, length / 2);
    if run.short {
        let then = Then::RestoredWhileItIsDown;
        return vec![
            Chapter { lasts: half, ends: true, slow: &[], then },
            Chapter { lasts: half, ends: false, slow: &[], then: Then::TheEnd },
        ];
    }
    use Slow::{Dark, StandStill, Token};
    vec![
        Chapter { lasts: quarter, ends: true, slow: &[Dark], then: Then::RestoredUnderTheBridge },
        Chapter {
            lasts: quarter,
            ends: true,
            slow: &[Token, StandStill],
            then: Then::RestoredWhileItIsDown,
        },
        Chapter { lasts: half, ends: false, slow: &[Dark, Token, StandStill], then: Then::TheEnd },
    ]
}

/// Does harm for so long, and mends all of it. Answers how often.
async fn faults(play: &mut Play, chapter: &Chapter, size: Size, random: &mut Rng) -> usize {
    let (began, mut harms, mut deck) = (Instant::now(), 0, Vec::new());
    // One sink is away beside all that, until the journal has dropped what it has not had.
    let mut away = Some(OVERRUN + last_sequence(play).await);
    play.laggard_is(Mode::Down).await;
    harms += 1;
    let mut slow: Vec<_> = chapter.slow.iter().enumerate().collect();
    while began.elapsed() < chapter.lasts {
        let due =
            |at: usize| chapter.lasts.mul_f64((at + 1) as f64 / (chapter.slow.len() + 1) as f64);
        if let Some(next) = slow.pop_if(|(at, _)| began.elapsed() > due(*at)) {
            tell(began, next.1);
            harms += 1;
            slowly(play, *next.1, size).await;
        } else {
            if deck.len() < 2 {
                deck.extend(Harm::deck(random, chapter.ends));
            }
            harms += round(play, &mut deck, size, random, began).await;
        }
        play.heal().await;
        sleep(size.longest.mul_f64(random.f64()) / 2).await;
        if let Some(overrun) = away
            && dropped(&play.stage).await >= overrun
        {
            tell(began, &"the laggard is back");
            play.laggard_is(Mode::Take).await;
            away = None;
        }
    }
    play.laggard_is(Mode::Take).await;
    harms
}

/// One fault of the deck, or two.
async fn round(
    play: &mut Play,
    deck: &mut Vec<Harm>,
    size: Size,
    random: &mut Rng,
    began: Instant,
) -> usize {
    let first = deck.pop().expect("a deck that is not empty");
    let second = deck.pop_if(|second| random.u8(..3) == 0 && second.goes_with(&first));
    let both: Vec<Harm> = [first].into_iter().chain(second).collect();
    for harm in &both {
        tell(began, harm);
        play.harm(harm, size.longest.mul_f64(random.f64())).await;
    }
    sleep(size.longest.mul_f64(random.f64())).await;
    both.len()
}

async fn slowly(play: &mut Play, slow: Slow, size: Size) {
    match slow {
        Slow::Dark => play.dark(size.dark).await,
        Slow::Token => play.change_token().await,
        Slow::StandStill => play.stand_still(size.longest).await,
    }
}

fn tell(began: Instant, what: &impl std::fmt::Debug) {
    eprintln!("  mixed: {:6.1} s: {what:?}", began.elapsed().as_secs_f64());
}

async fn last_sequence(play: &Play) -> u64 {
    number(&play.stage.bridge.status().await["journal"], "nextSequence") - 1
}

/// Nothing ends and nothing is said: an open watch shows nothing of it, nor what is new since.
async fn restored_under_it(play: &Play, writer: Writer) -> Writer {
    let (stage, before) = (&play.stage, epochs(play).await);
    let snapshot = stage.server.snapshot();
    undone(play, 2_000).await;
    stage.server.rewind(&snapshot);
    for _ in 0..20 {
        stage.writer().write_alone("Unseen", "written behind a watch that is blind");
    }
    noticed(play, before).await;
    writer
}

/// The API server comes back with another history, which has as many revisions and more.
async fn restored_while_down(play: &mut Play, writer: Writer) -> Writer {
    let snapshot = play.stage.server.snapshot();
    undone(play, 200).await;
    play.stage.bridge.kill9();
    play.others.forget_waits();
    play.stage.server.restore(&snapshot);
    let writer = writer.burst(1_000).await;
    play.stage.open().await;
    noticed(play, 0).await;
    writer
}

/// Writes what the restored history has not. All of it is delivered before.
async fn undone(play: &Play, events: usize) {
    let mut writer = play.stage.writer();
    for _ in 0..events {
        writer.write_alone("Undone", "of a history that ends");
    }
    play.stage.settle().await;
}

async fn noticed(play: &Play, before: u64) {
    until_within(EPOCH_IS_NOTICED_WITHIN, "the new epoch is stated", async || {
        epochs(play).await > before
    })
    .await;
    play.stage.settle().await;
}

async fn epochs(play: &Play) -> u64 {
    number(&play.stage.bridge.status().await["ingest"], "epochs")
}
