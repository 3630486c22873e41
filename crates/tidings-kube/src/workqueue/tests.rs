use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::FutureExt;
use proptest::prelude::*;
use tokio::time::{Instant, advance, sleep, timeout};

use super::{
    controller::{Action, WorkerReport, run_workers},
    *,
};

const MS: Duration = Duration::from_millis(1);

/// What there is for a worker now: `None` if it would have to wait or to end.
fn get_now<T: Clone + Eq + std::hash::Hash>(queue: &WorkQueue<T>) -> Option<Item<T>> {
    queue.get().now_or_never().flatten()
}

#[tokio::test]
async fn lanes_take_turns() {
    let queue = WorkQueue::with_lanes(|item: &String| item.split_once('/').map_or("", |of| of.0));
    for item in ["a/1", "a/2", "a/3", "a/1", "b/1", "plain", "b/2"] {
        queue.add(item.to_owned());
    }
    assert_eq!(queue.stats().queued, 6);
    let mut out = Vec::new();
    for _ in 0..4 {
        out.push(queue.get().await.unwrap().to_owned());
    }
    // A lane that is empty gives up its turn, and gets one at the end when it is used again.
    queue.add("plain".to_owned());
    queue.shut_down();
    while let Some(item) = queue.get().await {
        out.push(item.to_owned());
    }
    assert_eq!(out, ["a/1", "b/1", "plain", "a/2", "b/2", "a/3", "plain"]);
}

#[tokio::test]
async fn items_come_out_once_and_in_order() {
    let queue = WorkQueue::new();
    for item in ["b", "a", "b", "c", "a"] {
        queue.add(item);
    }
    assert_eq!(queue.len(), 3);
    for expected in ["b", "a", "c"] {
        assert_eq!(*get_now(&queue).unwrap(), expected);
    }
    assert!(get_now(&queue).is_none());
    assert_eq!(queue.stats().added, 3);
}

#[tokio::test]
async fn what_is_added_while_it_is_worked_on_comes_again_and_once() {
    let queue = WorkQueue::new();
    queue.add("a");
    let a = get_now(&queue).unwrap();
    queue.add("a");
    queue.add("a");
    queue.add("b");
    assert_eq!(*get_now(&queue).unwrap(), "b");
    assert!(get_now(&queue).is_none(), "a is with a worker");
    drop(a);
    assert_eq!(*get_now(&queue).unwrap(), "a");
    assert!(get_now(&queue).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_is_woken_by_an_add() {
    let queue = WorkQueue::new();
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { *queue.get().await.unwrap() }
    });
    sleep(MS).await;
    queue.add("a");
    assert_eq!(timeout(MS, worker).await.unwrap().unwrap(), "a");
}

