//! The table.

use std::{fmt, fs, path::Path};

use crate::{
    Result,
    machine::Machine,
    scenes::{Measured, Scene},
};

const BEGIN: &str = "<!-- bench:begin -->";
const END: &str = "<!-- bench:end -->";

/// A table in Markdown, with all that one needs to repeat it.
pub(crate) struct Report {
    machine: Machine,
    command: String,
    rows: Vec<String>,
}

impl Report {
    pub(crate) fn new(command: &str, tidings: &Path) -> Result<Self> {
        Ok(Self { machine: Machine::here(tidings)?, command: command.to_owned(), rows: Vec::new() })
    }

    pub(crate) fn add(&mut self, scene: &Scene, measured: &Measured) {
        let Measured { events, seconds, requests, .. } = measured;
        let none = || "–".to_owned();
        let (p50, p99) = measured.latency_ms.map_or_else(
            || (none(), none()),
            |(p50, p99)| (format!("{p50:.2}"), format!("{p99:.2}")),
        );
        let (lost, repeated) = measured.faults.map_or_else(
            || (none(), none()),
            |(lost, again)| (lost.to_string(), again.to_string()),
        );
        self.rows.push(format!(
            "| {} | {events} | {seconds:.2} | {:.0} | {:.2} | {:.1} | {:.1} | {p50} | {p99} | \
             {requests} | {lost} | {repeated} |",
            scene.what,
            measured.events_a_second,
            measured.cpu_us_an_event,
            measured.peak_rss_mib,
            measured.rss_after_mib,
        ));
    }

    /// Replaces what stands between the markers of a file.
    pub(crate) fn write_into(&self, path: &Path) -> Result<()> {
        let text = fs::read_to_string(path)?;
        let place =
            text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?)));
        let (before, (_, after)) =
            place.ok_or_else(|| format!("{} lacks {BEGIN} and {END}", path.display()))?;
        fs::write(path, format!("{before}{BEGIN}\n{self}{END}{after}"))?;
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n\n`{}`\n", self.machine, self.command)?;
        writeln!(
            f,
            "| scene | events | s | events/s | CPU µs an event | peak RSS MiB | RSS after MiB | \
             p50 ms | p99 ms | requests | lost | repeated |"
        )?;
        writeln!(f, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}
