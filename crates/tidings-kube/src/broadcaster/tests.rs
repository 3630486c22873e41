//! Each rule by itself, through the public doors. `settle` is exact: the clock rests, so the sleep
//! ends when no task can go on.

mod flush;
mod model;
mod threads;

use std::{ops::RangeInclusive, pin::pin, task::Poll, time::Duration};

use futures_util::poll;

use super::*;

const DROP: FullChannel<u64> = FullChannel::Drop { queue: 3 };
const WAIT: FullChannel<u64> = FullChannel::Wait { queue: 3 };

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// What is there now.
fn queued(watcher: &mut Watcher<u64>) -> Vec<u64> {
    let mut got = Vec::new();
    while let Ok(Some(item)) = watcher.try_next() {
        got.push(item);
    }
    got
}

/// Everything up to the end.
async fn rest(watcher: &mut Watcher<u64>) -> Vec<u64> {
    let mut got = Vec::new();
    while let Some(item) = watcher.next().await {
        got.push(item);
    }
    assert_eq!(watcher.try_next(), Ok(None), "an end is for good");
    got
}

async fn publish(broadcaster: &Broadcaster<u64>, items: RangeInclusive<u64>) {
    for item in items {
        broadcaster.publish(item).await.unwrap();
    }
}

/// A loop that waits for the watcher, with its queue and the incoming queue (of 2) full.
async fn stuck() -> (Broadcaster<u64>, Watcher<u64>) {
    let broadcaster = Broadcaster::new(2, WAIT);
    let slow = broadcaster.watch().await.unwrap();
    publish(&broadcaster, 1..=6).await;
    settle().await;
    (broadcaster, slow)
}

#[tokio::test(start_paused = true)]
async fn a_watcher_sees_what_is_queued_after_it_and_nothing_before() {
    let broadcaster = Broadcaster::new(10, FullChannel::Drop { queue: 10 });
    publish(&broadcaster, 1..=2).await;
    let mut first = broadcaster.watch().await.unwrap();
    publish(&broadcaster, 3..=4).await;
    let mut second = broadcaster.watch().await.unwrap();
    publish(&broadcaster, 5..=6).await;
    broadcaster.shutdown().await;
    assert_eq!(rest(&mut first).await, [3, 4, 5, 6]);
    assert_eq!(rest(&mut second).await, [5, 6]);
}

#[tokio::test(start_paused = true)]
async fn drop_keeps_the_oldest_and_counts_for_each_watcher() {
    let broadcaster = Broadcaster::new(10, DROP);
    let mut slow = broadcaster.watch().await.unwrap();
    let mut fast = broadcaster.watch().await.unwrap();
    publish(&broadcaster, 1..=3).await;
    settle().await;
    assert_eq!(queued(&mut fast), [1, 2, 3]);
    publish(&broadcaster, 4..=5).await;
    settle().await;
    assert_eq!((queued(&mut slow), slow.dropped()), (vec![1, 2, 3], 2));
    publish(&broadcaster, 6..=6).await;
    broadcaster.shutdown().await;
    assert_eq!((rest(&mut slow).await, slow.dropped()), (vec![6], 2));
    assert_eq!((rest(&mut fast).await, fast.dropped()), (vec![4, 5, 6], 0));
    assert_eq!(broadcaster.dropped(), 0, "that is the count of another place");
}

