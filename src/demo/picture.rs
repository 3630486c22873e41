//! The picture of the demo: a calm one that is redrawn in place on a terminal, and one plain line
//! a second elsewhere. Pure functions of a [`Picture`]; nothing is said by colour alone.

use std::{fmt::Write as _, time::Duration};

/// No line is longer.
pub(super) const WIDTH: usize = 80;

/// Everything that is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    pub(super) uptime: Duration,
    pub(super) source: SourceView,
    pub(super) bridge: BridgeView,
    /// In the order in which they are shown.
    pub(super) sinks: Vec<SinkView>,
    /// The scene, what is being done to the cluster or the sinks, in a sentence.
    pub(super) scene: Option<String>,
    /// The last lines of the stories, oldest first, each with its time of day.
    pub(super) stories: Vec<String>,
}

/// The API server and the watch on it.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceView {
    /// Events written: creates and patches.
    pub(super) written: u64,
    /// How many a second, lately.
    pub(super) rate: f64,
    pub(super) watches: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BridgeState {
    #[default]
    Starting,
    Running,
    /// The bridge was killed and has not been started again.
    Killed,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BridgeView {
    pub(super) state: BridgeState,
    pub(super) kills: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SinkState {
    /// Nothing has arrived yet.
    #[default]
    Waiting,
    /// Events arrive as they happen.
    Live,
    /// The sink takes events again and has some to make up for.
    CatchingUp,
    /// The sink does not take events; they wait in the journal.
    Retrying,
    Misconfigured,
}

impl SinkState {
    fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Live => "live",
            Self::CatchingUp => "catching up",
            Self::Retrying => "retrying",
            Self::Misconfigured => "misconfigured",
        }
    }

    fn is_well(self) -> bool {
        !matches!(self, Self::Retrying | Self::Misconfigured)
    }
}

/// One sink, as its receiver sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct SinkView {
    pub(super) name: String,
    /// `kafka`, `otlp` or `webhook`.
    pub(super) kind: String,
    pub(super) state: SinkState,
    /// Different events that arrived.
    pub(super) delivered: u64,
    /// Arrivals of what had arrived before.
    pub(super) repeated: u64,
    /// Events written that have not arrived.
    pub(super) behind: u64,
    /// How old the oldest of those is.
    pub(super) lag: Duration,
}

/// How lines may look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    /// With bold and dim, which repeat what words say.
    Ansi,
}

impl Style {
    /// Colours on a terminal, unless `NO_COLOR` is set to anything (<https://no-color.org>).
    pub(super) fn of(is_terminal: bool, no_color: Option<&str>) -> Self {
        let wanted = is_terminal && no_color.is_none_or(str::is_empty);
        if wanted { Self::Ansi } else { Self::Plain }
    }

    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Ansi => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        }
    }

    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }
}

/// The picture as lines, the same number each time for the same number of sinks and stories.
pub(super) fn render(picture: &Picture, style: Style) -> Vec<String> {
    let up = format!("up {}", clock(picture.uptime));
    let title = "tidings demo";
    let space = " ".repeat(WIDTH - title.len() - up.chars().count());
    let mut lines = vec![format!("{}{space}{}", style.bold(title), style.dim(&up)), String::new()];

    let source = &picture.source;
    lines.push(cut(&format!(
        "API server   {} events written, {:.0}/s, {}",
        grouped(source.written),
        source.rate,
        counted(source.watches, "watch", "watches"),
    )));
    lines.push(format!("bridge       {}", bridge(picture.bridge)));
    lines.push(String::new());

    let head = row("sink", "kind", "state", ["arrived", "repeated", "behind", "lag"]);
    lines.push(style.dim(&head));
    for sink in &picture.sinks {
        let numbers = [
            grouped(sink.delivered),
            grouped(sink.repeated),
            grouped(sink.behind),
            if sink.behind == 0 { "-".to_owned() } else { lag(sink.lag) },
        ];
        let line = row(&sink.name, &sink.kind, sink.state.word(), numbers.each_ref().map(|n| &**n));
        lines.push(if sink.state.is_well() { line } else { style.bold(&line) });
    }
    lines.push(String::new());
    lines.push(cut(&format!(
        "now          {}",
        picture.scene.as_deref().unwrap_or_else(|| mood(picture))
    )));
    if !picture.stories.is_empty() {
        lines.push(String::new());
        lines.extend(picture.stories.iter().map(|story| style.dim(&cut(&format!("  {story}")))));
    }
    lines
}

/// The picture in one line, for logs and pipes; it may be longer than [`WIDTH`].
pub(super) fn line(picture: &Picture) -> String {
    let mut text = format!(
        "{} written {} {:.0}/s",
        clock(picture.uptime),
        picture.source.written,
        picture.source.rate
    );
    for sink in &picture.sinks {
        // Writing to a string cannot fail.
        let _ = write!(text, " | {} {} {}", sink.name, sink.state.word(), sink.delivered);
        if sink.repeated > 0 {
            let _ = write!(text, " repeated {}", sink.repeated);
        }
        if sink.behind > 0 {
            let _ = write!(text, " behind {} lag {}", sink.behind, lag(sink.lag));
        }
    }
    if picture.bridge.state != BridgeState::Running {
        let _ = write!(text, " | bridge {}", bridge(picture.bridge));
    }
    if let Some(scene) = &picture.scene {
        let _ = write!(text, " | {scene}");
    }
    text
}

/// The bytes that draw `lines` over the picture before, which had `before` lines.
pub(super) fn redraw(before: usize, lines: &[String]) -> String {
    let mut out = String::new();
    if before > 0 {
        let _ = write!(out, "\u{1b}[{before}A");
    }
    for line in lines {
        // Over the old line, then away with what is left of it: no flicker.
        let _ = writeln!(out, "\r{line}\u{1b}[K");
    }
    // What a longer picture left below.
    out.push_str("\u{1b}[J");
    out
}

fn bridge(bridge: BridgeView) -> String {
    let state = match bridge.state {
        BridgeState::Starting => "starting",
        BridgeState::Running => "running",
        BridgeState::Killed => "down",
    };
    match bridge.kills {
        0 => state.to_owned(),
        1 => format!("{state}; killed once so far"),
        kills => format!("{state}; killed {kills} times so far"),
    }
}

/// The last line when nothing is being staged.
fn mood(picture: &Picture) -> &'static str {
    match picture.bridge.state {
        BridgeState::Starting => "starting",
        BridgeState::Killed => "what happens waits in the API server until the bridge is back",
        BridgeState::Running if !picture.sinks.iter().all(|sink| sink.state.is_well()) => {
            "what a sink does not take waits in the journal"
        }
        BridgeState::Running => "all is well",
    }
}

/// A line of the table; the numbers stand to the right.
fn row(name: &str, kind: &str, state: &str, numbers: [&str; 4]) -> String {
    let [arrived, repeated, behind, lag] = numbers;
    cut(&format!(
        "{name:<12} {kind:<8} {state:<13} {arrived:>12} {repeated:>9} {behind:>10} {lag:>9}"
    ))
}

/// Shortens a line to the width, in characters.
fn cut(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return line.to_owned();
    }
    let mut short: String = line.chars().take(WIDTH - 1).collect();
    short.push('\u{2026}');
    short
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// `1:02`, `1:00:02`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

/// Two or three digits and a unit.
fn lag(time: Duration) -> String {
    let ms = time.as_millis();
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{:.1} s", time.as_secs_f64()),
        _ => clock(time),
    }
}

#[cfg(test)]
mod tests;
