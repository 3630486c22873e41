//! A handler in the shape of a stream.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::Stream;

use super::{
    HandlerRegistration, SharedInformer,
    listener::{Notification, Told},
};
use crate::cache::Object;

/// The stream of one more handler of an informer; from [`SharedInformer::stream`].
///
/// The stream is told what a [`ResourceEventHandler`](super::ResourceEventHandler) is, and misses nothing: what
/// it has not taken yet waits in a queue of its own. A notification counts as told when the next one is
/// asked for. Dropping the stream removes the handler.
///
/// Other machinery can stand on it. kube-runtime's `Controller`, for one, is triggered by streams of objects or
/// of references to them (`watches_stream`, `reconcile_on`, partly unstable features of kube); for its main
/// resource (`for_stream`) it wants a store of its own beside the stream, which is a second copy of each
/// object, where [`Controller`](crate::cache::Controller) reads the informer's. What has changed, as objects:
///
/// ```
/// # use std::sync::Arc;
/// use futures_util::{Stream, StreamExt as _};
/// # use k8s_openapi::api::core::v1::Pod;
/// use kube_machinery::cache::{InformerStopped, Notification, SharedInformer};
///
/// # fn watches(informer: &SharedInformer<Pod>)
/// # -> Result<impl Stream<Item = Arc<Pod>> + use<>, InformerStopped> {
/// let changed = informer.stream()?.filter_map(async |notification| match notification {
///     Notification::Add { object, .. } => Some(object),
///     Notification::Update { new, is_resync: false, .. } => Some(new),
///     _ => None,
/// });
/// # Ok(changed)
/// # }
/// ```
#[must_use = "a stream that is dropped is told nothing"]
pub struct Notifications<K: Object> {
    informer: SharedInformer<K>,
    registration: HandlerRegistration,
    told: Told<K>,
}

impl<K: Object> Notifications<K> {
    pub(super) fn new(
        informer: SharedInformer<K>,
        registration: HandlerRegistration,
        told: Told<K>,
    ) -> Self {
        Self { informer, registration, told }
    }

    /// The handler that the stream is: how far it is behind, and whether it was told the first list.
    pub fn registration(&self) -> &HandlerRegistration {
        &self.registration
    }
}

impl<K: Object> Stream for Notifications<K> {
    type Item = Notification<K>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Notification<K>>> {
        self.told.poll_next(context)
    }
}

impl<K: Object> Drop for Notifications<K> {
    fn drop(&mut self) {
        self.informer.remove_handler(&self.registration);
    }
}
