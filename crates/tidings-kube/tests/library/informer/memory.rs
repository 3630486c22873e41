//! The API server of the test kit, reached in memory, so that it works in paused time.

use std::{ops::Deref, sync::Arc, time::Duration};

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tidings_testkit::api_server::{ApiServer, Fault, On, Options, StreamFault, Verb};

const CONFIG_MAPS: &str = "configmaps";

/// Clones are the same server. Its first write makes the version 1. A bookmark comes only before a
/// watch times out.
#[derive(Clone)]
pub(crate) struct MemoryServer(Arc<ApiServer>);

impl Deref for MemoryServer {
    type Target = ApiServer;

    fn deref(&self) -> &ApiServer {
        &self.0
    }
}

impl MemoryServer {
    pub(crate) fn start() -> Self {
        let bookmark_every = Duration::from_hours(1000);
        let options =
            Options { revision: 0, managed_fields: false, bookmark_every, ..Options::default() };
        Self(Arc::new(ApiServer::start(options).unwrap()))
    }

    /// A client of it, which tries nothing again by itself.
    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let stream = TokioIo::new(server.connect());
            async move {
                let (mut sender, connection) = http1::handshake(stream).await?;
                tokio::spawn(connection);
                sender.send_request(request).await
            }
        });
        Client::new(service, "default")
    }

    /// Creates or updates a config map, to another than it was.
    pub(crate) fn put(&self, key: &str, value: u64) {
        let (value, change) = (value.to_string(), self.revision().to_string());
        self.put_data(key, &json!({"value": value, "change": change}));
    }

    /// The same for one that cannot be read.
    pub(crate) fn put_broken(&self, key: &str) {
        self.put_data(key, &self.revision().into());
    }

    fn put_data(&self, key: &str, data: &Value) {
        let (namespace, name) = key.split_once('/').unwrap();
        let metadata = json!({"namespace": namespace, "name": name, "labels": {"app": name}});
        let object = json!({"metadata": metadata, "data": data});
        if self.replace_object(CONFIG_MAPS, object.clone()).is_err() {
            self.create_object(CONFIG_MAPS, object).unwrap();
        }
    }

    /// Deletes a config map, if it is there.
    pub(crate) fn delete(&self, key: &str) {
        let (namespace, name) = key.split_once('/').unwrap();
        let _ = self.delete_object(CONFIG_MAPS, namespace, name);
    }

    /// The next requests fail.
    pub(crate) fn fail(&self, requests: u32) {
        self.set_fault(On::Any, Some(requests), Fault::Unavailable);
    }

    /// Ends every open watch.
    pub(crate) fn cut(&self) {
        self.cut_watches(CONFIG_MAPS);
    }

    /// Says on the next watch, after so many changes, that these were deleted, and cannot be read.
    pub(crate) fn say_deleted(&self, after: usize, keys: &[&str]) {
        let line = |key: &&str| {
            let (namespace, name) = key.split_once('/').unwrap();
            let metadata = json!({"namespace": namespace, "name": name, "resourceVersion": "9"});
            json!({"type": "DELETED", "object": {"metadata": metadata, "data": 7}}).to_string()
        };
        let lines = keys.iter().map(line).collect::<Vec<_>>().join("\n");
        self.fail_once(On::Watch, Fault::Stream { after, then: StreamFault::Line(lines) });
    }

    /// Forgets the history: who is not up to date has to list.
    pub(crate) fn compact(&self) {
        // A watch from the version before the compaction is served.
        self.skip_revisions(1);
        self.0.compact(self.revision());
    }

    /// Ends every open watch, and tells the next one that its version is too old.
    pub(crate) fn expire(&self) {
        let expired = Fault::Stream { after: 0, then: StreamFault::Expired };
        self.fail_once(On::Watch.of(CONFIG_MAPS), expired);
        self.cut();
    }

    /// "ns/name@version" of each config map.
    pub(crate) fn versions(&self) -> Vec<String> {
        let at = |object: &Value| {
            let text = |member: &str| object["metadata"][member].as_str().unwrap().to_owned();
            format!("{}/{}@{}", text("namespace"), text("name"), text("resourceVersion"))
        };
        self.objects(CONFIG_MAPS).iter().map(at).collect()
    }

    /// How often config maps were listed.
    pub(crate) fn lists(&self) -> u64 {
        self.request_count(Verb::List, CONFIG_MAPS)
    }
}
