//! However an API server answers, it is not asked without end.

use std::time::Duration;

use tidings_kube::reflector::ReflectorOptions;
use tokio::time::sleep;

use super::{
    scripted::{Answer, Ending, Request, ScriptedServer},
    support::{
        NOW, error_event, follow_into, follow_with, is_wait, list, refusal, too_large, watch,
    },
    told::Told,
};

/// A server whose lists are whole and whose watches are answered so.
fn watches(answer: impl Fn() -> Answer + Send + 'static) -> ScriptedServer {
    ScriptedServer::by(
        move |request: &Request| {
            if request.is_watch() { answer() } else { list(&["a@5"], "10") }
        },
    )
}

/// The requests of ten minutes.
async fn requests_of(server: ScriptedServer, options: ReflectorOptions) -> usize {
    let followed = follow_with(server, options);
    sleep(Duration::from_secs(600)).await;
    followed.server.requests().len()
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_closes_at_once_is_asked_for_ever_less_often() {
    let server = watches(|| watch(&[], NOW));
    let requests = requests_of(server, ReflectorOptions::default()).await;
    // Six waits up to 51 s in all at the least, then at least one of 30 s each; two requests each.
    assert!((20..=52).contains(&requests), "{requests} requests in 10 minutes");
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_at_once_is_asked_for_ever_less_often() {
    let answers: [fn() -> Answer; 6] = [
        || refusal(410, "Expired"),
        || refusal(503, "ServiceUnavailable"),
        || error_event(0, 410, "Expired"),
        || error_event(0, 429, "TooManyRequests"),
        || Answer::body(200, "<html>\n</html>\n"),
        Answer::refused,
    ];
    for answer in answers {
        let requests = requests_of(watches(answer), ReflectorOptions::default()).await;
        assert!((10..=52).contains(&requests), "{requests}: {:?}", answer());
    }
}

#[tokio::test(start_paused = true)]
async fn lists_that_are_refused_even_without_a_demand_are_asked_for_ever_less_often() {
    let answers: [fn() -> Answer; 2] = [|| refusal(410, "Expired"), too_large];
    for answer in answers {
        let server = ScriptedServer::by(move |_| answer());
        let requests = requests_of(server, ReflectorOptions::default()).await;
        assert!((20..=52).contains(&requests), "{requests}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_client_go_would_ask_again_without_end_is_paced() {
    let max_internal_error_retry = Duration::from_secs(3600);
    let retrying = || ReflectorOptions { max_internal_error_retry, ..ReflectorOptions::default() };
    let streaming = || ReflectorOptions { streaming_lists: true, ..ReflectorOptions::default() };
    for (server, options) in [
        (watches(|| watch(&[(0, "MODIFIED a@11")], NOW)), ReflectorOptions::default()),
        (watches(|| error_event(0, 500, "InternalError")), retrying()),
        (ScriptedServer::by(|_| refusal(410, "Expired")), streaming()),
        (ScriptedServer::by(|_| watch(&[(0, "ADDED a@5")], NOW)), streaming()),
    ] {
        let requests = requests_of(server, options).await;
        assert!((10..=80).contains(&requests), "{requests}");
    }
}

#[tokio::test(start_paused = true)]
async fn streams_that_bring_something_new_are_never_paced() {
    let mut version = 10;
    let server = ScriptedServer::by(move |request: &Request| {
        if !request.is_watch() {
            return list(&["a@5"], "10");
        }
        version += 1;
        if version > 500 {
            return Answer::Hang;
        }
        let event = super::support::object("a", &version.to_string());
        Answer::watch([(0, "MODIFIED", event)], Ending::Close(Duration::ZERO))
    });
    let followed = follow_with(server, ReflectorOptions::default());
    sleep(Duration::from_millis(10)).await;
    assert_eq!(followed.store.held()["a"], "500");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_comes_in_parts_is_asked_for_after_a_pause_that_does_not_grow() {
    let mut parts = 0;
    let server = ScriptedServer::by(move |_| {
        parts += 1;
        if parts > 6 { Answer::Hang } else { list(&["a@5"], "10") }
    });
    let followed = follow_into(Told::partly(), server, ReflectorOptions::default());
    followed.requests(6).await;
    let waits = followed.waits();
    assert!(waits[1..].iter().all(|wait| is_wait(*wait, 0)), "{waits:?}");
}
