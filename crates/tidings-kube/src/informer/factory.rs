//! The informers of a program, one for each type (client-go `SharedInformerFactory`).

use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
    error::Error,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::{BoxFuture, join_all};
use k8s_openapi::ClusterResourceScope;
use kube::{
    Client, Resource,
    core::{ApiResource, DynamicObject},
};
use tokio::{sync::watch, task::JoinSet};

use super::{builder::Builder, shared::SharedInformer, sync::Synced};
use crate::{
    foreign::caught_future,
    object::{Metadata, Object},
    reflector::{Decode, ResourceApi},
};

type SetUp<'a, K> = Box<dyn FnOnce(Builder<K>) -> Builder<K> + 'a>;

type AnyTransform =
    Arc<dyn Fn(&mut dyn Any) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync>;

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
    /// Those of types that have one of their own.
    resync_of: HashMap<TypeId, Duration>,
    tweak: Option<Tweak>,
    transform: Option<AnyTransform>,
    informers: Mutex<Informers>,
    ends: watch::Sender<Ends>,
}

/// How the informers have ended.
#[derive(Default)]
struct Ends {
    first: Option<InformerEnded>,
    /// They are to end.
    shut_down: bool,
}

#[derive(Default)]
struct Informers {
    /// By what the objects are decoded to, and what is asked for.
    all: HashMap<(TypeId, ApiResource), Entry>,
    runs: JoinSet<()>,
}

impl Ends {
    fn note(&mut self, end: InformerEnded) {
        if end.panic.is_some() {
            tracing::error!(%end, "an informer has ended: its cache is no longer kept up");
        } else if !self.shut_down {
            tracing::warn!(%end, "an informer has ended: its cache is no longer kept up");
        }
        if !self.shut_down {
            self.first.get_or_insert(end);
        }
    }
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
    /// Whether it has synced. If not, it has ended first.
    pub synced: bool,
    /// Whether it has ended: what the cache holds is no longer kept up.
    pub ended: bool,
}

/// An informer that a factory has started and that runs no longer, though the factory was not shut down. Its
/// cache stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InformerEnded {
    /// The resource that it lists and watches.
    pub resource: ApiResource,
    /// The Rust type of its objects.
    pub object: &'static str,
    /// The message of its panic; `None` if it was stopped, or if somebody else ran it.
    pub panic: Option<String>,
}

impl fmt::Display for InformerEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, object, panic } = self;
        write!(f, "the informer of {} ({object}) ", resource.plural)?;
        match panic {
            Some(panic) => write!(f, "panicked: {panic}"),
            None => f.write_str("was stopped"),
        }
    }
}

impl Error for InformerEnded {}

/// An informer of whatever type.
trait AnyInformer: Any + Send + Sync {
    fn run(self: Arc<Self>) -> BoxFuture<'static, ()>;
    fn stop(&self);
    fn ended(self: Arc<Self>) -> BoxFuture<'static, ()>;
    fn synced(&self) -> Synced;
    fn is_stopped(&self) -> bool;
    fn object(&self) -> &'static str;
}

