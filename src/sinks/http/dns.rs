//! A resolver that answers every name with the addresses of one host.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

pub(super) struct Alias {
    host: Arc<str>,
}

impl Alias {
    /// `host` as it stands in a URL: a name, an IPv4 address, or an IPv6 address in brackets.
    pub(super) fn new(host: &str) -> Self {
        Self { host: host.trim_start_matches('[').trim_end_matches(']').into() }
    }
}

impl Resolve for Alias {
    fn resolve(&self, _name: Name) -> Resolving {
        let host = Arc::clone(&self.host);
        Box::pin(async move {
            if let Ok(ip) = host.parse::<IpAddr>() {
                return Ok(Box::new(std::iter::once(SocketAddr::new(ip, 0))) as Addrs);
            }
            // Port 0 stands for the URL's.
            let addresses: Vec<_> = tokio::net::lookup_host((&*host, 0)).await?.collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
