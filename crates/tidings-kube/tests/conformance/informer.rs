//! `informer`: what the handlers of a shared informer are told over a scripted API server, and when.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ApiResource;
use serde_json::{Value, json};
use tidings_kube::{
    informer::{DeltaObject, QueueKind, ResourceEventHandler, SharedInformer},
    object::{Object, meta_namespace_key},
    reflector::ResourceApi,
};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    replies::reply,
    scripted::ScriptedServer,
    vector::{Vector, virtual_time},
};

pub(crate) fn drive(vector: &Vector) -> Result<Vec<Value>, String> {
    let mut answers = Vec::new();
    for step in &vector.steps {
        answers.push(reply(step)?.0);
    }
    let in_order = vector.options["in_order"].as_bool().unwrap_or(false);
    let queue = if in_order { QueueKind::InOrder } else { QueueKind::Delta };
    let resync = ms(&vector.options, "resync_ms").unwrap_or_default();
    let handlers = vector.input["handlers"].as_array().ok_or("no handlers")?;
    let until = ms(&vector.input, "until_ms").ok_or("no until_ms")?;
    let timed = !vector.input["untimed"].as_bool().unwrap_or(false);
    let names: Vec<&str> = handlers.iter().filter_map(|handler| handler["name"].as_str()).collect();
    if names.len() != handlers.len() {
        return Err("a handler without a name".into());
    }

    virtual_time(async {
        let start = Instant::now();
        let server = ScriptedServer::script(answers);
        let api = ResourceApi::new(server.client(), &ApiResource::erase::<ConfigMap>(&()));
        let informer = SharedInformer::<ConfigMap>::builder(api)
            .resync_check_period(resync)
            .queue(queue)
            .build();
        let told: Arc<Mutex<BTreeMap<String, Vec<String>>>> = Arc::default();
        let mut registrations = BTreeMap::new();
        let mut running = None;
        for (at, name, what) in timeline(handlers) {
            if at > Duration::ZERO && running.is_none() {
                running = Some(run(&informer));
            }
            sleep_until(start + at).await;
            match what {
                What::Add(handler) => {
                    told.lock().unwrap().insert(name.to_owned(), Vec::new());
                    let writer = Writer {
                        name: name.to_owned(),
                        told: Arc::clone(&told),
                        since: timed.then_some(start),
                        takes: ms(handler, "slow_ms").unwrap_or_default(),
                    };
                    let period = ms(handler, "resync_ms").unwrap_or(resync);
                    let registration = informer
                        .add_handler_with_resync(writer, period)
                        .map_err(|error| error.to_string())?;
                    registrations.insert(name, registration);
                }
                What::Remove => informer.remove_handler(&registrations[name]),
            }
        }
        let running = running.unwrap_or_else(|| run(&informer));
        sleep_until(start + until).await;
        let mut store: Vec<String> = informer.store().list().iter().map(|map| at(map)).collect();
        store.sort();
        let handlers = told.lock().unwrap().clone();
        let has_synced = informer.has_synced();
        running.abort();
        Ok(vec![json!({"handlers": handlers, "store": store, "has_synced": has_synced})])
    })
}

fn run(informer: &SharedInformer<ConfigMap>) -> tokio::task::JoinHandle<()> {
    let informer = informer.clone();
    tokio::spawn(async move {
        let _ = informer.run().await;
    })
}

fn ms(of: &Value, member: &str) -> Option<Duration> {
    of[member].as_u64().map(Duration::from_millis)
}

enum What<'a> {
    Add(&'a Value),
    Remove,
}

/// What is done to handlers, in order.
fn timeline(handlers: &[Value]) -> Vec<(Duration, &str, What<'_>)> {
    let mut timeline = Vec::new();
    for handler in handlers {
        let name = handler["name"].as_str().unwrap_or_default();
        let at = ms(handler, "add_at_ms").unwrap_or_default();
        timeline.push((at, name, What::Add(handler)));
        timeline.extend(ms(handler, "remove_at_ms").map(|at| (at, name, What::Remove)));
    }
    timeline.sort_by_key(|(at, ..)| *at);
    timeline
}

fn at(object: &ConfigMap) -> String {
    format!("{}@{}", meta_namespace_key(object), object.resource_version())
}

/// Writes down each call when it begins.
struct Writer {
    name: String,
    told: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
    /// The beginning, where the lines have times.
    since: Option<Instant>,
    takes: Duration,
}

impl Writer {
    async fn write(&self, what: String) {
        let line = match self.since {
            Some(since) => format!("{} {what}", since.elapsed().as_millis()),
            None => what,
        };
        self.told.lock().unwrap().entry(self.name.clone()).or_default().push(line);
        if !self.takes.is_zero() {
            sleep(self.takes).await;
        }
    }
}

impl ResourceEventHandler<ConfigMap> for Writer {
    async fn on_add(&mut self, object: Arc<ConfigMap>, is_in_initial_list: bool) {
        let initial = if is_in_initial_list { " initial" } else { "" };
        self.write(format!("add {}{initial}", at(&object))).await;
    }

    async fn on_update(&mut self, old: Arc<ConfigMap>, new: Arc<ConfigMap>) {
        self.write(format!("update {} to {}", at(&old), at(&new))).await;
    }

    async fn on_delete(&mut self, object: DeltaObject<ConfigMap>) {
        let line = match &object {
            DeltaObject::Object(object) => format!("delete {}", at(object)),
            DeltaObject::Tombstone(tombstone) => {
                let last = tombstone.object.as_ref().map_or("nothing".to_owned(), |o| at(o));
                format!("delete tombstone {last} of {}", tombstone.key)
            }
        };
        self.write(line).await;
    }
}
