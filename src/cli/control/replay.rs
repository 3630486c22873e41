//! `tidings replay`.

use std::{
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{ArgGroup, Args};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use jiff::Timestamp;
use serde::Serialize;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::Instant,
};

use super::{
    Failure,
    client::Client,
    output::{self, Format},
    with_journal,
};
use crate::{
    admin::api::ReplayRequest,
    bridge::{JournalOptions, ReplayProgress, ReplayState},
    config::{JournalOnly, Span},
    event::timestamp,
    plain::plain,
};

/// Where nobody watches, a line is written so often.
const EVERY: Duration = Duration::from_secs(5);

/// See the command's own help.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("begin").required(true)))]
pub(in crate::cli) struct ReplayArguments {
    /// The configuration file of the bridge, of which only `journal` is read
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The sink that gets them
    #[arg(long, value_name = "NAME")]
    sink: String,
    /// From this time on: how long ago (`2h`, `1h30m`), or a time (`2026-11-21T14:57:00Z`)
    #[arg(long, value_name = "TIME", value_parser = since, group = "begin")]
    since: Option<Timestamp>,
    /// From this position of the journal on, as a replay that was ended names it
    #[arg(long, value_name = "POSITION", group = "begin")]
    from: Option<u64>,
    /// Only events for which this CEL expression is true, and that the sink's own `match` wants
    #[arg(long = "match", value_name = "CEL")]
    filter: Option<String>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

fn since(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let ago = text.parse().ok().and_then(|Span(ago)| Timestamp::now().checked_sub(ago).ok());
    ago.ok_or_else(|| {
        "neither how long ago, such as `2h` or `1h30m`, nor a time as in RFC 3339, such as \
         `2026-11-21T14:57:00Z`"
            .to_owned()
    })
}

/// Runs the command.
pub(in crate::cli) fn replay(arguments: ReplayArguments) -> ExitCode {
    let ReplayArguments { config, sink, since, from, filter, output } = arguments;
    let since = since.map(|time| time.to_string());
    let asked = ReplayRequest { sink, since, from, filter };
    with_journal(&config, async move |JournalOnly { journal, .. }| {
        run(&journal, asked, output).await
    })
}

/// What is printed at the end.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome<'a> {
    sink: &'a str,
    /// All that the journal had and was asked for was delivered.
    complete: bool,
    #[serde(flatten)]
    progress: ReplayProgress,
}

/// Why no more lines come.
enum End {
    Said,
    Interrupted,
    Cut(Failure),
}

async fn run(
    journal: &JournalOptions,
    asked: ReplayRequest,
    format: Format,
) -> Result<ExitCode, Failure> {
    let hint = "a replay is delivered by the running bridge: start it, and run this where it runs";
    let client = Client::running(&journal.path, hint).await?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| Failure::from(&error))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| Failure::from(&error))?;
    let mut teller = Teller::new(&asked);
    let mut last = None;
    let replaying = async {
        let body = client.stream("/api/v1/replay", &asked).await?.into_body();
        let mut lines = Lines { body, rest: Vec::new() };
        loop {
            let Some(line) = lines.next().await.map_err(|error| client.cut(&*error))? else {
                return Ok(());
            };
            let progress: ReplayProgress =
                serde_json::from_slice(&line).map_err(|error| client.cut(&error))?;
            teller.tell(&progress);
            last = Some(progress);
        }
    };
    let end = tokio::select! {
        replayed = replaying => match replayed {
            Ok(()) => End::Said,
            Err(failure) => End::Cut(failure),
        },
        _ = terminate.recv() => End::Interrupted,
        _ = interrupt.recv() => End::Interrupted,
    };
    teller.end();
    let Some(progress) = last else {
        return Err(match end {
            End::Cut(failure) => failure,
            End::Said => Failure::new("the bridge ended the replay", "its log says why"),
            End::Interrupted => Failure::new("interrupted", "nothing has been sent yet"),
        });
    };
    let done = progress.state == ReplayState::Done;
    let complete =
        done && progress.refused == 0 && progress.gone == 0 && held_from(&progress).is_none();
    let outcome = Outcome { sink: &asked.sink, complete, progress };
    output::print(&match format {
        Format::Text => told(&outcome),
        Format::Json => output::json(&outcome)?,
    })?;
    match end {
        _ if complete => Ok(ExitCode::SUCCESS),
        End::Cut(failure) if !done => Err(failure),
        End::Said if !done => Err(Failure::new(
            "the bridge stopped before the replay was done",
            "go on from the position above when it runs again",
        )),
        _ => Ok(ExitCode::from(1)),
    }
}

