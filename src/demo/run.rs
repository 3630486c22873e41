//! `tidings demo`: the whole bridge at work on one machine and without a cluster.
//!
//! An API server in this process tells a cluster's stories. The bridge is this same program,
//! started as a user starts it, in a process of its own, so that it can be killed for real. Kafka,
//! a collector and a webhook receive over their own protocols. In the course of it a sink goes
//! away for some seconds, the bridge is killed and started again, and at the end every event that
//! was written is looked for at every sink.

mod bridge;
mod script;
mod stage;

use std::{io::IsTerminal as _, io::Write as _, time::Duration};

use serde::{Deserialize as _, de::IntoDeserializer as _};
use tokio::{
    signal::ctrl_c,
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use self::{
    script::{Action, Script},
    stage::Stage,
};
use super::picture::{self, Style};
use crate::config::Span;

/// Arguments of the demo.
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
    fn start(part: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Start { part, error: error.to_string() }
    }
}

/// Pictures a second on a terminal.
const REDRAW: Duration = Duration::from_millis(250);
/// Plain lines come so often.
const LINE: Duration = Duration::from_secs(1);
/// How long the sinks may take to have everything once nothing more is written.
const SETTLE_WITHIN: Duration = Duration::from_secs(30);

/// Runs the demo until its time is over or Ctrl-C is pressed.
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
    let mut screen = Screen::new();
    let mut stage = Stage::set(arguments.seed)?;
    let mut script = Script::new(arguments.lasting);
    let began = Instant::now();
    let stories = stage.tell(f64::from(arguments.rate));
    let mut ticks = interval(if screen.live { REDRAW } else { LINE });
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ctrl_c() => break,
            _ = ticks.tick() => {
                stage.look().await;
                screen.show(&stage.picture(began.elapsed(), script.scene()));
            }
            action = script.next(began) => match action {
                Action::End => break,
                action => stage.act(action).await?,
            },
        }
    }
    stories.abort();
    // Whatever is down at that moment comes back; then nothing is owed but the rest.
    stage.restore().await?;
    let settled = Instant::now();
    let impatient = ctrl_c();
    tokio::pin!(impatient);
    while !stage.is_settled() && settled.elapsed() < SETTLE_WITHIN {
        stage.look().await;
        screen
            .show(&stage.picture(began.elapsed(), Some("the end: waiting for what is on its way")));
        tokio::select! {
            () = sleep(REDRAW) => {}
            _ = &mut impatient => break,
        }
    }
    stage.end().await;
    let summary = stage.summary();
    screen.say(&summary.lines);
    match summary.wrong {
        None => Ok(()),
        Some(wrong) => Err(DemoError::Lost(wrong)),
    }
}

/// Where the picture goes: redrawn in place on a terminal, a line a second elsewhere.
struct Screen {
    live: bool,
    style: Style,
    drawn: usize,
    last_line: Option<Instant>,
}

impl Screen {
    fn new() -> Self {
        let live = std::io::stdout().is_terminal();
        let no_color = std::env::var("NO_COLOR").ok();
        Self { live, style: Style::of(live, no_color.as_deref()), drawn: 0, last_line: None }
    }

    fn show(&mut self, now: &picture::Picture) {
        if self.live {
            let lines = picture::render(now, self.style);
            self.write(&picture::redraw(self.drawn, &lines));
            self.drawn = lines.len();
        } else if self.last_line.is_none_or(|last| last.elapsed() + REDRAW >= LINE) {
            self.last_line = Some(Instant::now());
            self.write(&format!("{}\n", picture::line(now)));
        }
    }

    fn say(&self, lines: &[String]) {
        self.write(&format!("\n{}\n", lines.join("\n")));
    }

    #[expect(clippy::unused_self, reason = "the screen is what is written to")]
    fn write(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        // A reader that has gone away misses the show; the demo ends as it would.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}
