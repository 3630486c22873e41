//! What is told of the objects that events are about, and how they are read.

use super::Builder;
use crate::{
    bridge::{Enrich, KeyPatterns, ObjectOptions, ResourceName},
    config::{
        model::EnrichModel,
        path::Path,
        validate::{self, wrong},
    },
    document::Text,
};

impl Builder<'_> {
    pub(super) fn objects(&mut self) -> ObjectOptions {
        let (model, path) = (&self.loaded.model.objects, Path::root("objects"));
        let defaults = ObjectOptions::default();
        let watch = match &model.watch {
            None => defaults.watch,
            Some(resources) => self.resources(&path.key("watch"), resources),
        };
        let mut within = |key: &str, value: Option<u32>, longest: u32, default: u32| {
            let value = value.unwrap_or(default);
            if !(1..=longest).contains(&value) {
                let wrong = wrong(format!("{value} cannot be"));
                self.wrong(&path.key(key), wrong.hint(format!("write 1 to {longest}")));
            }
            value
        };
        let qps = within("qps", model.qps, 1000, defaults.qps);
        let burst = within("burst", model.burst, 1000, defaults.burst);
        let cache = within("cache", model.cache, 1_000_000, defaults.cache as u32);
        let budget = model.budget.map_or(defaults.budget, |span| span.0);
        if budget > MAX_BUDGET {
            let wrong = wrong("an event would wait for longer than 10s");
            self.wrong(&path.key("budget"), wrong.hint("the default is `250ms`"));
        }
        ObjectOptions { watch, qps, burst, budget, cache: cache as usize }
    }

    fn resources(&mut self, path: &Path, resources: &[Text]) -> Vec<ResourceName> {
        let mut all: Vec<ResourceName> = Vec::new();
        for (i, text) in resources.iter().enumerate() {
            let path = path.index(i);
            let Some(name) = self.parsed(&path, text, validate::resource) else { continue };
            if all.contains(&name) {
                let wrong = wrong(format!("`{name}` is listed twice"));
                self.wrong(&path, wrong.hint("remove one of the two"));
            }
            all.push(name);
        }
        all
    }

    pub(super) fn enrich(&mut self, path: &Path, model: &EnrichModel) -> Enrich {
        let mut patterns = |key: &str, patterns: &[Text]| {
            let mut all = Vec::new();
            for (i, text) in patterns.iter().enumerate() {
                all.extend(self.checked(&path.key(key).index(i), text, validate::key_pattern));
            }
            KeyPatterns::new(all)
        };
        let labels = patterns("labels", &model.labels);
        let annotations = patterns("annotations", &model.annotations);
        if model.labels.is_empty() && model.annotations.is_empty() && !model.owners && !model.node {
            let wrong = wrong("nothing is asked for");
            let hint = "name `labels`, `annotations`, `owners: true` or `node: true`, or remove it";
            self.wrong_key(path, wrong.hint(hint));
        }
        Enrich { labels, annotations, owners: model.owners, node: model.node }
    }
}

/// A sink stands still while an event waits.
const MAX_BUDGET: std::time::Duration = std::time::Duration::from_secs(10);
