//! The keys of a file sink, and the options that come of them.

use std::{path::PathBuf, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;

use super::sink::FileSink;
use crate::{
    bridge::Sink,
    document::{Checks, Path, Size, Span, Text, Wrong, wrong},
    sinks::{
        BuildSink, Format, SinkBuildError,
        keys::{Keys, Shared},
    },
};

/// The longest name of a file, in bytes: the time of a rotated one takes 21 more, and file systems take 255.
const MOST_NAME_BYTES: usize = 234;

/// Writes lines of JSON to a file that is rotated.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "File")]
pub(crate) struct FileModel {
    /// The file to write. It belongs to one sink.
    #[schemars(extend("x-shown" = true))]
    path: Text,
    /// When the file is rotated.
    #[serde(default)]
    rotate: RotateModel,
}

/// When a file is rotated: the time, in UTC, is appended to its name.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Rotate")]
pub(crate) struct RotateModel {
    /// The largest size of a file. A longer line has a file of its own. Default: `100MiB`.
    #[schemars(with = "Option<Size>", extend("default" = "100MiB"))]
    size: Option<Size>,
    /// The length of a period, counted from 1970 in UTC. Each period has files of its own: `24h` those of a day, `1h`
    /// those of an hour. Default: `24h`.
    #[schemars(with = "Option<Span>", extend("default" = "24h"))]
    age: Option<Span>,
    /// How many rotated files are kept. Default: 14.
    #[schemars(with = "Option<u32>", range(min = 1, max = 100_000), extend("default" = 14))]
    keep: Option<u64>,
}

/// A file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileOptions {
    /// The path of the file. Its directory is made if it is not there.
    pub path: PathBuf,
    /// When the file is rotated.
    pub rotate: RotateOptions,
    /// The format of a line.
    pub format: Format,
}

impl FileOptions {
    /// The default options.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), rotate: RotateOptions::default(), format: Format::default() }
    }
}

/// When a file is rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotateOptions {
    /// The largest size of a file, in bytes. A longer line has a file of its own.
    pub size: u64,
    /// The length of a period, counted from 1970 in UTC, at least a millisecond. Each period has files of its own.
    pub age: Duration,
    /// How many rotated files are kept, at least one.
    pub keep: usize,
}

impl Default for RotateOptions {
    /// 100 MiB, a day of UTC, 14 files.
    fn default() -> Self {
        Self { size: 100 << 20, age: Duration::from_secs(86_400), keep: 14 }
    }
}

impl BuildSink for FileOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, SinkBuildError> {
        Ok(Arc::new(FileSink::new(self)?))
    }
}

impl Keys for FileModel {
    fn options(&self, sink: &Shared<'_>, checks: &mut Checks<'_>) -> Arc<dyn BuildSink> {
        sink.only_lines("file", checks);
        let path = sink.path.key("file");
        let name = checks.checked(&path.key("path"), &self.path, is_path).unwrap_or_default();
        Arc::new(FileOptions {
            rotate: self.rotate.options(&path.key("rotate"), checks),
            format: sink.format.unwrap_or_default(),
            ..FileOptions::new(name)
        })
    }
}

impl RotateModel {
    fn options(self, path: &Path, checks: &mut Checks<'_>) -> RotateOptions {
        let defaults = RotateOptions::default();
        RotateOptions {
            size: checks.size(&path.key("size"), self.size, defaults.size, "100MiB"),
            age: checks.duration(&path.key("age"), self.age, defaults.age, "24h"),
            keep: checks.within(&path.key("keep"), self.keep, 100_000, defaults.keep as u32)
                as usize,
        }
    }
}

fn is_path(text: &str) -> Result<(), Wrong> {
    let expected = |found: &str| {
        wrong(format!("expected the path of a file, found {found}"))
            .hint("write one such as `/var/log/tidings/events.ndjson`")
    };
    if text.is_empty() {
        return Err(expected("an empty text"));
    }
    if text.contains('\0') {
        return Err(expected("a text with a NUL"));
    }
    let is_directory = text.ends_with('/') || text.ends_with("/.");
    match std::path::Path::new(text).file_name().filter(|_| !is_directory) {
        None => Err(expected("a directory")),
        Some(name) if name.len() > MOST_NAME_BYTES => {
            Err(expected(&format!("a name of more than {MOST_NAME_BYTES} bytes")))
        }
        Some(_) => Ok(()),
    }
}
