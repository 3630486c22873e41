//! What a list is asked for, and what its failures lead to.

use std::time::Duration;

use tidings_kube::reflector::ReflectorOptions;

use super::{
    scripted::{Answer, Ending, ScriptedServer},
    support::{error_event, follow, follow_with, is_wait, list, page, refusal, too_large, watch},
};

#[tokio::test(start_paused = true)]
async fn the_first_list_may_be_old_and_the_next_is_as_new_as_what_was_seen() {
    let followed = follow([
        list(&["a@5"], "10"),
        watch(&[(5, "MODIFIED a@12"), (5, "BOOKMARK @17")], Ending::Close(Duration::from_secs(2))),
        error_event(0, 410, "Expired"),
        list(&["a@12"], "20"),
    ]);
    followed.requests(5).await;
    assert_eq!(
        followed.calls(),
        [
            "list at \"0\", limit 500",
            "watch from \"10\"",
            "watch from \"17\"",
            "list at \"17\"",
            "watch from \"20\"",
        ]
    );
    assert_eq!(
        followed.store.lines(),
        ["replace [a@5] at 10", "update a@12", "replace [a@12] at 20"]
    );
    assert_eq!(followed.health().last_sync_resource_version, "20");
}

#[tokio::test(start_paused = true)]
async fn a_resource_without_a_cache_is_listed_in_pages_ever_after() {
    let followed = follow([
        page(&["a@1"], "10", "t1"),
        list(&["b@2"], "11"),
        error_event(0, 410, "Expired"),
        list(&[], "20"),
    ]);
    followed.requests(5).await;
    assert_eq!(
        followed.calls(),
        [
            "list at \"0\", limit 500",
            "list at \"\", limit 500, token t1",
            "watch from \"10\"",
            "list at \"10\", limit 500",
            "watch from \"20\"",
        ]
    );
    assert_eq!(followed.store.lines(), ["replace [a@1 b@2] at 10", "replace [] at 20"]);
}

#[tokio::test(start_paused = true)]
async fn the_page_size_can_be_set() {
    let server = ScriptedServer::script([page(&["a@1"], "10", "t1"), list(&["b@2"], "11")]);
    let options = ReflectorOptions { page_size: Some(1), ..ReflectorOptions::default() };
    let followed = follow_with(server, options);
    followed.requests(3).await;
    let calls = followed.calls();
    assert_eq!(calls[..2], ["list at \"0\", limit 1", "list at \"\", limit 1, token t1"]);
}

#[tokio::test(start_paused = true)]
async fn a_continue_token_that_expired_leads_to_the_whole_list() {
    let followed =
        follow([page(&["a@1"], "10", "t1"), refusal(410, "Expired"), list(&["a@1", "b@2"], "15")]);
    followed.requests(4).await;
    assert_eq!(followed.calls()[2..], ["list at \"0\"", "watch from \"15\""]);
    assert_eq!(followed.store.lines(), ["replace [a@1 b@2] at 15"]);
    assert_eq!(followed.errors(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_goes_round_is_an_error_and_is_made_again() {
    for tokens in
        [&["t1", "t1"][..], &["t1", "t2", "t3", "t1"], &["t1", "t2", "t3", "t2", "t3", "t2"]]
    {
        let pages = tokens.iter().map(|token| page(&["a@1"], "10", token));
        let followed = follow(pages.chain([list(&["a@1"], "20")]));
        let requests = followed.requests(tokens.len() + 2).await;
        assert!(is_wait(followed.waits()[tokens.len()], 0), "{:?}", followed.waits());
        assert!(requests[tokens.len()].param("continue").is_empty(), "from its beginning");
        assert_eq!(followed.store.lines(), ["replace [a@1] at 20"]);
        let words = "expected the next page of a list, found one that came before";
        assert!(followed.errors()[0].starts_with(words), "{:?}", followed.errors());
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_expired_or_is_too_large_is_given_up_at_once() {
    for refused in [refusal(410, "Expired"), refusal(410, "Gone"), too_large()] {
        let followed = follow([
            list(&["a@5"], "10"),
            error_event(0, 410, "Expired"),
            refused,
            list(&["a@5"], "20"),
            error_event(0, 410, "Expired"),
        ]);
        followed.requests(6).await;
        let calls = followed.calls();
        assert_eq!(calls[2..5], ["list at \"10\"", "list at \"\"", "watch from \"20\""]);
        assert_eq!(calls[5], "list at \"20\"", "what is seen now counts again");
        assert!(followed.waits()[3] < 0.01, "whatever Retry-After says: less is asked for");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_made_again_after_ever_longer_waits() {
    let html = || Answer::body(200, "<html>login</html>").with_header("content-type", "text/html");
    let cut = || {
        let half =
            bytes::Bytes::from_static(b"{\"metadata\":{\"resourceVersion\":\"9\"},\"items\":[{},{");
        Answer::stream(
            vec![(Duration::ZERO, half)],
            Ending::Break(std::io::ErrorKind::ConnectionReset),
        )
    };
    let followed = follow([
        refusal(500, "InternalError"),
        html(),
        Answer::body(502, "<html>bad gateway</html>"),
        cut(),
        Answer::refused(),
        list(&["a@5"], "10"),
    ]);
    followed.requests(7).await;
    let waits = followed.waits();
    for (n, wait) in waits[1..6].iter().enumerate() {
        assert!(is_wait(*wait, n), "{waits:?}");
    }
    assert_eq!(followed.store.lines(), ["replace [a@5] at 10"], "no piece of a list counts");
    let errors = followed.errors();
    for (error, words) in errors.iter().zip([
        "refuses to list configmaps",
        "no list",
        "(502 Bad Gateway)",
        "cannot list configmaps",
        "connection refused",
    ]) {
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(errors.len(), 5);
    assert_eq!(followed.health().last_error, None, "it answers again");
}

#[tokio::test(start_paused = true)]
async fn retry_after_lengthens_a_wait_but_not_without_bound() {
    let slow = |seconds| refusal(503, "ServiceUnavailable").with_header("retry-after", seconds);
    let followed = follow([slow("20"), slow("86400"), list(&[], "10")]);
    followed.requests(4).await;
    let waits: Vec<String> = followed.waits().iter().map(|wait| format!("{wait:.0}")).collect();
    assert_eq!(waits[1..3], ["20", "60"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_stalls_is_given_up() {
    let head = bytes::Bytes::from_static(b"{\"metadata\":{\"resourceVersion\":\"9\"},\"items\":[");
    let stalled = Answer::stream(vec![(Duration::ZERO, head)], Ending::Open);
    let followed = follow([stalled, Answer::Hang, list(&["a@5"], "10")]);
    followed.requests(4).await;
    let words = "cannot list configmaps: the API server sent nothing for 60 s";
    assert_eq!(followed.errors(), [words, words]);
    assert_eq!(followed.store.lines(), ["replace [a@5] at 10"]);
}
