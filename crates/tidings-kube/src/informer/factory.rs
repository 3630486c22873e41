//! The informers of a program, one for each type (client-go `SharedInformerFactory`).

use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::{BoxFuture, join_all};
use k8s_openapi::ClusterResourceScope;
use kube::{
    Client, Resource,
    core::{ApiResource, DynamicObject},
};
use tokio::task::JoinSet;

use super::{builder::Builder, shared::SharedInformer, sync::Synced};
use crate::{
    object::Metadata,
    reflector::{Decode, ResourceApi},
};

type Tweak = Arc<dyn Fn(ResourceApi) -> ResourceApi + Send + Sync>;

/// Makes each informer once, and starts and stops all of them together.
///
/// Whoever asks for the informer of a type gets the same one, so a program holds one watch and one
/// cache of it however many of its parts look at them. Dropping the factory ends all that it
/// started.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::{Node, Pod};
/// use tidings_kube::{
///     informer::{HandlerFuncs, SharedInformerFactory},
///     object::meta_namespace_key,
/// };
///
/// # async fn run(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let factory = SharedInformerFactory::new(client);
/// let (pods, nodes) = (factory.informer::<Pod>(), factory.informer::<Node>());
/// pods.add_handler(
///     HandlerFuncs::new().on_add(|pod, _| println!("{}", meta_namespace_key(&**pod))),
/// )?;
/// factory.start();
/// assert!(factory.wait_for_cache_sync().await.iter().all(|cache| cache.synced));
/// println!("{} nodes", nodes.store().list().len());
/// factory.shutdown().await;
/// # Ok(())
/// # }
/// ```
pub struct SharedInformerFactory {
    client: Client,
    namespace: String,
    resync: Duration,
    tweak: Option<Tweak>,
    informers: Mutex<Informers>,
}

#[derive(Default)]
struct Informers {
    /// By what the objects are decoded to, and what is asked for.
    all: HashMap<(TypeId, ApiResource), Entry>,
    runs: JoinSet<()>,
    shut_down: bool,
}

impl Informers {
    fn get<K: Decode>(&self, key: &(TypeId, ApiResource)) -> Option<SharedInformer<K>> {
        let known: &dyn Any = &*self.all.get(key)?.informer;
        known.downcast_ref::<SharedInformer<K>>().cloned()
    }
}

struct Entry {
    informer: Arc<dyn AnyInformer>,
    started: bool,
}

/// Whether the cache of one started informer is synced; see
/// [`SharedInformerFactory::wait_for_cache_sync`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSync {
    /// What it lists and watches.
    pub resource: ApiResource,
    /// The Rust type of its objects.
    pub object: &'static str,
    /// Whether it is synced. If not, it was stopped first.
    pub synced: bool,
}

/// An informer of whatever type.
trait AnyInformer: Any + Send + Sync {
    fn run(self: Arc<Self>) -> BoxFuture<'static, ()>;
    fn shutdown(self: Arc<Self>) -> BoxFuture<'static, ()>;
    fn synced(&self) -> Synced;
    fn object(&self) -> &'static str;
}

impl<K: Decode> AnyInformer for SharedInformer<K> {
    fn run(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // Somebody else may run it: that serves as well.
            let _ = SharedInformer::run(&self).await;
        })
    }

    fn shutdown(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { SharedInformer::shutdown(&self).await })
    }

    fn synced(&self) -> Synced {
        SharedInformer::synced(self)
    }

    fn object(&self) -> &'static str {
        type_name::<K>()
    }
}

