//! A table in Markdown, with all that one needs to repeat it.

use std::{fmt, fs, path::Path};

use crate::{Result, machine::Machine};

/// The name of a table in the file that keeps it, and its columns; the first is text.
pub(crate) struct Form {
    /// The table stands between the comments `<name>:begin` and `<name>:end`.
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
        self.write_between(path, |_| self.to_string())
    }

    /// Replaces only the rows that begin with one of these texts, by rows that do, and says below
    /// the table where they are from.
    #[allow(dead_code, reason = "the drills ask for it")]
    pub(crate) fn amend(&self, path: &Path, names: &[&str]) -> Result<()> {
        let of = |row: &str, name: &str| row.starts_with(&format!("| {name} |"));
        self.write_between(path, |old| {
            let mut lines: Vec<&str> = old.trim_matches('\n').lines().collect();
            for name in names {
                let at = lines.iter().position(|line| of(line, name));
                lines.retain(|line| !of(line, name));
                let last = lines.iter().rposition(|line| line.starts_with('|'));
                let at = at.or(last.map(|last| last + 1)).unwrap_or(lines.len());
                let new = self.rows.iter().map(String::as_str).filter(|row| of(row, name));
                lines.splice(at..at, new);
            }
            let (Self { machine, command, .. }, names) = (self, names.join(", "));
            lines.retain(|line| !line.starts_with(&format!("{names}: ")));
            let rest = lines.join("\n");
            format!("{}\n\n{names}: {machine}, `{command}`\n", rest.trim_end())
        })
    }

    fn write_between(&self, path: &Path, new: impl FnOnce(&str) -> String) -> Result<()> {
        let text = fs::read_to_string(path)?;
        let [begin, end] = ["begin", "end"].map(|at| format!("<!-- {}:{at} -->", self.form.name));
        let place = text.split_once(&begin).and_then(|(before, rest)| {
            let (old, after) = rest.split_once(&end)?;
            Some((before, old, after))
        });
        let (before, old, after) =
            place.ok_or_else(|| format!("{} lacks {begin} and {end}", path.display()))?;
        fs::write(path, format!("{before}{begin}\n{}{end}{after}", new(old)))?;
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