#[tokio::test(start_paused = true)]
async fn wait_holds_up_the_loop_and_everything_behind_it() {
    let (broadcaster, mut slow) = stuck().await;
    // Three in the watcher's queue, one in the loop's hand, two in the incoming queue.
    assert_eq!(broadcaster.publish_or_drop(7), Err(NotSent::Full(7)));
    assert_eq!(broadcaster.publish_or_drop(7), Err(NotSent::Full(7)));
    assert_eq!(broadcaster.dropped(), 2);
    let late = broadcaster.clone();
    let late = tokio::spawn(async move { late.watch().await });
    settle().await;
    assert!(!late.is_finished(), "a registration has its turn in the queue");
    assert_eq!(slow.next().await, Some(1));
    settle().await;
    assert!(!late.is_finished());
    assert_eq!(queued(&mut slow), [2, 3, 4]);
    settle().await;
    assert!(late.is_finished());
    assert_eq!(queued(&mut slow), [5, 6]);
    assert_eq!(slow.dropped(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_prefix_comes_first_and_has_room_for_itself_and_one_more() {
    let broadcaster = Broadcaster::new(10, DROP);
    let mut long = broadcaster.watch_with_prefix((91..=95).collect()).await.unwrap();
    let mut exact = broadcaster.watch_with_prefix(vec![91, 92, 93]).await.unwrap();
    let mut short = broadcaster.watch_with_prefix(vec![91]).await.unwrap();
    assert_eq!((long.capacity(), exact.capacity(), short.capacity()), (6, 4, 3));
    publish(&broadcaster, 1..=4).await;
    settle().await;
    assert_eq!((queued(&mut long), long.dropped()), (vec![91, 92, 93, 94, 95, 1], 3));
    assert_eq!((queued(&mut exact), exact.dropped()), (vec![91, 92, 93, 1], 3));
    assert_eq!((queued(&mut short), short.dropped()), (vec![91, 1, 2], 2));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_watcher_can_read_what_is_queued_and_then_ends() {
    let broadcaster = Broadcaster::new(10, DROP);
    let mut watcher = broadcaster.watch().await.unwrap();
    let mut other = broadcaster.watch().await.unwrap();
    publish(&broadcaster, 1..=2).await;
    settle().await;
    let stopper = watcher.stopper();
    stopper.stop();
    stopper.clone().stop();
    publish(&broadcaster, 3..=3).await;
    settle().await;
    assert_eq!(rest(&mut watcher).await, [1, 2]);
    assert_eq!((watcher.dropped(), watcher.spilled()), (0, false));
    assert_eq!(queued(&mut other), [1, 2, 3]);
    broadcaster.shutdown().await;
    watcher.stopper().stop();
    other.stopper().stop();
    assert_eq!(rest(&mut other).await, [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_wakes_the_reader_and_frees_the_loop() {
    let broadcaster = Broadcaster::new(2, WAIT);
    let mut idle = broadcaster.watch().await.unwrap();
    let stopper = idle.stopper();
    let reader = tokio::spawn(async move { rest(&mut idle).await });
    settle().await;
    assert!(!reader.is_finished());
    stopper.stop();
    assert_eq!(reader.await.unwrap(), [0; 0]);

    let (broadcaster, mut slow) = stuck().await;
    slow.stopper().stop();
    broadcaster.shutdown().await;
    assert_eq!(rest(&mut slow).await, [1, 2, 3]);

    let (broadcaster, slow) = stuck().await;
    drop(slow);
    broadcaster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_blocked_publisher_blocks_neither_a_stop_nor_publish_or_drop() {
    let (broadcaster, slow) = stuck().await;
    let mut blocked = pin!(broadcaster.publish(7));
    assert_eq!(poll!(&mut blocked), Poll::Pending);
    assert_eq!(broadcaster.publish_or_drop(8), Err(NotSent::Full(8)));
    slow.stopper().stop();
    assert_eq!(blocked.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn shutdown_hands_out_what_is_queued_without_waiting_for_readers() {
    let broadcaster = Broadcaster::new(3, DROP);
    let mut watcher = broadcaster.watch().await.unwrap();
    for item in 1..=3 {
        broadcaster.publish_or_drop(item).unwrap();
    }
    broadcaster.shutdown().await;
    broadcaster.shutdown().await;
    assert_eq!(rest(&mut watcher).await, [1, 2, 3]);
    assert_eq!(broadcaster.publish(4).await, Err(Stopped));
    assert_eq!(broadcaster.publish_or_drop(4), Err(NotSent::Stopped(4)));
    assert_eq!(broadcaster.dropped(), 0);
    let refused = broadcaster.watch().await.err();
    assert_eq!(refused.unwrap().to_string(), "broadcaster already stopped");
}

#[tokio::test(start_paused = true)]
async fn a_publisher_that_waits_when_shutdown_comes_is_refused() {
    let (broadcaster, mut slow) = stuck().await;
    // One is waiting, one has been given its place but does not know yet, and never will.
    let mut unaware = pin!(broadcaster.publish(7));
    let mut waiting = pin!(broadcaster.publish(8));
    assert_eq!(poll!(&mut unaware), Poll::Pending);
    assert_eq!(poll!(&mut waiting), Poll::Pending);
    assert_eq!(slow.next().await, Some(1));
    settle().await;
    let mut shutdowns = [broadcaster.clone(), broadcaster.clone()]
        .map(|broadcaster| tokio::spawn(async move { broadcaster.shutdown().await }));
    settle().await;
    assert_eq!(waiting.await, Err(Stopped));
    assert!(shutdowns.iter().all(|shutdown| !shutdown.is_finished()), "both wait for the loop");
    assert_eq!(rest(&mut slow).await, [2, 3, 4, 5, 6]);
    for shutdown in &mut shutdowns {
        shutdown.await.unwrap();
    }
    assert_eq!(unaware.await, Err(Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_not_waited_for_goes_on() {
    let (broadcaster, mut slow) = stuck().await;
    assert!(tokio::time::timeout(Duration::from_secs(1), broadcaster.shutdown()).await.is_err());
    assert_eq!(broadcaster.publish(7).await, Err(Stopped));
    assert_eq!(rest(&mut slow).await, [1, 2, 3, 4, 5, 6]);
}

#[tokio::test(start_paused = true)]
async fn the_last_clone_dropped_is_a_shutdown() {
    let broadcaster = Broadcaster::new(10, DROP);
    let mut watcher = broadcaster.watch().await.unwrap();
    publish(&broadcaster.clone(), 1..=2).await;
    drop(broadcaster);
    assert_eq!(rest(&mut watcher).await, [1, 2]);
}

#[test]
fn a_runtime_that_ends_ends_everything() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (broadcaster, mut watcher) = runtime.block_on(async {
        let broadcaster = Broadcaster::new(1, DROP);
        let watcher = broadcaster.watch().await.unwrap();
        (broadcaster, watcher)
    });
    assert_eq!(broadcaster.publish_or_drop(1), Ok(()));
    drop(runtime);
    assert_eq!(broadcaster.publish_blocking(2), Err(Stopped));
    assert_eq!(watcher.try_next(), Ok(None));
}

#[tokio::test(start_paused = true)]
async fn every_queue_holds_one_item_at_least() {
    let broadcaster = Broadcaster::new(0, FullChannel::Drop { queue: 0 });
    let mut watcher = broadcaster.watch().await.unwrap();
    assert_eq!(watcher.capacity(), 1);
    publish(&broadcaster, 1..=2).await;
    settle().await;
    assert_eq!((queued(&mut watcher), watcher.dropped()), (vec![1], 1));
    let endless = Broadcaster::new(usize::MAX, FullChannel::Wait { queue: usize::MAX });
    let mut watcher = endless.watch().await.unwrap();
    publish(&endless, 1..=1).await;
    assert_eq!(watcher.next().await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn spill_ends_the_registration_of_the_watcher_that_is_full_and_no_other() {
    // A number weighs itself.
    let full = FullChannel::Spill { items: 2, bytes: 10, weigh: |item| *item as usize };
    let broadcaster = Broadcaster::new(10, full);
    let mut few = broadcaster.watch().await.unwrap();
    let mut fast = broadcaster.watch().await.unwrap();
    for item in 1..=4 {
        broadcaster.publish(item).await.unwrap();
        assert_eq!(fast.next().await, Some(item));
    }
    assert_eq!((rest(&mut few).await, few.spilled(), few.dropped()), (vec![1, 2], true, 0));
    let mut heavy = broadcaster.watch().await.unwrap();
    publish(&broadcaster, 6..=6).await;
    publish(&broadcaster, 5..=5).await;
    broadcaster.shutdown().await;
    assert_eq!((rest(&mut heavy).await, heavy.spilled()), (vec![6], true));
    assert_eq!((rest(&mut fast).await, fast.spilled()), (vec![6], true));
}

#[tokio::test(start_paused = true)]
async fn one_item_fits_whatever_its_size() {
    let full = FullChannel::Spill { items: 2, bytes: 10, weigh: |item| *item as usize };
    let broadcaster = Broadcaster::new(10, full);
    let mut watcher = broadcaster.watch_with_prefix(vec![8, 9]).await.unwrap();
    assert_eq!(queued(&mut watcher), [8, 9]);
    for item in [5000, u64::MAX, 11] {
        publish(&broadcaster, item..=item).await;
        assert_eq!(watcher.next().await, Some(item));
    }
    publish(&broadcaster, u64::MAX..=u64::MAX).await;
    publish(&broadcaster, 1..=1).await;
    assert_eq!((rest(&mut watcher).await, watcher.spilled()), (vec![u64::MAX], true));
}

#[tokio::test]
async fn a_thread_publishes_blocking() {
    let broadcaster = Broadcaster::new(1, FullChannel::Wait { queue: 1 });
    let mut watcher = broadcaster.watch().await.unwrap();
    let publisher = broadcaster.clone();
    let thread =
        std::thread::spawn(move || (1..=100).try_for_each(|item| publisher.publish_blocking(item)));
    for item in 1..=100 {
        assert_eq!(watcher.next().await, Some(item));
    }
    assert_eq!(thread.join().unwrap(), Ok(()));
}
