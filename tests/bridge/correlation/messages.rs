//! Words of what is held back: whoever forges Events that are held together with a real one does not
//! take its text away.

use super::*;

/// Events about one Pod, of one reason, each with a message of its own; their ids.
fn saying(server: &ApiServer, messages: &[String]) -> Vec<String> {
    let create = |message: &String| {
        server.create(EventObject::about_pod("shop", "web", "Unhealthy", message)).unwrap()
    };
    messages.iter().map(|message| create(message).id()).collect()
}

/// 26 forged Events, of which the last has no token, the real one, and one more that is forged.
fn forged_around_a_real_one() -> Vec<String> {
    let mut messages: Vec<_> = (0..26).map(|n| format!("harmless {n}")).collect();
    messages.extend(["miner seen in web".to_owned(), "harmless 99".to_owned()]);
    messages
}

#[tokio::test]
async fn a_summary_says_the_different_messages_that_it_stands_for() {
    let (server, sink) = (server(), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let bridge =
        Setup::new(&server, journal.path()).tuned("pager", &sink, suppress()).start().await;
    let view = bridge.view();
    until("a watch", || server.open_watches() == 1).await;
    let messages = forged_around_a_real_one();
    let ids = saying(&server, &messages);
    until("three are held", || sink_status(&view, "pager").held == 3).await;
    stop(bridge).await;

    let received = sink.wait_for(26).await;
    assert_eq!(received.len(), 26);
    let last = correlation(&received[25]);
    assert_eq!((last.action, last.summarises), (CorrelationAction::Summary, Some(3)));
    assert_eq!(last.distinct_messages, Some(3));
    let told = last.messages.iter().map(|told| (&*told.id, &*told.message));
    let held = ids.iter().zip(&messages).skip(25).map(|(id, message)| (&**id, &**message));
    assert!(told.eq(held), "{last:?}");
    // Those that stand for themselves have their own words, and no others.
    assert!(received[..25].iter().all(|event| correlation(event).messages.is_empty()));
}

#[test]
fn a_summary_says_the_same_messages_after_a_crash() {
    let outer = Runtime::new().unwrap();
    let (server, sink) = (outer.block_on(async { server() }), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let start = || {
        let setup = Setup::new(&server, journal.path()).tuned("pager", &sink, suppress());
        started(setup)
    };
    let (runtime, bridge) = start();
    let view = bridge.view();
    runtime.block_on(until("a watch", || server.open_watches() == 1));
    let messages = forged_around_a_real_one();
    let mut ids = saying(&server, &messages);
    runtime.block_on(async {
        until("three are held", || sink_status(&view, "pager").held == 3).await;
        // The state is saved once a second.
        tokio::time::sleep(Duration::from_secs(4)).await;
    });
    // Some of it comes between the state and the end, and more after it.
    let later: Vec<_> = (0..20).map(|n| format!("later {n}")).collect();
    ids.extend(saying(&server, &later[..10]));
    runtime.block_on(until("13 are held", || sink_status(&view, "pager").held == 13));
    runtime.shutdown_timeout(Duration::from_secs(10));
    drop((bridge, view));
    let (runtime, bridge) = start();
    let view = bridge.view();
    runtime.block_on(until("a watch", || server.open_watches() == 1));
    ids.extend(saying(&server, &later[10..]));
    runtime.block_on(until("23 are held", || sink_status(&view, "pager").held == 23));
    runtime.block_on(stop(bridge));

    let last = correlation(sink.received().last().unwrap());
    assert_eq!((last.summarises, last.distinct_messages), (Some(23), Some(23)));
    let all: Vec<_> = ids.iter().zip(messages.iter().chain(&later)).skip(25).collect();
    let expected = all[..4].iter().chain(&all[19..]);
    let told = last.messages.iter().map(|told| (&told.id, &told.message));
    assert!(told.eq(expected.copied()), "{last:?}");
}
