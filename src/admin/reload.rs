//! The way of a request for a reload, from the control socket to the part that reads the file.

use tokio::sync::{mpsc, oneshot};

use super::api::Reloaded;

/// Asks for the configuration to be read again; clones ask the same.
#[derive(Clone, Debug)]
pub struct ReloadHandle(mpsc::Sender<ReloadRequest>);

/// A request, by which it is answered.
pub type ReloadRequest = oneshot::Sender<Result<Reloaded, ReloadError>>;

/// A reload that has not put everything into force.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReloadError {
    /// The file is rejected, and nothing has changed.
    #[error("{0}")]
    Rejected(String),
    /// The file is in force, but for sinks that are tried again.
    #[error("{0}")]
    Unfinished(String),
    /// The bridge is stopping.
    #[error("the bridge is stopping")]
    Stopping,
}

impl ReloadHandle {
    /// A handle, and where its requests come out.
    pub fn new() -> (Self, mpsc::Receiver<ReloadRequest>) {
        let (requests, asked) = mpsc::channel(1);
        (Self(requests), asked)
    }

    /// Asks for the configuration to be read again, and waits until it is in force.
    pub(super) async fn reload(&self) -> Result<Reloaded, ReloadError> {
        let (request, answer) = oneshot::channel();
        self.0.send(request).await.map_err(|_| ReloadError::Stopping)?;
        answer.await.unwrap_or(Err(ReloadError::Stopping))
    }
}
