//! Handlers that write down what they are told, and an informer that runs.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ApiResource;
use tidings_kube::{
    informer::{DeltaObject, InformerBuilder, ResourceEventHandler, SharedInformer},
    object::{Object, meta_namespace_key},
    reflector::ResourceApi,
};
use tokio::{task::JoinHandle, time::sleep};

use super::memory::MemoryServer;

pub(crate) fn config_maps(server: &MemoryServer) -> ResourceApi {
    ResourceApi::new(server.client(), &ApiResource::erase::<ConfigMap>(&()))
}

pub(crate) fn builder(server: &MemoryServer) -> InformerBuilder<ConfigMap> {
    SharedInformer::builder(config_maps(server))
}

pub(crate) fn spawn(informer: &SharedInformer<ConfigMap>) -> JoinHandle<()> {
    let informer = informer.clone();
    tokio::spawn(async move { informer.run().await.unwrap() })
}

/// Until nothing can go on without more time than this.
pub(crate) async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

/// "ns/name@version" of each object, in order.
pub(crate) fn stored(informer: &SharedInformer<ConfigMap>) -> Vec<String> {
    let mut all: Vec<_> = informer.store().list().iter().map(|object| at(object)).collect();
    all.sort();
    all
}

fn at(object: &ConfigMap) -> String {
    format!("{}@{}", meta_namespace_key(object), object.resource_version())
}

/// What one handler was told, a line for each call: "add ns/a@1 initial", "update ns/a@1 to ns/a@2",
/// "delete ns/a@2", "delete tombstone ns/a@2".
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// A handler that writes here.
    pub(crate) fn handler(&self) -> Writer {
        Writer { told: self.clone(), takes: Duration::ZERO, panics_on: None }
    }

    /// How many handlers that write here there are, dropped ones left out.
    pub(crate) fn handlers(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

pub(crate) struct Writer {
    told: Told,
    takes: Duration,
    panics_on: Option<&'static str>,
}

impl Writer {
    /// Each call takes so long before it is written down.
    pub(crate) fn takes(mut self, takes: Duration) -> Self {
        self.takes = takes;
        self
    }

    pub(crate) fn panics_on(mut self, line: &'static str) -> Self {
        self.panics_on = Some(line);
        self
    }

    async fn write(&self, line: String) {
        if !self.takes.is_zero() {
            sleep(self.takes).await;
        }
        assert!(self.panics_on != Some(&*line), "as it was told to");
        self.told.0.lock().unwrap().push(line);
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
        let tombstone = if object.is_tombstone() { "tombstone " } else { "" };
        let object = object.object().map_or_else(|| object.key(), |object| at(object));
        self.write(format!("delete {tombstone}{object}")).await;
    }
}
