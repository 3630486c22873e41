//! What a reflector does about an API server that says nothing wrong, and nothing right either:
//! quiet watches, dead connections, and an etcd that was restored from a snapshot.

use std::time::Duration;

use tidings_kube::reflector::{ReplaceReason, StartFrom, Witness, Witnesses};
use tidings_testkit::api_server::{ApiServer, Fault, On, Snapshot, StreamFault, Written};
use tokio::time::Instant;

use crate::{
    recording::{Call, Followed, follow, follow_with, pass},
    support::{create, server},
};

fn watch_timeouts(server: &ApiServer) -> Vec<u64> {
    let watches = server.requests().into_iter().filter(|r| r.request.flag("watch"));
    watches.map(|r| r.request.param("timeoutSeconds").parse().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_ends_after_five_to_ten_minutes_and_is_begun_again() {
    let server = server();
    let followed = follow(&server, None, StartFrom::List);
    pass(Duration::from_secs(2400)).await;
    let timeouts = watch_timeouts(&server);
    assert!((2..=8).contains(&timeouts.len()), "{timeouts:?}");
    assert!(timeouts.iter().all(|seconds| (300..600).contains(seconds)), "{timeouts:?}");
    assert!(timeouts.iter().any(|seconds| *seconds != timeouts[0]), "{timeouts:?}");
    assert_eq!(followed.reasons(), [ReplaceReason::First], "a watch that ends in time is no gap");
    let next = create(&server, "next").resource_version;
    followed.until("what comes next", |f| f.changes() == [next]).await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_connection_is_given_up_after_the_watchs_own_time() {
    let server = server();
    server.fail_once(On::Watch, Fault::Stream { after: 1, then: StreamFault::Stall });
    let followed = follow(&server, Some(server.revision()), StartFrom::List);
    followed.watching().await;
    let started = Instant::now();
    let first = create(&server, "first").resource_version;
    let second = create(&server, "second").resource_version;
    followed.until("what the connection swallowed", |f| f.changes() == [first, second]).await;
    let (waited, timeout) = (started.elapsed().as_secs(), watch_timeouts(&server)[0]);
    assert!(waited >= timeout, "{waited} s for a watch of {timeout} s");
    assert_eq!(followed.reasons(), []);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_not_reached_any_more_is_given_up_and_said_so() {
    let server = server();
    server.fail_once(On::Watch, Fault::Stream { after: 1, then: StreamFault::Stall });
    let followed = follow(&server, Some(server.revision()), StartFrom::List);
    followed.watching().await;
    let swallows = server.set_fault(On::List, None, Fault::Hang);
    let started = Instant::now();
    let changes = [create(&server, "first"), create(&server, "second")].map(|w| w.resource_version);
    followed.until("it is given up", |f| !f.health().stream_open).await;
    let waited = started.elapsed().as_secs();
    assert!(waited >= 60, "{waited} s");
    let said = followed.health().last_error.unwrap();
    assert_eq!(said, "cannot list events: the API server sent nothing for 60 s");
    server.clear_fault(swallows);
    followed.until("what was swallowed", |f| f.changes() == changes).await;
    assert_eq!(followed.reasons(), []);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_works_is_not_given_up_for_probes_that_fail() {
    let server = server();
    let followed = follow(&server, Some(server.revision()), StartFrom::List);
    followed.watching().await;
    for (name, fault) in [("refused", Fault::Unavailable), ("unanswered", Fault::Reset)] {
        let fault = server.set_fault(On::List, None, fault);
        for n in 0..24 {
            pass(Duration::from_secs(5)).await;
            if name == "unanswered" {
                create(&server, &format!("{name}-{n}"));
            }
        }
        assert!(server.fault_hits(fault) > 5, "it is probed");
        server.clear_fault(fault);
    }
    followed.until("all that was created", |f| f.changes().len() == 24).await;
    assert_eq!(followed.health().watches, 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_brought_something_before_it_broke_is_taken_up_soon_however_often() {
    let server = server();
    let followed = follow(&server, Some(server.revision()), StartFrom::List);
    followed.watching().await;
    let mut created = Vec::new();
    for n in 0..12 {
        created.push(create(&server, &format!("one-{n}")).resource_version);
        followed.until("it", |f| f.changes() == created).await;
        server.cut_connections();
        followed.until("the cut is noticed", |f| !f.health().stream_open).await;
        followed.watching().await;
    }
}

/// A server whose etcd holds one Event, and is behind the resume point that comes with it.
fn restored() -> (ApiServer, u64) {
    let server = server();
    create(&server, "kept");
    let snapshot = server.snapshot();
    for n in 0..10 {
        create(&server, &format!("lost-{n}"));
    }
    let resume = server.revision();
    server.restore(&snapshot);
    (server, resume)
}

#[tokio::test(start_paused = true)]
async fn a_future_that_stands_for_thirty_seconds_is_another_epoch() {
    let (server, resume) = restored();
    let started = Instant::now();
    let followed = follow(&server, Some(resume), StartFrom::List);
    followed.watching().await;
    let waited = started.elapsed().as_secs();
    assert!(waited >= 30, "{waited} s");
    assert_eq!(followed.reasons(), [ReplaceReason::NewEpoch]);
    assert_eq!(followed.listed(), [1001]);
    let next = create(&server, "next").resource_version;
    followed.until("what comes next", |f| f.changes() == [next]).await;
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_only_lags_is_waited_for() {
    let (server, resume) = restored();
    let followed = follow(&server, Some(resume), StartFrom::List);
    pass(Duration::from_secs(20)).await;
    server.skip_revisions(10);
    followed.watching().await;
    assert_eq!(followed.reasons(), []);
    let probes = server.requests().into_iter().filter(|r| r.request.param("limit") == "1");
    assert!((2..=21).contains(&probes.count()), "one a second at most");
}

/// Restores a watched server to its first Event, by way of `how`; what is created then has to come.
async fn restore_under(how: impl AsyncFnOnce(&ApiServer, &dyn Fn())) -> Followed {
    let server = server();
    create(&server, "kept");
    let snapshot = server.snapshot();
    let followed = follow(&server, None, StartFrom::List);
    followed.watching().await;
    for n in 0..10 {
        create(&server, &format!("lost-{n}"));
    }
    followed.until("the first ten", |f| f.changes().len() == 10).await;
    how(&server, &|| server.restore(&snapshot)).await;
    let again = create(&server, "written after it").resource_version;
    assert_eq!(again, 1002, "a version that was given out before");
    followed.until("a new epoch", |f| f.reasons().contains(&ReplaceReason::NewEpoch)).await;
    followed.until("its list", |f| matches!(f.calls().last(), Some(Call::End(1002)))).await;
    assert_eq!(followed.listed(), [1001, 1002]);
    followed.watching().await;
    let next = create(&server, "next").resource_version;
    followed.until("what comes next", |f| f.changes().last() == Some(&next)).await;
    followed
}

#[tokio::test(start_paused = true)]
async fn an_etcd_restored_under_an_open_watch_is_noticed() {
    let followed = restore_under(async |_, restore| restore()).await;
    assert_eq!(followed.reasons(), [ReplaceReason::First, ReplaceReason::NewEpoch]);
}

#[tokio::test(start_paused = true)]
async fn an_etcd_restored_under_an_api_server_that_goes_on_is_noticed() {
    let server = server();
    create(&server, "kept");
    let followed = follow(&server, None, StartFrom::List);
    followed.watching().await;
    // The snapshot is newer than the version that the watch began at.
    let kept = create(&server, "kept too").resource_version;
    let snapshot = server.snapshot();
    for n in 0..10 {
        create(&server, &format!("lost-{n}"));
    }
    followed.until("the watch's eleven", |f| f.changes().len() == 11).await;
    server.rewind(&snapshot);
    let after = create(&server, "after").resource_version;
    followed.until("a list", |f| f.calls().contains(&Call::End(after))).await;
    assert_eq!(followed.listed(), [kept - 1, kept, after]);
    assert_eq!(followed.reasons(), [ReplaceReason::First, ReplaceReason::NewEpoch]);
}

#[tokio::test(start_paused = true)]
async fn an_etcd_restored_while_the_watch_closes_at_once_is_noticed_by_the_probe() {
    let followed = restore_under(async |server, restore| {
        // The watch that is taken up ends empty; then the probe is of the restored etcd.
        server.fail_once(On::Watch, Fault::EmptyStream);
        let asked = server.requests().len();
        server.cut_connections();
        while !server.requests()[asked..].iter().any(|r| r.request.flag("watch")) {
            pass(Duration::from_millis(50)).await;
        }
        restore();
    })
    .await;
    assert_eq!(followed.reasons(), [ReplaceReason::First, ReplaceReason::NewEpoch]);
}

/// Follows a server from a resume point, with an Event as it was written for a witness.
fn with_witness(server: &ApiServer, resume: u64, event: &Written) -> Followed {
    let witnesses = Witnesses::default();
    witnesses.read(Witness {
        namespace: "shop".to_owned(),
        name: event.name.clone(),
        uid: event.uid.clone(),
        resource_version: event.resource_version,
    });
    follow_with(server, Some(resume), StartFrom::List, &witnesses)
}

/// A server, what it is restored from, and the Event that is lost then.
fn to_be_restored() -> (ApiServer, Snapshot, Written) {
    let server = server();
    create(&server, "kept");
    let snapshot = server.snapshot();
    let lost = create(&server, "lost");
    (server, snapshot, lost)
}

fn grow_past(server: &ApiServer, resume: u64) {
    for n in 0..10 {
        create(server, &format!("after-{n}"));
    }
    assert!(server.revision() > resume);
}

#[tokio::test(start_paused = true)]
async fn another_history_with_the_same_numbers_is_told_by_a_witness() {
    let (server, snapshot, lost) = to_be_restored();
    let resume = server.revision();
    server.restore(&snapshot);
    grow_past(&server, resume);
    let followed = with_witness(&server, resume, &lost);
    followed.watching().await;
    assert_eq!(followed.reasons(), [ReplaceReason::NewEpoch]);
    assert_eq!(followed.listed().len(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_restore_that_has_grown_past_an_open_watch_is_noticed() {
    let (server, snapshot, lost) = to_be_restored();
    let resume = server.revision();
    let followed = with_witness(&server, resume, &lost);
    followed.watching().await;
    server.rewind(&snapshot);
    grow_past(&server, resume);
    followed.until("a new epoch", |f| f.reasons() == [ReplaceReason::NewEpoch]).await;
    followed.watching().await;
    assert_eq!(followed.listed().len(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_witness_that_changed_was_deleted_or_was_compacted_is_no_reason_for_alarm() {
    for (delete, compact) in [(false, false), (true, false), (false, true), (true, true)] {
        let server = server();
        let witness = create(&server, "witness");
        let resume = server.revision();
        let patched = server.patch_count("shop", &witness.name, 2, jiff::Timestamp::now());
        let mut expected = vec![patched.unwrap().resource_version];
        if delete {
            expected.push(server.delete("shop", &witness.name).unwrap().resource_version);
        }
        if compact {
            // The resume point can still be watched from, and no longer be listed.
            server.compact(resume + 1);
        }
        let followed = with_witness(&server, resume, &witness);
        followed.until("all of it", |f| f.changes() == expected).await;
        // Nor does a probe of the open watch raise one.
        pass(Duration::from_secs(120)).await;
        assert_eq!(followed.reasons(), [], "deleted: {delete}, compacted: {compact}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_witness_that_cannot_be_asked_for_is_asked_for_again() {
    let server = server();
    let last = create(&server, "last");
    // The probe is answered, and the question after it is not.
    server.fail_once(On::List, Fault::Delay(Duration::ZERO));
    let refused = server.fail_once(On::List, Fault::Unavailable);
    let followed = with_witness(&server, server.revision(), &last);
    followed.watching().await;
    assert_eq!(server.fault_hits(refused), 1);
    let asked = server
        .requests()
        .into_iter()
        .filter(|r| r.request.param("resourceVersionMatch") == "Exact");
    assert_eq!(asked.count(), 2);
    assert_eq!(followed.reasons(), []);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_hour_with_compactions_keeps_a_stream_open_and_every_list_is_empty_of_news() {
    let server = server();
    create(&server, "one");
    let followed = follow(&server, None, StartFrom::List);
    followed.watching().await;
    for _ in 0..12 {
        for _ in 0..60 {
            pass(Duration::from_secs(5)).await;
            server.skip_revisions(3);
        }
        server.compact(server.revision());
    }
    assert!(followed.health().watches >= 6, "{:?}", followed.health());
    let lists = followed.reasons();
    assert!(lists[1..].iter().all(|reason| matches!(reason, ReplaceReason::Gap { .. })));
    assert_eq!(followed.listed(), [1001]);
    let next = create(&server, "next").resource_version;
    followed.until("what comes next", |f| f.changes() == [next]).await;
}