#[tokio::test]
async fn a_worker_that_goes_away_takes_no_item_and_no_wake_up_with_it() {
    let queue = WorkQueue::new();
    let mut first = Box::pin(queue.get());
    let mut second = Box::pin(queue.get());
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    // Both wait; it is the first who is woken, and who is gone.
    queue.add("a");
    drop(first);
    assert_eq!(*second.now_or_never().unwrap().unwrap(), "a");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_out_what_is_queued_and_nothing_in() {
    let queue = WorkQueue::new();
    let waits = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.is_none() }
    });
    sleep(MS).await;
    queue.add("a");
    // The one who waits has not run yet, so this is ours.
    let a = get_now(&queue).unwrap();
    queue.add("a");
    queue.add("b");
    queue.add_after("later", MS);
    queue.shut_down();
    queue.add("c");
    queue.add_after("d", MS);
    assert!(queue.is_shutting_down());
    assert_eq!(*get_now(&queue).unwrap(), "b");
    // client-go does not wait for what comes back, either: this worker may end.
    assert!(waits.await.unwrap());
    drop(a);
    assert_eq!(*queue.get().await.unwrap(), "a", "it was added again before");
    assert!(queue.get().await.is_none());
    sleep(10 * MS).await;
    assert!(queue.get().await.is_none());
    let stats = queue.stats();
    assert_eq!((stats.added, stats.put_off, stats.refused, stats.dropped), (3, 1, 2, 1));
    assert_eq!((stats.queued, stats.processing, stats.waiting), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_what_is_queued_and_for_who_works() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add("b");
    let a = get_now(&queue).unwrap();
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(drain.as_mut().now_or_never().is_none());
    drop(a);
    assert!(drain.as_mut().now_or_never().is_none(), "b is in the queue");
    let b = get_now(&queue).unwrap();
    assert!(drain.as_mut().now_or_never().is_none(), "b is with a worker");
    drop(b);
    timeout(MS, drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_waiting_for_a_drain() {
    let queue = WorkQueue::new();
    queue.add("nobody takes it");
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(drain.as_mut().now_or_never().is_none());
    queue.shut_down();
    timeout(MS, drain).await.unwrap();
    assert!(queue.get().await.is_some(), "it is still there");
}

#[tokio::test(start_paused = true)]
async fn of_two_delays_the_shorter_counts() {
    let queue = WorkQueue::new();
    queue.add_after("a", 50 * MS);
    queue.add_after("b", 40 * MS);
    queue.add_after("a", 30 * MS);
    queue.add_after("b", 60 * MS);
    assert_eq!(queue.stats().waiting, 2);
    let start = Instant::now();
    assert_eq!(*queue.get().await.unwrap(), "a");
    assert_eq!(start.elapsed(), 30 * MS);
    assert_eq!(*queue.get().await.unwrap(), "b");
    assert_eq!(start.elapsed(), 40 * MS);
    // Once each.
    assert!(timeout(Duration::from_secs(1), queue.get()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn no_delay_is_at_once_and_for_ever_is_no_overflow() {
    let queue = WorkQueue::new();
    queue.add_after("for ever", Duration::MAX);
    queue.add_after("now", Duration::ZERO);
    assert_eq!((queue.len(), queue.stats().waiting), (1, 1));
    assert_eq!(*get_now(&queue).unwrap(), "now");
    advance(Duration::from_secs(1_000_000)).await;
    assert!(get_now(&queue).is_none());
}

#[tokio::test(start_paused = true)]
async fn what_is_ready_is_queued_though_nobody_waits_and_before_what_is_added_then() {
    let queue = WorkQueue::new();
    queue.add_after("second", 20 * MS);
    queue.add_after("first", 10 * MS);
    advance(20 * MS).await;
    queue.add("third");
    assert_eq!(queue.len(), 3);
    for expected in ["first", "second", "third"] {
        assert_eq!(*get_now(&queue).unwrap(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_earlier_delay_reaches_workers_that_wait_for_a_later_one() {
    let queue = WorkQueue::new();
    queue.add_after("late", Duration::from_secs(60));
    let start = Instant::now();
    let got = |queue: WorkQueue<&'static str>| async move {
        let item = *queue.get().await.unwrap();
        (item, start.elapsed())
    };
    let workers = [tokio::spawn(got(queue.clone())), tokio::spawn(got(queue.clone()))];
    sleep(MS).await;
    queue.add_after("early", 10 * MS);
    let mut got = Vec::new();
    for worker in workers {
        got.push(worker.await.unwrap());
    }
    got.sort_unstable();
    assert_eq!(got, [("early", 11 * MS), ("late", Duration::from_secs(60))]);
}

#[tokio::test(start_paused = true)]
async fn failures_are_spaced_out_until_they_are_forgotten() {
    let queue = RateLimitingQueue::default();
    let start = Instant::now();
    let mut waits = Vec::new();
    for _ in 0..4 {
        let before = Instant::now();
        queue.add_rate_limited("a");
        drop(queue.get().await.unwrap());
        waits.push(before.elapsed().as_millis());
    }
    assert_eq!(waits, [5, 10, 20, 40]);
    assert_eq!(queue.num_requeues(&"a"), 4);

    // Forgetting does not take it out of those that wait.
    queue.add_rate_limited("a");
    queue.forget(&"a");
    assert_eq!((queue.num_requeues(&"a"), queue.stats().waiting), (0, 1));
    drop(queue.get().await.unwrap());
    assert_eq!(start.elapsed(), (5 + 10 + 20 + 40 + 80) * MS);
}

#[test]
fn exponential_waits_end_at_the_longest_and_never_overflow() {
    let limiter = ItemExponentialFailureRateLimiter::new(MS, Duration::from_secs(1000));
    let mut last = Duration::ZERO;
    for _ in 0..200 {
        let wait = limiter.when(&"a");
        assert!(wait >= last);
        last = wait;
    }
    assert_eq!(last, Duration::from_secs(1000));
    let longest = ItemExponentialFailureRateLimiter::new(MS, Duration::MAX);
    assert_eq!((0..200).map(|_| longest.when(&"a")).last(), Some(Duration::MAX));
    let none = ItemExponentialFailureRateLimiter::new(Duration::ZERO, MS);
    assert!((0..200).all(|_| none.when(&"a").is_zero()));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_gives_the_burst_then_its_rate_and_is_never_fuller_than_full() {
    let bucket = TokenBucket::new(10.0, 3);
    let waits = |n: usize| (0..n).map(|_| bucket.reserve().as_millis()).collect::<Vec<_>>();
    assert_eq!(waits(5), [0, 0, 0, 100, 200]);
    advance(400 * MS).await;
    assert_eq!(waits(3), [0, 0, 100]);
    advance(Duration::from_secs(3600)).await;
    assert_eq!(waits(4), [0, 0, 0, 100]);
    let start = Instant::now();
    bucket.take().await;
    assert_eq!(start.elapsed(), 200 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_bucket_is_cut_off_at_the_nanosecond_as_in_go() {
    let bucket = TokenBucket::new(3.0, 1);
    let waits: Vec<_> = (0..4).map(|_| bucket.reserve().as_nanos()).collect();
    assert_eq!(waits, [0, 333_333_333, 666_666_666, 1_000_000_000]);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_without_tokens_to_come_says_never() {
    let never = Duration::from_nanos(i64::MAX as u64);
    assert_eq!(TokenBucket::new(10.0, 0).reserve(), never);
    for qps in [0.0, -1.0, f64::NAN, f64::MIN_POSITIVE] {
        let bucket = TokenBucket::new(qps, 1);
        assert_eq!([bucket.reserve(), bucket.reserve()], [Duration::ZERO, never], "{qps}");
    }
    let boundless = TokenBucket::new(f64::INFINITY, 1);
    assert!((0..10).all(|_| boundless.reserve().is_zero()));
}

#[tokio::test(start_paused = true)]
async fn the_longest_wait_counts_and_all_limiters_are_asked() {
    let limiter: MaxOfRateLimiter<&str> = MaxOfRateLimiter::new(vec![
        Box::new(ItemFastSlowRateLimiter::new(MS, 500 * MS, 1)),
        Box::new(BucketRateLimiter::new(10.0, 2)),
    ]);
    assert_eq!(limiter.when(&"a"), MS);
    assert_eq!(limiter.when(&"a"), 500 * MS);
    // The wait of before took a token though it did not need one.
    assert_eq!(limiter.when(&"b"), 100 * MS);
    assert_eq!((limiter.requeues(&"a"), limiter.requeues(&"b")), (2, 1));
    limiter.forget(&"a");
    assert_eq!((limiter.requeues(&"a"), limiter.when(&"a")), (0, 200 * MS));
    let short = WithMaxWaitRateLimiter::new(limiter, 50 * MS);
    assert_eq!((short.when(&"a"), short.requeues(&"a")), (50 * MS, 2));
}

#[tokio::test(start_paused = true)]
async fn workers_try_again_what_fails_or_panics_and_look_again_when_told() {
    let queue = RateLimitingQueue::default();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (start, seen) = (Instant::now(), Arc::clone(&calls));
    let reconcile = move |key: &'static str| {
        let nth = {
            let mut calls = seen.lock().unwrap();
            calls.push((key, start.elapsed().as_millis()));
            calls.iter().filter(|(of, _)| *of == key).count()
        };
        assert!(key != "panics at once" || nth > 1, "before there is a future");
        async move {
            match (key, nth) {
                ("fails", 1..=2) => Err("not yet"),
                ("panics", 1) => panic!("later"),
                ("again", 1) => Ok(Action::RequeueAfter(Duration::from_secs(1))),
                _ => Ok(Action::Done),
            }
        }
    };
    let workers = tokio::spawn(run_workers(queue.clone(), NonZeroUsize::MIN, reconcile));
    for key in ["fails", "panics", "panics at once", "again", "fine"] {
        queue.add(key);
    }
    sleep(Duration::from_secs(5)).await;
    queue.shut_down_with_drain().await;
    let report = workers.await.unwrap();
    assert_eq!(report, WorkerReport { reconciled: 6, failed: 4, panicked: 2 });
    let times = |key| {
        let calls = calls.lock().unwrap();
        calls.iter().filter(|(of, _)| *of == key).map(|(_, at)| *at).collect::<Vec<_>>()
    };
    assert_eq!(times("fails"), [0, 5, 15]);
    assert_eq!(times("panics"), [0, 5]);
    assert_eq!(times("panics at once"), [0, 5]);
    assert_eq!(times("again"), [0, 1000]);
    assert_eq!(times("fine"), [0]);
    assert!(["fails", "panics", "again"].iter().all(|key| queue.num_requeues(key) == 0));
}

#[tokio::test(start_paused = true)]
async fn workers_that_are_dropped_are_done_with_what_they_had() {
    let queue = RateLimitingQueue::default();
    queue.add("a");
    let stuck = |_| std::future::pending::<Result<Action, &str>>();
    let workers = tokio::spawn(run_workers(queue.clone(), NonZeroUsize::MIN, stuck));
    sleep(MS).await;
    assert_eq!(queue.stats().processing, 1);
    workers.abort();
    timeout(Duration::from_secs(1), queue.shut_down_with_drain()).await.unwrap();
}

/// Real threads: what a worker reads of a key after `get` is never older than what was there before
/// the last `add` of it, no key is with two at once, and a drain leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_miss_no_change() {
    const KEYS: usize = 7;
    const CHANGES: u64 = 5_000;
    struct Object {
        written: AtomicU64,
        seen: AtomicU64,
        workers: AtomicU64,
    }
    let new = || Object { written: 0.into(), seen: 0.into(), workers: 0.into() };
    let objects: Arc<[Object; KEYS]> = Arc::new(std::array::from_fn(|_| new()));
    let queue = RateLimitingQueue::default();
    let workers = tokio::spawn(run_workers(queue.clone(), NonZeroUsize::new(3).unwrap(), {
        let objects = Arc::clone(&objects);
        move |key: usize| {
            let objects = Arc::clone(&objects);
            async move {
                let object = &objects[key];
                assert_eq!(object.workers.fetch_add(1, Relaxed), 0, "two workers have it");
                let now = object.written.load(Relaxed);
                tokio::task::yield_now().await;
                object.seen.store(now, Relaxed);
                object.workers.fetch_sub(1, Relaxed);
                Ok::<_, String>(Action::Done)
            }
        }
    }));
    let writers: Vec<_> = (0..3_u64)
        .map(|writer| {
            let (queue, objects) = (queue.clone(), Arc::clone(&objects));
            tokio::spawn(async move {
                for change in 0..CHANGES {
                    let key = (change * (writer + 1)) as usize % KEYS;
                    objects[key].written.fetch_add(1, Relaxed);
                    if change % 5 == 0 {
                        queue.add_after(key, MS);
                    } else {
                        queue.add(key);
                    }
                    if change % 50 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                for key in 0..KEYS {
                    queue.add(key);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    queue.shut_down_with_drain().await;
    let report = workers.await.unwrap();
    assert_eq!(report.panicked, 0, "{report:?}");
    for object in objects.iter() {
        assert_eq!(object.seen.load(Relaxed), object.written.load(Relaxed));
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Add(u8),
    AddAfter(u8, u16),
    Get,
    /// The worker that got this one so many gets ago.
    Done(usize),
    Advance(u16),
    ShutDown,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0_u8..5).prop_map(Op::Add),
        3 => (0_u8..5, 0_u16..40).prop_map(|(item, ms)| Op::AddAfter(item, ms)),
        6 => Just(Op::Get),
        5 => (0_usize..5).prop_map(Op::Done),
        3 => (0_u16..30).prop_map(Op::Advance),
        1 => Just(Op::ShutDown),
    ]
}

/// client-go's queue as its comments describe it: two sets, a queue, and a list of what waits.
#[derive(Default)]
struct Model {
    queue: VecDeque<u8>,
    dirty: Vec<u8>,
    processing: Vec<u8>,
    /// Ready when, came as which.
    waiting: BTreeMap<u8, (u64, usize)>,
    now: u64,
    came: usize,
    ended: bool,
}

impl Model {
    fn add(&mut self, item: u8) {
        if self.ended || self.dirty.contains(&item) {
            return;
        }
        self.dirty.push(item);
        if !self.processing.contains(&item) {
            self.queue.push_back(item);
        }
    }

    fn add_after(&mut self, item: u8, ms: u64) {
        if ms == 0 || self.ended {
            return self.add(item);
        }
        self.came += 1;
        let ready = self.now + ms;
        if self.waiting.get(&item).is_none_or(|before| ready < before.0) {
            self.waiting.insert(item, (ready, self.came));
        }
    }

    fn advance(&mut self, ms: u64) {
        self.now += ms;
        let mut ready: Vec<_> = self
            .waiting
            .iter()
            .map(|(item, at)| (*at, *item))
            .filter(|(at, _)| at.0 <= self.now)
            .collect();
        ready.sort_unstable();
        for (_, item) in ready {
            self.waiting.remove(&item);
            self.add(item);
        }
    }

    fn get(&mut self) -> Option<u8> {
        let item = self.queue.pop_front()?;
        self.dirty.retain(|dirty| *dirty != item);
        self.processing.push(item);
        Some(item)
    }

    fn done(&mut self, item: u8) {
        self.processing.retain(|other| *other != item);
        if self.dirty.contains(&item) {
            self.queue.push_back(item);
        }
    }
}

proptest! {
    #[test]
    fn it_is_two_sets_and_a_queue(ops in prop::collection::vec(op(), 0..200)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (queue, mut model) = (WorkQueue::new(), Model::default());
            let mut working: Vec<Item<u8>> = Vec::new();
            for op in ops {
                match op {
                    Op::Add(item) => { queue.add(item); model.add(item); }
                    Op::AddAfter(item, ms) => {
                        queue.add_after(item, MS * u32::from(ms));
                        model.add_after(item, u64::from(ms));
                    }
                    Op::Get => {
                        let got = get_now(&queue);
                        prop_assert_eq!(got.as_deref().copied(), model.get());
                        working.extend(got);
                    }
                    Op::Done(nth) => {
                        if nth < working.len() {
                            let item = working.remove(nth);
                            model.done(*item);
                        }
                    }
                    Op::Advance(ms) => {
                        advance(MS * u32::from(ms)).await;
                        model.advance(u64::from(ms));
                    }
                    Op::ShutDown => {
                        queue.shut_down();
                        model.ended = true;
                        model.waiting.clear();
                    }
                }
                let stats = queue.stats();
                prop_assert_eq!(stats.queued, model.queue.len());
                prop_assert_eq!(stats.processing, model.processing.len());
                prop_assert_eq!(stats.waiting, model.waiting.len());
            }
            // A drain gives out all that is left, and nothing twice.
            while let Some(item) = working.pop() {
                model.done(*item);
            }
            let drain = queue.shut_down_with_drain();
            let work = async {
                while let Some(item) = queue.get().await {
                    assert_eq!(Some(*item), model.get());
                    model.done(*item);
                }
            };
            tokio::join!(drain, work);
            prop_assert!(model.queue.is_empty() && queue.is_empty());
            Ok(())
        })?;
    }
}
