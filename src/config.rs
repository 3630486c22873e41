//! The configuration: a YAML file, an overlay of the environment, and what comes of them.
//!
//! ```text
//! text ──yaml──▶ tree with places ◀──overlay── environment
//!                      │ decode (strict)
//!                      ▼
//!                    model ──build (references, checks, defaults)──▶ Settings
//! ```
//!
//! The tree between text and model is what makes errors good: whatever goes wrong later, in
//! decoding, in a check or in the compilation of a `match`, is reported at its line and column (or
//! at the variable of the environment that it came from), together with a way to mend it, and
//! with all other problems of the file. Values that may be secrets appear in none of them, but for a
//! signing secret that [`check`] shows with the prefix that it lacks.

mod build;
mod fixed;
mod load;
mod mask;
mod model;
mod overlay;
mod schema;
mod settings;
mod show;
mod validate;

// The cases use sinks of every kind.
#[cfg(all(test, feature = "kafka", feature = "otlp", feature = "webhook"))]
mod tests;

use std::{ffi::OsString, fmt::Write as _, path::Path};

pub(crate) use self::{load::text_of, settings::built};
pub use self::{
    schema::schema,
    settings::{
        AssembleError, LogFormat, LogLevel, LogSettings, ServerDetail, ServerSettings, Settings,
        SinkSettings, SourceSettings,
    },
};
pub use crate::document::{CheckSecrets, Error, Problem, Size, Span, Text};
use crate::{
    bridge::{JournalOptions, Overflow},
    document::Variables,
};

/// Reads a configuration file to run by it.
///
/// `variables` is the environment, [`std::env::vars_os`] in a program: it overlays the file and
/// answers its `{env: NAME}` references.
pub fn load(
    path: &Path,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Settings, Error> {
    let variables = Variables::new(variables);
    let loaded = load::from_file(&path.to_string_lossy(), &variables)?;
    build::build(&loaded, &variables, CheckSecrets::Required)
}

/// Like [`load`], from a text that errors call `name`.
pub fn parse(
    name: &str,
    text: &str,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Settings, Error> {
    let variables = Variables::new(variables);
    let loaded = load::from_text(name, text, &variables)?;
    build::build(&loaded, &variables, CheckSecrets::Required)
}

/// The settings of a run without a file: all defaults, and one sink `stdout`.
pub fn without_file(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Settings, Error> {
    parse("built-in configuration", "sinks: {stdout: {stdout: {}}}\n", variables)
}

/// The part of a bridge's configuration that commands beside it need.
#[derive(Clone, Debug)]
pub struct JournalOnly {
    /// The section `journal`.
    pub journal: JournalOptions,
    /// The names of the sinks, whatever is below them.
    pub sinks: Vec<String>,
}

/// Reads of a configuration file only where the journal is and how the sinks are called: what else
/// there is may be wrong, and what it refers to need not be here.
pub fn load_journal(
    path: &Path,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<JournalOnly, Error> {
    let variables = Variables::new(variables);
    let loaded = load::journal_from_file(&path.to_string_lossy(), &variables)?;
    let journal = build::build_journal(&loaded, &variables)?;
    let sinks = loaded.root.get("sinks").map_or(&[][..], |entry| entry.node.entries());
    Ok(JournalOnly { journal, sinks: sinks.iter().map(|entry| entry.key.clone()).collect() })
}

/// Checks a configuration file without running by it: all that a start would refuse before it asks
/// anyone. Answers with a summary of what is in order.
pub fn check(
    path: &Path,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    secrets: CheckSecrets,
) -> Result<String, Error> {
    let variables = Variables::new(variables);
    let loaded = load::from_file(&path.to_string_lossy(), &variables)?;
    build::check(&loaded, &variables, secrets)
        .map(|settings| summary(loaded.file.name(), &settings))
}

/// Like [`check`], of a text that errors call `name`, in an empty environment and without its secrets.
pub(crate) fn check_text(name: &str, text: &str) -> Result<(), Error> {
    let variables = Variables::default();
    let loaded = load::from_text(name, text, &variables)?;
    build::check(&loaded, &variables, CheckSecrets::Optional).map(drop)
}

fn summary(file: &str, settings: &Settings) -> String {
    let sinks = settings.sinks.iter().map(|sink| format!("{} → {}", sink.name, sink.kind));
    let sinks: Vec<_> = sinks.collect();
    let noun = if sinks.len() == 1 { "sink" } else { "sinks" };
    // Writing to a string cannot fail.
    let mut text = format!("{file}: ok ({} {noun}: {})", sinks.len(), sinks.join(", "));
    if settings.sinks.iter().any(|sink| sink.enrich.is_some()) {
        let needs = settings.objects.permissions();
        let _ = write!(
            text,
            "\nenrichment needs these permissions: {needs} (deploy/rbac-enrichment.yaml)"
        );
    }
    let blocking = settings.sinks.iter().filter(|sink| sink.overflow == Overflow::Block);
    let blocking: Vec<_> = blocking.map(|sink| &*sink.name).collect();
    if !blocking.is_empty() {
        let _ = write!(
            text,
            "\nwarning: overflow: block ({}): while events that such a sink has not taken fill \
             journal.retention.size, nothing is read for any sink, and journal.retention.age does \
             not apply to them. The API server usually keeps its history for some 5 minutes and \
             Events for an hour (--event-ttl): anything older by then is stated as a gap. A sink \
             that never returns stops everything",
            blocking.join(", ")
        );
    }
    if !settings.plain_secrets.is_empty() {
        let _ = write!(
            text,
            "\nwarning: the file itself contains secrets: {}. Write {{env: NAME}} or {{file: PATH}} \
             instead",
            settings.plain_secrets.join(", ")
        );
    }
    text
}
