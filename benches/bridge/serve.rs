//! The replaying API server: the demo's, with Events rendered before the clock runs.

use std::{fs, io, path::Path, time::Duration};

use tidings_testkit::api_server::{ApiServer, Options, Prepared};
use tokio::runtime::Runtime;

use crate::{
    Result,
    kubelets::{self, Kubelets},
    tally,
};

/// Writes a kubeconfig that leads to it and serves until stdin ends. Says its address and its
/// revision first, then answers each line with one:
///
/// - `prepare N`: renders N Events; the bytes they have.
/// - `prepare-new N`: the same, but that none is an earlier one again.
/// - `release`: writes the prepared ones; how many.
/// - `drive RATE SECONDS`: writes Events at a rate, each stamped with the time; how many.
/// - `objects`: creates the Pods that the Events are about, and what they belong to; how many.
/// - `watches`: how many are open on Events.
/// - `ids`: the hashes of the ids of all that was written, as JSON.
pub(crate) fn run(kubeconfig: &Path) -> Result<()> {
    let runtime = Runtime::new()?;
    let _inside = runtime.enter();
    let server = ApiServer::start(Options::default())?;
    fs::write(kubeconfig, server.kubeconfig())?;
    println!("{} {}", server.address(), server.revision());
    let mut replay = Replay { server, prepared: None, written: Written::default() };
    for request in io::stdin().lines() {
        let request = request?;
        let words: Vec<&str> = request.split(' ').collect();
        let answer = match words.as_slice() {
            ["prepare", count] => replay.prepare(count.parse()?, true).to_string(),
            ["prepare-new", count] => replay.prepare(count.parse()?, false).to_string(),
            ["release"] => replay.release()?.to_string(),
            ["drive", rate, seconds] => {
                let duration = Duration::from_secs(seconds.parse()?);
                runtime.block_on(replay.drive(rate.parse()?, duration)).to_string()
            }
            ["objects"] => {
                let mut count = 0;
                for (resource, object) in kubelets::objects() {
                    let created = replay.server.create_object(resource, object);
                    created.map_err(|status| format!("{status:?}"))?;
                    count += 1;
                }
                count.to_string()
            }
            ["watches"] => replay.server.open_watches_of("events").to_string(),
            ["ids"] => serde_json::to_string(&replay.written.ids)?,
            _ => return Err(format!("the server does not know {request:?}").into()),
        };
        println!("{answer}");
    }
    Ok(())
}

struct Replay {
    server: ApiServer,
    prepared: Option<Prepared>,
    written: Written,
}

/// What was written. Nothing else writes, so revisions follow each other.
#[derive(Default)]
struct Written {
    revision: u64,
    ids: Vec<u64>,
}

impl Written {
    fn add(&mut self, uid: &str) {
        self.revision += 1;
        self.ids.push(tally::hash(format!("{uid}-{}", self.revision).as_bytes()));
    }
}

impl Replay {
    fn prepare(&mut self, count: usize, repeats: bool) -> usize {
        let mut kubelets = Kubelets::new(repeats);
        self.written.revision = self.server.revision();
        let written = &mut self.written;
        let prepared = self.server.prepare((0..count).map(|_| {
            let event = kubelets.next();
            written.add(&event.metadata.uid);
            event
        }));
        let bytes = prepared.bytes();
        self.prepared = Some(prepared);
        bytes
    }

    fn release(&mut self) -> Result<usize> {
        let prepared = self.prepared.take().ok_or("nothing is prepared")?;
        let revisions = self.server.release(prepared).map_err(|status| format!("{status:?}"))?;
        Ok(revisions.count())
    }

    async fn drive(&mut self, rate: f64, duration: Duration) -> u64 {
        let mut kubelets = Kubelets::new(true);
        self.written.revision = self.server.revision();
        let written = &mut self.written;
        let made = |_| {
            let event = kubelets.next();
            written.add(&event.metadata.uid);
            event
        };
        self.server.drive(rate, duration, made).await
    }
}
