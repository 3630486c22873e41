//! Setting up an informer.

use std::{
    error::Error,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use super::{Indexers, Store, TransformFunc, queue::guarded, shared::SharedInformer};
use crate::{
    object::Object,
    reflector::{
        Follow, ListWatchError, ListerWatcher, ReflectorOptions, WatchErrorHandler, guarded_handler,
    },
};

/// What stands between the reflector and the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueKind {
    /// Each change by itself, in the order of the API server (client-go `RealFIFO`, its default
    /// since 1.33).
    #[default]
    InOrder,
    /// The changes of one object together, objects in the order of their first change (client-go
    /// `DeltaFIFO`).
    Delta,
}

/// How an informer is set up; from [`SharedInformer::builder`].
pub struct Builder<K: Object> {
    pub(super) source: Arc<dyn ListerWatcher>,
    pub(super) resync_check_period: Duration,
    pub(super) queue: QueueKind,
    pub(super) transform: Option<TransformFunc<K>>,
    pub(super) watch_error_handler: Option<WatchErrorHandler>,
    reflector: ReflectorOptions,
    indexers: Indexers<K>,
}

impl<K: Object> Builder<K> {
    pub(super) fn new(source: impl ListerWatcher) -> Self {
        let reflector = ReflectorOptions { follow: Follow::State, ..ReflectorOptions::default() };
        Self {
            source: Arc::new(source),
            resync_check_period: Duration::ZERO,
            queue: QueueKind::default(),
            transform: None,
            watch_error_handler: None,
            reflector,
            indexers: Indexers::new(),
        }
    }

    /// The resync period of handlers that ask for none of their own, and how often the informer
    /// looks whether one is due. Zero, the default: no handler ever gets everything again.
    #[must_use]
    pub fn resync_check_period(mut self, period: Duration) -> Self {
        self.resync_check_period = period;
        self
    }

    /// The indexes of the store.
    #[must_use]
    pub fn indexers(mut self, indexers: Indexers<K>) -> Self {
        self.indexers = indexers;
        self
    }

    /// Changes each object before anybody sees it, to leave out what is not needed. It is given
    /// the objects of the API server only, each once.
    ///
    /// An object of a watch that it refuses is left out, and said in the log; a list in which it
    /// refuses one is fetched again, after the reflector's wait, and the watch error handler is told.
    /// An object that it panics on is left out, logged and [counted](SharedInformer::panics).
    #[must_use]
    pub fn transform(
        mut self,
        transform: impl Fn(K) -> Result<K, Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        self.transform = Some(Arc::new(transform));
        self
    }

    /// Which queue.
    #[must_use]
    pub fn queue(mut self, queue: QueueKind) -> Self {
        self.queue = queue;
        self
    }

    /// The handler is told of each error that ends a round of list and watch (client-go `WatchErrorHandler`), a list
    /// that the transformer refuses included. It is also told of each object that cannot be read, which is not
    /// logged then. It must not wait. Its panics are logged and [counted](SharedInformer::panics).
    #[must_use]
    pub fn watch_error_handler(
        mut self,
        handler: impl Fn(&ListWatchError) + Send + Sync + 'static,
    ) -> Self {
        self.watch_error_handler = Some(Arc::new(handler));
        self
    }

    /// How the reflector lists and watches: its page size, timeouts and streaming lists. What the
    /// informer decides itself (resync period, what is followed, error handler) is not taken.
    #[must_use]
    pub fn reflector(mut self, options: ReflectorOptions) -> Self {
        self.reflector = options;
        self
    }

    /// The informer. It does nothing before it [runs](SharedInformer::run).
    pub fn build(mut self) -> SharedInformer<K> {
        let store = Store::new(std::mem::take(&mut self.indexers));
        let (panics, name) = (Arc::<AtomicU64>::default(), self.name());
        let transform = self.transform.take();
        self.transform = transform.map(|transform| guarded(transform, Arc::clone(&panics)));
        let handler = self.watch_error_handler.take();
        self.watch_error_handler =
            handler.map(|handler| guarded_handler(handler, &name, Arc::clone(&panics)));
        SharedInformer::new(self, store, panics)
    }

    /// The name of the source in logs.
    fn name(&self) -> String {
        match &*self.reflector.name {
            "" => self.source.expected().plural,
            name => name.to_owned(),
        }
    }

    pub(super) fn reflector_options(&self, check_period: Duration) -> ReflectorOptions {
        ReflectorOptions {
            name: self.name(),
            resync_period: (!check_period.is_zero()).then_some(check_period),
            watch_error_handler: self.watch_error_handler.clone(),
            follow: Follow::State,
            ..self.reflector.clone()
        }
    }
}
