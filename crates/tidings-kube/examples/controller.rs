//! A controller: it sees to it that ConfigMaps that want it carry an annotation with their size.
//!
//! ```text
//! API server ─▶ informer ─▶ handler ─▶ work queue ─▶ workers ─▶ API server
//!                  │         (keys)                    │
//!                  └────────────── store ◀─────────────┘
//! ```
//!
//! ```text
//! cargo run --example controller                       an API server in this process
//! cargo run --example controller -- --current-context  the cluster of your kubeconfig: ConfigMaps
//!                                                      with the label example.com/size=wanted, in
//!                                                      all namespaces, until Ctrl-C. Needs list,
//!                                                      watch and patch on configmaps
//! ```
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{error::Error, num::NonZeroUsize, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    core::ApiResource,
};
use serde_json::{Value, json};
use tidings_kube::{
    client_without_retry,
    informer::{HandlerFuncs, SharedInformer, Store},
    object::meta_namespace_key,
    reflector::ResourceApi,
    workqueue::{
        RateLimitingQueue,
        controller::{Action, run_workers},
    },
};
use tidings_testkit::api_server::{ApiServer, Fault, On, Options};
use tokio::sync::mpsc;

const ANNOTATION: &str = "example.com/size";
/// The API server sends only those, so the others cost neither bandwidth nor memory.
const SELECTOR: &str = "example.com/size=wanted";
const WORKERS: NonZeroUsize = NonZeroUsize::new(2).expect("more than none");

/// What a worker found, and did about it.
#[derive(Debug, PartialEq)]
enum Outcome {
    Wrote(usize),
    AsItShouldBe,
    Outdated,
    Gone,
}

struct Controller {
    client: Client,
    store: Store<ConfigMap>,
    outcomes: mpsc::UnboundedSender<(String, Outcome)>,
}

impl Controller {
    /// Makes the world as it should be, as far as this key goes. It is not told what has happened,
    /// and does not ask: it looks at what is. So it does not matter how many changes there were,
    /// whether one was missed while the program was down, or whether it is called once too often.
    async fn reconcile(&self, key: String) -> Result<Action, kube::Error> {
        let outcome = match self.store.get_by_key(&key) {
            // What we have made for it elsewhere would be removed now.
            None => Outcome::Gone,
            Some(map) => self.annotate(&map).await?,
        };
        // Nobody listens any more when the program ends.
        let _ = self.outcomes.send((key, outcome));
        Ok(Action::Done)
    }

