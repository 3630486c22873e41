//! The kubelet's source of Pods: a reflector over the Pods of one node that feeds an `UndeltaStore`, and a loop that
//! is told at each change which Pods there are to be.
//!
//! ```text
//! API server ─▶ Reflector ─▶ UndeltaStore ─▶ "these Pods, and no others" ─▶ sync loop
//! ```
//!
//! An informer would tell it adds, updates and deletes. The kubelet merges the Pods of several sources (the API server,
//! files, a URL), each of which says all that it wants: so a source is compared with what runs, and nothing has to be
//! known of how it came about. It is restarted at any time, too, and then has to find out from the state alone.
//!
//!     cargo run --example pod_source
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{collections::BTreeSet, error::Error, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Config, ResourceExt as _,
    api::{DeleteParams, PostParams},
    core::ApiResource,
};
use serde_json::json;
use tidings_kube::{
    client_without_retry,
    informer::UndeltaStore,
    reflector::{Reflector, ReflectorOptions, ResourceApi},
};
use tidings_testkit::api_server::{ApiServer, Options};
use tokio::sync::mpsc;

/// The node whose Pods these are: the API server sends no others.
const NODE: &str = "spec.nodeName=node-1";

/// What the kubelet's `syncLoop` does with an update of the kind SET.
#[derive(Default)]
struct SyncLoop {
    running: BTreeSet<String>,
}

impl SyncLoop {
    fn set(&mut self, pods: &[Arc<Pod>]) {
        let wanted: BTreeSet<String> = pods.iter().map(|pod| pod.name_any()).collect();
        for pod in wanted.difference(&self.running) {
            println!("start {pod}");
        }
        for pod in self.running.difference(&wanted) {
            println!("stop {pod}");
        }
        self.running = wanted;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = ApiServer::start(Options::default())?;
    let client = client_without_retry(Config::new(server.url().parse()?))?;
    let pods = Api::<Pod>::namespaced(client.clone(), "shop");
    for (name, node) in [("web-0", "node-1"), ("web-1", "node-2")] {
        pods.create(&PostParams::default(), &pod(name, node)?).await?;
    }

    let api = ResourceApi::new(client, &ApiResource::erase::<Pod>(&())).fields(NODE);
    let (sets, mut updates) = mpsc::unbounded_channel();
    // Nobody listens any more when the program ends.
    let store = UndeltaStore::<Pod, _>::new(&api, move |pods| drop(sets.send(pods)));
    let following = tokio::spawn(Reflector::new(api, store, ReflectorOptions::default()).run());

    let mut kubelet = SyncLoop::default();
    let mut next = async || updates.recv().await.ok_or("the reflector has ended");
    kubelet.set(&next().await?);
    pods.create(&PostParams::default(), &pod("web-2", "node-1")?).await?;
    kubelet.set(&next().await?);
    pods.delete("web-0", &DeleteParams::default()).await?;
    kubelet.set(&next().await?);
    following.abort();
    Ok(())
}

fn pod(name: &str, node: &str) -> Result<Pod, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "app"}]},
    }))
}
