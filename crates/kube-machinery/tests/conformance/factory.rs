//! `factory`: what the informers of a factory ask an API server for, and what their handlers are told.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::Response;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::{Client, Resource};
use kube_machinery::cache::{
    CacheSync, Decode, InformerBuilder, ReflectorOptions, SharedInformerFactory, meta_namespace_key,
};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    task::yield_now,
    time::{Instant, sleep},
};

use super::{
    informer::{Told, Writer, ms},
    vector::{Vector, virtual_time},
};

pub(crate) fn drive(vector: &Vector) -> Result<Vec<Value>, String> {
    virtual_time(async {
        let server = Server::of(&vector.input);
        let factory = factory(&vector.options, &server);
        let player = Player { factory, server, told: Told::default(), start: Instant::now() };
        let mut answers = Vec::new();
        for step in &vector.steps {
            let mut answer = player.play(step).await?;
            for _ in 0..256 {
                yield_now().await;
            }
            player.server.seen(&mut answer);
            let told = std::mem::take(&mut *player.told.lock().unwrap());
            if !told.is_empty() {
                answer["told"] = json!(told);
            }
            answers.push(answer);
        }
        Ok(answers)
    })
}

fn factory(options: &Value, server: &Server) -> SharedInformerFactory {
    let text = |member: &str| options[member].as_str().unwrap_or_default().to_owned();
    let [namespace, labels, fields] = ["namespace", "labels", "fields"].map(text);
    let mut factory = SharedInformerFactory::new(server.client())
        .namespace(&namespace)
        .resync(ms(options, "resync_ms").unwrap_or_default())
        .tweak(move |api| api.labels(&labels).fields(&fields));
    if let Some(label) = options["label"].as_str().map(str::to_owned) {
        factory = factory.transform(move |object| {
            let metadata = object.metadata_mut().ok_or("no metadata")?;
            metadata.labels = Some([("seen".to_owned(), label.clone())].into());
            Ok(())
        });
    }
    let period = ms(&options["resync_ms_of"], "nodes");
    factory
        .set_up::<ConfigMap>(without_bookmarks)
        .set_up::<Secret>(without_bookmarks)
        .set_up::<Node>(move |nodes| match period {
            Some(period) => without_bookmarks(nodes).resync_check_period(period),
            None => without_bookmarks(nodes),
        })
}

/// The server sends no bookmarks, and its connections are alive.
fn without_bookmarks<K: Decode>(builder: InformerBuilder<K>) -> InformerBuilder<K> {
    builder.reflector(ReflectorOptions { silence: None, ..ReflectorOptions::default() })
}

struct Player {
    factory: SharedInformerFactory,
    server: Server,
    told: Told,
    start: Instant,
}

impl Player {
    async fn play(&self, step: &Value) -> Result<Value, String> {
        match step["op"].as_str().unwrap_or_default() {
            "start" => self.factory.start(),
            "sync" => {
                let caches = self.factory.wait_for_cache_sync().await;
                let synced = |cache: CacheSync| (cache.resource.plural, cache.synced.into());
                return Ok(
                    json!({"synced": Value::Object(caches.into_iter().map(synced).collect())}),
                );
            }
            "change" => self.server.change(step),
            "advance" => sleep(ms(step, "ms").ok_or("no ms")?).await,
            "shutdown" => self.factory.shutdown().await,
            _ => {
                return match step["resource"].as_str() {
                    Some("configmaps") => self.ask::<ConfigMap>(step),
                    Some("secrets") => self.ask::<Secret>(step),
                    Some("nodes") => self.ask::<Node>(step),
                    _ => Err(format!("unknown step {step}")),
                };
            }
        }
        Ok(json!({}))
    }

    fn ask<K>(&self, step: &Value) -> Result<Value, String>
    where
        K: Decode + Resource<DynamicType = (), Scope: 'static>,
    {
        let informer = self.factory.informer::<K>();
        match step["op"].as_str() {
            Some("informer") => {}
            Some("handler") => {
                let name = step["name"].as_str().unwrap_or_default();
                let writer = Writer::new(name, &self.told, Some(self.start));
                informer.add_handler(writer).map_err(|error| error.to_string())?;
            }
            Some("store") => {
                let mut keys: Vec<_> =
                    informer.store().list().iter().map(|one| meta_namespace_key(&**one)).collect();
                keys.sort();
                return Ok(json!({ "store": keys }));
            }
            _ => return Err(format!("unknown step {step}")),
        }
        Ok(json!({}))
    }
}

