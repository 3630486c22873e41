//! The client to the API server, and where its credentials come from.

use std::path::Path;

use http::{HeaderName, HeaderValue};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::cache::with_causes;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {error}\nhint: {hint}")]
pub(super) struct ClientError {
    what: String,
    error: String,
    hint: &'static str,
}

const HINT: &str = "name a kubeconfig with source.kubeconfig or $KUBECONFIG, or run in a Pod with a service account";

/// A client for `source.kubeconfig`, else `$KUBECONFIG`, else the service account of the Pod, else
/// `~/.kube/config`; and which of them it was.
pub(super) async fn connect(kubeconfig: Option<&Path>) -> Result<(Client, String), ClientError> {
    let in_env = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    let in_cluster = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let (origin, config) = match (kubeconfig, in_env) {
        (Some(path), _) => {
            let origin = format!("the kubeconfig {}", path.display());
            (origin, from_kubeconfig(Kubeconfig::read_from(path)).await)
        }
        (None, Some(paths)) => {
            let origin = format!("the kubeconfig {} of $KUBECONFIG", paths.display());
            // `from_env` answers nothing only without the variable.
            let read = Kubeconfig::from_env().map(Option::unwrap_or_default);
            (origin, from_kubeconfig(read).await)
        }
        (None, None) if in_cluster => (
            "the service account of this Pod".to_owned(),
            Config::incluster().map_err(|error| with_causes(&error)),
        ),
        (None, None) => {
            ("the kubeconfig ~/.kube/config".to_owned(), from_kubeconfig(Kubeconfig::read()).await)
        }
    };
    let failed =
        |error: String| ClientError { what: format!("{origin} cannot be used"), error, hint: HINT };
    let mut config = config.map_err(failed)?;
    // Its retries would hide errors from the reflector, whose own waits are the rule.
    config.default_retry = false;
    let agent = concat!("tidings/", env!("CARGO_PKG_VERSION"));
    config.headers.push((HeaderName::from_static("user-agent"), HeaderValue::from_static(agent)));
    let origin = format!("{origin}: {}", config.cluster_url);
    let client = Client::try_from(config).map_err(|error| failed(with_causes(&error)))?;
    Ok((client, origin))
}

async fn from_kubeconfig(
    read: Result<Kubeconfig, kube::config::KubeconfigError>,
) -> Result<Config, String> {
    let kubeconfig = read.map_err(|error| with_causes(&error))?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| with_causes(&error))
}
