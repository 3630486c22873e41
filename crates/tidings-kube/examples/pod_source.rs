//! The kubelet's sources of Pods: the API server, and files for static Pods. A reflector for each feeds an `UndeltaStore`,
//! and a loop is told at each change which Pods a source wants.
//!
//! ```text
//! API server ─▶ ResourceApi ─▶ Reflector ─▶ UndeltaStore ─┐
//!                                                         ├▶ "these Pods, and no others" ─▶ sync loop
//! files ──────▶ LocalSource ─▶ Reflector ─▶ UndeltaStore ─┘
//! ```
//!
//! An informer would tell it adds, updates and deletes. The kubelet merges the Pods of several sources, each of which
//! says all that it wants: so a source is compared with what runs, and nothing has to be known of how it came about.
//! The kubelet is restarted at any time, too, and then has to find out from the state alone.
//!
//!     cargo run --example pod_source
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs,
    path::Path,
    sync::Arc,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Config, ResourceExt as _,
    api::{DeleteParams, PostParams},
    core::ApiResource,
};
use serde_json::{Value, json};
use tidings_kube::{
    client_without_retry,
    informer::UndeltaStore,
    reflector::{ListerWatcher, LocalSource, Reflector, ReflectorOptions, ResourceApi},
};
use tidings_testkit::api_server::{ApiServer, Options};
use tokio::{sync::mpsc, task::JoinHandle};

/// The node whose Pods these are: the API server sends no others.
const NODE: &str = "spec.nodeName=node-1";

/// The Pods that one source wants, and the source (the kubelet's `PodUpdate` of the kind SET).
type Set = (&'static str, Vec<Arc<Pod>>);

/// The kubelet's `syncLoop`, as far as it starts and stops Pods.
#[derive(Default)]
struct SyncLoop {
    running: BTreeMap<&'static str, BTreeSet<String>>,
}

impl SyncLoop {
    fn set(&mut self, (source, pods): Set) {
        let wanted: BTreeSet<String> = pods.iter().map(|pod| pod.name_any()).collect();
        let running = self.running.entry(source).or_default();
        for pod in wanted.difference(running) {
            println!("{source}: start {pod}");
        }
        for pod in running.difference(&wanted) {
            println!("{source}: stop {pod}");
        }
        *running = wanted;
    }
}

/// Has each change of a source told to the loop.
fn follow(
    name: &'static str,
    source: impl ListerWatcher,
    sets: mpsc::UnboundedSender<Set>,
) -> JoinHandle<()> {
    // Nobody listens any more when the program ends.
    let store = UndeltaStore::<Pod, _>::new(&source, move |pods| drop(sets.send((name, pods))));
    tokio::spawn(Reflector::new(source, store, ReflectorOptions::default()).run())
}

/// Makes the manifests of a directory the Pods of a source, as the kubelet does every 20 s.
fn read_manifests(dir: &Path, source: &LocalSource) -> Result<(), Box<dyn Error>> {
    let mut pods = Vec::new();
    for entry in fs::read_dir(dir)? {
        pods.push(serde_json::from_slice::<Value>(&fs::read(entry?.path())?)?);
    }
    Ok(source.replace(pods)?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = ApiServer::start(Options::default())?;
    let client = client_without_retry(Config::new(server.url().parse()?))?;
    let pods = Api::<Pod>::namespaced(client.clone(), "shop");
    for (name, node) in [("web-0", "node-1"), ("web-1", "node-2")] {
        pods.create(&PostParams::default(), &serde_json::from_value(pod(name, node))?).await?;
    }
    let manifests = tempfile::tempdir()?;

    let resource = ApiResource::erase::<Pod>(&());
    let files = LocalSource::new(&resource);
    let (sets, mut updates) = mpsc::unbounded_channel();
    let mut kubelet = SyncLoop::default();
    let mut next = async || updates.recv().await.ok_or("the reflectors have ended");

    let api = follow("api", ResourceApi::new(client, &resource).fields(NODE), sets.clone());
    kubelet.set(next().await?);
    let file = follow("file", files.clone(), sets);
    kubelet.set(next().await?);

    fs::write(manifests.path().join("proxy.json"), pod("proxy-node-1", "node-1").to_string())?;
    read_manifests(manifests.path(), &files)?;
    kubelet.set(next().await?);
    pods.create(&PostParams::default(), &serde_json::from_value(pod("web-2", "node-1"))?).await?;
    kubelet.set(next().await?);
    pods.delete("web-0", &DeleteParams::default()).await?;
    kubelet.set(next().await?);
    fs::remove_file(manifests.path().join("proxy.json"))?;
    read_manifests(manifests.path(), &files)?;
    kubelet.set(next().await?);
    api.abort();
    file.abort();
    Ok(())
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "app"}]},
    })
}
