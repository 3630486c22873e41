//! The API server: so many Pods, as detailed as real ones.

use std::io::BufRead as _;

use tidings_testkit::api_server::{ApiServer, Options, Population};

use crate::Result;

/// Says where it is; then, for each line that it reads, how many Pods it has.
#[tokio::main]
pub(crate) async fn run(pods: usize) -> Result<()> {
    let server = ApiServer::start(Options::default())?;
    server.populate(&Population::of_pods(pods));
    println!("{}", server.url());
    let live = tokio::task::spawn_blocking(move || {
        for line in std::io::stdin().lock().lines() {
            line?;
            println!("{}", server.live("pods"));
        }
        std::io::Result::Ok(())
    });
    Ok(live.await??)
}
