//! A golden vector as it lies on disk.

use std::{fs, path::Path};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// The format is described in `docs/conformance.md`.
#[derive(Debug, Deserialize)]
pub(crate) struct Vector {
    schema: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    #[serde(default)]
    base_unix_ns: Option<String>,
    #[serde(default)]
    pub(crate) options: Value,
    #[serde(default)]
    pub(crate) input: Value,
    #[serde(default)]
    pub(crate) steps: Vec<Value>,
    #[serde(default)]
    expect: Option<Vec<Value>>,
    #[serde(default)]
    expect_any_of: Vec<Vec<Value>>,
}

const SCHEMA: &str = "k8s-event-conformance/v1";

impl Vector {
    /// The outcomes that are permitted.
    pub(crate) fn alternatives(&self) -> impl Iterator<Item = &[Value]> {
        self.expect.iter().chain(&self.expect_any_of).map(Vec::as_slice)
    }

    /// The clock `at_ms` (and `extra_ns`) after the vector's beginning.
    pub(crate) fn clock(&self, at_ms: i64, extra_ns: i64) -> Timestamp {
        let base: i128 = self.base_unix_ns.as_deref().map_or(0, |ns| ns.parse().unwrap());
        let now = base + i128::from(at_ms) * 1_000_000 + i128::from(extra_ns);
        Timestamp::from_nanosecond(now).unwrap()
    }

    /// The clock of a step.
    pub(crate) fn clock_of(&self, step: &Value) -> Timestamp {
        let of = |member: &str| step[member].as_i64().unwrap_or(0);
        self.clock(of("at_ms"), of("extra_ns"))
    }

    /// Whether it pins what client-go does by accident.
    pub(crate) fn is_quirk(&self) -> bool {
        self.tags.iter().any(|tag| tag == "quirk")
    }
}

/// Every vector below a folder, by name of file. A file that is no vector is an error.
pub(crate) fn load(folder: &Path) -> Result<Vec<Vector>, String> {
    let at = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| at(&e))? {
        paths.push(entry.map_err(|e| at(&e))?.path());
    }
    paths.sort();
    let mut vectors = Vec::new();
    for path in paths {
        if path.is_dir() {
            vectors.extend(load(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            let text = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let vector: Vector = serde_json::from_slice(&text)
                .map_err(|e| format!("{}: no conformance vector: {e}", path.display()))?;
            if vector.schema != SCHEMA {
                return Err(format!(
                    "{}: schema {:?} is not {SCHEMA:?}",
                    path.display(),
                    vector.schema
                ));
            }
            vectors.push(vector);
        }
    }
    Ok(vectors)
}

/// Runs on one thread with a clock that stands still while there is something to do.
pub(crate) fn virtual_time<T>(play: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?
        .block_on(play)
}
