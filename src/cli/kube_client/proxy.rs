//! The proxy before the API server.

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;

use super::ClientError;
use crate::sinks::Proxy;

/// The proxy to an address: as `source.proxy` has it, else as the kubeconfig's cluster has it.
pub(super) fn chosen(
    configured: &Proxy,
    of_cluster: Option<Uri>,
    address: &Uri,
) -> Result<Option<Uri>, ClientError> {
    let proxy = match configured {
        Proxy::None => of_cluster,
        Proxy::Env => of_environment(address),
        Proxy::Url(url) => url.expose().parse().ok(),
    };
    if let Some(proxy) = &proxy {
        usable(proxy)?;
    }
    Ok(proxy)
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
        return refused("expected `http://`, `https://` or `socks5://`, found another scheme");
    }
    if scheme == "socks5" && has_user(proxy) {
        return refused("user and password are not given to a SOCKS proxy");
    }
    Ok(())
}

fn has_user(uri: &Uri) -> bool {
    uri.authority().is_some_and(|authority| authority.as_str().contains('@'))
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
pub(super) fn warn_of_unused(address: &Uri) {
    if of_environment(address).is_some() {
        tracing::warn!(
            hint = "write `source.proxy: env` to use it",
            "the environment names a proxy, which the client to the API server does not use"
        );
    }
}
