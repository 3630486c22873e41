//! Following every change: what the end of a watch leads to where a list is a gap.

use std::time::Duration;

use serde_json::json;
use tidings_kube::reflector::{Follow, ReflectorOptions, StartFrom};
use tokio::time::sleep;

use super::{
    scripted::{Answer, Ending, Request, ScriptedServer},
    support::{Followed, error_event, follow_with, is_wait, list, object, page, refusal},
};

/// Follows changes from a resume point of 10.
fn resume(server: ScriptedServer) -> Followed {
    let follow = Follow::Changes { resume: Some(10), start: StartFrom::List };
    follow_with(server, ReflectorOptions { follow, ..ReflectorOptions::default() })
}

/// A watch that brings one object and then an ERROR, each so many milliseconds after the one before.
fn brings_and_fails(after_ms: u64, version: &str) -> Answer {
    let status = json!({"kind": "Status", "code": 500, "reason": "InternalError"});
    let events = [(after_ms, "ADDED", object("a", version)), (after_ms, "ERROR", status)];
    Answer::watch(events, Ending::Open)
}

fn lists_in_pages(followed: &Followed) -> usize {
    followed.calls().iter().filter(|call| call.contains("limit 500")).count()
}

#[tokio::test(start_paused = true)]
async fn an_error_in_the_stream_is_taken_up_where_it_ended() {
    let failed = |code, reason| error_event(5, code, reason);
    let followed = resume(ScriptedServer::script([
        list(&[], "10"),
        brings_and_fails(5, "11"),
        list(&[], "30"),
        failed(429, "TooManyRequests"),
        list(&[], "30"),
        failed(403, "Forbidden"),
        list(&[], "30"),
    ]));
    followed.requests(8).await;
    assert_eq!(
        followed.calls(),
        [
            "list at \"10\", limit 1",
            "watch from \"10\"",
            "list at \"11\", limit 1",
            "watch from \"11\"",
            "list at \"11\", limit 1",
            "watch from \"11\"",
            "list at \"11\", limit 1",
            "watch from \"11\"",
        ]
    );
    assert_eq!(followed.store.lines(), ["add a@11"]);
}

