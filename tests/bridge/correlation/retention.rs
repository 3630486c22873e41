//! What a correlator decided on records that retention took.

use std::{collections::BTreeMap, time::Duration};

use tidings::{bridge::BridgeView, demo::api_server::EventObject};
use tokio::runtime::Runtime;

use super::{loud_saying, suppress};
use crate::{
    overflow::SavedState,
    support::{MemorySink, Setup, server, settled, sink_status, stop, until},
};

async fn has_or_holds(view: &BridgeView, versions: u64) {
    until("all is had, or held", || {
        let status = sink_status(view, "pager");
        status.seen == versions && status.pending == status.held
    })
    .await;
}

#[test]
fn increments_add_up_where_retention_took_what_a_kill_kept_from_being_saved() {
    let outer = Runtime::new().unwrap();
    let (server, sink) = (outer.block_on(async { server() }), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let start = || {
        let runtime = Runtime::new().unwrap();
        let mut setup = Setup::new(&server, journal.path()).tuned("pager", &sink, suppress());
        setup.retention = 1 << 20;
        let bridge = runtime.block_on(setup.start());
        (runtime, bridge)
    };
    let message = "again".repeat(400);
    let (runtime, bridge) = start();
    let view = bridge.view();
    let mut events = loud_saying(&server, "web", 0..30, &message);
    let mut versions = 30;
    runtime.block_on(has_or_holds(&view, versions));
    std::thread::sleep(Duration::from_secs(3));
    runtime.shutdown_timeout(Duration::from_secs(10));
    drop((bridge, view));
    let saved = SavedState::of(journal.path());

    let (runtime, bridge) = start();
    let view = bridge.view();
    for at in 0..1000 {
        // What is held comes out with room, and what is about others at once.
        events[25 + at % 5].again(&server);
        let pod = format!("other-{}", at / 20);
        server.create(EventObject::about_pod("shop", &pod, "A", &message)).unwrap();
        versions += 2;
        if at % 10 == 0 {
            runtime.block_on(has_or_holds(&view, versions));
        }
    }
    runtime.block_on(has_or_holds(&view, versions));
    runtime.block_on(until("old segments go", || view.log.oldest().ordinal() > 1000));
    runtime.shutdown_timeout(Duration::from_secs(10));
    drop((bridge, view));
    // As after a kill before anything was saved of that.
    saved.put_back();

    let (runtime, bridge) = start();
    let view = bridge.view();
    runtime.block_on(until("all is read", || sink_status(&view, "pager").seen == versions));
    runtime.block_on(stop(bridge));
    let mut deltas = BTreeMap::new();
    for event in sink.received() {
        let before = deltas.insert(event.id.clone(), event.delta);
        assert!(before.is_none_or(|before| before == event.delta), "{}", event.id);
    }
    assert_eq!(deltas.values().sum::<u64>(), versions);
    let (runtime, bridge) = start();
    let status = runtime.block_on(settled(&bridge.view(), "pager", versions));
    assert_eq!((status.lost, status.held), (0, 0));
    assert_eq!(
        (status.delivered, status.correlated_away),
        (deltas.len() as u64, versions - deltas.len() as u64)
    );
    runtime.block_on(stop(bridge));
}
