//! `informer`: what the handlers of a shared informer are told over a scripted API server, and when.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ApiResource;
use kube_machinery::cache::{
    DeltaObject, Object, QueueKind, ReflectorOptions, ResourceApi, ResourceEventHandler,
    SharedInformer, meta_namespace_key,
};
use serde_json::{Value, json};
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
    let refuses = vector.refuses();
    // client-go tells its watch error handler of refused lists, and not of refused objects of a watch.
    let counts_errors = !refuses.is_empty() && vector.input["errors"].as_bool().unwrap_or(true);
    let timed = !vector.input["untimed"].as_bool().unwrap_or(false);
    let names: Vec<&str> = handlers.iter().filter_map(|handler| handler["name"].as_str()).collect();
    if names.len() != handlers.len() {
        return Err("a handler without a name".into());
    }

    virtual_time(async {
        let start = Instant::now();
        let told_errors = Arc::<AtomicU64>::default();
        let errors = Arc::clone(&told_errors);
        let server = ScriptedServer::script(answers);
        let api = ResourceApi::new(server.client(), &ApiResource::erase::<ConfigMap>(&()));
        let informer = SharedInformer::<ConfigMap>::builder(api)
            .resync_check_period(resync)
            .queue(queue)
            // The scripted API server sends no bookmarks, and its connections are alive.
            .reflector(ReflectorOptions { silence: None, ..ReflectorOptions::default() })
            .transform(
                move |map| if refuses.contains(&at(&map)) { Err("no".into()) } else { Ok(map) },
            )
            .watch_error_handler(move |_| {
                errors.fetch_add(1, Ordering::Relaxed);
            })
            .build();
        let told = Told::default();
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
                    let mut writer = Writer::new(name, &told, timed.then_some(start));
                    writer.takes = ms(handler, "slow_ms").unwrap_or_default();
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
        let mut store: Vec<String> = informer.store().list().iter().map(|map| at(&**map)).collect();
        store.sort();
        let handlers = told.lock().unwrap().clone();
        let has_synced = informer.has_synced();
        running.abort();
        let mut answer = json!({"handlers": handlers, "store": store, "has_synced": has_synced});
        if counts_errors {
            answer["errors"] = told_errors.load(Ordering::Relaxed).into();
        }
        Ok(vec![answer])
    })
}

fn run(informer: &SharedInformer<ConfigMap>) -> tokio::task::JoinHandle<()> {
    let informer = informer.clone();
    tokio::spawn(async move {
        let _ = informer.run().await;
    })
}

pub(crate) fn ms(of: &Value, member: &str) -> Option<Duration> {
    of[member].as_u64().map(Duration::from_millis)
}

enum What<'a> {
    Add(&'a Value),
    Remove,
}

/// The steps with handlers, in order.
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

fn at(object: &impl Object) -> String {
    let seen = object.label("seen").map(|label| format!(" {label}")).unwrap_or_default();
    format!("{}@{}{seen}", meta_namespace_key(object), object.resource_version())
}

/// By handler, its lines.
pub(crate) type Told = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

/// Writes down each call when it begins.
pub(crate) struct Writer {
    name: String,
    told: Told,
    /// The beginning, where the lines have times.
    since: Option<Instant>,
    takes: Duration,
}

impl Writer {
    pub(crate) fn new(name: &str, told: &Told, since: Option<Instant>) -> Self {
        let (name, told) = (name.to_owned(), Arc::clone(told));
        Self { name, told, since, takes: Duration::ZERO }
    }

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

impl<K: Object> ResourceEventHandler<K> for Writer {
    async fn on_add(&mut self, object: Arc<K>, is_in_initial_list: bool) {
        let initial = if is_in_initial_list { " initial" } else { "" };
        self.write(format!("add {}{initial}", at(&*object))).await;
    }

    async fn on_update(&mut self, old: Arc<K>, new: Arc<K>) {
        self.write(format!("update {} to {}", at(&*old), at(&*new))).await;
    }

    async fn on_delete(&mut self, object: DeltaObject<K>) {
        let line = match &object {
            DeltaObject::Object(object) => format!("delete {}", at(&**object)),
            DeltaObject::Tombstone(tombstone) => {
                let last = tombstone.object.as_ref().map_or("nothing".to_owned(), |o| at(&**o));
                format!("delete tombstone {last} of {}", tombstone.key)
            }
        };
        self.write(line).await;
    }
}
