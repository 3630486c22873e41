//! The examples run to their end, and show what they say that they show.

mod process;

use std::fs;

use tidings_testkit::api_server::{ApiServer, Options, Recorded};

use self::process::{assert_has, count, lines, run, run_alone};

const WRITTEN: &str = "written 26, held back 12, given up 0, not written in time 0";

#[tokio::test]
async fn recorder_without_a_cluster_prints_what_would_be_written() {
    let (printed, _) = run_alone("recorder", &[]).await;
    assert_has(
        &printed,
        &[
            "create Normal Synced x1 12 keys applied",
            "create Warning SyncFailed x1 the backend does not answer",
            "patch Warning SyncFailed x5 the backend does not answer",
            "create Warning InvalidKey x1 key-9 is not a number",
            "create Warning InvalidKey x1 (combined from similar events): key-10 is not a number",
            "patch Warning InvalidKey x3 (combined from similar events): key-12 is not a number",
            "patch Warning Reverted x8 somebody else writes to it, too",
            "recorded 38, dropped 0",
            WRITTEN,
            "complete: true",
        ],
    );
    assert_eq!(count(&printed, "create"), 13);
    assert_eq!(count(&printed, "patch"), 13);
}

#[tokio::test]
async fn recorder_writes_to_the_cluster_of_the_kubeconfig() {
    let server = ApiServer::start(Options::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    fs::write(&kubeconfig, server.kubeconfig()).unwrap();

    let (printed, _) = run("recorder", &["shop/settings"], &kubeconfig).await;
    assert_has(
        &printed,
        &[
            "writing Events about the ConfigMap shop/settings to the cluster",
            WRITTEN,
            "complete: true",
        ],
    );
    assert_eq!(server.live_events(), 13);
    let requests = server.requests();
    let of = |method| {
        let is_such_a_write = |recorded: &&Recorded| {
            let request = &recorded.request;
            request.method == method && request.path.starts_with("/api/v1/namespaces/shop/events")
        };
        requests.iter().filter(is_such_a_write).count()
    };
    assert_eq!((of("POST"), of("PATCH")), (13, 13));
}

#[tokio::test]
async fn events_demo_shows_each_part_and_the_whole() {
    let (printed, _) = run_alone("events_demo", &[]).await;
    assert_has(
        &printed,
        &[
            "the watcher that left early heard 1",
            "the one for Warnings took 42",
            "the one for all heard 44",
            "aggregate: created 13, patched 14, skipped 17; the cache has",
            "Scheduled x1 assigned to node-1",
            "Unhealthy x1 probe failed: HTTP 503 after 9 ms",
            "Unhealthy x3 (combined from similar events): probe failed: HTTP 503 after 12 ms",
            "BackOff x13 restarting failed container",
            "the same in its cache: true",
        ],
    );
}

#[tokio::test]
async fn kubelet_logs_and_writes() {
    let (printed, logged) = run_alone("kubelet", &[]).await;
    assert_has(
        &printed,
        &[
            "Normal Pulled x1 kubelet, node-1 Container image \"app:1\" already present",
            "Warning BackOff x5 kubelet, node-1 Back-off restarting failed container app",
        ],
    );
    assert_eq!(count(&printed, "recorded 128 events"), 1);
    assert_eq!(count(&printed, "the API server took 128 writes"), 1);
    assert_eq!(count(&logged, "Sending events to the API server"), 1);
    // The log hears each of them, until it is stopped.
    assert_eq!(count(&logged, "reason=\"BackOff\""), 5);
    assert_eq!(count(&logged, "Event occurred"), 8);
    assert_eq!(count(&logged, "object=\"default/web-0\""), 7);
    assert_eq!(count(&logged, "fieldPath=\"spec.containers{app}\""), 7);
    assert_eq!(count(&logged, "ERROR"), 0, "{logged}");
}

#[tokio::test]
async fn kubelet_without_an_api_server_only_logs() {
    let (printed, logged) = run_alone("kubelet", &["--standalone"]).await;
    assert_has(&printed, &["sinks: 0"]);
    assert_eq!(count(&logged, "No API server defined"), 1);
    assert_eq!(count(&logged, "Event occurred"), 8);
}

#[tokio::test]
async fn event_sink_shows_what_each_answer_leads_to() {
    let (printed, logged) = run_alone("event_sink", &[]).await;
    assert_has(
        &printed,
        &[
            "Fine create, patch (2 calls) create, patch (2 calls)",
            "Rotated create, create (3 calls) create, create (3 calls)",
            "DiskAway create (3 calls) create (3 calls)",
            "DiskGone not written (12 calls) not written (12 calls)",
            "Strange create (2 calls) create (2 calls)",
            "Busy not written (1 call) create (2 calls)",
            "Forbidden not written (1 call) not written (1 call)",
            "Exists not written (1 call) not written (1 call)",
            "Impossible not written (1 call) not written (1 call)",
            "client-go's: 6 written, 5 given up, 14 retries",
            "patient: 7 written, 4 given up, 15 retries",
        ],
    );
    // That it is there already is no error.
    assert_eq!(count(&logged, "Exists"), 0, "{logged}");
    assert_eq!(count(&logged, "retry limit exceeded"), 2);
    assert_eq!(count(&logged, "Forbidden"), 2);
}

#[tokio::test]
async fn controller_annotates_and_tries_again() {
    let (printed, logged) = run_alone("controller", &[]).await;
    assert_has(
        &printed,
        &[
            "shop/settings: Wrote(9)",
            "shop/settings: Wrote(14)",
            "shop/settings: Gone",
            "tried again after 1 failure",
        ],
    );
    assert_eq!(count(&printed, "Wrote(14)"), 2, "{printed}");
    assert_eq!(count(&printed, "other"), 0, "it was not asked for");
    assert_eq!(count(&logged, "failed, to be tried again"), 1, "{logged}");
}

#[tokio::test]
async fn pod_source_starts_and_stops_the_pods_of_both_sources() {
    let (printed, _) = run_alone("pod_source", &[]).await;
    assert_eq!(
        lines(&printed),
        [
            "api: start web-0",
            "file: start proxy-node-1",
            "api: start web-2",
            "api: stop web-0",
            "file: stop proxy-node-1",
        ]
    );
}

#[tokio::test]
async fn custom_resource_has_an_index_and_a_lister() {
    let (printed, _) = run_alone("custom_resource", &[]).await;
    assert_eq!(
        lines(&printed),
        [
            "gold: shop/orders",
            "shop/carts is there: true",
            "of orders: audit/orders-copy, shop/orders",
            "orders: from \"\" to \"Succeeded\"",
            "audit/orders-copy is gone",
            "of orders: shop/orders",
        ]
    );
}
