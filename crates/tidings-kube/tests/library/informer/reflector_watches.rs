//! What the end of a watch leads to, and what a watch tells the store.

use std::time::Duration;

use serde_json::json;
use tidings_kube::reflector::ReflectorOptions;
use tokio::time::sleep;

use super::{
    scripted::{Answer, Ending, ScriptedServer},
    support::{NOW, error_event, follow, follow_with, is_wait, list, object, refusal, watch},
};

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_gone_ends_the_round() {
    let followed = follow([list(&["a@5"], "10"), refusal(410, "Expired"), list(&["a@5"], "20")]);
    followed.requests(4).await;
    assert_eq!(followed.calls()[1..], ["watch from \"10\"", "list at \"10\"", "watch from \"20\""]);
    assert!(is_wait(followed.waits()[2], 0));
    assert_eq!(followed.errors().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_is_tried_again_without_a_list() {
    let followed = follow([
        list(&["a@5"], "10"),
        Answer::refused(),
        refusal(429, "TooManyRequests"),
        error_event(0, 429, "TooManyRequests"),
    ]);
    followed.requests(5).await;
    assert_eq!(followed.calls()[1..], ["watch from \"10\""; 4]);
    let waits = followed.waits();
    assert!((0..3).all(|n| is_wait(waits[n + 2], n)), "{waits:?}");
    assert_eq!(followed.errors(), Vec::<String>::new(), "no round ended");
}

#[tokio::test(start_paused = true)]
async fn an_error_in_the_stream_ends_the_round_and_nothing_behind_it_is_read() {
    let status = json!({"kind": "Status", "code": 500, "reason": "InternalError"});
    let events =
        [(5, "ADDED", object("b", "11")), (5, "ERROR", status), (0, "ADDED", object("c", "12"))];
    let followed =
        follow([list(&["a@5"], "10"), Answer::watch(events, Ending::Open), list(&["a@5"], "20")]);
    followed.requests(4).await;
    assert_eq!(followed.calls()[2..], ["list at \"11\"", "watch from \"20\""]);
    assert_eq!(followed.store.lines(), ["replace [a@5] at 10", "add b@11", "replace [a@5] at 20"]);
    assert_eq!(followed.errors(), Vec::<String>::new(), "client-go's handler is not called");
}

#[tokio::test(start_paused = true)]
async fn internal_errors_are_retried_at_once_for_as_long_as_is_wished() {
    let internal = |after| error_event(after, 500, "InternalError");
    let server = ScriptedServer::script([
        list(&["a@5"], "10"),
        internal(1000),
        internal(9000),
        internal(2000),
        list(&["a@5"], "20"),
    ]);
    let max_internal_error_retry = Duration::from_secs(10);
    let followed = follow_with(
        server,
        ReflectorOptions { max_internal_error_retry, ..ReflectorOptions::default() },
    );
    followed.requests(5).await;
    assert_eq!(followed.calls()[1..4], ["watch from \"10\""; 3]);
    assert!(followed.waits()[2] < 0.01 && followed.waits()[3] < 0.01);
    assert_eq!(followed.calls()[4], "list at \"10\"");
}

#[tokio::test(start_paused = true)]
async fn a_watch_lasts_five_to_ten_minutes_and_bookmarks_are_wanted() {
    let mut answers = vec![list(&["a@5"], "10")];
    answers.extend((0..20).map(|_| watch(&[], Ending::Close(Duration::from_secs(300)))));
    let followed = follow(answers);
    let requests = followed.requests(21).await;
    let seconds: Vec<u64> =
        requests[1..].iter().map(|r| r.param("timeoutSeconds").parse().unwrap()).collect();
    assert!(seconds.iter().all(|seconds| (300..600).contains(seconds)), "{seconds:?}");
    assert!(seconds.iter().any(|other| *other != seconds[0]), "{seconds:?}");
    assert!(requests[1..].iter().all(|r| r.param("allowWatchBookmarks") == "true"));
    assert_eq!(followed.store.lines().len(), 1, "watches that end in time need no list");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_stalls_for_ever_is_given_up_after_its_time() {
    let followed = follow([
        list(&["a@5"], "10"),
        watch(&[(5, "MODIFIED a@11")], Ending::Open),
        watch(&[(5, "MODIFIED a@12")], Ending::Open),
    ]);
    let requests = followed.requests(3).await;
    assert_eq!(followed.calls()[2], "watch from \"11\"");
    let given_up = (requests[2].at - requests[1].at).as_secs();
    assert_eq!(given_up, 630, "client-go would wait for ever");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(followed.store.lines()[1..], ["update a@11", "update a@12"]);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_belong_is_skipped_and_does_not_move_the_version() {
    let service = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "s", "resourceVersion": "99"}});
    let events =
        [(5, "ADDED", object("b", "11")), (5, "ADDED", service), (5, "WEIRD", object("b", "12"))];
    let followed = follow([
        list(&["a@5"], "10"),
        Answer::watch(events, Ending::Close(Duration::from_secs(2))),
    ]);
    followed.requests(3).await;
    assert_eq!(followed.calls()[2], "watch from \"12\"", "an unknown type moves it");
    assert_eq!(followed.store.lines(), ["replace [a@5] at 10", "add b@11"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_without_a_version_begins_the_next_watch_without_one() {
    let bare = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "b"}});
    let followed = follow([
        list(&["a@5"], "10"),
        Answer::watch([(5, "ADDED", bare)], NOW),
        error_event(1500, 410, "Expired"),
        list(&["a@5"], "20"),
    ]);
    followed.requests(5).await;
    assert_eq!(followed.calls()[2..4], ["watch from \"\"", "list at \"0\", limit 500"]);
    assert_eq!(followed.store.lines()[1], "add b@");
}

#[tokio::test(start_paused = true)]
async fn a_resync_comes_each_period_while_there_is_a_watch_or_one_is_tried() {
    let server = ScriptedServer::script([
        list(&["a@5"], "10"),
        Answer::refused(),
        watch(&[(12_000, "MODIFIED a@11")], Ending::Open),
    ]);
    let resync_period = Some(Duration::from_secs(10));
    let followed =
        follow_with(server, ReflectorOptions { resync_period, ..ReflectorOptions::default() });
    sleep(Duration::from_secs(31)).await;
    let lines = followed.store.lines();
    assert_eq!(lines.iter().filter(|line| *line == "resync").count(), 3, "{lines:?}");
    assert_eq!(lines[..3], ["replace [a@5] at 10", "resync", "update a@11"]);
}
