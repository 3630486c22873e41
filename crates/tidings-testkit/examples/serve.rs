//! An API server to try things on, until Ctrl-C: it writes a kubeconfig for itself and says how to use it.
//!
//! ```text
//! cargo run -p tidings-testkit --example serve -- /tmp/kubeconfig
//! KUBECONFIG=/tmp/kubeconfig kubectl get configmaps
//! ```
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use std::error::Error;

use tidings_testkit::api_server::{ApiServer, Options};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("expected the path of the kubeconfig to write")?;
    let server = ApiServer::start(Options::default())?;
    std::fs::write(&path, server.kubeconfig())?;
    println!("serving at {}; KUBECONFIG={path} kubectl get configmaps", server.url());
    tokio::signal::ctrl_c().await?;
    println!("{} requests", server.requests().len());
    Ok(())
}
