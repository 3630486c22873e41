//! Whatever an API server has answered for a while: once it answers as it should, the store holds
//! what it holds.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use proptest::prelude::*;
use serde_json::{Value, json};
use tidings_kube::reflector::ReflectorOptions;
use tokio::time::sleep;

use super::{
    scripted::{Answer, Ending, Request, ScriptedServer},
    support::{NOW, error_event, follow_with, object, page, refusal, too_large},
};

/// What goes wrong with one request; `Nothing` is answered as it should be.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Nothing,
    Refused,
    Status(u16, &'static str),
    TooLarge,
    Html,
    Empty,
    Error(u16, &'static str),
    /// The right body, cut behind this part of it, in 256ths.
    Cut(u8),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        3 => Just(Fault::Nothing),
        1 => Just(Fault::Refused),
        1 => Just(Fault::TooLarge),
        1 => Just(Fault::Html),
        1 => Just(Fault::Empty),
        2 => prop::sample::select(vec![(410, "Expired"), (410, "Gone"), (429, "TooManyRequests"), (500, "InternalError"), (403, "Forbidden")])
            .prop_flat_map(|(code, reason)| prop_oneof![Just(Fault::Status(code, reason)), Just(Fault::Error(code, reason))]),
        2 => any::<u8>().prop_map(Fault::Cut),
    ]
}

/// What was done to the objects: an entry is a version; the name, and whether it exists from then.
#[derive(Clone, Debug, Default)]
struct History(Vec<(String, bool)>);

impl History {
    fn version(&self) -> usize {
        100 + self.0.len()
    }

    fn held(&self) -> BTreeMap<String, String> {
        self.held_at(self.version())
    }

    fn held_at(&self, version: usize) -> BTreeMap<String, String> {
        let mut held = BTreeMap::new();
        for (at, (name, exists)) in self.0.iter().enumerate().take(version - 100) {
            if *exists {
                held.insert(name.clone(), (101 + at).to_string());
            } else {
                held.remove(name);
            }
        }
        held
    }

    fn list(&self, request: &Request) -> Answer {
        // A token says where to go on, in the list of which version.
        let token = request.param("continue").split_once('@');
        let (from, version) = token.map_or((0, self.version()), |(from, version)| {
            (from.parse().unwrap(), version.parse().unwrap())
        });
        let held: Vec<String> =
            self.held_at(version).iter().map(|(n, v)| format!("{n}@{v}")).collect();
        let held: Vec<&str> = held.iter().map(String::as_str).collect();
        // Pages of two, where pages are asked for.
        let whole = request.param("limit").is_empty();
        let to = if whole { held.len() } else { held.len().min(from + 2) };
        let more = if to < held.len() { format!("{to}@{version}") } else { String::new() };
        page(&held[from..to], &version.to_string(), &more)
    }

    fn watch(&self, request: &Request) -> Answer {
        let mut lines: Vec<(u64, &str, Value)> = Vec::new();
        let mut from: usize = request.param("resourceVersion").parse().unwrap_or(100);
        if request.param("sendInitialEvents") == "true" {
            for (name, version) in self.held() {
                lines.push((0, "ADDED", object(&name, &version)));
            }
            let mut end = object("", &self.version().to_string());
            end["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
            lines.push((0, "BOOKMARK", end));
            from = self.version();
        }
        for (at, (name, exists)) in self.0.iter().enumerate().skip(from - 100) {
            let kind = if *exists { "ADDED" } else { "DELETED" };
            lines.push((0, kind, object(name, &(101 + at).to_string())));
        }
        Answer::watch(lines, Ending::Close(Duration::from_secs(300)))
    }
}

fn spoilt(fault: Fault, right: Answer) -> Answer {
    match fault {
        Fault::Nothing => right,
        Fault::Refused => Answer::refused(),
        Fault::Status(code, reason) => refusal(code, reason),
        Fault::TooLarge => too_large(),
        Fault::Html => Answer::body(200, "<html>\nlogin\n"),
        Fault::Empty => Answer::stream(Vec::new(), NOW),
        Fault::Error(code, reason) => error_event(1, code, reason),
        Fault::Cut(at) => match right {
            Answer::Body { pieces, .. } => {
                let body: Vec<u8> =
                    pieces.into_iter().flat_map(|(_, bytes)| bytes.to_vec()).collect();
                let end = body.len() * usize::from(at) / 256;
                let piece = (Duration::ZERO, bytes::Bytes::copy_from_slice(&body[..end]));
                Answer::stream(vec![piece], Ending::Break(std::io::ErrorKind::ConnectionReset))
            }
            other => other,
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_comes_to_hold_what_the_server_holds(
        faults in prop::collection::vec(fault(), 0..24),
        changes in prop::collection::vec((prop::sample::select(vec!["a", "b", "ü", "d", "e"]), any::<bool>()), 0..40),
        streaming_lists in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let history = Arc::new(Mutex::new(History::default()));
            let (shared, mut faults) = (Arc::clone(&history), faults.into_iter());
            let mut changes = changes.into_iter().map(|(name, exists)| (name.to_owned(), exists));
            let server = ScriptedServer::by(move |request| {
                // Each request finds some more changes made.
                let mut history = shared.lock().unwrap();
                for (name, exists) in changes.by_ref().take(3) {
                    if exists || history.held().contains_key(&name) {
                        history.0.push((name, exists));
                    }
                }
                let right =
                    if request.is_watch() { history.watch(request) } else { history.list(request) };
                spoilt(faults.next().unwrap_or(Fault::Nothing), right)
            });
            let options = ReflectorOptions { streaming_lists, ..ReflectorOptions::default() };
            let followed = follow_with(server, options);
            sleep(Duration::from_secs(3 * 3600)).await;
            let history = history.lock().unwrap();
            prop_assert_eq!(followed.store.held(), history.held());
            prop_assert_eq!(
                followed.health().last_sync_resource_version,
                history.version().to_string()
            );
            prop_assert!(followed.server.requests().len() < 24 * 2 + 250, "asked without end");
            Ok(())
        })?;
    }
}
