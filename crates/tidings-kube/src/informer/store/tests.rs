//! The store beside a plain map of what it should hold.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{Expression, Selector};
use proptest::prelude::*;

use super::*;
use crate::informer::{
    Lister, NAMESPACE_INDEX,
    fixture::{config_map, labelled, version},
    namespace_index_func,
};

const KEYS: [&str; 6] = ["a", "b", "shop/a", "shop/b", "bank/a", "bank/c"];

/// Every letter of the label `letters` is a value: none, one or several, and one of them twice.
fn by_letter(object: &ConfigMap) -> Vec<String> {
    let letters = object.label("letters").unwrap_or_default();
    letters.chars().map(String::from).collect()
}

#[derive(Clone, Debug)]
enum Call {
    Put(Entry),
    Delete(usize),
    Replace(Vec<Entry>),
    AddIndexers,
}

#[derive(Clone, Debug)]
struct Entry {
    key: usize,
    version: u64,
    letters: String,
}

impl Entry {
    fn object(&self) -> Arc<ConfigMap> {
        Arc::new(labelled(KEYS[self.key], self.version, &[("letters", &self.letters)]))
    }
}

fn entry() -> impl Strategy<Value = Entry> {
    (0..KEYS.len(), 0u64..1000, "[xyz]{0,3}").prop_map(|(key, version, letters)| Entry {
        key,
        version,
        letters,
    })
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        6 => entry().prop_map(Call::Put),
        3 => (0..KEYS.len()).prop_map(Call::Delete),
        1 => prop::collection::vec(entry(), 0..8).prop_map(Call::Replace),
        1 => Just(Call::AddIndexers),
    ]
}

type Shown = BTreeSet<(String, u64)>;

fn shown(objects: &[Arc<ConfigMap>]) -> Shown {
    let count = objects.len();
    let shown: Shown =
        objects.iter().map(|object| (meta_namespace_key(&**object), version(object))).collect();
    assert_eq!(shown.len(), count, "each once");
    shown
}

fn check(store: &Store<ConfigMap>, model: &BTreeMap<&str, Entry>, indexed: bool) {
    let picked = |wanted: &dyn Fn(&str, &Entry) -> bool| -> Shown {
        let entries = model.iter().filter(|(key, entry)| wanted(key, entry));
        entries.map(|(key, entry)| ((*key).to_owned(), entry.version)).collect()
    };
    assert_eq!(shown(&store.list()), picked(&|_, _| true));
    assert_eq!(store.len(), model.len());
    for key in KEYS {
        let stored = store.get_by_key(key).map(|object| version(&object));
        assert_eq!(stored, model.get(key).map(|entry| entry.version));
    }
    for namespace in ["", "shop", "bank"] {
        let of_it = |key: &str| namespace.is_empty() || key.starts_with(&format!("{namespace}/"));
        let lister = Lister::new(store.clone()).namespace(namespace);
        let x = Expression::Equal("letters".into(), "x".into()).into();
        assert_eq!(shown(&lister.list(&Selector::default())), picked(&|key, _| of_it(key)));
        assert_eq!(
            shown(&lister.list(&x)),
            picked(&|key, entry| of_it(key) && entry.letters == "x")
        );
    }
    if !indexed {
        assert_eq!(store.by_index("letter", "x"), Err(IndexError::NotFound("letter".into())));
        assert!(store.index_func_values("letter").is_empty());
        return;
    }
    let mut values = store.index_func_values("letter");
    values.sort_unstable();
    let letters: BTreeSet<_> = model.values().flat_map(|entry| entry.letters.chars()).collect();
    assert_eq!(values, letters.into_iter().map(String::from).collect::<Vec<_>>());
    for letter in ['x', 'y', 'z'] {
        let expected = picked(&|_, entry| entry.letters.contains(letter));
        let keys: BTreeSet<_> = expected.iter().map(|(key, _)| key.clone()).collect();
        let letter = letter.to_string();
        assert_eq!(shown(&store.by_index("letter", &letter).unwrap()), expected);
        let index_keys = store.index_keys("letter", &letter).unwrap();
        assert_eq!(index_keys.into_iter().collect::<BTreeSet<_>>(), keys);
    }
    let probe = labelled("elsewhere", 0, &[("letters", "xyx")]);
    let like = picked(&|_, entry| entry.letters.contains(['x', 'y']));
    assert_eq!(shown(&store.index("letter", &probe).unwrap()), like);
}

