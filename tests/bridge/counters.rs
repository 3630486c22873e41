//! Counters that are made of Events, on a running bridge.

use jiff::Timestamp;
use tidings::{
    bridge::{BridgeView, EventCounter, Filter},
    template::Templated,
};

use crate::support::{MemorySink, Setup, create, server, settled, stop, until};

fn counters() -> Vec<EventCounter> {
    let namespace = Templated::parse("{{ event.metadata.namespace }}").unwrap();
    vec![
        EventCounter { name: "all".to_owned(), filter: None, labels: Vec::new(), max: 1 },
        EventCounter {
            name: "started".to_owned(),
            filter: Some(Filter::compile(r#"event.reason == "Started""#).unwrap()),
            labels: vec![("namespace".to_owned(), namespace)],
            max: 10,
        },
    ]
}

fn counted(view: &BridgeView) -> Vec<(String, u64)> {
    let series = view.counters.series().into_iter();
    series
        .map(|one| (one.labels.into_iter().map(|l| l.1).collect::<Vec<_>>().join("/"), one.value))
        .collect()
}

async fn counts(view: &BridgeView, wanted: &[(&str, u64)]) {
    let wanted: Vec<_> = wanted.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
    until("it counts what there is", || counted(view) == wanted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_add_increments_and_begin_at_0_after_a_crash() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    let setup = || Setup { counters: counters(), ..Setup::new(&server, dir.path()) };

    let written = create(&server, "web-0");
    let bridge = setup().sink("sink", &sink).start().await;
    counts(&bridge.view(), &[("all", 1), ("started/shop", 1)]).await;
    server.patch_count("shop", &written.name, 5, Timestamp::now()).unwrap();
    create(&server, "web-1");
    counts(&bridge.view(), &[("all", 6), ("started/shop", 6)]).await;
    settled(&bridge.view(), "sink", 3).await;
    drop(bridge);

    // The events of the meantime, and no others, are journalled now.
    server.patch_count("shop", &written.name, 7, Timestamp::now()).unwrap();
    sink.hold(true);
    let bridge = setup().sink("sink", &sink).start().await;
    counts(&bridge.view(), &[("all", 2), ("started/shop", 2)]).await;
    assert!(bridge.view().counters.failures().iter().all(|(_, failures)| *failures == 0));
    sink.hold(false);
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_that_come_while_a_bridge_runs_count_from_then_on() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    let bridge = Setup::new(&server, dir.path()).sink("sink", &sink).start().await;
    let view = bridge.view();
    create(&server, "web-0");
    settled(&view, "sink", 1).await;
    assert_eq!((view.counters.next_sequence(), counted(&view)), (None, Vec::new()));
    for round in 1..3 {
        view.counters.set(counters());
        create(&server, &format!("web-{round}"));
        until("they count", || counted(&view).len() == 2).await;
        view.counters.set(Vec::new());
        assert_eq!(counted(&view), []);
    }
    stop(bridge).await;
}
