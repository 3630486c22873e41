//! A reflector of config maps under test, and short words for what a scripted server answers.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ApiResource;
use serde_json::{Value, json};
use tidings_kube::reflector::{
    Reflector, ReflectorOptions, ResourceApi, SharedHealth, SourceHealth,
};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{
    scripted::{Answer, Ending, Request, ScriptedServer},
    told::Told,
};

pub(crate) const NOW: Ending = Ending::Close(Duration::ZERO);

/// A config map of a name and a resourceVersion.
pub(crate) fn object(name: &str, version: &str) -> Value {
    json!({
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop", "resourceVersion": version},
    })
}

/// A list of "name@version"s, whole.
pub(crate) fn list(items: &[&str], version: &str) -> Answer {
    page(items, version, "")
}

pub(crate) fn page(items: &[&str], version: &str, more: &str) -> Answer {
    let item = |item: &&str| item.split_once('@').map(|(name, v)| object(name, v)).unwrap();
    Answer::list(&items.iter().map(item).collect::<Vec<_>>(), version, more)
}

/// A watch of "ADDED name@version"s, so many milliseconds after one another; "BOOKMARK @version".
pub(crate) fn watch(events: &[(u64, &'static str)], ending: Ending) -> Answer {
    let event = |&(after_ms, event): &(u64, &'static str)| {
        let (kind, what) = event.split_once(' ').unwrap();
        let (name, version) = what.split_once('@').unwrap();
        (after_ms, kind, object(name, version))
    };
    Answer::watch(events.iter().map(event), ending)
}

/// A watch that ends with an ERROR after so many milliseconds.
pub(crate) fn error_event(after_ms: u64, code: u16, reason: &str) -> Answer {
    let status = json!({"kind": "Status", "code": code, "reason": reason});
    Answer::watch([(after_ms, "ERROR", status)], Ending::Open)
}

pub(crate) fn refusal(code: u16, reason: &str) -> Answer {
    Answer::status(&json!({"code": code, "reason": reason}))
}

pub(crate) fn too_large() -> Answer {
    Answer::status(&json!({
        "code": 504, "reason": "Timeout", "message": "Too large resource version: 900, current: 700",
        "details": {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}], "retryAfterSeconds": 1},
    }))
    .with_header("retry-after", "1")
}

pub(crate) fn api(server: &ScriptedServer) -> ResourceApi {
    ResourceApi::new(server.client(), &ApiResource::erase::<ConfigMap>(&()))
}

/// A reflector that runs until this is dropped.
pub(crate) struct Followed {
    pub(crate) server: ScriptedServer,
    pub(crate) store: Told,
    errors: Arc<Mutex<Vec<String>>>,
    health: SharedHealth,
    task: JoinHandle<()>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Follows a server that gives these answers in turn, with client-go's defaults.
pub(crate) fn follow(answers: impl IntoIterator<Item = Answer>) -> Followed {
    follow_with(ScriptedServer::script(answers), ReflectorOptions::default())
}

pub(crate) fn follow_with(server: ScriptedServer, options: ReflectorOptions) -> Followed {
    follow_into(Told::default(), server, options)
}

pub(crate) fn follow_into(
    store: Told,
    server: ScriptedServer,
    mut options: ReflectorOptions,
) -> Followed {
    let errors = Arc::<Mutex<Vec<String>>>::default();
    let handled = Arc::clone(&errors);
    options.watch_error_handler =
        Some(Arc::new(move |error| handled.lock().unwrap().push(error.to_string())));
    let reflector = Reflector::new(api(&server), store.clone(), options);
    let health = reflector.health();
    let task = tokio::spawn(reflector.run());
    Followed { server, store, errors, health, task }
}

impl Followed {
    pub(crate) fn health(&self) -> SourceHealth {
        self.health.lock().unwrap().clone()
    }

    /// What the watch error handler was called with.
    pub(crate) fn errors(&self) -> Vec<String> {
        self.errors.lock().unwrap().clone()
    }

    /// Lets time go until so many requests were made and a little longer.
    pub(crate) async fn requests(&self, count: usize) -> Vec<Request> {
        let all = self.server.until_requests(count);
        let all = timeout(Duration::from_secs(7200), all).await;
        assert!(all.is_ok(), "only {:#?}", self.calls());
        sleep(Duration::from_millis(1)).await;
        self.server.requests()
    }

    /// The requests so far: "list" or "watch", from which resourceVersion, and for a list the limit
    /// and the token.
    pub(crate) fn calls(&self) -> Vec<String> {
        let call = |request: Request| {
            let version = request.param("resourceVersion");
            if request.is_watch() {
                return format!("watch from {version:?}");
            }
            let of = |name, word| {
                let value = request.param(name);
                if value.is_empty() { String::new() } else { format!(", {word} {value}") }
            };
            let (limit, token) = (of("limit", "limit"), of("continue", "token"));
            format!("list at {version:?}{limit}{token}")
        };
        self.server.requests().into_iter().map(call).collect()
    }

    /// Seconds between the server's last action and each request.
    pub(crate) fn waits(&self) -> Vec<f64> {
        self.server.requests().iter().map(|r| r.since_last_action.as_secs_f64()).collect()
    }
}

/// Whether a wait is the n-th of the back-off (from 0).
pub(crate) fn is_wait(seconds: f64, n: usize) -> bool {
    let base = [0.8, 1.6, 3.2, 6.4, 12.8, 25.6].get(n).copied().unwrap_or(30.0);
    (base..base * 2.0 + 0.01).contains(&seconds)
}
