//! What holds when everything happens at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use tokio::{sync::oneshot, task::JoinSet};

use super::*;

const PUBLISHERS: u64 = 3;
const WATCHERS: u64 = 12;
/// Shutdown comes after so many.
const ITEMS: u64 = 3000;

/// Stops a watcher from a thread of its own, some time after `count` has got to `after`. The
/// receiver hears of it.
fn stop_after(
    stopper: Stopper,
    count: &Arc<AtomicU64>,
    after: u64,
) -> (thread::JoinHandle<()>, oneshot::Receiver<()>) {
    let count = Arc::clone(count);
    let (stopped, hears) = oneshot::channel();
    let thread = thread::spawn(move || {
        while count.load(Ordering::Relaxed) < after {
            thread::yield_now();
        }
        // Enough for the loop to be about to hand it something.
        (0..100).for_each(|_| thread::yield_now());
        stopper.stop();
        stopper.stop();
        let _ = stopped.send(());
    });
    (thread, hears)
}

async fn collect(mut watcher: Watcher<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut got = Vec::new();
    while let Some(item) = watcher.next().await {
        got.push(item);
    }
    got
}

/// Where in the order of all items one stands.
fn place_in(all: &[(u64, u64)], item: Option<&(u64, u64)>) -> usize {
    item.map_or(0, |item| all.iter().position(|other| other == item).unwrap())
}

/// Watchers come, are stopped by other threads, even while they are what the loop waits for, and
/// shutdown comes while publishers wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_every_watcher_sees_one_run_of_one_order() {
    let broadcaster = Broadcaster::new(4, FullChannel::Wait { queue: 2 });
    let seen = Arc::new(AtomicU64::new(0));
    let mut stops = Vec::new();

    let mut witness = broadcaster.watch().await.unwrap();
    let first = broadcaster.watch().await.unwrap();
    stops.push(stop_after(first.stopper(), &seen, ITEMS / 2).0);
    let first = tokio::spawn(collect(first));
    let witness_seen = Arc::clone(&seen);
    let witness = tokio::spawn(async move {
        let mut all = Vec::new();
        while let Some(item) = witness.next().await {
            all.push(item);
            witness_seen.fetch_add(1, Ordering::Relaxed);
        }
        all
    });
    let mut publishers = JoinSet::new();
    for publisher in 0..PUBLISHERS {
        let broadcaster = broadcaster.clone();
        publishers.spawn(async move {
            let mut accepted = 0;
            while broadcaster.publish((publisher, accepted)).await.is_ok() {
                accepted += 1;
            }
            accepted
        });
    }
    let mut readers = JoinSet::new();
    for n in 0..WATCHERS {
        let watcher = broadcaster.watch().await.unwrap();
        match n % 3 {
            // Read only when it is stopped, so the loop waits for it, and `seen` stands still.
            0 => {
                let (stop, stopped) = stop_after(watcher.stopper(), &seen, 0);
                stops.push(stop);
                readers.spawn(async move {
                    stopped.await.unwrap();
                    let got = collect(watcher).await;
                    assert!(got.len() <= 2);
                    got
                });
            }
            1 => {
                stops.push(stop_after(watcher.stopper(), &seen, n * ITEMS / WATCHERS).0);
                readers.spawn(collect(watcher));
            }
            _ => drop(readers.spawn(collect(watcher))),
        }
    }
    while seen.load(Ordering::Relaxed) < ITEMS {
        tokio::task::yield_now().await;
    }
    tokio::join!(broadcaster.shutdown(), broadcaster.shutdown());

    let all = witness.await.unwrap();
    let accepted: u64 = publishers.join_all().await.iter().sum();
    assert_eq!(all.len() as u64, accepted, "what was accepted was handed out, and nothing else");
    for publisher in 0..PUBLISHERS {
        let of_it = all.iter().filter(|item| item.0 == publisher).map(|item| item.1);
        assert!(of_it.enumerate().all(|(n, item)| item == n as u64), "in the order of its sender");
    }
    let first = first.await.unwrap();
    assert_eq!(first, all[..first.len()]);
    for got in readers.join_all().await {
        let from = place_in(&all, got.first());
        assert_eq!(got, all[from..from + got.len()]);
    }
    for stop in stops {
        stop.join().unwrap();
    }
}

/// Publishers on threads, watchers that are too slow: every item is somewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dropping_every_item_is_accounted_for() {
    let broadcaster = Broadcaster::new(8, FullChannel::Drop { queue: 4 });
    let tried = Arc::new(AtomicU64::new(0));
    let (mut readers, mut stops) = (JoinSet::new(), Vec::new());
    for n in 0..WATCHERS {
        let mut watcher = broadcaster.watch().await.unwrap();
        if n % 3 == 0 {
            stops.push(stop_after(watcher.stopper(), &tried, n * ITEMS / WATCHERS).0);
        }
        readers.spawn(async move {
            let mut last = [None; PUBLISHERS as usize];
            let mut got = 0;
            while let Some((publisher, item)) = watcher.next().await {
                let last: &mut Option<u64> = &mut last[publisher as usize];
                assert!(last.replace(item) < Some(item), "in the order of its sender");
                got += 1;
            }
            (n, got + watcher.dropped())
        });
    }
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|publisher| {
            let (broadcaster, tried) = (broadcaster.clone(), Arc::clone(&tried));
            thread::spawn(move || {
                let sent = (0..ITEMS).filter(|&n| {
                    tried.fetch_add(1, Ordering::Relaxed);
                    broadcaster.publish_or_drop((publisher, n)).is_ok()
                });
                sent.count()
            })
        })
        .collect();
    let accepted = tokio::task::spawn_blocking(move || {
        publishers.into_iter().map(|publisher| publisher.join().unwrap() as u64).sum::<u64>()
    });
    let accepted = accepted.await.unwrap();
    broadcaster.shutdown().await;
    assert_eq!(accepted + broadcaster.dropped(), PUBLISHERS * ITEMS);
    for (n, seen) in readers.join_all().await {
        if n % 3 == 0 {
            assert!(seen <= accepted);
        } else {
            assert_eq!(seen, accepted);
        }
    }
    for stop in stops {
        stop.join().unwrap();
    }
}

/// The narrowest place: an item is on its way into the queue while that is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_accepted_while_shutdown_comes_is_handed_out() {
    for round in 0..200 {
        let broadcaster = Broadcaster::new(2, FullChannel::Wait { queue: 2 });
        let watcher = tokio::spawn(collect(broadcaster.watch().await.unwrap()));
        let publisher = broadcaster.clone();
        let publisher = thread::spawn(move || {
            let mut accepted = Vec::new();
            for item in 0.. {
                match publisher.publish_or_drop((0, item)) {
                    Ok(()) => accepted.push((0, item)),
                    Err(NotSent::Full(_)) => thread::yield_now(),
                    Err(NotSent::Stopped(_)) => break,
                }
            }
            accepted
        });
        for _ in 0..round % 50 {
            tokio::task::yield_now().await;
        }
        broadcaster.shutdown().await;
        assert_eq!(watcher.await.unwrap(), publisher.join().unwrap());
    }
}
