//! A disk whose syncs fail or take long, or that does not read the state, while all else works: as a
//! device that is going, or one that is overloaded. No file system does that at will, so a library stands between the bridge and the
//! kernel.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::bridge::Bridge;

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Each sync (`EIO`).
    Sync,
    /// Nothing, but a sync takes two seconds.
    SlowSync,
    /// The next read of the state (`EIO`).
    OneRead,
    /// Each of them.
    Reads,
}

/// See the [module](self).
pub(crate) struct FaultyDisk {
    folder: TempDir,
}

impl FaultyDisk {
    /// Makes the library; the C compiler is one of the tools of the build.
    pub(crate) fn make() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/drill/faulty_disk.c");
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", source, "-ldl", "-o"])
            .arg(folder.path().join("faulty_disk.so"))
            .output()
            .expect("cc runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self { folder }
    }

    /// Has a bridge run with it.
    pub(crate) fn carries(&self, bridge: &mut Bridge) {
        let library = format!("LD_PRELOAD={}", self.folder.path().join("faulty_disk.so").display());
        let fault = format!("DISK_FAULT={}", self.file().display());
        bridge.start_by("env", &[library, fault]);
    }

    /// From now on it is so.
    pub(crate) fn begin(&self, fault: Fault) {
        let word = match fault {
            Fault::Sync => "fail",
            Fault::SlowSync => "slow",
            Fault::OneRead => "one",
            Fault::Reads => "reads",
        };
        // At once, or a sync could find an empty file.
        let new = self.folder.path().join("new");
        fs::write(&new, word).and_then(|()| fs::rename(&new, self.file())).expect("a file");
    }

    /// From now on nothing fails.
    pub(crate) fn end(&self) {
        fs::remove_file(self.file()).expect("it was there");
    }

    /// Whether it is over by itself.
    pub(crate) fn is_over(&self) -> bool {
        !self.file().exists()
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("fault")
    }
}
