//! `positions.json`: what stands when log and state are gone.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    io::{self, Write as _},
    path::PathBuf,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidings_log::{Directory, private};

/// The name of the file.
pub const NAME: &str = "positions.json";

/// For each sink and source, up to which resourceVersion everything has a fate and is not held:
/// `{"epoch": n, "sinks": {"<sink>": {"<source>": "<resourceVersion>"}}}`. In the file stands
/// `"crc32c"` besides: in hexadecimal digits that of this text, as it is without it.
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
#[error("{} cannot be used and is passed over: {source}", path.display())]
pub struct PositionsError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub source: io::Error,
}

impl PositionsError {
    /// Whether the file itself is at fault, and not the access to it.
    pub fn is_damage(&self) -> bool {
        self.source.kind() == io::ErrorKind::InvalidData
    }
}

/// What is in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored<'a> {
    epoch: u32,
    sinks: Cow<'a, Sinks>,
    /// Files of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crc32c: Option<String>,
}

type Sinks = BTreeMap<String, BTreeMap<String, Version>>;

impl Positions {
    /// Reads what was stored last; nothing if that never happened.
    pub fn load(directory: &Directory) -> Result<Option<Self>, PositionsError> {
        let path = directory.path().join(NAME);
        let bytes = match private::read_file(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(PositionsError { path, source }),
        };
        Self::read(&bytes).map(Some).map_err(|reason| {
            let source = io::Error::new(io::ErrorKind::InvalidData, reason);
            PositionsError { path, source }
        })
    }

    /// Reads the content of the file.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let stored: Stored<'_> = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        let positions = Self { epoch: stored.epoch, sinks: stored.sinks.into_owned() };
        match stored.crc32c {
            Some(crc) if positions.crc().as_ref() != Some(&crc) => {
                Err("its checksum does not hold".to_owned())
            }
            _ => Ok(positions),
        }
    }

    fn crc(&self) -> Option<String> {
        let text = serde_json::to_vec(self).ok()?;
        Some(format!("{:08x}", crc32c::crc32c(&text)))
    }

    /// Stores them in place of the last ones: either those or these are there after a crash.
    pub fn store(&self, directory: &Directory) -> io::Result<()> {
        let path = directory.path().join(NAME);
        let temporary = path.with_extension("json.tmp");
        let mut file = private::file().write(true).create(true).truncate(true).open(&temporary)?;
        let (epoch, sinks) = (self.epoch, Cow::Borrowed(&self.sinks));
        file.write_all(&serde_json::to_vec(&Stored { epoch, sinks, crc32c: self.crc() })?)?;
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
        let directory = crate::journal::open(dir.path()).unwrap();
        assert_eq!(Positions::load(&directory).unwrap(), None);
        let positions = Positions {
            epoch: 2,
            sinks: [("audit".to_owned(), [("all".to_owned(), Version(u64::MAX))].into())].into(),
        };
        positions.store(&directory).unwrap();
        let path = dir.path().join(NAME);
        let text = std::fs::read_to_string(&path).unwrap();
        let (before, crc) = text.split_once(r#","crc32c":"#).unwrap();
        assert_eq!(before, r#"{"epoch":2,"sinks":{"audit":{"all":"18446744073709551615"}}"#);
        assert_eq!(crc.len(), 8 + 3);
        assert_eq!(Positions::load(&directory).unwrap(), Some(positions.clone()));
        std::fs::write(&path, format!("{before}}}")).unwrap();
        assert_eq!(Positions::load(&directory).unwrap(), Some(positions), "of an earlier version");
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, bytes).unwrap();
            let error = Positions::load(&directory).unwrap_err();
            assert!(error.is_damage(), "bit {bit}: {error}");
        }
        for damaged in ["", "{", r#"{"epoch":2,"sinks":{"a":{"b":"x"}}}"#, "\u{0}\u{0}"] {
            std::fs::write(&path, damaged).unwrap();
            let error = Positions::load(&directory).unwrap_err().to_string();
            assert!(error.contains("positions.json cannot be used"), "{error}");
        }
    }

    /// Opening one would wait for a writer.
    #[test]
    fn a_fifo_in_the_place_of_the_file_is_damage() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let directory = crate::journal::open(dir.path()).unwrap();
        mknodat(CWD, dir.path().join(NAME), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let error = Positions::load(&directory).unwrap_err();
        assert!(error.is_damage(), "{error}");
    }
}
