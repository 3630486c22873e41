//! Why the kubelet uses an `UndeltaStore`, and a controller an informer.
//!
//! ```text
//! API server ─▶ reflector ─▶ UndeltaStore ──┐ all Pods of the API server
//!                                           ├─▶ the Pods there should be ─▶ what to start and stop
//! directory ──▶ reflector ─▶ UndeltaStore ──┘ all Pods of the directory
//! ```
//!
//! The kubelet has its Pods from several sources, and runs their union. Each says "these are all my Pods now",
//! and the difference to the Pods that run says what is to be done. So it does not matter which change
//! has led there, whether several became one, or whether one was missed; nothing has to be remembered of a
//! deletion. An informer would tell changes of each source, and the kubelet would have to put the states
//! together again from those. It has no use for the rest of one either: nobody else listens, nobody asks for
//! an index, and a hundred Pods are quickly told.
//!
//! A controller is the other way round: of thousands of objects it wants to know the one that has changed, and
//! shares the cache with others.
//!
//! ```text
//! cargo run -p kube-machinery --example static_pods      an API server in this process, a directory of its own
//! ```
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Config,
    api::{DeleteParams, PostParams},
    core::ApiResource,
};
use kube_machinery::cache::{
    Answer, Call, ListOptions, ListWatchError, ListerWatcher, Reflector, ReflectorOptions,
    ResourceApi, UndeltaStore, WatchOptions, meta_namespace_key,
};
use kube_testkit::api_server::{ApiServer, Options};
use serde_json::json;
use tokio::sync::mpsc;

/// How often the directory is looked at. The kubelet does so every 20 s, and is woken by inotify.
const LOOK: Duration = Duration::from_millis(20);

/// The manifests of a directory as a source. It has no history: when anything has changed the watch ends
/// with "expired", and all is listed again. The resourceVersion is what a list has found.
struct Manifests {
    directory: PathBuf,
    pods: ApiResource,
}

impl Manifests {
    /// The manifests, in the order of their names.
    fn read(directory: &Path) -> io::Result<Vec<Vec<u8>>> {
        let entries = fs::read_dir(directory)?.map(|entry| Ok(entry?.path()));
        let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        paths.into_iter().map(fs::read).collect()
    }

    fn version(manifests: &[Vec<u8>]) -> String {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        manifests.hash(&mut hasher);
        hasher.finish().to_string()
    }
}

impl ListerWatcher for Manifests {
    fn resource(&self) -> &ApiResource {
        &self.pods
    }

    async fn list(&self, _: &ListOptions) -> Result<Answer, ListWatchError> {
        let failed = |error| ListWatchError::transport(Call::new("list", &self.pods), &error);
        let manifests = Self::read(&self.directory).map_err(failed)?;
        Answer::list(&self.pods, &manifests, &Self::version(&manifests))
    }

    async fn watch(&self, options: &WatchOptions) -> Result<Answer, ListWatchError> {
        let (directory, known) = (self.directory.clone(), options.resource_version.clone());
        let call = Call::new("watch", &self.pods);
        let changed = async move {
            loop {
                match Self::read(&directory) {
                    Ok(manifests) if Self::version(&manifests) == known => {}
                    Ok(_) => return Err(ListWatchError::expired(call)),
                    Err(error) => return Err(ListWatchError::transport(call, &error)),
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        Ok(Answer::watch(&self.pods, stream::once(changed).boxed()))
    }
}

/// A source's statement: its name, and all of its Pods.
type State = (&'static str, BTreeSet<String>);

/// Has a source say all of its Pods each time that they change.
fn follow(name: &'static str, source: impl ListerWatcher, states: &mpsc::UnboundedSender<State>) {
    let states = states.clone();
    let store = UndeltaStore::<Pod>::new(move |all: Vec<Arc<Pod>>| {
        let pods = all.iter().map(|pod| meta_namespace_key(&**pod)).collect();
        // Nobody listens any more when the program ends.
        let _ = states.send((name, pods));
    });
    let options = ReflectorOptions { name: name.to_owned(), ..ReflectorOptions::default() };
    tokio::spawn(Reflector::for_objects(source, store, options).run());
}

/// The Pods that run, and those of each source.
#[derive(Default)]
struct Kubelet {
    wanted: BTreeMap<&'static str, BTreeSet<String>>,
    running: BTreeSet<String>,
}

impl Kubelet {
    /// Takes what a source says, and does what follows.
    fn sync(&mut self, (source, pods): State) {
        self.wanted.insert(source, pods);
        if self.wanted.len() < 2 {
            // Before each source has said something, a Pod that nobody wants may be one of the other's.
            return;
        }
        let wanted: BTreeSet<_> = self.wanted.values().flatten().cloned().collect();
        for pod in wanted.difference(&self.running) {
            println!("start {pod}");
        }
        for pod in self.running.difference(&wanted) {
            println!("stop {pod}");
        }
        self.running = wanted;
    }

    async fn until(&mut self, states: &mut mpsc::UnboundedReceiver<State>, running: &[&str]) {
        while !self.running.iter().eq(running) {
            let Some(state) = states.recv().await else { return };
            self.sync(state);
        }
    }
}

fn manifest(name: &str) -> Result<Pod, serde_json::Error> {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "kube-system", "name": name},
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
    }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let (server, directory) = (ApiServer::start(Options::default())?, tempfile::tempdir()?);
    let client = kube_machinery::client_without_retry(Config::new(server.url().parse()?))?;
    let api = Api::<Pod>::namespaced(client.clone(), "kube-system");
    let file = |name: &str| directory.path().join(name).with_extension("json");
    let write = |name: &str| fs::write(file(name), serde_json::to_vec_pretty(&manifest(name)?)?);
    write("etcd")?;

    let pods = ApiResource::erase::<Pod>(&());
    let (say, mut states) = mpsc::unbounded_channel();
    follow("api", ResourceApi::new(client, &pods).namespace("kube-system"), &say);
    follow("file", Manifests { directory: directory.path().to_owned(), pods }, &say);
    let mut kubelet = Kubelet::default();
    kubelet.until(&mut states, &["kube-system/etcd"]).await;

    println!("-- the API server gives the node a Pod");
    api.create(&PostParams::default(), &manifest("proxy")?).await?;
    kubelet.until(&mut states, &["kube-system/etcd", "kube-system/proxy"]).await;

    println!("-- somebody puts a manifest in the place of another");
    fs::remove_file(file("etcd"))?;
    write("scheduler")?;
    kubelet.until(&mut states, &["kube-system/proxy", "kube-system/scheduler"]).await;

    println!("-- the API server takes its Pod away");
    api.delete("proxy", &DeleteParams::default()).await?;
    kubelet.until(&mut states, &["kube-system/scheduler"]).await;
    Ok(())
}
