//! A library that stands between a bridge and the C library (`LD_PRELOAD`), and does as a file says.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::bridge::Bridge;

/// See the [module](self).
pub(crate) struct Preload {
    folder: TempDir,
    /// Tells the library which file it is.
    variable: &'static str,
}

impl Preload {
    /// Makes the library of `tests/drill/<name>.c`; the C compiler is one of the tools of the build.
    pub(crate) fn make(name: &str, variable: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = format!("{}/tests/drill/{name}.c", env!("CARGO_MANIFEST_DIR"));
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", &source, "-ldl", "-o"])
            .arg(folder.path().join("library.so"))
            .output()
            .expect("cc runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self { folder, variable }
    }

    /// Has a bridge run with it.
    pub(crate) fn carries(&self, bridge: &mut Bridge) {
        let library = format!("LD_PRELOAD={}", self.folder.path().join("library.so").display());
        let file = format!("{}={}", self.variable, self.file().display());
        bridge.start_by("env", &[library, file]);
    }

    /// From now on the file says this.
    pub(crate) fn say(&self, word: &str) {
        // At once, or an empty file could be found.
        let new = self.folder.path().join("new");
        fs::write(&new, word).and_then(|()| fs::rename(&new, self.file())).expect("a file");
    }

    /// The file.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("file")
    }
}
