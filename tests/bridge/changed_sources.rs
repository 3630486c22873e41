//! Other namespaces or another field selector over a restart: nothing is missed that is not stated.

use std::{path::Path, time::Duration};

use jiff::Timestamp;
use tidings::{
    admin::{GapStatus, status},
    bridge::{Bridge, SourceStart},
};
use tidings_testkit::api_server::{ApiServer, EventObject, Written, seconds};

use crate::support::{MemorySink, Received, Setup, create, server, stop, until};

/// Which Events a bridge reads.
#[derive(Clone, Copy, Debug, Default)]
struct Scope {
    namespaces: &'static [&'static str],
    selector: &'static str,
}

const ALL: Scope = Scope { namespaces: &[], selector: "" };
const SHOP: Scope = Scope { namespaces: &["shop"], selector: "" };
const NORMAL: Scope = Scope { namespaces: &[], selector: "type=Normal" };

async fn start_at(
    server: &ApiServer,
    journal: &Path,
    sink: &MemorySink,
    scope: Scope,
    start: SourceStart,
) -> Bridge {
    let mut setup = Setup::new(server, journal).sink("a", sink);
    setup.namespaces = scope.namespaces.iter().map(|&namespace| namespace.to_owned()).collect();
    scope.selector.clone_into(&mut setup.field_selector);
    setup.start = start;
    setup.start().await
}

async fn start(server: &ApiServer, journal: &Path, sink: &MemorySink, scope: Scope) -> Bridge {
    start_at(server, journal, sink, scope, SourceStart::All).await
}

fn counted(server: &ApiServer, event: &Written, counts: &[i32]) -> Vec<Written> {
    let patch =
        |count: &i32| server.patch_count("shop", &event.name, *count, Timestamp::now()).unwrap();
    counts.iter().map(patch).collect()
}

fn short(events: &[Received]) -> Vec<(String, u64, bool)> {
    events.iter().map(|event| (event.id.clone(), event.delta, event.replayed)).collect()
}

/// The gaps that a bridge has stated.
fn gaps(bridge: &Bridge) -> Vec<GapStatus> {
    status(&bridge.view()).ingest.recent_gaps
}

