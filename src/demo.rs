//! `tidings demo`: the whole bridge at work on one machine and without a cluster.
//!
//! An API server in this process tells a cluster's stories. The bridge is this same program,
//! started as a user starts it, in a process of its own, so that it can be killed for real. Kafka,
//! a collector and a webhook receive over their own protocols. In the course of it a sink goes
//! away for some seconds, the bridge is killed and started again, and at the end every event that
//! was written is looked for at every sink.

mod bridge;
mod stage;

use std::{io::Write as _, time::Duration};

use serde::{Deserialize as _, de::IntoDeserializer as _};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use self::stage::Stage;
use crate::config::Span;

/// The arguments of the demo.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArguments {
    /// End by itself after this time, e.g. 30s; without it, Ctrl-C ends it
    #[arg(long = "for", value_name = "TIME", value_parser = at_least_five_seconds)]
    pub lasting: Option<Duration>,
    /// Events written a second
    #[arg(long, value_name = "RATE", default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=2000))]
    pub rate: u16,
    /// The same seed tells the same stories
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

fn at_least_five_seconds(text: &str) -> Result<Duration, String> {
    // As in the configuration.
    let time: Result<Span, serde::de::value::Error> = Span::deserialize(text.into_deserializer());
    let Span(time) = time.map_err(|_| "not a time; write it like 30s or 2m".to_owned())?;
    if time < Duration::from_secs(5) {
        return Err("the outage, the crash and their recovery take 5s at least".to_owned());
    }
    Ok(time)
}

/// Why a demo fails.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A part does not start.
    #[error("{part} does not start: {error}")]
    Start {
        /// Which.
        part: &'static str,
        /// Why.
        error: String,
    },
    /// Something was lost, which is what it is here to disprove.
    #[error("the demo failed: {0}")]
    Lost(String),
}

impl DemoError {
    fn start<E: std::fmt::Display>(part: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Start { part, error: error.to_string() }
    }
}

/// Lines come so often.
const LINE: Duration = Duration::from_secs(1);
/// One round of an endless demo.
const ROUND: Duration = Duration::from_secs(40);
/// How long the sinks may take to have everything once nothing more is written.
const SETTLE_WITHIN: Duration = Duration::from_secs(30);

/// Runs the demo until its time is over or a signal ends it.
///
/// # Errors
///
/// A part does not start, or an event was lost.
pub fn run(arguments: &DemoArguments) -> Result<(), DemoError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(DemoError::start("the runtime"))?;
    let ended = runtime.block_on(show(arguments));
    // librdkafka's threads end in their own time.
    runtime.shutdown_timeout(Duration::from_millis(200));
    ended
}

async fn show(arguments: &DemoArguments) -> Result<(), DemoError> {
    let mut signals = Signals::new().map_err(DemoError::start("the signal handler"))?;
    let mut stage = Stage::set(arguments.seed)?;
    let began = Instant::now();
    let stories = stage.tell(arguments.seed, f64::from(arguments.rate));
    let mut lines = interval(LINE);
    lines.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told_to_end = false;
    // Without a time of its own it lasts for ever.
    let end = began + arguments.lasting.unwrap_or(ROUND * 1_000_000);
    let mut acted = 0;
    loop {
        let (at, action) = action(acted, arguments.lasting.unwrap_or(ROUND));
        tokio::select! {
            () = signals.next() => {
                told_to_end = true;
                break;
            }
            () = sleep_until(end) => break,
            () = sleep_until(began + at) => {
                stage.act(action).await?;
                acted += 1;
            }
            _ = lines.tick() => say(&stage.line(began.elapsed()).await),
        }
    }
    stories.abort();
    let _ = stories.await;
    // All that is down at that moment comes back; then nothing is owed but the rest.
    stage.restore().await?;
    let settled = Instant::now();
    while !stage.is_settled() && settled.elapsed() < SETTLE_WITHIN {
        tokio::select! {
            _ = lines.tick() => say(&stage.line(began.elapsed()).await),
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
            () = signals.next() => break,
        }
    }
    stage.end().await;
    let summary = stage.summary(told_to_end);
    say(&format!("\n{}", summary.lines.join("\n")));
    match summary.wrong {
        None => Ok(()),
        Some(wrong) => Err(DemoError::Lost(wrong)),
    }
}

/// Something that is done to the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// A sink goes away, by its place in the row.
    TakeDown(usize),
    /// The sink comes back.
    BringBack(usize),
    /// `kill -9` of the bridge.
    Kill,
    /// The bridge is started again.
    Restart,
}

/// The n-th action, from 0, and when it is due: each round has one outage, of another sink each time, and one crash. Its
/// last part is for recovery.
fn action(nth: u32, round: Duration) -> (Duration, Action) {
    let (rounds, sink) = (nth / 4, (2 + nth as usize / 4) % stage::SINKS);
    let down_for = round.mul_f64(0.1).min(Duration::from_secs(2));
    let (at, action) = match nth % 4 {
        0 => (round.mul_f64(0.15), Action::TakeDown(sink)),
        1 => (round.mul_f64(0.4), Action::BringBack(sink)),
        2 => (round.mul_f64(0.6), Action::Kill),
        _ => (round.mul_f64(0.6) + down_for, Action::Restart),
    };
    (round * rounds + at, action)
}

/// The signals that end a demo: those of Ctrl-C, of `kill`, and of a terminal that closes. The bridge is a process of
/// its own and would go on without the demo.
struct Signals([Signal; 3]);

impl Signals {
    fn new() -> std::io::Result<Self> {
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        Ok(Self([interrupt?, terminate?, hangup?]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // A reader that has gone away misses the show; the demo ends as it would.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_an_outage_and_a_crash_and_leaves_time_to_recover() {
        let seconds = |nth| action(nth, Duration::from_secs(30));
        let at = Duration::from_secs_f64;
        assert_eq!(seconds(8).1, Action::TakeDown(1));
        let expected = [
            (at(4.5), Action::TakeDown(2)),
            (at(12.0), Action::BringBack(2)),
            (at(18.0), Action::Kill),
            (at(20.0), Action::Restart),
            (at(34.5), Action::TakeDown(0)),
        ];
        assert_eq!([0, 1, 2, 3, 4].map(seconds), expected);
    }
}
