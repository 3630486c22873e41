//! `positions.json`: what stands when log and state are gone.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write as _},
    path::PathBuf,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Directory;

const NAME: &str = "positions.json";

/// For each sink and source, up to which resourceVersion everything has a fate and is not held:
/// `{"epoch": n, "sinks": {"<sink>": {"<source>": "<resourceVersion>"}}}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Positions {
    /// The epoch that the resourceVersions are of.
    pub epoch: u32,
    /// By sink and source.
    pub sinks: BTreeMap<String, BTreeMap<String, Version>>,
}

/// A resourceVersion; text in JSON, as Kubernetes has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// Why positions could not be read. The caller says so and goes on without.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be used and is passed over: {reason}", path.display())]
pub struct PositionsError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

impl Positions {
    /// Reads what was stored last; nothing if that never happened.
    pub fn load(directory: &Directory) -> Result<Option<Self>, PositionsError> {
        let path = directory.path().join(NAME);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(PositionsError { path, reason: e.to_string() }),
        };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|e| PositionsError { path, reason: e.to_string() })
    }

    /// Stores them in place of the last ones: either those or these are there after a crash.
    pub fn store(&self, directory: &Directory) -> io::Result<()> {
        let path = directory.path().join(NAME);
        let temporary = path.with_extension("json.tmp");
        let mut file = File::create(&temporary)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_data()?;
        std::fs::rename(&temporary, &path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_read_back_and_damage_is_reported_not_fatal() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        assert_eq!(Positions::load(&directory).unwrap(), None);
        let positions = Positions {
            epoch: 2,
            sinks: [("audit".to_owned(), [("all".to_owned(), Version(u64::MAX))].into())].into(),
        };
        positions.store(&directory).unwrap();
        let path = dir.path().join(NAME);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, r#"{"epoch":2,"sinks":{"audit":{"all":"18446744073709551615"}}}"#);
        assert_eq!(Positions::load(&directory).unwrap(), Some(positions));
        for damaged in ["", "{", r#"{"epoch":2,"sinks":{"a":{"b":"x"}}}"#, "\u{0}\u{0}"] {
            std::fs::write(&path, damaged).unwrap();
            let error = Positions::load(&directory).unwrap_err().to_string();
            assert!(error.contains("positions.json cannot be used"), "{error}");
        }
    }
}
