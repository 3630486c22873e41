//! Whatever the API server does, and however slow the handlers are, at rest the store is what the
//! server holds, and what each handler was told leads there without a contradiction.

use std::{collections::BTreeMap, time::Duration};

use proptest::{collection::vec, prelude::*};
use tidings_kube::informer::{HandlerRegistration, QueueKind};
use tokio::time::sleep;

use super::{
    informer_support::{Told, builder, settle, spawn, stored},
    memory::MemoryServer,
};

#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Delete(u8),
    /// All watches end, as a server that restarts ends them.
    Cut,
    /// The history is gone, and all watches with it.
    Compact,
    /// The history is gone with a change in it, and the watches are told so.
    Lose(u8),
    /// The next watch is told that the history is gone, and may have missed nothing.
    Expire,
    /// The next requests fail.
    Fail(u8),
    Wait(u16),
    AddHandler {
        takes_ms: u16,
    },
    RemoveHandler(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..6u8).prop_map(Step::Put),
        6 => (0..6u8).prop_map(Step::Delete),
        6 => (0..3000u16).prop_map(Step::Wait),
        1 => Just(Step::Cut),
        3 => Just(Step::Compact),
        2 => (0..6u8).prop_map(Step::Lose),
        2 => Just(Step::Expire),
        1 => (1..4u8).prop_map(Step::Fail),
        2 => takes_ms().prop_map(|takes_ms| Step::AddHandler { takes_ms }),
        1 => any::<prop::sample::Index>().prop_map(Step::RemoveHandler),
    ]
}

fn takes_ms() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0), 1..50u16, 500..2000u16]
}

fn queue() -> impl Strategy<Value = QueueKind> {
    prop_oneof![Just(QueueKind::InOrder), Just(QueueKind::Delta)]
}

/// The object's version, by key, that a handler knows of in the end.
fn replay(lines: &[String]) -> Result<BTreeMap<String, u64>, String> {
    let mut known = BTreeMap::new();
    for line in lines {
        let parse = |object: &str| {
            let (key, version) = object.split_once('@').unwrap();
            (key.to_owned(), version.parse::<u64>().unwrap())
        };
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["add", object] | ["add", object, "initial"] => {
                let (key, version) = parse(object);
                if known.insert(key, version).is_some() {
                    return Err(format!("known already: {line}"));
                }
            }
            ["update", old, "to", new] => {
                let ((key, old), (same, new)) = (parse(old), parse(new));
                if key != same || new < old || known.insert(key, new) != Some(old) {
                    return Err(format!("not as it was, or older: {line}"));
                }
            }
            ["delete", object] | ["delete", "tombstone", object] => {
                let (key, version) = parse(object);
                if known.remove(&key).is_none_or(|last| version < last) {
                    return Err(format!("not known, or newer: {line}"));
                }
            }
            _ => return Err(format!("what is {line}?")),
        }
    }
    Ok(known)
}

async fn play(queue: QueueKind, takes_ms: [u16; 4], steps: Vec<Step>) -> Result<(), TestCaseError> {
    let server = MemoryServer::start();
    // From version 0, at which no cluster is, a watch begins with what exists, in any order.
    server.skip_revisions(1);
    let informer =
        builder(&server).queue(queue).resync_check_period(Duration::from_mins(1)).build();
    let mut handlers: Vec<(Told, HandlerRegistration)> = Vec::new();
    let mut removed = Vec::new();
    let add = |takes_ms: u16| {
        let told = Told::default();
        let handler = told.handler().takes(Duration::from_millis(takes_ms.into()));
        let registration = informer.add_handler(handler).unwrap();
        (told, registration)
    };
    handlers.extend(takes_ms.map(add));
    let running = spawn(&informer);
    for step in steps {
        match step {
            Step::Put(key) => server.put(&format!("ns/{key}"), 0),
            Step::Delete(key) => server.delete(&format!("ns/{key}")),
            Step::Cut => server.cut(),
            Step::Compact => {
                server.compact();
                server.cut();
            }
            Step::Lose(key) => {
                server.put(&format!("ns/{key}"), 0);
                server.compact();
            }
            Step::Expire => server.expire(),
            Step::Fail(requests) => server.fail(requests.into()),
            Step::Wait(ms) => sleep(Duration::from_millis(ms.into())).await,
            Step::AddHandler { takes_ms } => handlers.push(add(takes_ms)),
            Step::RemoveHandler(which) if !handlers.is_empty() => {
                let (told, registration) = handlers.swap_remove(which.index(handlers.len()));
                informer.remove_handler(&registration);
                removed.push(told);
            }
            Step::RemoveHandler(_) => {}
        }
    }
    sleep(Duration::from_hours(1)).await;

    let versions = server.versions();
    prop_assert_eq!(stored(&informer), &*versions);
    for (told, registration) in &handlers {
        let known = replay(&told.lines()).map_err(TestCaseError::fail)?;
        let known: Vec<_> = known.iter().map(|(key, version)| format!("{key}@{version}")).collect();
        prop_assert_eq!(&known, &versions, "{:?}", told.lines());
        prop_assert!(registration.has_synced());
    }
    for told in &removed {
        replay(&told.lines()).map_err(TestCaseError::fail)?;
        prop_assert_eq!(told.handlers(), 0);
    }
    informer.shutdown().await;
    settle().await;
    prop_assert!(running.is_finished() && server.open_watches() == 0);
    prop_assert!(handlers.iter().all(|(told, _)| told.handlers() == 0));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn at_rest_the_store_and_every_handler_know_what_the_server_holds(
        queue in queue(),
        takes_ms in [takes_ms(), takes_ms(), takes_ms(), takes_ms()],
        steps in vec(step(), 0..80),
    ) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(play(queue, takes_ms, steps))?;
    }
}
