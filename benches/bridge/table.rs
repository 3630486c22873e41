//! A table in Markdown, with all that one needs to repeat it.

use std::{fmt, fs, path::Path};

use crate::{Result, machine::Machine};

/// What a table is called in the file that keeps it, and its columns; the first is text.
pub(crate) struct Form {
    /// It stands between the comments `<name>:begin` and `<name>:end`.
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [&'static str],
}

/// See the module.
pub(crate) struct Table {
    form: Form,
    machine: Machine,
    command: String,
    rows: Vec<String>,
}

impl Table {
    pub(crate) fn new(form: Form, machine: Machine, command: String) -> Self {
        Self { form, machine, command, rows: Vec::new() }
    }

    /// Adds a row of Markdown.
    pub(crate) fn push(&mut self, row: String) {
        self.rows.push(row);
    }

    /// Replaces what stands between the markers of a file.
    pub(crate) fn write_into(&self, path: &Path) -> Result<()> {
        let text = fs::read_to_string(path)?;
        let [begin, end] = ["begin", "end"].map(|at| format!("<!-- {}:{at} -->", self.form.name));
        let place = text
            .split_once(&begin)
            .and_then(|(before, rest)| Some((before, rest.split_once(&end)?)));
        let (before, (_, after)) =
            place.ok_or_else(|| format!("{} lacks {begin} and {end}", path.display()))?;
        fs::write(path, format!("{before}{begin}\n{self}{end}{after}"))?;
        Ok(())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.form.columns;
        writeln!(f, "{}\n\n`{}`\n", self.machine, self.command)?;
        writeln!(f, "| {} |", columns.join(" | "))?;
        writeln!(f, "|---|{}", "--:|".repeat(columns.len() - 1))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}
