//! The client to the API server, where its credentials come from, and the proxy between the two.

mod access;
mod plugin;
mod proxy;
mod renewal;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Client;

pub(super) use self::access::Access;
use crate::config::SourceSettings;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {error}\nhint: {hint}")]
pub(super) struct ClientError {
    what: String,
    error: String,
    hint: &'static str,
}

impl ClientError {
    fn new(what: String, error: String, hint: &'static str) -> Self {
        Self { what, error, hint }
    }
}

const HINT: &str = "name a kubeconfig with source.kubeconfig or $KUBECONFIG, or run in a Pod with a service account";

/// A client that renews its credentials, where they come from, and the handle that changes its proxy.
pub(super) async fn connect(
    source: &SourceSettings,
) -> Result<(Client, String, Arc<Access>), ClientError> {
    let access = Arc::new(Access::of(source));
    let made = access.read(None)?.client().await?;
    made.of.warn_of_unused_proxy();
    let origin = format!("{access}: {}", made.of.address());
    Ok((renewal::client(Arc::clone(&access), made), origin, access))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
