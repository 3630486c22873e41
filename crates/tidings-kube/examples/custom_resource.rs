//! Watching a custom resource: as a type of one's own that keeps what one needs of it, with an index
//! and a lister; and any other resource without a type.
//!
//! ```text
//! cargo run --example custom_resource                        backups.example.com, on an API server
//!                                                            in this process
//! cargo run --example custom_resource -- apps/v1 Deployment  that of the cluster of your kubeconfig,
//!                                                            until Ctrl-C. Needs list and watch
//! ```
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{collections::BTreeMap, error::Error, sync::Arc};

use kube::{
    Config,
    core::{ApiResource, DynamicObject, Expression, GroupVersionKind},
};
use serde::Deserialize;
use serde_json::json;
use tidings_kube::{
    client_without_retry,
    informer::{HandlerFuncs, Indexers, SharedInformer},
    object::{Object, meta_namespace_key},
    reflector::{Decode, ResourceApi},
};
use tidings_testkit::api_server::{ApiServer, Options, Resource};
use tokio::sync::mpsc;

/// What we need of a Backup. What else there is, now or in the next version of it, is skipped while
/// it is read and costs no memory.
#[derive(Deserialize)]
struct Backup {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Spec {
    database: String,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: String,
}

/// All that a cache has to know of an object. Types of `kube` and `k8s-openapi` have it already.
impl Object for Backup {
    fn namespace(&self) -> Option<&str> {
        Some(&self.metadata.namespace)
    }

    fn name(&self) -> &str {
        &self.metadata.name
    }

    fn uid(&self) -> Option<&str> {
        Some(&self.metadata.uid)
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.get(key).map(String::as_str)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match &*arguments {
        [] => backups().await,
        [api_version, kind] => anything(api_version, kind).await,
        _ => Err("either nothing, or an apiVersion and a kind".into()),
    }
}

async fn backups() -> Result<(), Box<dyn Error>> {
    let resource = Resource::new("example.com/v1", "backups", "Backup");
    let server = ApiServer::start(Options { resources: vec![resource], ..Options::default() })?;
    let backup = |namespace: &str, name: &str, database: &str, tier: &str| {
        json!({"apiVersion": "example.com/v1", "kind": "Backup",
            "metadata": {"name": name, "namespace": namespace, "labels": {"tier": tier}},
            "spec": {"database": database, "schedule": "@daily"}})
    };
    server.create_object(BACKUPS, backup("shop", "orders", "orders", "gold"))?;
    server.create_object(BACKUPS, backup("shop", "carts", "carts", "bronze"))?;
    server.create_object(BACKUPS, backup("audit", "orders-copy", "orders", "bronze"))?;

    let client = client_without_retry(Config::new(server.url().parse()?))?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Backup"));
    // An index answers what one would otherwise go through the whole store for. The function says
    // under which values an object is found: none, one or several.
    let of_database = |backup: &Backup| vec![backup.spec.database.clone()];
    let informer = SharedInformer::<Backup>::builder(ResourceApi::new(client, &resource))
        .indexers(Indexers::new().with("database", of_database))
        .build();

    let (say, mut said) = mpsc::unbounded_channel();
    let gone = say.clone();
    informer.add_handler(
        HandlerFuncs::new()
            .on_update(move |old: &Arc<Backup>, new| {
                let (name, from, to) = (new.name(), &old.status.phase, &new.status.phase);
                let _ = say.send(format!("{name}: from {from:?} to {to:?}"));
            })
            .on_delete(move |backup| {
                let _ = gone.send(format!("{} is gone", backup.key()));
            }),
    )?;
    let running = run(&informer);
    informer.wait_for_cache_sync().await;

    // A lister reads the cache, never the API server: by name, by namespace, by labels.
    let lister = informer.lister();
    let gold = lister.list(&Expression::Equal("tier".to_owned(), "gold".to_owned()).into());
    println!("gold: {}", names(&gold));
    println!("shop/carts is there: {}", lister.namespace("shop").get("carts").is_some());
    // And the store by its indexes.
    let store = informer.store();
    println!("of orders: {}", names(&store.by_index("database", "orders")?));

    let done = json!({"status": {"phase": "Succeeded"}});
    server.patch_object(BACKUPS, "shop", "orders", &done)?;
    println!("{}", said.recv().await.ok_or("no change came")?);
    server.delete_object(BACKUPS, "audit", "orders-copy")?;
    println!("{}", said.recv().await.ok_or("no change came")?);
    // The store is changed before the handlers are told, and its indexes with it.
    println!("of orders: {}", names(&store.by_index("database", "orders")?));

    informer.shutdown().await;
    running.await??;
    Ok(())
}

/// Its name in the API: the plural, and the group.
const BACKUPS: &str = "backups.example.com";

fn names(backups: &[Arc<Backup>]) -> String {
    let mut names: Vec<_> = backups.iter().map(|backup| meta_namespace_key(&**backup)).collect();
    names.sort_unstable();
    names.join(", ")
}

/// A type that one does not have at compile time: the whole object, as JSON with typed metadata.
async fn anything(api_version: &str, kind: &str) -> Result<(), Box<dyn Error>> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    // It guesses the plural as English has it; `kube::discovery` would ask the API server.
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let client = client_without_retry(Config::infer().await?)?;
    let api = ResourceApi::new(client, &resource);
    let informer = SharedInformer::<DynamicObject>::builder(api)
        // What one does not look at need not be kept.
        .transform(|mut object| {
            object.metadata.managed_fields = None;
            Ok(object)
        })
        .build();
    informer.add_handler(
        HandlerFuncs::new()
            .on_add(|object, _| println!("added   {}", meta_namespace_key(&**object)))
            .on_update(|_, object| println!("changed {}", meta_namespace_key(&**object)))
            .on_delete(|object| println!("deleted {}", object.key())),
    )?;
    let running = run(&informer);
    tokio::signal::ctrl_c().await?;
    informer.shutdown().await;
    running.await??;
    Ok(())
}

type Run = tokio::task::JoinHandle<Result<(), tidings_kube::informer::AlreadyStarted>>;

fn run<K: Decode>(informer: &SharedInformer<K>) -> Run {
    let informer = informer.clone();
    tokio::spawn(async move { informer.run().await })
}
