//! A disk whose syncs fail or take long, while all else works: as a device that is going, or one that
//! is overloaded. No file system does that at will, so a library stands between the bridge and the
//! kernel.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::bridge::Bridge;

/// What becomes of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails (`EIO`).
    Fails,
    /// It takes two seconds.
    IsSlow,
}

/// See the [module](self).
pub(crate) struct FaultySync {
    folder: TempDir,
}

impl FaultySync {
    /// Makes the library; the C compiler is one of the tools of the build.
    pub(crate) fn make() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/drill/faulty_sync.c");
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", source, "-ldl", "-o"])
            .arg(folder.path().join("faulty_sync.so"))
            .output()
            .expect("cc runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self { folder }
    }

    /// Has a bridge run with it.
    pub(crate) fn carries(&self, bridge: &mut Bridge) {
        let library = format!("LD_PRELOAD={}", self.folder.path().join("faulty_sync.so").display());
        let fault = format!("SYNC_FAULT={}", self.file().display());
        bridge.start_by("env", &[library, fault]);
    }

    /// From now on syncs are so.
    pub(crate) fn begin(&self, fault: Fault) {
        let word = match fault {
            Fault::Fails => "fail",
            Fault::IsSlow => "slow",
        };
        // At once, or a sync could find an empty file.
        let new = self.folder.path().join("new");
        fs::write(&new, word).and_then(|()| fs::rename(&new, self.file())).expect("a file");
    }

    /// From now on they are as they should be.
    pub(crate) fn end(&self) {
        fs::remove_file(self.file()).expect("it was there");
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("fault")
    }
}
