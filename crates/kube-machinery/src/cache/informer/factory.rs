//! The informers of a program, one for each type (client-go `SharedInformerFactory`).

use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
    error::Error,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, join_all},
};
use k8s_openapi::ClusterResourceScope;
use kube::{
    Client, Config, Resource,
    core::{ApiResource, DynamicObject},
};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use super::{builder::Builder, decode::Decode, shared::SharedInformer, sync::Synced};
use crate::{
    cache::{ListerWatcher as _, Metadata, Object, ResourceApi},
    panics,
};

type Tweak = Arc<dyn Fn(ResourceApi) -> ResourceApi + Send + Sync>;
type SetUp<K> = Box<dyn Fn(Builder<K>) -> Builder<K> + Send + Sync>;
type Transform =
    Arc<dyn Fn(&mut dyn Object) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync>;

/// Makes each informer once, and starts and stops all of them together.
///
/// Whoever asks for the informer of a type gets the same one, so a program holds one watch and one
/// cache of it however many of its parts look at them. Dropping the factory ends all that it
/// started.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::{Node, Pod};
/// use kube_machinery::cache::{HandlerFuncs, SharedInformerFactory, meta_namespace_key};
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
    transform: Option<Transform>,
    /// By type, the `SetUp` of its informers.
    set_ups: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
    informers: Mutex<Informers>,
    failed: watch::Sender<Option<InformerFailed>>,
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
#[non_exhaustive]
pub struct CacheSync {
    /// The resource that it lists and watches.
    pub resource: ApiResource,
    /// The Rust type of its objects.
    pub object: &'static str,
    /// Whether it is synced and kept up. If not, it was stopped or [has failed](InformerFailed).
    pub synced: bool,
}

/// An informer of a factory has ended though nobody told it to: code of the program that it cannot do
/// without, such as the reading of its type, has panicked. Its cache is not kept up any more. In Go
/// that ends the program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer of {} has ended: {panic}", resource.plural)]
#[non_exhaustive]
pub struct InformerFailed {
    /// The resource that it listed and watched.
    pub resource: ApiResource,
    /// The Rust type of its objects.
    pub object: &'static str,
    /// The panic's message.
    pub panic: String,
}