impl SharedInformerFactory {
    /// Makes informers for all namespaces, without resync. The client's own retry should be off:
    /// it hides failures from the reflectors' back-off.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            namespace: String::new(),
            resync: Duration::ZERO,
            tweak: None,
            informers: Mutex::default(),
        }
    }

    /// Only objects of this namespace, of those types that have one. A resource that is known only
    /// by its [`ApiResource`] is taken to have one.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// The informers' resync check period, and that of handlers that name none.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = period;
        self
    }

    /// Changes what each informer asks the API server for: selectors, above all (client-go
    /// `WithTweakListOptions`).
    #[must_use]
    pub fn tweak(
        mut self,
        tweak: impl Fn(ResourceApi) -> ResourceApi + Send + Sync + 'static,
    ) -> Self {
        self.tweak = Some(Arc::new(tweak));
        self
    }

    /// The informer of a type.
    pub fn informer<K>(&self) -> SharedInformer<K>
    where
        K: Decode + Resource<DynamicType = (), Scope: 'static>,
    {
        self.informer_with(|builder| builder)
    }

    /// The informer of a type, and how it is set up if this is the first that asks for it: indexes,
    /// a transformer, an error handler.
    pub fn informer_with<K>(
        &self,
        set_up: impl FnOnce(Builder<K>) -> Builder<K>,
    ) -> SharedInformer<K>
    where
        K: Decode + Resource<DynamicType = (), Scope: 'static>,
    {
        let whole_cluster = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
        let namespace = if whole_cluster { "" } else { &*self.namespace };
        let api = self.api(&ApiResource::erase::<K>(&()), namespace);
        self.informer_of(api, set_up)
    }

    /// The informer of a resource that there is no Rust type for.
    pub fn informer_for(&self, resource: &ApiResource) -> SharedInformer<DynamicObject> {
        self.informer_of(self.api(resource, &self.namespace), |builder| builder)
    }

    /// The informer of a resource's metadata alone, which costs a fraction of the objects' memory.
    pub fn metadata_informer_for(&self, resource: &ApiResource) -> SharedInformer<Metadata> {
        let api = self.api(resource, &self.namespace).metadata_only();
        self.informer_of(api, |builder| builder)
    }

    fn api(&self, resource: &ApiResource, namespace: &str) -> ResourceApi {
        let api = ResourceApi::new(self.client.clone(), resource).namespace(namespace);
        match &self.tweak {
            Some(tweak) => tweak(api),
            None => api,
        }
    }

    fn informers(&self) -> MutexGuard<'_, Informers> {
        self.informers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn informer_of<K: Decode>(
        &self,
        api: ResourceApi,
        set_up: impl FnOnce(Builder<K>) -> Builder<K>,
    ) -> SharedInformer<K> {
        let key = (TypeId::of::<K>(), api.resource().clone());
        if let Some(known) = self.informers().get(&key) {
            return known;
        }
        // Not under the lock: the set-up may ask for another informer.
        let builder = SharedInformer::builder(api).resync_check_period(self.resync);
        let informer = set_up(builder).build();
        let mut informers = self.informers();
        // Somebody else may have been faster.
        if let Some(known) = informers.get(&key) {
            return known;
        }
        let entry = Entry { informer: Arc::new(informer.clone()), started: false };
        informers.all.insert(key, entry);
        informer
    }

    /// Starts every informer that was asked for and is not started yet, on the runtime of the
    /// caller. After [`shutdown`](Self::shutdown) it starts none.
    pub fn start(&self) {
        let mut informers = self.informers();
        let Informers { all, runs, shut_down } = &mut *informers;
        for entry in all.values_mut().filter(|entry| !*shut_down && !entry.started) {
            entry.started = true;
            runs.spawn(Arc::clone(&entry.informer).run());
        }
    }

    /// Waits until every informer that is started has synced or was stopped; in the order of their
    /// resources' names.
    pub async fn wait_for_cache_sync(&self) -> Vec<CacheSync> {
        let waits: Vec<_> = {
            let informers = self.informers();
            let started = informers.all.iter().filter(|(_, entry)| entry.started);
            started
                .map(|((_, resource), entry)| {
                    let (resource, object) = (resource.clone(), entry.informer.object());
                    let synced = entry.informer.synced();
                    async move { CacheSync { resource, object, synced: synced.wait().await } }
                })
                .collect()
        };
        let mut caches = join_all(waits).await;
        caches.sort_by_cached_key(|cache| {
            let ApiResource { group, plural, .. } = &cache.resource;
            (plural.clone(), group.clone(), cache.object)
        });
        caches
    }

    /// Stops every informer that was started, and waits until none of them and of their handlers
    /// runs any more.
    pub async fn shutdown(&self) {
        let stops: Vec<_> = {
            let mut informers = self.informers();
            informers.shut_down = true;
            let started = informers.all.values().filter(|entry| entry.started);
            started.map(|entry| Arc::clone(&entry.informer).shutdown()).collect()
        };
        join_all(stops).await;
    }
}
