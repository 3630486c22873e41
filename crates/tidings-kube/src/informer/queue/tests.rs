//! Rules that both queues have, each by itself; what differs is in client-go's golden vectors
//! (`tests/conformance`).

mod model;

use std::{
    convert::Infallible,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
};

use futures_util::{FutureExt, poll};
use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use crate::informer::{
    DeltaFifo, DeltaFifoOptions, InOrderFifo, Store,
    fixture::{config_map, version},
};

/// One test of both queues.
macro_rules! of_both {
    ($($(#[$attribute:meta])* $test:ident)*) => {$(
        mod $test {
            $(#[$attribute])*
            async fn in_order() {
                super::$test(super::in_order).await;
            }

            $(#[$attribute])*
            async fn delta() {
                super::$test(super::delta).await;
            }
        }
    )*};
}

of_both! {
    #[tokio::test]
    a_pop_waits_for_something_to_come
    #[tokio::test]
    a_pop_that_is_given_up_takes_nothing_out
    #[tokio::test]
    closing_ends_every_pop_that_waits
    #[tokio::test]
    what_is_transformed_is_what_comes_in
    #[tokio::test]
    what_cannot_be_transformed_is_not_queued
    #[tokio::test]
    a_list_that_cannot_be_transformed_is_not_the_first_list
    #[tokio::test]
    what_cannot_be_processed_is_gone_or_goes_back
    #[tokio::test]
    a_panic_of_the_consumer_takes_only_what_it_processed
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    each_entry_is_processed_once_and_one_at_a_time
    #[tokio::test]
    a_consumer_that_always_finds_something_lets_others_run
}

type Known = Store<ConfigMap>;
type Transformer = Option<TransformFunc<ConfigMap>>;

fn in_order(known: &Known, transformer: Transformer) -> InOrderFifo<ConfigMap> {
    InOrderFifo::new(Arc::new(known.clone()), transformer)
}

fn delta(known: &Known, transformer: Transformer) -> DeltaFifo<ConfigMap> {
    DeltaFifo::new(DeltaFifoOptions {
        known_objects: Some(Arc::new(known.clone())),
        emit_delta_type_replaced: true,
        transformer,
    })
}

/// What is popped, as "Added shop/cart@3 …".
async fn pop(queue: &impl Queue<ConfigMap>) -> Result<String, PopError<Infallible>> {
    queue.pop(|deltas, _| Ok(shown(deltas))).await
}

fn shown(deltas: &[Delta<ConfigMap>]) -> String {
    let words = deltas.iter().map(|delta| {
        let tombstone = if delta.object.is_tombstone() { "unseen " } else { "" };
        let version = version(delta.object.object().unwrap());
        format!("{:?} {tombstone}{}@{version}", delta.kind, delta.object.key())
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Everything that is there.
fn rest(queue: &impl Queue<ConfigMap>) -> Vec<String> {
    std::iter::from_fn(|| pop(queue).now_or_never()?.ok()).collect()
}

async fn a_pop_waits_for_something_to_come<Q: Queue<ConfigMap>>(new: fn(&Known, Transformer) -> Q) {
    let queue = new(&Known::default(), None);
    let mut waiting = pin!(pop(&queue));
    assert_eq!(poll!(&mut waiting), Poll::Pending);
    queue.resync();
    assert_eq!(poll!(&mut waiting), Poll::Pending, "nothing is known");
    queue.add(config_map("a", 1)).unwrap();
    assert_eq!(poll!(&mut waiting), Poll::Ready(Ok("Added a@1".into())));

    let mut waiting = pin!(pop(&queue));
    assert_eq!(poll!(&mut waiting), Poll::Pending);
    queue.replace(vec![config_map("b", 2)]).unwrap();
    assert_eq!(poll!(&mut waiting), Poll::Ready(Ok("Replaced b@2".into())));
}

async fn a_pop_that_is_given_up_takes_nothing_out<Q: Queue<ConfigMap>>(
    new: fn(&Known, Transformer) -> Q,
) {
    let queue = new(&Known::default(), None);
    {
        let mut given_up = pin!(pop(&queue));
        assert_eq!(poll!(&mut given_up), Poll::Pending);
        queue.add(config_map("a", 1)).unwrap();
    }
    assert_eq!(pop(&queue).await, Ok("Added a@1".into()));
}

async fn closing_ends_every_pop_that_waits<Q: Queue<ConfigMap>>(new: fn(&Known, Transformer) -> Q) {
    let queue = new(&Known::default(), None);
    let (mut one, mut other) = (pin!(pop(&queue)), pin!(pop(&queue)));
    assert_eq!((poll!(&mut one), poll!(&mut other)), (Poll::Pending, Poll::Pending));
    assert!(!queue.is_closed());
    queue.close();
    assert!(queue.is_closed());
    assert_eq!(one.await, Err(PopError::Closed));
    assert_eq!(other.await, Err(PopError::Closed));
}

/// Counts its calls in the version.
fn ten_times() -> TransformFunc<ConfigMap> {
    Arc::new(|mut object: ConfigMap| {
        object.metadata.resource_version = Some((version(&object) * 10).to_string());
        Ok(object)
    })
}

async fn what_is_transformed_is_what_comes_in<Q: Queue<ConfigMap>>(
    new: fn(&Known, Transformer) -> Q,
) {
    let known = Known::default();
    let queue = new(&known, Some(ten_times()));
    for told in [Q::add, Q::update, Q::delete] {
        told(&queue, config_map("a", 1)).unwrap();
    }
    assert_eq!(rest(&queue).join(", "), "Added a@10, Updated a@10, Deleted a@10");
    queue.replace(vec![config_map("a", 2)]).unwrap();
    assert_eq!(rest(&queue), ["Replaced a@20"]);

    // What is known has been through it before.
    known.add(Arc::new(config_map("a", 30)));
    queue.resync();
    assert_eq!(rest(&queue), ["Sync a@30"]);
    queue.replace(Vec::new()).unwrap();
    assert_eq!(rest(&queue), ["Deleted unseen a@30"]);
    let object = Some(Arc::new(config_map("a", 40)));
    queue.delete_tombstone(DeletedFinalStateUnknown { key: "a".into(), object });
    assert_eq!(rest(&queue), ["Deleted unseen a@40"]);
}

fn not_b() -> TransformFunc<ConfigMap> {
    Arc::new(|object: ConfigMap| {
        if object.metadata.name.as_deref() == Some("b") { Err("no b".into()) } else { Ok(object) }
    })
}

async fn what_cannot_be_transformed_is_not_queued<Q: Queue<ConfigMap>>(
    new: fn(&Known, Transformer) -> Q,
) {
    let queue = new(&Known::default(), Some(not_b()));
    let error = queue.add(config_map("shop/b", 1)).unwrap_err();
    assert_eq!(error.to_string(), "cannot transform \"shop/b\"");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "no b");
    assert!(queue.has_synced(), "it was told something, if nothing of use");
    queue.add(config_map("a", 1)).unwrap();
    assert_eq!(rest(&queue), ["Added a@1"]);
}

async fn a_list_that_cannot_be_transformed_is_not_the_first_list<Q: Queue<ConfigMap>>(
    new: fn(&Known, Transformer) -> Q,
) {
    let queue = new(&Known::default(), Some(not_b()));
    let list = |names: [&str; 3]| names.map(|name| config_map(name, 1)).into();
    queue.replace(list(["a", "b", "c"])).unwrap_err();
    assert_eq!(rest(&queue), ["Replaced a@1"]);
    assert!(!queue.has_synced());
    queue.replace(list(["a", "c", "d"])).unwrap();
    assert!(!queue.has_synced());
    assert_eq!(rest(&queue), ["Replaced a@1", "Replaced c@1", "Replaced d@1"]);
    assert!(queue.has_synced());
}

async fn what_cannot_be_processed_is_gone_or_goes_back<Q: Queue<ConfigMap>>(
    new: fn(&Known, Transformer) -> Q,
) {
    let queue = new(&Known::default(), None);
    queue.add(config_map("a", 1)).unwrap();
    queue.update(config_map("a", 2)).unwrap();
    let refuse = |deltas: &[Delta<ConfigMap>], _: bool| Err::<(), _>(shown(deltas));
    let before = rest(&queue);

    queue.add(config_map("a", 1)).unwrap();
    queue.update(config_map("a", 2)).unwrap();
    let refused = queue.pop_or_requeue(refuse).await.unwrap_err();
    assert_eq!(refused, PopError::Process(before[0].clone()));
    assert_eq!(rest(&queue), before, "it is there again, and in order");

    queue.add(config_map("a", 1)).unwrap();
    assert_eq!(queue.pop(refuse).await, Err(PopError::Process("Added a@1".into())));
    assert_eq!(rest(&queue), [""; 0]);
}

async fn a_panic_of_the_consumer_takes_only_what_it_processed<Q: Queue<ConfigMap>>(
    new: fn(&Known, Transformer) -> Q,
) {
    let queue = new(&Known::default(), None);
    queue.add(config_map("a", 1)).unwrap();
    queue.add(config_map("b", 2)).unwrap();
    let panics = queue.pop(|_, _| -> Result<(), Infallible> { panic!("a consumer's fault") });
    std::panic::AssertUnwindSafe(panics).catch_unwind().await.unwrap_err();
    queue.add(config_map("c", 3)).unwrap();
    assert_eq!(rest(&queue), ["Added b@2", "Added c@3"]);
}

async fn each_entry_is_processed_once_and_one_at_a_time<Q: Queue<ConfigMap> + 'static>(
    new: fn(&Known, Transformer) -> Q,
) {
    const KEYS: usize = 500;
    let queue = Arc::new(new(&Known::default(), None));
    let (busy, popped) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let consumers: Vec<_> = (0..4)
        .map(|_| {
            let (queue, busy, popped) = (queue.clone(), busy.clone(), popped.clone());
            tokio::spawn(async move {
                let process = |deltas: &[Delta<ConfigMap>], _: bool| {
                    assert!(!busy.swap(true, SeqCst), "two at a time");
                    popped.lock().unwrap().push(shown(deltas));
                    busy.store(false, SeqCst);
                    Ok::<_, Infallible>(())
                };
                while queue.pop(process).await.is_ok() {
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for at in 0..KEYS {
        queue.add(config_map(&format!("k{at:03}"), 1)).unwrap();
        if at % 10 == 0 {
            tokio::task::yield_now().await;
        }
    }
    queue.close();
    for consumer in consumers {
        consumer.await.unwrap();
    }
    let expected: Vec<_> = (0..KEYS).map(|at| format!("Added k{at:03}@1")).collect();
    assert_eq!(*popped.lock().unwrap(), expected, "in the order in which they came");
}

async fn a_consumer_that_always_finds_something_lets_others_run<Q: Queue<ConfigMap> + 'static>(
    new: fn(&Known, Transformer) -> Q,
) {
    let queue = Arc::new(new(&Known::default(), None));
    for at in 0..10_000 {
        queue.add(config_map(&at.to_string(), 1)).unwrap();
    }
    let popped = Arc::new(AtomicUsize::new(0));
    let consumer = tokio::spawn({
        let (queue, popped) = (queue.clone(), popped.clone());
        async move {
            while pop(&*queue).await.is_ok() {
                popped.fetch_add(1, SeqCst);
            }
        }
    });
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    assert!((1..10_000).contains(&popped.load(SeqCst)));
    queue.close();
    consumer.await.unwrap();
}
