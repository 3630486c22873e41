//! What a flush waits for, and what not.

use super::*;

#[tokio::test(start_paused = true)]
async fn it_waits_until_each_watcher_has_come_back_for_more() {
    let broadcaster = Broadcaster::new(10, DROP);
    let mut first = broadcaster.watch().await.unwrap();
    let mut second = broadcaster.watch().await.unwrap();
    publish(&broadcaster, 1..=2).await;
    let mut flush = pin!(broadcaster.flush());
    assert_eq!(poll!(&mut flush), Poll::Pending);
    publish(&broadcaster, 3..=3).await;
    settle().await;
    assert_eq!(queued(&mut second), [1, 2, 3]);
    assert_eq!((first.next().await, first.next().await), (Some(1), Some(2)));
    settle().await;
    assert_eq!(poll!(&mut flush), Poll::Pending, "the first may be at work on 2");
    assert_eq!(first.next().await, Some(3));
    assert_eq!(flush.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn it_takes_no_room_and_waits_for_nothing_that_was_lost() {
    let broadcaster = Broadcaster::new(10, DROP);
    let mut watcher = broadcaster.watch().await.unwrap();
    publish(&broadcaster, 1..=2).await;
    let flusher = broadcaster.clone();
    let flush = tokio::spawn(async move { flusher.flush().await });
    settle().await;
    publish(&broadcaster, 3..=4).await;
    settle().await;
    assert_eq!((queued(&mut watcher), watcher.dropped()), (vec![1, 2, 3], 1));
    assert_eq!(flush.await.unwrap(), Ok(()));
    // A full queue has room for a mark.
    publish(&broadcaster, 5..=9).await;
    let flusher = broadcaster.clone();
    let flush = tokio::spawn(async move { flusher.flush().await });
    settle().await;
    assert_eq!((queued(&mut watcher), watcher.dropped()), (vec![5, 6, 7], 3));
    assert_eq!(flush.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_nobody_who_is_gone() {
    let broadcaster = Broadcaster::new(10, DROP);
    assert_eq!(broadcaster.flush().await, Ok(()));
    let (stopped, dropped) = (broadcaster.watch().await.unwrap(), broadcaster.watch().await);
    publish(&broadcaster, 1..=2).await;
    stopped.stopper().stop();
    drop(dropped);
    assert_eq!(broadcaster.flush().await, Ok(()));
    // Nor for one who goes while it waits, whatever is in the queue.
    let leaves = broadcaster.watch().await.unwrap();
    publish(&broadcaster, 3..=3).await;
    let mut flush = pin!(broadcaster.flush());
    assert_eq!(poll!(&mut flush), Poll::Pending);
    settle().await;
    drop(leaves);
    assert_eq!(flush.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_it_end_and_refuses_the_next() {
    let broadcaster = Broadcaster::new(10, DROP);
    let mut watcher = broadcaster.watch().await.unwrap();
    publish(&broadcaster, 1..=1).await;
    let mut flush = pin!(broadcaster.flush());
    assert_eq!(poll!(&mut flush), Poll::Pending);
    broadcaster.shutdown().await;
    assert_eq!(poll!(&mut flush), Poll::Pending);
    assert_eq!(rest(&mut watcher).await, [1]);
    assert_eq!(flush.await, Ok(()));
    assert_eq!(broadcaster.flush().await, Err(Stopped));
}

#[tokio::test(start_paused = true)]
async fn one_is_under_way_at_a_time_even_if_nobody_waits_for_it() {
    let broadcaster = Broadcaster::new(10, DROP);
    let mut watcher = broadcaster.watch().await.unwrap();
    publish(&broadcaster, 1..=1).await;
    for _ in 0..100 {
        let limit = Duration::from_secs(1);
        assert!(tokio::time::timeout(limit, broadcaster.flush()).await.is_err());
    }
    publish(&broadcaster, 2..=2).await;
    let mut flush = pin!(broadcaster.flush());
    assert_eq!(poll!(&mut flush), Poll::Pending);
    // The mark of the first stands before 2, and the one that waits comes behind it.
    assert_eq!(queued(&mut watcher), [1]);
    assert_eq!(poll!(&mut flush), Poll::Pending);
    settle().await;
    assert_eq!(queued(&mut watcher), [2]);
    assert_eq!(flush.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn where_the_loop_waits_for_room_it_waits_with_a_mark_too() {
    let (broadcaster, mut slow) = stuck().await;
    let flusher = broadcaster.clone();
    let flush = tokio::spawn(async move { flusher.flush().await });
    for expected in 1..=6 {
        settle().await;
        assert!(!flush.is_finished());
        assert_eq!(slow.next().await, Some(expected));
    }
    settle().await;
    assert_eq!(slow.try_next(), Err(Empty));
    assert_eq!(flush.await.unwrap(), Ok(()));
    // The place that the mark had is free again.
    publish(&broadcaster, 7..=12).await;
    assert_eq!(broadcaster.publish_or_drop(13), Err(NotSent::Full(13)));
}