/// An API server that answers by path.
#[derive(Clone)]
struct Server(Arc<Mutex<State>>);

struct State {
    /// By resource, what it has; and the resources whose lists hang.
    input: Value,
    calls: Vec<String>,
    watches: Vec<Watch>,
}

struct Watch {
    resource: String,
    /// Empty for all.
    namespace: String,
    lines: UnboundedSender<Result<Bytes, Infallible>>,
}

impl Server {
    fn of(input: &Value) -> Self {
        let state = State { input: input.clone(), calls: Vec::new(), watches: Vec::new() };
        Self(Arc::new(Mutex::new(state)))
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<_>| {
            let answer = server.answer(&request);
            async move {
                match answer {
                    Some(body) => Ok::<_, Infallible>(Response::new(body)),
                    None => std::future::pending().await,
                }
            }
        });
        Client::new(service, "default")
    }

    /// The body of an answer, if there is one.
    fn answer<B>(&self, request: &http::Request<B>) -> Option<Body> {
        let query: Vec<(String, String)> =
            form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes())
                .into_owned()
                .collect();
        let of = |name: &str| query.iter().find(|(of, _)| of == name).map(|(_, value)| &**value);
        let path = request.uri().path();
        let (namespace, resource) = match path.split('/').collect::<Vec<_>>()[..] {
            ["", "api", "v1", "namespaces", namespace, resource] => (namespace, resource),
            ["", "api", "v1", resource] => ("", resource),
            _ => return None,
        };
        let verb = if of("watch") == Some("true") { "watch" } else { "list" };
        let mut call = format!("{verb} {path}");
        for (name, of) in [("labels", of("labelSelector")), ("fields", of("fieldSelector"))] {
            call.extend(of.map(|selector| format!(" {name} {selector}")));
        }
        let mut state = self.0.lock().unwrap();
        state.calls.push(call);
        if verb == "watch" {
            let (lines, mut receiver) = unbounded_channel();
            let (resource, namespace) = (resource.to_owned(), namespace.to_owned());
            state.watches.push(Watch { resource, namespace, lines });
            let body = stream::poll_fn(move |context| receiver.poll_recv(context));
            return Some(Body::from_stream(body));
        }
        let hangs = state.input["hangs"].as_array();
        if hangs.into_iter().flatten().any(|hangs| hangs == resource) {
            return None;
        }
        let objects = state.input["objects"][resource].as_array();
        let items = objects.into_iter().flatten();
        let items: Vec<Value> = items
            .filter(|one| namespace.is_empty() || one["namespace"] == namespace)
            .map(|one| object(resource, one))
            .collect();
        let list = json!({"metadata": {"resourceVersion": "100"}, "items": items});
        Some(Body::from(list.to_string()))
    }

    fn change(&self, step: &Value) {
        let object = object(step["resource"].as_str().unwrap_or_default(), step);
        let line = json!({"type": step["type"], "object": object}).to_string() + "\n";
        for watch in &self.0.lock().unwrap().watches {
            let all = watch.namespace.is_empty();
            if step["resource"] == *watch.resource && (all || step["namespace"] == *watch.namespace)
            {
                let _ = watch.lines.send(Ok(Bytes::from(line.clone())));
            }
        }
    }

    /// The requests since the last time, and the resources whose watches are open.
    fn seen(&self, answer: &mut Value) {
        let mut state = self.0.lock().unwrap();
        state.watches.retain(|watch| !watch.lines.is_closed());
        let mut watched: Vec<_> =
            state.watches.iter().map(|watch| watch.resource.clone()).collect();
        watched.sort();
        state.calls.sort();
        for (member, lines) in [("calls", std::mem::take(&mut state.calls)), ("watched", watched)] {
            if !lines.is_empty() {
                answer[member] = json!(lines);
            }
        }
    }
}

fn object(resource: &str, of: &Value) -> Value {
    let kind = match resource {
        "configmaps" => "ConfigMap",
        "secrets" => "Secret",
        _ => "Node",
    };
    let mut metadata = json!({"name": of["name"], "resourceVersion": of["rv"]});
    if let Some(namespace) = of.get("namespace") {
        metadata["namespace"] = namespace.clone();
    }
    json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})
}
