//! Indexes of a store: objects by values that functions compute of them.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::object_set::ObjectSet;
use crate::{
    foreign::caught,
    object::{Object, key_pieces, meta_namespace_key},
};

/// The name of the index by namespace, which [listers](super::Lister) of one namespace use when it
/// is there. client-go's `NamespaceIndex`.
pub const NAMESPACE_INDEX: &str = "namespace";

/// The values under which an object is found in one index. It runs while the store is locked, and
/// must answer the same whenever it is asked of the same object. The index does not find an object that
/// it panics on.
pub type IndexFunc<K> = Arc<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// Index functions by the names of their indexes.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use tidings_kube::informer::{Indexers, NAMESPACE_INDEX, namespace_index_func};
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

/// What is wrong with the name of an index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
    function: Guarded<K>,
    values: HashMap<String, ObjectSet<K>>,
}

/// An index function whose panics are logged and counted: an object that it panics on is not found by this
/// index. client-go ends the process then.
struct Guarded<K> {
    name: String,
    function: IndexFunc<K>,
    /// Its own panics, and those of all indexes of the store.
    panics: AtomicU64,
    all_panics: Arc<AtomicU64>,
}

impl<K: Object> Guarded<K> {
    /// The values of an object; `None` if the function panicked.
    fn values(&self, object: &K) -> Option<Vec<String>> {
        let values = caught(|| (self.function)(object));
        if let Err(panic) = &values {
            self.all_panics.fetch_add(1, Ordering::Relaxed);
            let panics = self.panics.fetch_add(1, Ordering::Relaxed) + 1;
            // The function is called at each change of an object, so a line each time that their number has doubled.
            if panics.is_power_of_two() {
                let (index, object) = (&self.name, meta_namespace_key(object));
                tracing::error!(
                    index,
                    object,
                    panic,
                    panics,
                    "an index function panicked: this index does not find the object"
                );
            }
        }
        values.ok()
    }
}

impl<K: Object> Indexes<K> {
    /// Panics of index functions are counted in `panics`.
    pub(super) fn new(
        indexers: Indexers<K>,
        objects: &ObjectSet<K>,
        panics: Arc<AtomicU64>,
    ) -> Self {
        let functions = indexers.functions.into_iter();
        let by_name = functions.map(|(name, function)| {
            let all_panics = Arc::clone(&panics);
            let guarded =
                Guarded { name: name.clone(), function, panics: AtomicU64::new(0), all_panics };
            (name, Index::of(guarded, objects))
        });
        Self { by_name: by_name.collect(), panics }
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
        let mut more = Self::new(indexers, objects, Arc::clone(&self.panics));
        self.by_name.append(&mut more.by_name);
        Ok(())
    }

    /// The same indexes, with other objects.
    pub(super) fn rebuilt(&self, objects: &ObjectSet<K>) -> Self {
        Self::new(self.functions(), objects, Arc::clone(&self.panics))
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
                .map(|(name, index)| (name.clone(), Arc::clone(&index.function.function)))
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
        for value in index.function.values(object).unwrap_or_default() {
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
    fn of(function: Guarded<K>, objects: &ObjectSet<K>) -> Self {
        let mut index = Self { function, values: HashMap::new() };
        objects.iter().for_each(|object| index.insert(object));
        index
    }

    fn insert(&mut self, object: &Arc<K>) {
        for value in self.function.values(object).unwrap_or_default() {
            self.values.entry(value).or_default().insert(Arc::clone(object));
        }
    }

    /// A value without objects goes too: there may be no end to values.
    fn remove(&mut self, object: &Arc<K>) {
        let key = key_pieces(&**object);
        let Some(values) = self.function.values(object) else {
            // Nobody knows under which values it is.
            self.values.retain(|_, objects| {
                objects.remove(key);
                !objects.is_empty()
            });
            return;
        };
        for value in values {
            if let Entry::Occupied(mut objects) = self.values.entry(value) {
                objects.get_mut().remove(key);
                if objects.get().is_empty() {
                    objects.remove();
                }
            }
        }
    }
}