proptest! {
    #[test]
    fn it_holds_what_a_map_would(calls in prop::collection::vec(call(), 0..40)) {
        let store = Store::default();
        let (mut model, mut indexed) = (BTreeMap::new(), false);
        for call in calls {
            match call {
                Call::Put(entry) => {
                    let old = store.add(entry.object()).map(|object| version(&object));
                    let before: Option<Entry> = model.insert(KEYS[entry.key], entry);
                    prop_assert_eq!(old, before.map(|entry| entry.version));
                }
                Call::Delete(key) => {
                    let old = store.delete(KEYS[key]).map(|object| version(&object));
                    prop_assert_eq!(old, model.remove(KEYS[key]).map(|entry| entry.version));
                }
                Call::Replace(entries) => {
                    store.replace(entries.iter().map(Entry::object).collect());
                    model = entries.into_iter().map(|entry| (KEYS[entry.key], entry)).collect();
                }
                Call::AddIndexers => {
                    let indexers = Indexers::new()
                        .with("letter", by_letter)
                        .with(NAMESPACE_INDEX, namespace_index_func);
                    let conflict = store.add_indexers(indexers).is_err();
                    prop_assert_eq!(conflict, indexed);
                    indexed = true;
                }
            }
            check(&store, &model, indexed);
        }
    }
}

#[test]
fn an_index_of_a_name_that_is_taken_adds_none() {
    let store = Store::<ConfigMap>::new(Indexers::new().with("letter", by_letter));
    let both = Indexers::new().with("a", by_letter).with("letter", by_letter);
    let error = store.add_indexers(both).unwrap_err();
    assert_eq!(error.to_string(), "there are indexes [\"letter\"] already");
    assert_eq!(format!("{:?}", store.indexers()), "{\"letter\"}");
    let error = store.by_index("a", "x").unwrap_err();
    assert_eq!(error.to_string(), "there is no index \"a\"");
}

/// The API server has no such names, but a key is a key.
#[test]
fn keys_are_the_same_wherever_they_are_cut() {
    let store = Store::default();
    store.add(Arc::new(config_map("shop/a", 1)));
    let mut odd = config_map("x", 2);
    odd.metadata.name = Some("shop/a".into());
    let old = store.add(Arc::new(odd)).map(|object| version(&object));
    assert_eq!((old, store.len()), (Some(1), 1));
    assert_eq!(store.get_by_key("shop/a").map(|object| version(&object)), Some(2));
    assert!(store.delete("shop/a").is_some());
    assert!(store.is_empty());
}

#[test]
fn every_operator_of_a_selector_selects_as_the_api_server() {
    let store = Store::default();
    store.add(Arc::new(labelled("cart", 1, &[("app", "cart"), ("tier", "web")])));
    store.add(Arc::new(labelled("bill", 1, &[("app", "bill")])));
    store.add(Arc::new(config_map("bare", 1)));
    let lister = Lister::new(store);
    let app = || "app".to_owned();
    for (expression, selected) in [
        (Expression::Equal(app(), "cart".into()), "cart"),
        (Expression::NotEqual(app(), "cart".into()), "bare bill"),
        (Expression::In(app(), ["cart".into(), "bill".into()].into()), "bill cart"),
        (Expression::NotIn(app(), ["cart".into(), "x".into()].into()), "bare bill"),
        (Expression::Exists("tier".into()), "cart"),
        (Expression::DoesNotExist("tier".into()), "bare bill"),
    ] {
        let names = shown(&lister.list(&expression.clone().into()));
        let names: Vec<_> = names.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.join(" "), selected, "{expression:?}");
    }
    let mut both = Selector::from(Expression::Exists(app()));
    both.extend(Expression::DoesNotExist("tier".into()));
    assert_eq!(shown(&lister.list(&both)), [("bill".to_owned(), 1)].into());
    assert!(lister.get("cart").is_some());
    assert!(lister.namespace("shop").get("cart").is_none());
}