/// The informer of this type is there already, so it cannot be set up any more. An index can be added to
/// it at any time: `informer.store().add_indexers(…)`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer of {} is set up already: add indexes to its store, or set it up where it is first asked for", .0.plural)]
pub struct AlreadySetUp(pub ApiResource);

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
    /// Makes informers for all namespaces, without resync, with a client for this configuration that
    /// [does not try again by itself](crate::client_without_retry).
    ///
    /// # Errors
    ///
    /// As [`Client::try_from`].
    pub fn for_config(config: Config) -> kube::Result<Self> {
        Ok(Self::new(crate::client_without_retry(config)?))
    }

    /// The same, with a client. Its own retry should be off: it hides failures from the reflectors'
    /// back-off, from the watch error handlers and from the informers' health.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            namespace: String::new(),
            resync: Duration::ZERO,
            tweak: None,
            transform: None,
            set_ups: HashMap::new(),
            informers: Mutex::default(),
            failed: watch::Sender::default(),
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

    /// Changes each object of every informer before anybody sees it, as
    /// [`InformerBuilder::transform`](Builder::transform) does for one (client-go `WithTransform`). The
    /// transformer of a type's [`set_up`](Self::set_up), or of whoever asks for an informer first, takes its
    /// place.
    ///
    /// ```
    /// # use std::any::Any;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kube_machinery::cache::{Object, SharedInformerFactory};
    /// # fn set_up(factory: SharedInformerFactory) -> SharedInformerFactory {
    /// factory.transform(|object: &mut dyn Object| {
    ///     if let Some(metadata) = object.metadata_mut() {
    ///         metadata.managed_fields = None;
    ///     }
    ///     if let Some(pod) = (object as &mut dyn Any).downcast_mut::<Pod>() {
    ///         pod.spec = None;
    ///     }
    ///     Ok(())
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn transform(
        mut self,
        transform: impl Fn(&mut dyn Object) -> Result<(), Box<dyn Error + Send + Sync>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.transform = Some(Arc::new(transform));
        self
    }

    /// Sets up every informer of a type, whoever asks for it first: with a transformer, a resync period of its
    /// own, a page size. Those of resources without a Rust type are of the type [`DynamicObject`] or
    /// [`Metadata`]. client-go's `WithCustomResyncConfig`, and more.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use k8s_openapi::api::core::v1::{Node, Pod};
    /// # use kube_machinery::cache::{SharedInformerFactory, without_managed_fields};
    /// # fn set_up(factory: SharedInformerFactory) -> SharedInformerFactory {
    /// factory
    ///     .set_up::<Pod>(|pods| pods.transform(without_managed_fields))
    ///     .set_up::<Node>(|nodes| nodes.resync_check_period(Duration::from_secs(600)))
    /// # }
    /// ```
    #[must_use]
    pub fn set_up<K: Decode>(
        mut self,
        set_up: impl Fn(Builder<K>) -> Builder<K> + Send + Sync + 'static,
    ) -> Self {
        let set_up: SetUp<K> = Box::new(set_up);
        self.set_ups.insert(TypeId::of::<K>(), Box::new(set_up));
        self
    }

    /// The informer of a type.
    pub fn informer<K>(&self) -> SharedInformer<K>
    where
        K: Decode + Resource<DynamicType = (), Scope: 'static>,
    {
        self.informer_of(self.api_of::<K>(), |builder| builder).0
    }

    /// The informer of a type, set up with indexes, a transformer or an error handler by whoever asks
    /// first.
    ///
    /// # Errors
    ///
    /// Somebody has asked for it before, so it is as they wanted it.
    pub fn informer_with<K>(
        &self,
        set_up: impl FnOnce(Builder<K>) -> Builder<K>,
    ) -> Result<SharedInformer<K>, AlreadySetUp>
    where
        K: Decode + Resource<DynamicType = (), Scope: 'static>,
    {
        let api = self.api_of::<K>();
        let resource = api.resource().clone();
        match self.informer_of(api, set_up) {
            (informer, true) => Ok(informer),
            (_, false) => Err(AlreadySetUp(resource)),
        }
    }

    fn api_of<K>(&self) -> ResourceApi
    where
        K: Decode + Resource<DynamicType = (), Scope: 'static>,
    {
        let whole_cluster = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
        let namespace = if whole_cluster { "" } else { &*self.namespace };
        self.api(&ApiResource::erase::<K>(&()), namespace)
    }

    /// The informer of a resource that there is no Rust type for.
    pub fn informer_for(&self, resource: &ApiResource) -> SharedInformer<DynamicObject> {
        self.informer_of(self.api(resource, &self.namespace), |builder| builder).0
    }

    /// The informer of a resource's metadata alone, which costs a fraction of the objects' memory.
    pub fn metadata_informer_for(&self, resource: &ApiResource) -> SharedInformer<Metadata> {
        let api = self.api(resource, &self.namespace).metadata_only();
        self.informer_of(api, |builder| builder).0
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

    /// The informer, and whether it was made now.
    fn informer_of<K: Decode>(
        &self,
        api: ResourceApi,
        set_up: impl FnOnce(Builder<K>) -> Builder<K>,
    ) -> (SharedInformer<K>, bool) {
        let key = (TypeId::of::<K>(), api.resource().clone());
        if let Some(known) = self.informers().get(&key) {
            return (known, false);
        }
        // Not under the lock: the set-up may ask for another informer.
        let builder = SharedInformer::builder(api).resync_check_period(self.resync);
        let builder = match self.transform.clone() {
            Some(transform) => {
                builder.transform(move |mut object: K| transform(&mut object).map(|()| object))
            }
            None => builder,
        };
        let ours = self.set_ups.get(&TypeId::of::<K>());
        let builder = match ours.and_then(|ours| ours.downcast_ref::<SetUp<K>>()) {
            Some(ours) => ours(builder),
            None => builder,
        };
        let informer = set_up(builder).build();
        let mut informers = self.informers();
        // Somebody else may have been faster.
        if let Some(known) = informers.get(&key) {
            return (known, false);
        }
        if informers.shut_down {
            // It never starts, and whoever waits for it is to know.
            informer.stop();
        }
        let entry = Entry { informer: Arc::new(informer.clone()), started: false };
        informers.all.insert(key, entry);
        (informer, true)
    }

    /// Starts every informer that was asked for and is not started yet, on the runtime of the
    /// caller. After [`shutdown`](Self::shutdown) it starts none.
    pub fn start(&self) {
        let mut informers = self.informers();
        let Informers { all, runs, shut_down } = &mut *informers;
        for ((_, resource), entry) in all.iter_mut() {
            if *shut_down || entry.started {
                continue;
            }
            entry.started = true;
            let (informer, failed) = (Arc::clone(&entry.informer), self.failed.clone());
            let (resource, object) = (resource.clone(), entry.informer.object());
            runs.spawn(async move {
                let Err(panic) = AssertUnwindSafe(informer.run()).catch_unwind().await else {
                    return;
                };
                let panic = panics::message(&*panic).to_owned();
                let ended = InformerFailed { resource, object, panic };
                tracing::error!(error = %ended, "a cache is no longer kept up to date");
                failed.send_if_modified(|first| first.is_none() && first.replace(ended).is_none());
            });
        }
    }

    /// Waits until an informer that was started has ended though nobody told it to; for ever if none does.
    /// A program that cannot do without its caches ends then, beside its signal to stop.
    pub async fn failed(&self) -> InformerFailed {
        let mut failed = self.failed.subscribe();
        match failed.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(first)) => first.clone(),
            // The sender lives as long as `self`.
            _ => std::future::pending().await,
        }
    }

    /// Waits until every informer that is started has synced or has ended; in the order of their
    /// resources' names.
    #[must_use = "a cache that is not synced says nothing"]
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

    /// Stops every informer, also those that were not started, and waits until none of them and of their
    /// handlers runs any more. One that is asked for later is stopped from the beginning.
    pub async fn shutdown(&self) {
        let stops: Vec<_> = {
            let mut informers = self.informers();
            informers.shut_down = true;
            let all = informers.all.values();
            all.map(|entry| Arc::clone(&entry.informer).shutdown()).collect()
        };
        join_all(stops).await;
    }

    /// The same, for so long at most: handlers that run then are ended in the middle of their calls, at
    /// their next `await`. Answers whether there were none.
    pub async fn shutdown_within(&self, limit: Duration) -> bool {
        if timeout(limit, self.shutdown()).await.is_ok() {
            return true;
        }
        tracing::warn!("handlers of informers are ended: the time of the shutdown is up");
        let mut runs = std::mem::take(&mut self.informers().runs);
        runs.shutdown().await;
        false
    }
}
