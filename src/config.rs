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

mod assemble;
mod build;
mod decode;
mod error;
mod load;
mod locate;
mod mask;
pub mod model;
mod overlay;
mod path;
mod schema;
mod secrets;
mod settings;
mod validate;

mod yaml;

// The cases use sinks of every kind.
#[cfg(all(test, feature = "kafka", feature = "otlp", feature = "webhook"))]
mod tests;

use std::{ffi::OsString, fmt, path::Path};

pub use self::{
    assemble::AssembleError,
    error::{Error, Problem},
    schema::schema,
    secrets::CheckSecrets,
    settings::{
        ClusterSettings, JournalSettings, LogFormat, LogLevel, LogSettings, ServerDetail,
        ServerSettings, Settings, SinkKind, SinkSettings, SourceSettings, SourceStart, SyncPolicy,
    },
};
use self::{load::Loaded, overlay::Variables};
use crate::bridge::Overflow;
pub use crate::document::{Size, Span, Text};

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

/// What commands beside a bridge need of its configuration.
#[derive(Clone, Debug)]
pub struct JournalOnly {
    /// The section `journal`.
    pub journal: JournalSettings,
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
/// anyone.
pub fn check(
    path: &Path,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    secrets: CheckSecrets,
) -> Result<Summary, Error> {
    let variables = Variables::new(variables);
    let loaded = load::from_file(&path.to_string_lossy(), &variables)?;
    build::check(&loaded, &variables, secrets).map(|settings| Summary::new(&loaded, &settings))
}

/// What a configuration that is in order comes to; its `Display` is the answer of `check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// What the file is called.
    pub file: String,
    /// Name and kind of each sink, in the order of the file.
    pub sinks: Vec<(String, &'static str)>,
    /// What the API server has to permit beyond Events, for the sinks that are told of objects.
    pub permissions: Option<String>,
    /// The sinks with `overflow: block`.
    pub blocking: Vec<String>,
    /// Where a secret stands in the file itself.
    pub plain_secrets: Vec<String>,
}

impl Summary {
    fn new(loaded: &Loaded, settings: &Settings) -> Self {
        let sinks = settings.sinks.iter().map(|sink| (sink.name.clone(), sink.kind.name()));
        let told = settings.sinks.iter().any(|sink| sink.enrich.is_some());
        Self {
            file: loaded.file.name().to_owned(),
            sinks: sinks.collect(),
            permissions: told.then(|| settings.objects.permissions()),
            blocking: settings
                .sinks
                .iter()
                .filter(|sink| sink.overflow == Overflow::Block)
                .map(|sink| sink.name.clone())
                .collect(),
            plain_secrets: settings.plain_secrets.clone(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sinks: Vec<_> =
            self.sinks.iter().map(|(name, kind)| format!("{name} → {kind}")).collect();
        let noun = if sinks.len() == 1 { "sink" } else { "sinks" };
        write!(f, "{}: ok ({} {noun}: {})", self.file, sinks.len(), sinks.join(", "))?;
        if let Some(permissions) = &self.permissions {
            write!(
                f,
                "\nenrichment needs of the API server: {permissions} (deploy/rbac-enrichment.yaml)"
            )?;
        }
        if !self.blocking.is_empty() {
            write!(
                f,
                "\nwarning: overflow: block ({}): while what such a sink has not had fills \
                 journal.retention.size, nothing is read, for any sink, and journal.retention.age \
                 does not apply to it. The API server keeps its history for some 5 minutes and \
                 Events for an hour as a rule (--event-ttl): what is longer ago by then is stated \
                 as a gap. A sink that never returns stops all of it",
                self.blocking.join(", ")
            )?;
        }
        if !self.plain_secrets.is_empty() {
            write!(
                f,
                "\nwarning: who reads the file reads secrets in it: {}. Write {{env: NAME}} or \
                 {{file: PATH}} instead",
                self.plain_secrets.join(", ")
            )?;
        }
        Ok(())
    }
}
