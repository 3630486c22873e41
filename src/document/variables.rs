//! The variables of the environment.

use std::{collections::BTreeMap, ffi::OsString};

#[derive(Default)]
pub(crate) struct Variables(BTreeMap<String, OsString>);

impl Variables {
    pub(crate) fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        // A name that is not UTF-8 can neither be one of ours nor be referred to from YAML.
        let named = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value));
        Self(variables.into_iter().filter_map(named).collect())
    }

    /// A copy with the variables of which the name is wanted.
    pub(crate) fn keep(&self, wanted: impl Fn(&str) -> bool) -> Self {
        let kept = self.0.iter().filter(|(name, _)| wanted(name));
        Self(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&OsString> {
        self.0.get(name)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&String, &OsString)> {
        self.0.iter()
    }
}
