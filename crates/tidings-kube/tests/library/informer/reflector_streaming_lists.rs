//! A stream in place of a list.

use std::time::Duration;

use serde_json::{Value, json};
use tidings_kube::reflector::ReflectorOptions;
use tokio::time::sleep;

use super::{
    scripted::{Answer, Ending, ScriptedServer},
    support::{
        Followed, NOW, error_event, follow_with, is_wait, list, object, refusal, too_large, watch,
    },
};

fn streaming(answers: impl IntoIterator<Item = Answer>) -> Followed {
    let options = ReflectorOptions { streaming_lists: true, ..ReflectorOptions::default() };
    follow_with(ScriptedServer::script(answers), options)
}

/// The bookmark behind the objects.
pub(crate) fn complete(version: &str) -> (u64, &'static str, Value) {
    let mut bookmark = json!({"kind": "ConfigMap", "apiVersion": "v1"});
    bookmark["metadata"] =
        json!({"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}});
    (5, "BOOKMARK", bookmark)
}

fn objects(version: &str, ending: Ending) -> Answer {
    Answer::watch([(5, "ADDED", object("a", "5")), complete(version)], ending)
}

#[tokio::test(start_paused = true)]
async fn the_stream_that_brought_the_objects_is_the_watch() {
    let events = [
        (5, "ADDED", object("b", "6")),
        (0, "ADDED", object("a", "5")),
        (0, "MODIFIED", object("a", "8")),
        (0, "DELETED", object("b", "9")),
        complete("10"),
        (0, "ADDED", object("c", "11")),
    ];
    let followed = streaming([Answer::watch(events, Ending::Close(Duration::from_secs(2)))]);
    let requests = followed.requests(2).await;
    let of = |name| requests[0].param(name);
    assert_eq!((of("sendInitialEvents"), of("resourceVersionMatch")), ("true", "NotOlderThan"));
    assert_eq!((of("resourceVersion"), of("allowWatchBookmarks")), ("", "true"));
    assert_eq!(requests[1].param("sendInitialEvents"), "");
    assert_eq!(followed.calls()[1], "watch from \"11\"");
    assert_eq!(followed.store.lines(), ["replace [a@8] at 10", "add c@11"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_reaches_the_store_before_it_is_complete() {
    let late = watch(&[(0, "ADDED a@5"), (60_000, "ADDED b@6")], Ending::Open);
    let followed = streaming([late]);
    sleep(Duration::from_secs(120)).await;
    assert_eq!(followed.store.lines(), Vec::<String>::new());
    assert!(followed.health().stream_open);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_listed_in_the_same_round() {
    for no in [refusal(422, "Invalid"), refusal(400, "BadRequest"), watch(&[], NOW)] {
        let followed = streaming([no, list(&["a@5"], "10"), error_event(0, 410, "Expired")]);
        let requests = followed.requests(4).await;
        let calls = followed.calls();
        assert_eq!(calls[1..3], ["list at \"0\", limit 500", "watch from \"10\""]);
        assert!(followed.waits()[1] < 0.01);
        assert_eq!(requests[3].param("sendInitialEvents"), "true", "the next round asks again");
        assert_eq!(calls[3], "watch from \"10\"");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_or_busy_is_asked_again_for_a_stream() {
    let busy = refusal(429, "TooManyRequests");
    let followed = streaming([Answer::refused(), busy, objects("10", Ending::Open)]);
    followed.requests(3).await;
    let waits = followed.waits();
    assert!(is_wait(waits[1], 0) && is_wait(waits[2], 1), "{waits:?}");
    sleep(Duration::from_millis(20)).await;
    assert_eq!(followed.store.lines(), ["replace [a@5] at 10"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_not_known_is_given_up_at_once() {
    for unknown in [refusal(410, "Expired"), too_large(), error_event(0, 410, "Gone")] {
        let ended = Answer::watch(
            [
                (5, "ADDED", object("a", "5")),
                complete("10"),
                (5, "ERROR", json!({"kind": "Status", "code": 410, "reason": "Expired"})),
            ],
            Ending::Open,
        );
        let followed = streaming([ended, unknown, objects("20", Ending::Open)]);
        followed.requests(3).await;
        assert_eq!(followed.calls()[1..], ["watch from \"10\"", "watch from \"\""]);
        assert!(is_wait(followed.waits()[1], 0) && followed.waits()[2] < 0.01);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_too_early_is_begun_anew() {
    let early = watch(&[(5, "ADDED gone@5")], NOW);
    let followed = streaming([early, objects("10", Ending::Open)]);
    followed.requests(2).await;
    sleep(Duration::from_millis(20)).await;
    assert_eq!(followed.store.lines(), ["replace [a@5] at 10"]);
}