#[tokio::test(start_paused = true)]
async fn waits_do_not_grow_from_one_error_to_the_next_where_a_watch_worked_between_them() {
    let mut watches = 10;
    let followed = resume(ScriptedServer::by(move |request: &Request| {
        if !request.is_watch() {
            return list(&[], "30");
        }
        // One brings something, the next is quiet for longer than any wait.
        watches += 1;
        let quiet = || error_event(31_000, 500, "InternalError");
        if watches % 2 == 0 { quiet() } else { brings_and_fails(5, &watches.to_string()) }
    }));
    sleep(Duration::from_secs(300)).await;
    let requests = followed.server.requests();
    let before_watches = requests.windows(2).filter(|pair| pair[1].is_watch()).skip(1);
    let waits: Vec<_> =
        before_watches.map(|pair| pair[0].since_last_action.as_secs_f64()).collect();
    assert!(waits.len() >= 12 && waits.iter().all(|wait| is_wait(*wait, 0)), "{waits:?}");
    assert_eq!(lists_in_pages(&followed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_continue_token_that_is_gone_leads_to_the_whole_list_whatever_the_reason_is_called() {
    for reason in ["Expired", "Gone"] {
        let server = ScriptedServer::by(move |request: &Request| match request {
            request if request.is_watch() => Answer::Hang,
            request if !request.param("continue").is_empty() => refusal(410, reason),
            request if request.param("limit") == "500" => page(&["a@1"], "10", "t1"),
            _ => list(&["a@1", "b@2"], "10"),
        });
        let follow = Follow::Changes { resume: None, start: StartFrom::List };
        let options = ReflectorOptions { follow, ..ReflectorOptions::default() };
        let followed = follow_with(server, options);
        followed.requests(4).await;
        assert_eq!(
            followed.calls(),
            [
                "list at \"\", limit 500",
                "list at \"\", limit 500, token t1",
                "list at \"\"",
                "watch from \"10\"",
            ]
        );
        assert_eq!(followed.store.lines(), ["replace [a@1 b@2] at 10"]);
    }
}

/// An API server whose every watch ends with an ERROR.
fn failing_for_ever(code: u16, reason: &'static str) -> ScriptedServer {
    ScriptedServer::by(move |request: &Request| match request {
        request if request.is_watch() => error_event(0, code, reason),
        request if request.param("limit") == "1" => list(&[], "30"),
        _ => list(&["a@25"], "30"),
    })
}

/// A list that goes on for ever in empty pages, or that is cut where it has to be whole.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_not_whole_is_an_error_and_is_made_again() {
    let endless = ScriptedServer::by({
        let mut number = 0;
        move |_: &Request| {
            number += 1;
            page(&[], "10", &format!("t{number}"))
        }
    });
    let cut = ScriptedServer::by(|request: &Request| match request {
        request if !request.param("continue").is_empty() => refusal(410, "Expired"),
        _ => page(&["a@1"], "10", "t1"),
    });
    for (server, words, most) in [
        (endless, "expected the items of a list, found 100 pages in a row", 800),
        (cut, "expected the whole of a list, found a part of it", 30),
    ] {
        let follow = Follow::Changes { resume: None, start: StartFrom::List };
        let options = ReflectorOptions { follow, ..ReflectorOptions::default() };
        let followed = follow_with(server, options);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(followed.store.lines(), Vec::<String>::new());
        assert!(followed.errors()[0].starts_with(words), "{:?}", followed.errors());
        let asked = followed.calls().len();
        assert!(asked <= most, "{asked} requests: {words}");
    }
}

/// As of what stands in front of the API server and has nothing behind it for a while.
#[tokio::test(start_paused = true)]
async fn an_empty_end_at_once_leads_to_a_list_only_where_it_stands() {
    let ends = |times: usize| {
        let mut watches = 0;
        resume(ScriptedServer::by(move |request: &Request| match request {
            request if request.is_watch() => {
                watches += 1;
                let ending =
                    if watches > times { Ending::Open } else { Ending::Close(Duration::ZERO) };
                Answer::stream(Vec::new(), ending)
            }
            request if request.param("limit") == "1" => list(&[], "30"),
            _ => list(&["a@25"], "30"),
        }))
    };
    let followed = ends(4);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(lists_in_pages(&followed), 0, "{:?}", followed.calls());
    let mut watches = followed.calls().into_iter().filter(|call| call.starts_with("watch"));
    assert_eq!(watches.next_back().unwrap(), "watch from \"10\"");
    let followed = ends(usize::MAX);
    sleep(Duration::from_secs(600)).await;
    assert!(lists_in_pages(&followed) > 0, "{:?}", followed.calls());
}

#[tokio::test(start_paused = true)]
async fn an_error_that_stands_leads_to_a_list_and_being_asked_to_wait_does_not() {
    let followed = resume(failing_for_ever(500, "InternalError"));
    sleep(Duration::from_secs(55)).await;
    assert_eq!(lists_in_pages(&followed), 0);
    sleep(Duration::from_secs(600)).await;
    assert!(lists_in_pages(&followed) > 0, "{:?}", followed.calls());
    let followed = resume(failing_for_ever(429, "TooManyRequests"));
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(lists_in_pages(&followed), 0);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_start_of_what_an_api_server_says_is_repeated() {
    let server = ScriptedServer::by(|request: &Request| match request {
        request if request.is_watch() => {
            let status = json!({
                "kind": "Status", "code": 500, "reason": "InternalError", "message": "ä".repeat(1 << 20)
            });
            Answer::watch([(0, "ERROR", status)], Ending::Open)
        }
        _ => list(&[], "30"),
    });
    let followed = resume(server);
    sleep(Duration::from_secs(10)).await;
    let said = &followed.errors()[0];
    assert!(said.contains("äää") && said.contains("(500 InternalError)"), "{said:.100}");
    assert!(said.len() < 4 << 10, "{}", said.len());
}
