//! What a reflector does when the API server, or something before it, misbehaves.

use std::time::Duration;

use tidings_kube::reflector::{ReplaceReason, StartFrom, WatchEventType};
use tidings_testkit::api_server::{ApiServer, Ending, EventObject, Fault, On, Place, StreamFault};

use crate::{
    recording::{Call, Followed, Held, follow, pass},
    support::{create, server},
};

/// The parameter of each watch so far, as a number.
fn watch_params(server: &ApiServer, name: &str) -> Vec<u64> {
    let watches = server.requests().into_iter().filter(|r| r.request.flag("watch"));
    watches.map(|r| r.request.param(name).parse().unwrap()).collect()
}

/// A reflector that goes on from the current revision, and watches.
async fn resumed(server: &ApiServer) -> Followed {
    let followed = follow(server, Some(server.revision()), StartFrom::List);
    followed.watching().await;
    followed
}

#[tokio::test(start_paused = true)]
async fn a_first_list_comes_in_compressed_pages_and_is_followed_on() {
    let server = server();
    for n in 0..1201 {
        create(&server, &format!("web-{n}"));
    }
    let followed = follow(&server, None, StartFrom::List);
    followed.watching().await;
    let calls = followed.calls();
    assert_eq!(calls[0], Call::Begin(ReplaceReason::First));
    assert_eq!(calls.last(), Some(&Call::End(2201)));
    assert_eq!(followed.listed(), (1001..=2201).collect::<Vec<u64>>());
    let requests = server.requests();
    let encodings = |watch| {
        let of_kind = requests.iter().filter(move |r| r.request.flag("watch") == watch);
        of_kind.map(|r| r.request.header("accept-encoding")).collect::<Vec<_>>()
    };
    assert_eq!(encodings(false), ["gzip"; 3]);
    // A watch that is compressed one member an event ends early for some decoders.
    assert_eq!(encodings(true), ["identity"]);
    let next = create(&server, "next").resource_version;
    followed.until("the next", |f| f.changes() == [next]).await;
}

#[tokio::test(start_paused = true)]
async fn a_resume_point_needs_one_probe_and_no_list() {
    let server = server();
    create(&server, "before");
    let resume = server.revision();
    let missed = create(&server, "missed").resource_version;
    let followed = follow(&server, Some(resume), StartFrom::List);
    followed.until("what was missed", |f| f.changes() == [missed]).await;
    let [probe, watch] = &server.requests()[..] else { panic!("{:?}", server.requests()) };
    let resume = resume.to_string();
    assert_eq!(probe.request.param("limit"), "1");
    assert_eq!(probe.request.param("resourceVersion"), resume);
    assert_eq!(probe.request.param("resourceVersionMatch"), "NotOlderThan");
    assert_eq!(watch.request.param("resourceVersion"), resume);
    assert_eq!(followed.reasons(), []);
}

#[tokio::test(start_paused = true)]
async fn a_start_with_what_happens_now_lists_nothing() {
    let server = server();
    create(&server, "before");
    let followed = follow(&server, None, StartFrom::Now);
    followed.watching().await;
    let now = create(&server, "now").resource_version;
    followed.until("what happens now", |f| f.changes() == [now]).await;
    assert_eq!(followed.calls()[0], Call::StartAt(now - 1));
    assert_eq!(followed.reasons(), []);
}

