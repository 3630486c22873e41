//! The table.

use std::{fmt, fs, path::Path};

use crate::{Measured, Result, Side, machine::Machine};

const BEGIN: &str = "<!-- bench-informer:begin -->";
const END: &str = "<!-- bench-informer:end -->";
const MIB: f64 = 1024.0 * 1024.0;

/// A table in Markdown, with all that one needs to repeat it.
pub(crate) struct Report {
    machine: Machine,
    command: String,
    rows: Vec<String>,
}

impl Report {
    pub(crate) fn new(machine: Machine, command: String) -> Self {
        Self { machine, command, rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, side: &Side, empty: &Measured, full: &Measured) {
        let objects = full.objects;
        let each = (full.least_rss_mib - empty.least_rss_mib) * MIB / objects as f64;
        self.rows.push(format!(
            "| {} | {objects} | {:.2} | {:.2} | {:.1} | {:.1} | {:.1} | {each:.0} |",
            side.what,
            full.seconds,
            full.usage.cpu_s,
            full.usage.peak_rss_mib,
            full.usage.rss_mib,
            full.least_rss_mib,
        ));
    }

    pub(crate) fn add_missing(&mut self, side: &Side, why: &str) {
        self.rows.push(format!("| {} | {why} | – | – | – | – | – | – |", side.what));
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
            "| informer | objects | s | CPU s | peak RSS MiB | RSS MiB | least RSS MiB | bytes an \
             object |"
        )?;
        writeln!(f, "|---|--:|--:|--:|--:|--:|--:|--:|")?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}
