//! What a cache holds, and the key that it is held by.

mod metadata;

pub use metadata::{Metadata, OwnerReference};

/// An object with a name and a resourceVersion, in any representation.
///
/// Every type that kube knows is one. A representation of one's own, which keeps less of each
/// object, implements it to be held by a `Store` and to go through the queues.
pub trait Object: Send + Sync + 'static {
    /// The namespace; `None` for an object of the whole cluster.
    fn namespace(&self) -> Option<&str>;

    /// The name; empty where the server has not given one, which it always does.
    fn name(&self) -> &str;

    /// The identity of this object among all that ever have its name.
    fn uid(&self) -> Option<&str>;

    /// The version; empty where there is none.
    fn resource_version(&self) -> &str;

    /// The value of one label, for selectors.
    fn label(&self, key: &str) -> Option<&str>;
}

impl<K: kube::Resource + Send + Sync + 'static> Object for K {
    fn namespace(&self) -> Option<&str> {
        self.meta().namespace.as_deref()
    }

    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    fn uid(&self) -> Option<&str> {
        self.meta().uid.as_deref()
    }

    fn resource_version(&self) -> &str {
        self.meta().resource_version.as_deref().unwrap_or_default()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.meta().labels.as_ref()?.get(key).map(String::as_str)
    }
}

/// The pieces that make a key, one behind the other.
pub(crate) type KeyPieces<'a> = [&'a str; 3];

/// The key of an object, without an allocation.
pub(crate) fn key_pieces(object: &impl Object) -> KeyPieces<'_> {
    pieces(object.namespace().unwrap_or_default(), object.name())
}

fn pieces<'a>(namespace: &'a str, name: &'a str) -> KeyPieces<'a> {
    if namespace.is_empty() { ["", "", name] } else { [namespace, "/", name] }
}

/// A key in the pieces that an object's key has, if names have no `/`.
pub(crate) fn split_key(key: &str) -> KeyPieces<'_> {
    match key.split_once('/') {
        Some((namespace, name)) => [namespace, "/", name],
        None => ["", "", key],
    }
}

/// The key of an object: `namespace/name`, or `name` where there is no namespace. client-go's
/// `MetaNamespaceKeyFunc`.
pub fn meta_namespace_key(object: &impl Object) -> String {
    key_pieces(object).concat()
}

/// The key of what is called so; the namespace is empty where there is none. client-go's
/// `ObjectName`.
pub fn object_key(namespace: &str, name: &str) -> String {
    pieces(namespace, name).concat()
}

/// The namespace and the name of a key; `None` if it has more than two parts. client-go's
/// `SplitMetaNamespaceKey`.
///
/// ```
/// use tidings_kube::object::split_meta_namespace_key;
///
/// assert_eq!(split_meta_namespace_key("shop/cart"), Some((Some("shop"), "cart")));
/// assert_eq!(split_meta_namespace_key("node-1"), Some((None, "node-1")));
/// assert_eq!(split_meta_namespace_key("a/b/c"), None);
/// ```
pub fn split_meta_namespace_key(key: &str) -> Option<(Option<&str>, &str)> {
    match key.split_once('/') {
        None => Some((None, key)),
        Some((_, name)) if name.contains('/') => None,
        Some((namespace, name)) => Some((Some(namespace), name)),
    }
}