#[tokio::test(start_paused = true)]
async fn whatever_says_that_a_version_is_too_old_leads_to_a_list() {
    let stream = |then| Fault::Stream { after: 0, then };
    for fault in [Fault::Gone, stream(StreamFault::Expired)] {
        let server = server();
        let listed = create(&server, "old").resource_version;
        server.fail_once(On::Watch, fault.clone());
        let followed = follow(&server, Some(listed), StartFrom::List);
        followed.until("a list", |f| f.calls().contains(&Call::End(listed))).await;
        followed.watching().await;
        assert_eq!(followed.listed(), [listed], "{fault:?}");
        let next = create(&server, "next").resource_version;
        followed.until("what comes next", |f| f.changes() == [next]).await;
        assert!(matches!(followed.reasons()[..], [ReplaceReason::Gap { .. }]), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_compacted_resume_point_is_a_gap() {
    let server = server();
    create(&server, "old");
    let resume = server.revision();
    create(&server, "missed");
    create(&server, "missed too");
    server.compact(server.revision());
    let followed = follow(&server, Some(resume), StartFrom::List);
    followed.until("a list", |f| f.listed().len() == 3).await;
    let [ReplaceReason::Gap { last_sign_of_life_ms: None }] = followed.reasons()[..] else {
        panic!("{:?}", followed.reasons())
    };
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_is_taken_up_where_it_ended() {
    let cut = StreamFault::Cut;
    for then in [
        cut(Place::BetweenLines, Ending::Clean),
        cut(Place::BetweenLines, Ending::Closed),
        cut(Place::MidLine, Ending::Clean),
        cut(Place::MidLine, Ending::Closed),
        cut(Place::MidLine, Ending::Reset),
        cut(Place::MidCharacter, Ending::Clean),
        cut(Place::MidCharacter, Ending::Reset),
        StreamFault::garbage(),
        StreamFault::InternalError,
        StreamFault::too_many_requests(),
    ] {
        let server = server();
        server.fail_once(On::Watch, Fault::Stream { after: 2, then: then.clone() });
        let followed = follow(&server, Some(server.revision()), StartFrom::List);
        followed.watching().await;
        let event =
            |n| EventObject::about_pod("shop", &format!("web-{n}"), "Failed", "no image «web…»");
        let written: Vec<u64> =
            (0..4).map(|n| server.create(event(n)).unwrap().resource_version).collect();
        followed.until("all of it", |f| f.changes().len() >= 4).await;
        assert_eq!(followed.changes(), written, "{then:?}");
        assert_eq!(followed.reasons(), [], "{then:?}");
        assert_eq!(watch_params(&server, "resourceVersion").last(), Some(&written[1]), "{then:?}");
    }
}

/// Milliseconds since the epoch.
fn now_ms() -> u64 {
    jiff::Timestamp::now().as_millisecond().try_into().unwrap()
}

/// The server ends a watch while the store stands still.
async fn an_end_that_waited(held: Held) {
    let server = server();
    let ends = StreamFault::Cut(Place::BetweenLines, Ending::Clean);
    server.fail_once(On::Watch, Fault::Stream { after: 2, then: ends });
    let followed = resumed(&server).await;
    followed.hold(Some(held));
    let first = create(&server, "one").resource_version;
    followed.until("the first", |f| f.changes() == [first]).await;
    let second = create(&server, "two").resource_version;
    followed.until("the server ends the watch", |_| server.open_watches() == 0).await;
    let ended_ms = now_ms();
    create(&server, "missed");
    create(&server, "missed too");
    server.compact(server.revision());
    pass(Duration::from_secs(20)).await;
    followed.until("the clock has moved on", |_| now_ms() > ended_ms).await;
    followed.hold(None);
    followed.until("a list", |f| !f.reasons().is_empty()).await;
    assert_eq!(followed.changes(), [first, second]);
    let [ReplaceReason::Gap { last_sign_of_life_ms: Some(last) }] = followed.reasons()[..] else {
        panic!("{:?}", followed.reasons())
    };
    assert!(last <= ended_ms, "{} ms after the end", last - ended_ms);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_waited_while_the_store_stood_still_is_no_sign_of_life() {
    an_end_that_waited(Held::Changes).await;
    an_end_that_waited(Held::SignsOfLife).await;
}

/// A watch comes back after an absence in which ten Events were written, is cut after the first
/// `read` of them, and cannot be resumed any more. Answers when the first that was not read was
/// written at the latest, when the watch came back at the earliest, and the sign of life that the
/// list's gap begins at.
async fn cut_in_a_catch_up(read: usize, ending: Ending) -> (u64, u64, u64) {
    let server = server();
    let followed = resumed(&server).await;
    let mut written = vec![create(&server, "before").resource_version];
    followed.until("what was before", |f| f.changes() == written).await;
    server.stop_listening().await;
    followed.until("the absence", |f| !f.health().stream_open).await;
    written.extend((0..10).map(|n| create(&server, &format!("missed-{n}")).resource_version));
    let written_ms = now_ms();
    followed.until("the clock has moved on", |_| now_ms() > written_ms).await;
    let cut = StreamFault::Cut(Place::BetweenLines, ending);
    server.fail_once(On::Watch, Fault::Stream { after: read, then: cut });
    let back_ms = now_ms();
    server.listen_again().unwrap();
    followed.until("what is read of it", |f| f.changes() == written[..=read]).await;
    for pod in ["missed", "missed too"] {
        create(&server, pod);
    }
    server.compact(server.revision());
    followed.until("a list", |f| !f.reasons().is_empty()).await;
    let [ReplaceReason::Gap { last_sign_of_life_ms: Some(last) }] = followed.reasons()[..] else {
        panic!("{:?}", followed.reasons())
    };
    (written_ms, back_ms, last)
}

#[tokio::test(start_paused = true)]
async fn a_catch_up_that_is_cut_short_is_no_sign_of_life_and_a_whole_one_is() {
    for ending in [Ending::Reset, Ending::Clean] {
        for read in [1, 3, 9] {
            let (written, _, last) = cut_in_a_catch_up(read, ending).await;
            assert!(last <= written, "{ending:?} after {read}: {} ms too late", last - written);
        }
        let (_, back, last) = cut_in_a_catch_up(10, ending).await;
        assert!(last >= back, "{ending:?}: {} ms too early", back - last);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_belong_does_not_move_the_resume_point_back() {
    let server = server();
    server.fail_once(On::Watch, Fault::Stream { after: 1, then: StreamFault::wrong_kind() });
    let followed = resumed(&server).await;
    let first = create(&server, "one").resource_version;
    followed.until("the stray", |f| f.changes() == [first, 1]).await;
    server.cut_connections();
    followed.until("another watch", |f| f.health().watches == 2).await;
    let second = create(&server, "two").resource_version;
    followed.until("the second", |f| f.changes() == [first, 1, second]).await;
    assert_eq!(watch_params(&server, "resourceVersion")[1..], [first]);
    assert_eq!(followed.reasons(), []);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_moves_the_resume_point() {
    let server = server();
    let resume = server.revision();
    server.skip_revisions(50);
    server.fail_once(On::Watch, Fault::Stream { after: 0, then: StreamFault::Bookmark });
    let followed = follow(&server, Some(resume), StartFrom::List);
    let bookmark = [Call::Apply(vec![(WatchEventType::Bookmark, resume + 50)])];
    followed.until("the bookmark", |f| f.calls() == bookmark).await;
    server.cut_connections();
    followed.until("another watch", |f| f.health().watches == 2).await;
    followed.watching().await;
    assert_eq!(watch_params(&server, "resourceVersion"), [resume, resume + 50]);
}

#[tokio::test(start_paused = true)]
async fn lines_and_items_of_eight_mib_are_taken() {
    let server = server();
    let large = || EventObject::about_pod("shop", "web", "Failed", &"ü".repeat(4 << 20));
    server.create(large()).unwrap();
    let followed = follow(&server, None, StartFrom::List);
    followed.watching().await;
    assert!(followed.largest() > 8 << 20);
    let version = server.create(large()).unwrap().resource_version;
    followed.until("the line", |f| f.changes() == [version]).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_outlives_its_token_is_made_in_one_piece() {
    let server = server();
    for n in 0..1100 {
        create(&server, &format!("web-{n}"));
    }
    // The first page comes late, the second too late.
    server.fail_once(On::List, Fault::Delay(Duration::from_secs(1)));
    server.fail_once(On::List, Fault::Gone);
    let followed = follow(&server, None, StartFrom::List);
    followed.watching().await;
    assert_eq!(followed.listed().len(), 1100);
    assert_eq!(followed.reasons(), [ReplaceReason::First; 2]);
    assert_eq!(followed.calls().iter().filter(|call| **call == Call::Abort).count(), 1);
    let limits = server.requests().into_iter().map(|r| r.request.param("limit").to_owned());
    assert_eq!(limits.collect::<Vec<_>>(), ["500", "500", "", ""]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_or_stalls_is_forgotten_and_made_again() {
    for then in [StreamFault::Cut(Place::MidLine, Ending::Reset), StreamFault::Stall] {
        let server = server();
        for n in 0..10 {
            create(&server, &format!("web-{n}"));
        }
        server.fail_once(On::List, Fault::Stream { after: 5, then: then.clone() });
        let followed = follow(&server, None, StartFrom::List);
        followed.watching().await;
        assert!(followed.calls().contains(&Call::Abort), "{then:?}");
        assert_eq!(followed.listed().len(), 10, "{then:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_named_and_outlived() {
    let forbidden = "refuses to VERB events: events is forbidden: User \
        \"system:serviceaccount:tidings:tidings\" cannot VERB resource \"events\" in API group \"\" \
        at the cluster scope (403 Forbidden)";
    let cases = [
        (Fault::Forbidden, forbidden),
        (Fault::Unauthorized, "refuses to VERB events: Unauthorized (401 Unauthorized)"),
        (Fault::Unavailable, "(503 ServiceUnavailable)"),
        (Fault::TooManyRequests { retry_after: 1 }, "(429 Too Many Requests)"),
        (Fault::Html { code: 502 }, "(502 Bad Gateway)"),
        (Fault::Html { code: 200 }, "<html>"),
        (Fault::Reset, "cannot VERB events: "),
        (Fault::Hang, "cannot VERB events: the API server sent nothing for 60 s"),
    ];
    for (fault, words) in cases {
        for (on, verb) in [(On::List, "list"), (On::Watch, "watch")] {
            let server = server();
            let old = create(&server, "old").resource_version;
            let fault_id = server.set_fault(on, None, fault.clone());
            let followed = follow(&server, None, StartFrom::List);
            let words = words.replace("VERB", verb);
            let said = |f: &Followed| f.health().last_error.is_some_and(|e| e.contains(&words));
            followed.until(&words, said).await;
            followed.until("attempts", |_| server.fault_hits(fault_id) >= 4).await;
            server.clear_faults();
            followed.watching().await;
            let next = create(&server, "next").resource_version;
            followed.until("what comes next", |f| f.changes() == [next]).await;
            assert_eq!(followed.health().last_error, None, "{fault:?} on {verb}");
            assert_eq!(followed.listed(), [old], "{fault:?} on {verb}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_goes_away_is_found_again_where_it_was() {
    let server = server();
    let followed = resumed(&server).await;
    server.stop_listening().await;
    followed.until("a refusal", |f| f.health().last_error.is_some()).await;
    assert!(!followed.health().stream_open);
    let missed = create(&server, "missed").resource_version;
    pass(Duration::from_secs(100)).await;
    server.listen_again().unwrap();
    followed.until("what was missed", |f| f.changes() == [missed]).await;
    assert_eq!(followed.reasons(), []);
}
