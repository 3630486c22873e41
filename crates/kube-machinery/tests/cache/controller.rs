//! A controller from its first list to its end.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube_machinery::cache::{
    Controller, Ended, SharedInformer,
    workqueue::{RateLimitingQueue, controller::Action, enqueue},
};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    informer_support::{settle, spawn},
    made_source::MadeSource,
};

type Queue = RateLimitingQueue<String>;

/// A source with an object, an informer of it that runs, and a queue.
fn world() -> (MadeSource, SharedInformer<ConfigMap>, Queue, JoinHandle<()>) {
    let source = MadeSource::new();
    source.set("a");
    let informer = SharedInformer::<ConfigMap>::builder(source.clone()).build();
    let running = spawn(&informer);
    (source, informer, RateLimitingQueue::default(), running)
}

fn on(informer: &SharedInformer<ConfigMap>, queue: &Queue) -> Controller<String> {
    Controller::new("test", queue).watch(informer, enqueue(queue)).unwrap()
}

async fn until(stop: oneshot::Receiver<()>) {
    stop.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn controller_begins_with_full_caches_and_works_its_queue_off_at_the_end() {
    let (source, informer, queue, _running) = world();
    source.break_next_list();
    let (stop, stopped) = oneshot::channel();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let running = tokio::spawn(on(&informer, &queue).run(until(stopped), {
        let (seen, store) = (Arc::clone(&seen), informer.store());
        move |key: String| {
            let there = store.get_by_key(&key).is_some();
            seen.lock().unwrap().push(format!("{key} {there}"));
            async {
                sleep(Duration::from_secs(1)).await;
                Ok::<_, String>(Action::Done)
            }
        }
    }));
    // It is here before the cache is.
    queue.add("ns/a".to_owned());
    settle().await;
    assert!(seen.lock().unwrap().is_empty());
    assert!(informer.wait_for_cache_sync().await);
    settle().await;
    source.set("b");
    source.set("c");
    settle().await;
    stop.send(()).unwrap();
    settle().await;
    source.set("late");
    let report = running.await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["ns/a true", "ns/b true", "ns/c true"]);
    assert_eq!((report.ended.clone(), report.left()), (Ended::Stopped, 0));
    assert_eq!((report.workers.reconciled, report.queue.refused), (3, 0), "{report:?}");
    // The informer is others' too, and goes on.
    assert!(informer.has_synced() && !informer.is_stopped());
    assert_eq!(informer.store().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_item_that_fails_too_often_is_given_up_until_it_comes_again() {
    let (source, informer, queue, _running) = world();
    let given_up = Arc::new(Mutex::new(Vec::new()));
    let controller = on(&informer, &queue).retries(2, {
        let given_up = Arc::clone(&given_up);
        move |key: &String, error| {
            given_up.lock().unwrap().push(format!("{key}: {error}"));
            panic!("and what is told of it may panic");
        }
    });
    let (stop, stopped) = oneshot::channel();
    let running = tokio::spawn(controller.run(until(stopped), |key: String| async move {
        assert!(key != "ns/b", "b");
        Err::<Action, _>("as it always does")
    }));
    sleep(Duration::from_secs(60)).await;
    let one = "ns/a: as it always does";
    assert_eq!(*given_up.lock().unwrap(), [one]);
    source.set("a");
    source.set("b");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(*given_up.lock().unwrap(), [one, one, "ns/b: panicked: b"]);
    assert_eq!(queue.num_requeues(&"ns/a".to_owned()), 0);
    stop.send(()).unwrap();
    let report = running.await.unwrap();
    let workers = report.workers;
    assert_eq!((workers.failed, workers.panicked, workers.given_up), (9, 3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_drain_has_its_time_and_what_is_left_is_said() {
    let (source, informer, queue, _running) = world();
    source.set("b");
    let controller = on(&informer, &queue).drain_within(Duration::from_secs(5));
    let (stop, stopped) = oneshot::channel();
    let running = tokio::spawn(controller.run(until(stopped), |_: String| async {
        std::future::pending::<()>().await;
        Ok::<_, String>(Action::Done)
    }));
    sleep(Duration::from_secs(1)).await;
    stop.send(()).unwrap();
    let report = timeout(Duration::from_secs(6), running).await.unwrap().unwrap();
    assert_eq!((report.queue.processing, report.queue.queued, report.left()), (1, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn controller_ends_with_its_informer_whether_or_not_that_had_synced() {
    for broken in [false, true] {
        let (source, informer, queue, _running) = world();
        if broken {
            source.break_next_list();
        }
        let work = |_: String| async { Ok::<_, String>(Action::Done) };
        let never = std::future::pending();
        let running = tokio::spawn(on(&informer, &queue).run(never, work));
        settle().await;
        assert_eq!(informer.has_synced(), !broken);
        informer.shutdown().await;
        let report = running.await.unwrap();
        assert_eq!(report.ended, Ended::Informer("configmaps".to_owned()));
        assert_eq!(report.workers.reconciled, u64::from(!broken));
        assert!(queue.is_shutting_down());
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_dropped_leaves_no_handler_behind() {
    let (source, informer, queue, _running) = world();
    assert!(informer.wait_for_cache_sync().await);
    let work = |_: String| async { Ok::<_, String>(Action::Done) };
    let running = tokio::spawn(on(&informer, &queue).run(std::future::pending(), work));
    settle().await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert_eq!(queue.stats().added, 1);
    source.set("b");
    settle().await;
    assert_eq!(queue.stats().added, 1);
}