    async fn annotate(&self, map: &ConfigMap) -> Result<Outcome, kube::Error> {
        let size = map.data.iter().flatten().map(|(name, value)| name.len() + value.len()).sum();
        // Our own write comes back to us as a change. Here is where that ends.
        if map.annotations().get(ANNOTATION) == Some(&usize::to_string(&size)) {
            return Ok(Outcome::AsItShouldBe);
        }
        // With the version that we have looked at: whoever has changed it since is not overruled.
        let patch = json!({"metadata": {
            "resourceVersion": map.resource_version(),
            "annotations": {ANNOTATION: size.to_string()},
        }});
        let maps =
            Api::<ConfigMap>::namespaced(self.client.clone(), &map.namespace().unwrap_or_default());
        match maps.patch(&map.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(Outcome::Wrote(size)),
            // The store is a little behind the API server. That is no error: what is new is on its
            // way, and brings the key again.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Outcome::Outdated),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Outcome::Gone),
            // Any other is: the key comes again, later and later, until it works.
            Err(error) => Err(error),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let in_cluster = std::env::args().any(|argument| argument == "--current-context");
    let server = ApiServer::start(Options::default())?;
    let config =
        if in_cluster { Config::infer().await? } else { Config::new(server.url().parse()?) };
    // Whoever tries again, and when, should be one: here the reflector and the work queue.
    let client = client_without_retry(config)?;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "shop");
    if !in_cluster {
        prepare(&server, &maps).await?;
    }

    let resource = ApiResource::erase::<ConfigMap>(&());
    let api = ResourceApi::new(client.clone(), &resource).labels(SELECTOR);
    let informer = SharedInformer::<ConfigMap>::builder(api).build();

    // 1. Whatever happens to an object puts its key on the queue. A key that is there already is
    //    not put there again, so a thousand changes in a second are one piece of work.
    let queue = RateLimitingQueue::default();
    let [added, updated, deleted] = std::array::from_fn(|_| queue.clone());
    informer.add_handler(
        HandlerFuncs::new()
            .on_add(move |map, _| added.add(meta_namespace_key(&**map)))
            .on_update(move |_, map| updated.add(meta_namespace_key(&**map)))
            .on_delete(move |map| deleted.add(map.key())),
    )?;

    // 2. The cache is filled. Without waiting for that, a worker would take what it has not seen
    //    yet for gone.
    let running = tokio::spawn({
        let informer = informer.clone();
        async move { informer.run().await }
    });
    informer.wait_for_cache_sync().await;

    // 3. Workers take keys. No key is with two of them, so nothing in `reconcile` needs a lock.
    let (outcomes, mut seen) = mpsc::unbounded_channel();
    let controller = Arc::new(Controller { client, store: informer.store(), outcomes });
    let workers = tokio::spawn(run_workers(queue.clone(), WORKERS, move |key: String| {
        let controller = Arc::clone(&controller);
        async move { controller.reconcile(key).await }
    }));

    if in_cluster {
        tokio::select! {
            () = print_all(&mut seen) => {}
            ctrl_c = tokio::signal::ctrl_c() => ctrl_c?,
        }
    } else {
        live(&maps, &mut seen).await?;
    }

    // 4. The other way round. What the workers have begun they finish.
    queue.shut_down_with_drain().await;
    let report = workers.await?;
    informer.shutdown().await;
    running.await??;
    println!("tried again after {} failure", report.failed);
    Ok(())
}

/// Two ConfigMaps, one of which has nothing to do with us, and an API server that is not well.
async fn prepare(server: &ApiServer, maps: &Api<ConfigMap>) -> kube::Result<()> {
    create(maps, "settings", json!({"example.com/size": "wanted"})).await?;
    create(maps, "other", json!({})).await?;
    server.fail_once(On::Write, Fault::InternalError);
    Ok(())
}

async fn create(maps: &Api<ConfigMap>, name: &str, labels: Value) -> kube::Result<()> {
    let map = json!({"metadata": {"name": name, "labels": labels}, "data": {"color": "blue"}});
    let map = serde_json::from_value(map).map_err(kube::Error::SerdeError)?;
    maps.create(&PostParams::default(), &map).await.map(drop)
}

/// What people do to ConfigMaps, and what our controller does about it.
async fn live(maps: &Api<ConfigMap>, seen: &mut Seen) -> kube::Result<()> {
    // It was there before we were. The first try fails.
    wait_for(seen, "shop/settings", Outcome::Wrote(9)).await;

    println!("-- somebody changes it");
    merge(maps, json!({"data": {"color": "dark blue"}})).await?;
    wait_for(seen, "shop/settings", Outcome::Wrote(14)).await;

    println!("-- somebody takes the annotation away");
    merge(maps, json!({"metadata": {"annotations": {ANNOTATION: null}}})).await?;
    wait_for(seen, "shop/settings", Outcome::Wrote(14)).await;

    println!("-- somebody deletes it");
    maps.delete("settings", &kube::api::DeleteParams::default()).await?;
    wait_for(seen, "shop/settings", Outcome::Gone).await;
    Ok(())
}

async fn merge(maps: &Api<ConfigMap>, patch: Value) -> kube::Result<()> {
    maps.patch("settings", &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

type Seen = mpsc::UnboundedReceiver<(String, Outcome)>;

async fn wait_for(seen: &mut Seen, key: &str, outcome: Outcome) {
    while let Some(next) = seen.recv().await {
        println!("{}: {:?}", next.0, next.1);
        if next.0 == key && next.1 == outcome {
            break;
        }
    }
}

async fn print_all(seen: &mut Seen) {
    while let Some((key, outcome)) = seen.recv().await {
        println!("{key}: {outcome:?}");
    }
}
