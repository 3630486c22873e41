//! A disk whose syncs fail or take long, while all else works: as a device that is going, or one that is overloaded. No
//! file system does that at will, so a library stands between the bridge and the kernel.

use std::fs;

use crate::bridge::Bridge;
use crate::preload::Preload;

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Each sync (`EIO`).
    Sync,
    /// Nothing, but a sync takes two seconds.
    SlowSync,
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
        self.0.say(match fault {
            Fault::Sync => "fail",
            Fault::SlowSync => "slow",
        });
    }

    /// From now on nothing fails.
    pub(crate) fn end(&self) {
        fs::remove_file(self.0.file()).expect("it was there");
    }
}