impl<K: Decode> AnyInformer for SharedInformer<K> {
    fn run(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if SharedInformer::run(&self).await.is_err() {
                // Somebody else runs it, or has: that serves as well.
                self.ended().await;
            }
        })
    }

    fn stop(&self) {
        SharedInformer::stop(self);
    }

    fn ended(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { SharedInformer::ended(&self).await })
    }

    fn synced(&self) -> Synced {
        SharedInformer::synced(self)
    }

    fn is_stopped(&self) -> bool {
        SharedInformer::is_stopped(self)
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
            resync_of: HashMap::new(),
            tweak: None,
            transform: None,
            informers: Mutex::default(),
            ends: watch::Sender::default(),
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

    /// The same for the informers of one type (client-go `WithCustomResyncConfig`).
    #[must_use]
    pub fn resync_of<K: Object>(mut self, period: Duration) -> Self {
        self.resync_of.insert(TypeId::of::<K>(), period);
        self
    }

    /// Changes each object of each informer before anybody sees it (client-go `WithTransform`): see
    /// [`InformerBuilder::transform`](super::InformerBuilder::transform), which takes the place of this one for
    /// an informer. The function finds out by `downcast_mut` what it has.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use tidings_kube::informer::SharedInformerFactory;
    /// # fn factory(client: kube::Client) -> SharedInformerFactory {
    /// SharedInformerFactory::new(client).transform(|object| {
    ///     if let Some(pod) = object.downcast_mut::<Pod>() {
    ///         // Most of the memory of a Pod, and read by nobody.
    ///         pod.metadata.managed_fields = None;
    ///     }
    ///     Ok(())
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn transform(
        mut self,
        transform: impl Fn(&mut dyn Any) -> Result<(), Box<dyn Error + Send + Sync>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.transform = Some(Arc::new(transform));
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
        self.informer_of(self.api_of::<K>(), None)
    }

    /// The informer of a type, and how it is set up if this is the first that asks for it: indexes,
    /// a transformer, an error handler. If it is not, the set-up is not used, which the log says; indexes can be
    /// [added](super::Store::add_indexers) to the store of an informer that there is.
    pub fn informer_with<K>(
        &self,
        set_up: impl FnOnce(Builder<K>) -> Builder<K>,
    ) -> SharedInformer<K>
    where
        K: Decode + Resource<DynamicType = (), Scope: 'static>,
    {
        self.informer_of(self.api_of::<K>(), Some(Box::new(set_up)))
    }

    /// The informer of a resource that there is no Rust type for.
    pub fn informer_for(&self, resource: &ApiResource) -> SharedInformer<DynamicObject> {
        self.informer_of(self.api(resource, &self.namespace), None)
    }

    /// The informer of a resource's metadata alone, which costs a fraction of the objects' memory.
    pub fn metadata_informer_for(&self, resource: &ApiResource) -> SharedInformer<Metadata> {
        let api = self.api(resource, &self.namespace).metadata_only();
        self.informer_of(api, None)
    }

    fn api_of<K: Resource<DynamicType = (), Scope: 'static>>(&self) -> ResourceApi {
        let whole_cluster = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
        let namespace = if whole_cluster { "" } else { &*self.namespace };
        self.api(&ApiResource::erase::<K>(&()), namespace)
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
        set_up: Option<SetUp<'_, K>>,
    ) -> SharedInformer<K> {
        let key = (TypeId::of::<K>(), api.resource().clone());
        let set_up_twice = set_up.is_some();
        let known = |known: SharedInformer<K>| {
            if set_up_twice {
                let (resource, object) = (&key.1.plural, type_name::<K>());
                tracing::warn!(
                    resource,
                    object,
                    "this informer is there already: its second set-up is not used"
                );
            }
            known
        };
        let there = self.informers().get(&key);
        if let Some(there) = there {
            return known(there);
        }
        // Not under the lock: the set-up may ask for another informer.
        let resync = self.resync_of.get(&TypeId::of::<K>()).copied().unwrap_or(self.resync);
        let mut builder = SharedInformer::<K>::builder(api).resync_check_period(resync);
        if let Some(transform) = self.transform.clone() {
            builder = builder.transform(move |mut object| {
                transform(&mut object)?;
                Ok(object)
            });
        }
        let informer = match set_up {
            Some(set_up) => set_up(builder).build(),
            None => builder.build(),
        };
        let mut informers = self.informers();
        // Somebody else may have been faster.
        if let Some(there) = informers.get(&key) {
            return known(there);
        }
        if self.ends.borrow().shut_down {
            informer.stop();
        }
        let entry = Entry { informer: Arc::new(informer.clone()), started: false };
        informers.all.insert(key, entry);
        informer
    }

    /// Starts every informer that was asked for and is not started yet, on the runtime of the
    /// caller. After [`shutdown`](Self::shutdown) it starts none.
    pub fn start(&self) {
        let mut informers = self.informers();
        let Informers { all, runs } = &mut *informers;
        if self.ends.borrow().shut_down {
            return;
        }
        for ((_, resource), entry) in all.iter_mut().filter(|(_, entry)| !entry.started) {
            entry.started = true;
            let (informer, ends) = (Arc::clone(&entry.informer), self.ends.clone());
            let (resource, object) = (resource.clone(), informer.object());
            runs.spawn(async move {
                let panic = caught_future(informer.run()).await.err();
                let end = InformerEnded { resource, object, panic };
                ends.send_modify(|ends| ends.note(end));
            });
        }
    }

    /// Waits until an informer that was started has ended without a [shutdown](Self::shutdown) of the
    /// factory: it was stopped, or a method of its type panicked. A program that is to end then, as Go's
    /// do, waits for this beside its work. With several it is the first.
    pub async fn failed(&self) -> InformerEnded {
        let mut ends = self.ends.subscribe();
        loop {
            if let Some(end) = &ends.borrow_and_update().first {
                return end.clone();
            }
            // Never an error: the sender is in `self`.
            let _ = ends.changed().await;
        }
    }

    /// Waits until every informer that is started has synced or has ended; in the order of their
    /// resources' names.
    #[must_use = "a cache that has not synced lacks objects that exist"]
    pub async fn wait_for_cache_sync(&self) -> Vec<CacheSync> {
        let waits: Vec<_> = {
            let informers = self.informers();
            let started = informers.all.iter().filter(|(_, entry)| entry.started);
            started
                .map(|((_, resource), entry)| {
                    let (resource, object) = (resource.clone(), entry.informer.object());
                    let synced = entry.informer.synced();
                    let informer = Arc::clone(&entry.informer);
                    async move { (resource, object, synced.wait().await, informer) }
                })
                .collect()
        };
        let caches = join_all(waits).await.into_iter();
        // One that will never sync has ended, or is about to.
        let cache = |(resource, object, synced, informer): (_, _, _, Arc<dyn AnyInformer>)| {
            CacheSync { resource, object, synced, ended: !synced || informer.is_stopped() }
        };
        let mut caches: Vec<_> = caches.map(cache).collect();
        caches.sort_by_cached_key(|cache| {
            let ApiResource { group, plural, .. } = &cache.resource;
            (plural.clone(), group.clone(), cache.object)
        });
        caches
    }

    /// Stops every informer, and waits until none that was started here, and none of their handlers, runs any
    /// more. One that is asked for later is stopped from the beginning.
    pub async fn shutdown(&self) {
        let ends: Vec<_> = {
            let informers = self.informers();
            self.ends.send_modify(|ends| ends.shut_down = true);
            informers.all.values().for_each(|entry| entry.informer.stop());
            let started = informers.all.values().filter(|entry| entry.started);
            started.map(|entry| Arc::clone(&entry.informer).ended()).collect()
        };
        join_all(ends).await;
    }
}

impl Drop for SharedInformerFactory {
    fn drop(&mut self) {
        let informers = self.informers();
        informers
            .all
            .values()
            .filter(|entry| entry.started)
            .for_each(|entry| entry.informer.stop());
    }
}
