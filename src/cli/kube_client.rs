//! The client to the API server, where its credentials come from, and the proxy between the two.

use http::{HeaderName, HeaderValue, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use crate::{cache::with_causes, config::SourceSettings, sinks::Proxy};

#[derive(Debug, thiserror::Error)]
#[error("{what}: {error}\nhint: {hint}")]
pub(super) struct ClientError {
    what: String,
    error: String,
    hint: &'static str,
}

/// Stands for a proxy that is not used: kube reads one of the environment where there is none, and ends with what it
/// cannot read there.
const UNUSED: &str = "http://unused.invalid";

const HINT: &str = "name a kubeconfig with source.kubeconfig or $KUBECONFIG, or run in a Pod with a service account";

/// A client for `source.kubeconfig`, else `$KUBECONFIG`, else the service account of the Pod, else
/// `~/.kube/config`; and which of them it was.
///
/// A proxy is used where `source.proxy` or the kubeconfig's cluster names one. kube would take one of
/// the environment, too, beside a kubeconfig though not in a Pod.
pub(super) async fn connect(source: &SourceSettings) -> Result<(Client, String), ClientError> {
    let kubeconfig = source.kubeconfig.as_deref();
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
    match &source.proxy {
        Proxy::None => {}
        Proxy::Env => config.proxy_url = of_environment(&config.cluster_url),
        Proxy::Url(url) => config.proxy_url = url.expose().parse().ok(),
    }
    if config.proxy_url.is_none() && source.proxy == Proxy::None {
        warn_of_unused(&config.cluster_url);
    }
    if let Some(proxy) = &config.proxy_url {
        usable(proxy)?;
    }
    let origin = format!("{origin}: {}", without_user(&config.cluster_url));
    let client = Client::try_from(config).map_err(|error| failed(with_causes(&error)))?;
    Ok((client, origin))
}

/// Refuses a proxy that kube cannot speak to, which it would say with the password in the address,
/// and a user and a password that it would not give.
fn usable(proxy: &Uri) -> Result<(), ClientError> {
    let refused = |error: &str| {
        Err(ClientError {
            what: "the proxy before the API server cannot be used".to_owned(),
            error: error.to_owned(),
            hint: "mend source.proxy, the variable of the environment, or the proxy-url of the kubeconfig's cluster",
        })
    };
    let scheme = proxy.scheme_str().unwrap_or_default();
    if !Proxy::SCHEMES_OF_SOURCE.contains(&scheme) {
        return refused("expected `http://`, `https://` or `socks5://`, found neither of them");
    }
    if scheme == "socks5" && has_user(proxy) {
        return refused("user and password are not given to a SOCKS proxy");
    }
    Ok(())
}

fn has_user(uri: &Uri) -> bool {
    uri.authority().is_some_and(|authority| authority.as_str().contains('@'))
}

/// An address as it may be shown.
fn without_user(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{}://{host}{}", uri.scheme_str().unwrap_or_default(), uri.path())
}

async fn from_kubeconfig(read: Result<Kubeconfig, KubeconfigError>) -> Result<Config, String> {
    let mut kubeconfig = read.map_err(|error| with_causes(&error))?;
    let mut proxy = None;
    if let Some(named) = proxy_of(&mut kubeconfig) {
        if let Some(url) = named.take_if(|url| !url.is_empty()) {
            let parsed =
                url.parse().map_err(|error| format!("the cluster's proxy-url: {error}"))?;
            proxy = Some(parsed);
        }
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if ["HTTPS_PROXY", "https_proxy"].into_iter().any(is_set) {
            *named = Some(UNUSED.to_owned());
        }
    }
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| match error {
        KubeconfigError::ParseNoProxy(_) => format!(
            "expected host names and addresses in the variable NO_PROXY of the environment, which is read where \
             HTTPS_PROXY is set: {}; mend it, or remove both",
            with_causes(&error)
        ),
        error => with_causes(&error),
    })?;
    config.proxy_url = proxy;
    Ok(config)
}

/// The `proxy-url` of the cluster of the current context.
fn proxy_of(kubeconfig: &mut Kubeconfig) -> Option<&mut Option<String>> {
    let current = kubeconfig.current_context.as_deref()?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == current)?;
    let name = &context.context.as_ref()?.cluster;
    let cluster = kubeconfig.clusters.iter_mut().find(|cluster| cluster.name == *name)?;
    Some(&mut cluster.cluster.as_mut()?.proxy_url)
}

/// The proxy that the environment has for an address, with the credentials that it names.
fn of_environment(address: &Uri) -> Option<Uri> {
    Matcher::from_env().intercept(address)?;
    let variables = match address.scheme_str() {
        Some("http") => ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"],
        _ => ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
    };
    let mut named = variables.into_iter().filter_map(|name| std::env::var(name).ok());
    let proxy = named.find(|value| !value.is_empty())?;
    let scheme = if proxy.contains("://") { "" } else { "http://" };
    format!("{scheme}{proxy}").parse().ok()
}

/// Says that the environment names a proxy that is not used.
fn warn_of_unused(address: &Uri) {
    if of_environment(address).is_some() {
        tracing::warn!(
            hint = "write `source.proxy: env` to use it",
            "the environment names a proxy, which the client to the API server does not use"
        );
    }
}
