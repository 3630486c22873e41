//! Reading a store as generated listers do: by name, by namespace, by labels.

use std::sync::Arc;

use kube::core::{Expression, Selector};

use super::{NAMESPACE_INDEX, Store};
use crate::object::Object;

/// Reads a store by names and labels. client-go's `GenericLister`.
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::core::Expression;
/// use tidings_kube::informer::{Lister, Store};
///
/// let store = Store::<Pod>::default();
/// let lister = Lister::new(store.clone());
/// let pod: Pod = serde_json::from_str(
///     r#"{"metadata": {"namespace": "shop", "name": "cart", "labels": {"app": "cart"}}}"#
/// ).unwrap();
/// store.add(Arc::new(pod));
///
/// assert!(lister.namespace("shop").get("cart").is_some());
/// assert_eq!(lister.list(&Expression::Exists("app".into()).into()).len(), 1);
/// ```
pub struct Lister<K> {
    store: Store<K>,
}

/// Reads what a store holds of one namespace. client-go's `GenericNamespaceLister`.
pub struct NamespaceLister<K> {
    store: Store<K>,
    namespace: String,
}

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone() }
    }
}

impl<K> Clone for NamespaceLister<K> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), namespace: self.namespace.clone() }
    }
}

impl<K: Object> Lister<K> {
    /// A lister of this store.
    pub fn new(store: Store<K>) -> Self {
        Self { store }
    }

    /// All objects whose labels the selector matches, of all namespaces.
    pub fn list(&self, selector: &Selector) -> Vec<Arc<K>> {
        select(self.store.list(), selector)
    }

    /// An object that is in no namespace.
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.store.get_by_key(name)
    }

    /// A lister of one namespace. The empty one stands for all when it lists.
    pub fn namespace(&self, namespace: impl Into<String>) -> NamespaceLister<K> {
        NamespaceLister { store: self.store.clone(), namespace: namespace.into() }
    }
}

impl<K: Object> NamespaceLister<K> {
    /// The objects of the namespace whose labels the selector matches. Without the index
    /// [`NAMESPACE_INDEX`] it looks at every object of the store.
    pub fn list(&self, selector: &Selector) -> Vec<Arc<K>> {
        if self.namespace.is_empty() {
            return select(self.store.list(), selector);
        }
        let objects = self.store.by_index(NAMESPACE_INDEX, &self.namespace).unwrap_or_else(|_| {
            let mut objects = self.store.list();
            objects.retain(|object| object.namespace() == Some(&self.namespace));
            objects
        });
        select(objects, selector)
    }

    /// An object of the namespace.
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.store.get_by_key(&format!("{}/{name}", self.namespace))
    }
}

fn select<K: Object>(mut objects: Vec<Arc<K>>, selector: &Selector) -> Vec<Arc<K>> {
    let expressions: Vec<Expression> = selector.clone().into_iter().collect();
    objects.retain(|object| expressions.iter().all(|expression| matches(expression, &**object)));
    objects
}

/// kube matches maps only, and not every object has its labels in one.
fn matches(expression: &Expression, object: &impl Object) -> bool {
    let value = |key: &str| object.label(key);
    match expression {
        Expression::In(key, values) => value(key).is_some_and(|value| values.contains(value)),
        Expression::NotIn(key, values) => value(key).is_none_or(|value| !values.contains(value)),
        Expression::Equal(key, wanted) => value(key) == Some(wanted),
        Expression::NotEqual(key, unwanted) => value(key) != Some(unwanted),
        Expression::Exists(key) => value(key).is_some(),
        Expression::DoesNotExist(key) => value(key).is_none(),
    }
}
