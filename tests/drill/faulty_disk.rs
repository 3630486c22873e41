//! A disk whose syncs fail or take long, or that does not read some files, while all else works: as a
//! device that is going, or one that is overloaded. No file system does that at will, so a library
//! stands between the bridge and the kernel.

use std::fs;

use crate::bridge::Bridge;
use crate::preload::Preload;

/// The call that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Each sync (`EIO`).
    Sync,
    /// Nothing, but a sync takes two seconds.
    SlowSync,
    /// The next read of a file with this in its path (`EIO`).
    OneRead(&'static str),
    /// Each of them.
    Reads(&'static str),
}

/// See the [module](self).
pub(crate) struct FaultyDisk(Preload);

impl FaultyDisk {
    pub(crate) fn make() -> Self {
        Self(Preload::make("faulty_disk", "DISK_FAULT"))
    }

    /// Has a bridge run with it.
    pub(crate) fn carries(&self, bridge: &mut Bridge) {
        self.0.carries(bridge);
    }

    /// From now on it is so.
    pub(crate) fn begin(&self, fault: Fault) {
        self.0.say(&match fault {
            Fault::Sync => "fail".to_owned(),
            Fault::SlowSync => "slow".to_owned(),
            Fault::OneRead(file) => format!("one {file}"),
            Fault::Reads(file) => format!("reads {file}"),
        });
    }

    /// From now on nothing fails.
    pub(crate) fn end(&self) {
        fs::remove_file(self.0.file()).expect("it was there");
    }

    /// Whether it is over by itself.
    pub(crate) fn is_over(&self) -> bool {
        !self.0.file().exists()
    }
}