/// What became of it, in a line or a few.
fn told(Outcome { sink, progress, .. }: &Outcome<'_>) -> String {
    let ReplayProgress { position, until, read, matched, delivered, refused, gone, state, .. } =
        progress;
    let mut lines = vec![format!(
        "{sink}: {delivered} of {matched} wanted events were sent again; {read} were read"
    )];
    if *refused > 0 {
        lines.push(format!("{refused} refused; the bridge's log says why"));
    }
    if *gone > 0 {
        lines.push(format!(
            "{gone} events were dropped by retention or damaged before they were read"
        ));
    }
    if let ReplayState::Waiting(why) = state {
        lines.push(format!("it waited: {}", plain(why)));
    }
    if let Some(held) = held_from(progress) {
        lines.push(format!(
            "from position {held} on the sink's correlator holds events: when these have come out, \
             go on with --from {held}"
        ));
    }
    if *state != ReplayState::Done {
        lines.push(format!(
            "not done: it ended before position {until}; go on with --from {position}"
        ));
    }
    lines.join("\n") + "\n"
}

/// Where that begins which is not sent again, because an event that the correlator holds must not
/// come a second time before it has come once.
fn held_from(progress: &ReplayProgress) -> Option<u64> {
    (progress.until < progress.reached).then_some(progress.until)
}

/// Where a replay was asked to begin at what the journal does not have: what it has.
fn beyond(asked: &ReplayRequest, progress: &ReplayProgress) -> Option<String> {
    let end = progress.until.max(progress.reached);
    if let Some(from) = asked.from
        && progress.until > 0
        && from >= end
    {
        return Some(format!(
            "there is nothing from position {from} on that the sink has been sent: that ends before \
             position {end}"
        ));
    }
    let since: Timestamp = asked.since.as_ref()?.parse().ok()?;
    let oldest = timestamp(progress.oldest_ms?);
    (since < oldest)
        .then(|| format!("the journal has nothing older than {oldest:.0}: the replay begins there"))
}

/// The lines of a body.
struct Lines {
    body: Incoming,
    /// What came behind the last line feed.
    rest: Vec<u8>,
}

impl Lines {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Box<dyn std::error::Error>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.rest) {
                let line = self.rest.drain(..=end).collect();
                return Ok(Some(line));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    let data = frame?.into_data().unwrap_or_default();
                    self.rest.extend_from_slice(&data);
                }
            }
        }
    }
}

/// Tells on stderr how far it is: in one line that changes, or now and then.
struct Teller<'a> {
    asked: &'a ReplayRequest,
    terminal: bool,
    told: Option<(Instant, bool)>,
    /// It has said what the journal does not have.
    noted: bool,
}

impl<'a> Teller<'a> {
    fn new(asked: &'a ReplayRequest) -> Self {
        Self { asked, terminal: std::io::stderr().is_terminal(), told: None, noted: false }
    }

    fn tell(&mut self, progress: &ReplayProgress) {
        if !self.noted
            && let Some(note) = beyond(self.asked, progress)
        {
            self.noted = true;
            let before = if self.terminal { "\r\x1b[K" } else { "" };
            let _ = writeln!(std::io::stderr(), "{before}{}: {note}", self.asked.sink);
        }
        let ReplayProgress { position, until, delivered, state, .. } = progress;
        let why = match state {
            ReplayState::Waiting(why) => format!("; it waits: {}", plain(why)),
            ReplayState::Running | ReplayState::Done | ReplayState::Stopped => String::new(),
        };
        let waits = !why.is_empty();
        let recent = |(at, waited): (Instant, bool)| waited == waits && at.elapsed() < EVERY;
        if !self.terminal && self.told.is_some_and(recent) {
            return;
        }
        self.told = Some((Instant::now(), waits));
        let line = format!("{}: {delivered} sent, at {position} of {until}{why}", self.asked.sink);
        let (before, after) = if self.terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        // Nobody is left to tell when stderr is closed.
        let _ = write!(std::io::stderr(), "{before}{line}{after}");
    }

    fn end(&self) {
        if self.terminal && self.told.is_some() {
            let _ = writeln!(std::io::stderr());
        }
    }
}