/// What happens while no bridge runs: one Event is created and counts to 5, a known one to 7, and
/// one comes and goes. Answers the versions of the first two.
fn meanwhile(server: &ApiServer, known: &Written) -> [Vec<Written>; 2] {
    let new = create(server, "new");
    let mut news = vec![new.clone()];
    news.extend(counted(server, &new, &[2, 5]));
    let known = counted(server, known, &[4, 7]);
    let brief = create(server, "brief");
    server.delete("shop", &brief.name).unwrap();
    [news, known]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_of_which_all_was_read_goes_on_where_that_ended() {
    for (before, after) in
        [(ALL, SHOP), (ALL, NORMAL), (SHOP, Scope { selector: "type=Normal", ..SHOP })]
    {
        let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
        let bridge = start(&server, dir.path(), &sink, before).await;
        let known = create(&server, "known");
        sink.wait_for(1).await;
        stop(bridge).await;
        let [news, counts] = meanwhile(&server, &known);
        server.forget_requests();
        let bridge = start(&server, dir.path(), &sink, after).await;
        let received = sink.wait_for(7).await;
        let mut expected: Vec<_> =
            [1, 1, 3].iter().zip(&news).map(|(d, e)| (e.id(), *d, false)).collect();
        expected.extend([3, 3].iter().zip(&counts).map(|(d, e)| (e.id(), *d, false)));
        assert_eq!(short(&received[1..6]), expected, "{before:?} {after:?}");
        assert!(gaps(&bridge).is_empty(), "nothing was missed");
        stop(bridge).await;
        let lists = server.requests().into_iter().filter(|r| r.request.param("limit") == "500");
        assert_eq!(lists.count(), 0);
        // It has a resume point of its own from then on.
        let bridge = start(&server, dir.path(), &sink, after).await;
        let next = create(&server, "next").id();
        assert_eq!(sink.wait_for(8).await[7].id, next);
        assert!(gaps(&bridge).is_empty());
        stop(bridge).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_back_goes_on_where_the_one_ended_that_read_it_meanwhile() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let mut all = Vec::new();
    for scope in [SHOP, ALL, SHOP] {
        all.push(create(&server, "missed").id());
        let bridge = start(&server, dir.path(), &sink, scope).await;
        until("a watch", || server.open_watches() == 1).await;
        all.push(create(&server, "watched").id());
        sink.wait_for(all.len()).await;
        assert_eq!(status(&bridge.view()).ingest.repeats, 0);
        stop(bridge).await;
    }
    assert_eq!(sink.ids(), all);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_of_an_event_that_is_deleted_is_known_to_a_source_that_is_back() {
    for part in [SHOP, NORMAL] {
        let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
        let bridge = start(&server, dir.path(), &sink, ALL).await;
        let brief = create(&server, "brief");
        let mut all = vec![brief.id()];
        sink.wait_for(1).await;
        all.extend(counted(&server, &brief, &[2, 3]).iter().map(Written::id));
        sink.wait_for(3).await;
        stop(bridge).await;

        let bridge = start(&server, dir.path(), &sink, part).await;
        all.extend(counted(&server, &brief, &[4, 7]).iter().map(Written::id));
        sink.wait_for(5).await;
        server.delete("shop", &brief.name).unwrap();
        all.push(create(&server, "behind it").id());
        sink.wait_for(6).await;
        stop(bridge).await;

        let bridge = start(&server, dir.path(), &sink, ALL).await;
        all.push(create(&server, "last").id());
        sink.wait_for(7).await;
        assert_eq!(sink.ids(), all, "{part:?}");
        assert_eq!(status(&bridge.view()).ingest.repeats, 3, "{part:?}");
        stop(bridge).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_changed_source_missed_is_a_gap_with_whole_deltas() {
    let cases = [(ALL, SHOP), (ALL, NORMAL), (SHOP, ALL), (NORMAL, ALL), (NORMAL, SHOP)];
    for (before, after) in cases {
        let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
        let bridge = start(&server, dir.path(), &sink, before).await;
        let known = create(&server, "known");
        let quiet = create(&server, "quiet");
        sink.wait_for(2).await;
        stop(bridge).await;
        let down = Timestamp::now();
        let [news, counts] = meanwhile(&server, &known);
        server.compact(server.revision());
        let bridge = start(&server, dir.path(), &sink, after).await;
        until("the gap is stated", || gaps(&bridge).len() == 1).await;
        let gap = gaps(&bridge).remove(0);
        assert_eq!((gap.replayed, gap.skipped_increments), (2, 4 + 5), "{before:?} {after:?}");
        assert!(gap.from.parse::<Timestamp>().unwrap() < down, "{gap:?} {down}");
        let received = sink.wait_for(4).await;
        let expected = [(news[2].id(), 5, true), (counts[1].id(), 6, true)];
        assert_eq!(short(&received[2..]), expected, "{before:?} {after:?}");
        let again = counted(&server, &quiet, &[3]).remove(0);
        assert_eq!(short(&sink.wait_for(5).await[4..]), [(again.id(), 2, false)]);
        stop(bridge).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_with_now_leaves_out_what_was_before_and_not_what_was_missed() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let hours_ago = seconds(Timestamp::now() - Duration::from_secs(7200));
    let mut old = EventObject::about_pod("bank", "old", "Started", "Started container web");
    old.metadata.creation_timestamp = Some(hours_ago.clone());
    (old.first_timestamp, old.last_timestamp) = (Some(hours_ago.clone()), Some(hours_ago));
    server.create(old).unwrap();
    let bridge = start_at(&server, dir.path(), &sink, SHOP, SourceStart::Now).await;
    until("a watch", || server.open_watches() == 1).await;
    create(&server, "seen");
    sink.wait_for(1).await;
    stop(bridge).await;
    let missed = create(&server, "missed").id();
    let bridge = start_at(&server, dir.path(), &sink, ALL, SourceStart::Now).await;
    sink.wait_for(2).await;
    until("the gap is stated", || gaps(&bridge).len() == 1).await;
    stop(bridge).await;
    assert_eq!(sink.ids()[1..], [missed]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_nobody_read_begins_like_a_journal_and_counts_since_the_first_start() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let in_bank = |created: Timestamp| {
        let mut event = EventObject::about_pod("bank", "web", "Started", "Started container web");
        event.metadata.creation_timestamp = Some(seconds(created));
        event.count = 4;
        server.create(event).unwrap().id()
    };
    let older = in_bank(Timestamp::now() - Duration::from_secs(60));
    let bridge = start(&server, dir.path(), &sink, SHOP).await;
    create(&server, "seen");
    sink.wait_for(1).await;
    let created = Timestamp::now();
    let newer = in_bank(created);
    stop(bridge).await;
    // Creation times are whole seconds: it is older than the start of the source.
    until("the next second", || Timestamp::now().as_second() > created.as_second()).await;
    let both = Scope { namespaces: &["shop", "bank"], ..ALL };
    let bridge = start(&server, dir.path(), &sink, both).await;
    let received = sink.wait_for(3).await;
    assert_eq!(short(&received[1..]), [(older, 1, false), (newer, 4, false)]);
    until("both watches", || server.open_watches() == 2).await;
    assert!(gaps(&bridge).is_empty(), "nobody had asked for it");
    stop(bridge).await;
}
