//! The state of the configuration, for status, metrics and own Events.

use std::sync::{Arc, Mutex};

use super::shared::{lock, now_ms};

/// The configuration of a bridge as status, metrics and own Events tell it; kept up to date by the part
/// that reads the file. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Configuration(Arc<Mutex<Option<ConfigurationState>>>);

/// The configuration that is in force.
#[derive(Clone, Debug)]
pub struct ConfigurationState {
    /// The file.
    pub file: String,
    /// Its content as YAML, without secrets.
    pub shown: Arc<str>,
    /// The time at which the content in force was read, in milliseconds since the epoch.
    pub since_ms: u64,
    /// The reason why the content of the file now is not in force.
    pub rejected: Option<Rejected>,
}

/// A configuration that is not taken.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// The time of the first rejection, in milliseconds since the epoch.
    pub since_ms: u64,
    /// The mistake, and how to mend it.
    pub error: String,
}

impl Configuration {
    /// The state; nothing where no file is read.
    pub fn now(&self) -> Option<ConfigurationState> {
        lock(&self.0).clone()
    }

    /// The content of the file is in force from now on; `shown` is YAML without secrets.
    pub fn set_in_force(&self, file: &str, shown: Arc<str>) {
        let (file, since_ms) = (file.to_owned(), now_ms());
        *lock(&self.0) = Some(ConfigurationState { file, shown, since_ms, rejected: None });
    }

    /// The content of the file is the one in force.
    pub fn clear_rejected(&self) {
        lock(&self.0).iter_mut().for_each(|state| state.rejected = None);
    }

    /// The content of the file is not taken.
    pub fn set_rejected(&self, error: String) {
        let mut state = lock(&self.0);
        let Some(state) = state.as_mut() else { return };
        let since_ms = state.rejected.as_ref().map_or_else(now_ms, |before| before.since_ms);
        state.rejected = Some(Rejected { since_ms, error });
    }
}
