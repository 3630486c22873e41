//! Why a bridge does not start, or ends by itself.

use std::{fmt, time::Duration};

use tokio::task::JoinError;

use crate::{cache::panics, journal::OpenError};

/// The last save may take so long; the end of the program does not wait for a disk that hangs.
pub(super) const SAVED_WITHIN: Duration = Duration::from_secs(5);

/// Why a bridge does not start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// The journal holds the events of another cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A task of the bridge has ended by itself, mostly by a panic, which is a bug.
    #[error(
        "{0}; this is a bug\nhint: what was settled is saved and nothing is lost, so start again; and please report it"
    )]
    Task(TaskEnd),
    /// The end of the program does not wait for ever for the disk.
    #[error(
        "the state could not be saved within {} s of the end: the disk does not answer\nhint: nothing is lost; what was delivered since the last save is delivered again, under the same ids",
        SAVED_WITHIN.as_secs()
    )]
    NotSaved,
}

/// The journal holds the events of another cluster.
#[derive(Debug, thiserror::Error)]
#[error(
    "the journal {journal} holds the events of the cluster {journalled}, and the API server is of the cluster {server}\n\
     hint: point journal.path to another directory, or the kubeconfig to the cluster that the journal is of"
)]
pub struct ClusterError {
    /// The journal's directory.
    pub journal: String,
    /// The uid that it remembers.
    pub journalled: String,
    /// The uid that the API server gives, or the configuration.
    pub server: String,
}

/// The end of a task that should not have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEnd {
    name: String,
    panic: Option<String>,
}

impl TaskEnd {
    /// How the task of that name ended.
    pub(super) fn new<T>(name: &str, ended: Result<T, JoinError>) -> Self {
        let panic = ended.err().and_then(|error| error.try_into_panic().ok());
        let panic = panic.map(|panic| panics::message(&*panic).to_owned());
        Self { name: name.to_owned(), panic }
    }

    pub(super) fn is_panic(&self) -> bool {
        self.panic.is_some()
    }
}

impl fmt::Display for TaskEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.panic {
            Some(message) => write!(f, "{} panicked: {message}", self.name),
            None => write!(f, "{} has ended unexpectedly", self.name),
        }
    }
}
