//! Indexes of a store: objects by values that functions compute of them.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{Object, meta_namespace_key, object::key_pieces, object_set::ObjectSet};
use crate::panics;

/// The name of the index by namespace, which [listers](super::Lister) of one namespace use when it
/// is there. client-go's `NamespaceIndex`.
pub const NAMESPACE_INDEX: &str = "namespace";

/// The values under which an object is found in one index. It runs while the store is locked, and
/// must answer the same whenever it is asked of the same object. Where it panics it is taken to have
/// none, which is logged and [counted](super::Store::index_panics).
pub type IndexFunc<K> = Arc<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// Index functions by the names of their indexes.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kube_machinery::cache::{Indexers, NAMESPACE_INDEX, namespace_index_func};
///
/// let indexers = Indexers::new()
///     .with(NAMESPACE_INDEX, namespace_index_func)
///     .with("node", |pod: &Pod| pod.spec.iter().flat_map(|spec| spec.node_name.clone()).collect());
/// ```
pub struct Indexers<K> {
    functions: BTreeMap<String, IndexFunc<K>>,
}

impl<K> Indexers<K> {
    /// None.
    pub fn new() -> Self {
        Self { functions: BTreeMap::new() }
    }

    /// One more; of two with one name the last holds.
    #[must_use]
    pub fn with(
        mut self,
        name: impl Into<String>,
        function: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.functions.insert(name.into(), Arc::new(function));
        self
    }

    /// The names of the indexes, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(String::as_str)
    }
}

impl<K> Default for Indexers<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Clone for Indexers<K> {
    fn clone(&self) -> Self {
        Self { functions: self.functions.clone() }
    }
}

impl<K> fmt::Debug for Indexers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.functions.keys()).finish()
    }
}

/// The index function of [`NAMESPACE_INDEX`]. client-go's `MetaNamespaceIndexFunc`.
pub fn namespace_index_func(object: &impl Object) -> Vec<String> {
    vec![object.namespace().unwrap_or_default().to_owned()]
}

/// An error of the name of an index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// There is none of that name.
    #[error("there is no index {0:?}")]
    NotFound(String),
    /// There are such indexes already; none was added.
    #[error("there are indexes {0:?} already")]
    Conflict(Vec<String>),
}

/// All indexes of a store.
pub(super) struct Indexes<K> {
    by_name: BTreeMap<String, Index<K>>,
    panics: Arc<AtomicU64>,
}

/// Objects by the values of one index function.
struct Index<K> {
    name: String,
    function: IndexFunc<K>,
    values: HashMap<String, ObjectSet<K>>,
    panics: Arc<AtomicU64>,
}

impl<K: Object> Indexes<K> {
    pub(super) fn new(indexers: Indexers<K>, objects: &ObjectSet<K>) -> Self {
        Self::counting(indexers, objects, Arc::default())
    }

    fn counting(indexers: Indexers<K>, objects: &ObjectSet<K>, panics: Arc<AtomicU64>) -> Self {
        let mut by_name = BTreeMap::new();
        for (name, function) in indexers.functions {
            let (values, panics) = (HashMap::new(), Arc::clone(&panics));
            let mut index = Index { name: name.clone(), function, values, panics };
            objects.iter().for_each(|object| index.insert(object));
            by_name.insert(name, index);
        }
        Self { by_name, panics }
    }

    /// Calls of index functions for objects that came that have panicked.
    pub(super) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Adds indexes, with what is in the store already.
    pub(super) fn add(
        &mut self,
        indexers: Indexers<K>,
        objects: &ObjectSet<K>,
    ) -> Result<(), IndexError> {
        let names = indexers.functions.keys();
        let conflicts: Vec<_> = names.filter(|name| self.by_name.contains_key(*name)).collect();
        if !conflicts.is_empty() {
            return Err(IndexError::Conflict(conflicts.into_iter().cloned().collect()));
        }
        let panics = Arc::clone(&self.panics);
        self.by_name.append(&mut Self::counting(indexers, objects, panics).by_name);
        Ok(())
    }

    /// The same indexes, with other objects.
    pub(super) fn rebuilt(&self, objects: &ObjectSet<K>) -> Self {
        Self::counting(self.functions(), objects, Arc::clone(&self.panics))
    }

    /// An object takes the place of another of its key, or of nothing, or the other way round.
    pub(super) fn update(&mut self, old: Option<&Arc<K>>, new: Option<&Arc<K>>) {
        for index in self.by_name.values_mut() {
            if let Some(old) = old {
                index.remove(old);
            }
            if let Some(new) = new {
                index.insert(new);
            }
        }
    }

    pub(super) fn functions(&self) -> Indexers<K> {
        let functions = self.by_name.iter();
        Indexers {
            functions: functions
                .map(|(name, index)| (name.clone(), Arc::clone(&index.function)))
                .collect(),
        }
    }

    fn get(&self, name: &str) -> Result<&Index<K>, IndexError> {
        self.by_name.get(name).ok_or_else(|| IndexError::NotFound(name.to_owned()))
    }

    /// The objects with one value.
    pub(super) fn by_value(
        &self,
        name: &str,
        value: &str,
    ) -> Result<impl Iterator<Item = &Arc<K>>, IndexError> {
        Ok(self.get(name)?.values.get(value).into_iter().flat_map(ObjectSet::iter))
    }

    /// The objects that have a value in common with this one, each once.
    pub(super) fn like(&self, name: &str, object: &K) -> Result<Vec<Arc<K>>, IndexError> {
        let index = self.get(name)?;
        let mut like = ObjectSet::default();
        for value in index.values_of(object).unwrap_or_default() {
            for object in index.values.get(&value).into_iter().flat_map(ObjectSet::iter) {
                like.insert(Arc::clone(object));
            }
        }
        Ok(like.iter().cloned().collect())
    }

    /// All values of an index; none where there is no such index.
    pub(super) fn values(&self, name: &str) -> Vec<String> {
        self.by_name
            .get(name)
            .map(|index| index.values.keys().cloned().collect())
            .unwrap_or_default()
    }
}

impl<K: Object> Index<K> {
    /// The values of an object, or with what the function panicked.
    fn values_of(&self, object: &K) -> Result<Vec<String>, String> {
        panics::caught(|| (self.function)(object))
    }

    fn insert(&mut self, object: &Arc<K>) {
        let values = self.values_of(object).unwrap_or_else(|panic| {
            self.panics.fetch_add(1, Ordering::Relaxed);
            let (index, object) = (&self.name, meta_namespace_key(&**object));
            tracing::error!(index, object, panic, "an index function panicked: no index entry");
            Vec::new()
        });
        for value in values {
            self.values.entry(value).or_default().insert(Arc::clone(object));
        }
    }

    /// A value without objects goes too: there may be no end to values.
    fn remove(&mut self, object: &Arc<K>) {
        for value in self.values_of(object).unwrap_or_default() {
            if let Entry::Occupied(mut objects) = self.values.entry(value) {
                objects.get_mut().remove(key_pieces(&**object));
                if objects.get().is_empty() {
                    objects.remove();
                }
            }
        }
    }
}
