//! The bridge inside a program of your own: start it, look at it, stop it.
//!
//! ```text
//! cargo run --example embed                        an API server in this process, and three Events
//! cargo run --example embed -- --current-context   the cluster of your kubeconfig, until Ctrl-C
//! ```
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{error::Error, sync::Arc, time::Duration};

use tidings::{
    admin,
    bridge::{
        Bridge, BridgeOptions, Filter, JournalOptions, ObjectOptions, Sink, SinkOptions,
        SourceOptions, SourceStart,
    },
    event::Cluster,
    sinks::{Format, StdoutSink},
};
use tidings_log::{LogOptions, Sync};
use tidings_testkit::api_server::{ApiServer, EventObject, Options};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let real = std::env::args().any(|argument| argument == "--current-context");
    // Speaks list and watch over real HTTP, as a kube-apiserver does for Events.
    let server = ApiServer::start(Options::default())?;
    let mut config =
        if real { kube::Config::infer().await? } else { kube::Config::new(server.url().parse()?) };
    // The bridge decides when to ask again.
    config.default_retry = false;
    let client = kube::Client::try_from(config)?;

    // A program keeps this directory from run to run; that is why the bridge loses nothing.
    let journal = tempfile::tempdir()?;

    let options = BridgeOptions {
        // In every envelope. Without a uid the bridge asks the API server for it.
        cluster: Cluster { name: Some("example".to_owned()), ..Cluster::default() },
        source: SourceOptions {
            // Empty: all namespaces, by one watch.
            namespaces: Vec::new(),
            field_selector: String::new(),
            // This journal is new, so it has to be said: with what exists.
            start: SourceStart::All,
        },
        journal: JournalOptions {
            path: journal.path().to_owned(),
            log: LogOptions {
                retention_size: 1 << 30,
                retention_age: Duration::from_hours(24),
                sync: Sync::Interval(Duration::from_secs(1)),
            },
            dead_letters: 64 << 20,
            max_event: 256 << 10,
        },
        // Each sink has a position of its own in the journal, so a sick one lags alone.
        sinks: vec![SinkOptions {
            // Compiled once, here, where a mistake is an error and not a surprise at night.
            filter: Some(Filter::compile(r#"event.type == "Warning""#)?),
            ..SinkOptions::new(
                "warnings",
                "stdout",
                Arc::new(StdoutSink::new(Format::Envelope)?) as Arc<dyn Sink>,
            )
        }],
        // Counters for alerts, `tidings_events_total`; see `admin::registry`.
        counters: Vec::new(),
        objects: ObjectOptions::default(),
        own_events: None,
        heartbeat: None,
    };

    // An API server that does not answer is no error: the bridge tries until it does.
    let mut bridge = Bridge::start(client, options).await?;

    // For whoever wants to look: `admin::AdminServer`, `admin::registry`, or the loops below.
    let view = bridge.view();
    let done = async {
        if real {
            return tokio::signal::ctrl_c().await.map_err(Box::<dyn Error>::from);
        }
        // What happens before the first list is seen only as it stands by then.
        while !admin::status(&view).sources.iter().any(|source| source.stream_open) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tell_a_story(&server)?;
        while admin::status(&view).sinks.iter().any(|sink| sink.delivered + sink.filtered < 3) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    };
    tokio::select! {
        done = done => done?,
        // It ends by itself only when going on would be wrong, for instance when the API server
        // turns out to be of another cluster than the journal.
        error = bridge.failed() => println!("the bridge has failed: {error}"),
    }

    // Delivers what has been read, and saves. What is left stays in the journal for the next start.
    bridge.stop(Duration::from_secs(10)).await?;
    for sink in admin::status(&view).sinks {
        println!(
            "sink {}: {} seen = {} delivered + {} filtered + {} dead-lettered + {} lost + {} pending",
            sink.name,
            sink.seen,
            sink.delivered,
            sink.filtered,
            sink.dead_lettered,
            sink.lost,
            sink.pending
        );
    }
    Ok(())
}

/// A Pod starts, and then it does not: one Normal Event, and a Warning that is repeated.
fn tell_a_story(server: &ApiServer) -> Result<(), Box<dyn Error>> {
    let web = |reason, message| EventObject::about_pod("shop", "web-1", reason, message);
    server.create(web("Started", "Started container web"))?;
    let back_off = server.create(web("BackOff", "Back-off restarting container web").warning())?;
    // Kubernetes says "again" by patching the count. The envelope's `delta` will be 4.
    server.patch_count("shop", &back_off.name, 5, jiff::Timestamp::now())?;
    Ok(())
}
