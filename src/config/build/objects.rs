//! The settings of enrichment: what is told of the objects that events are about, and how they are read.

use super::Builder;
use crate::{
    bridge::{Enrich, KeyPatterns, ObjectOptions, ResourceName},
    config::{model::EnrichModel, validate},
    document::{Path, Text, wrong},
};

impl Builder<'_> {
    pub(super) fn objects(&mut self) -> ObjectOptions {
        let (model, path) = (&self.loaded.model.objects, Path::root("objects"));
        let defaults = ObjectOptions::default();
        let watch = match &model.watch {
            None => defaults.watch,
            Some(resources) => self.resources(&path.key("watch"), resources),
        };
        let mut within = |key: &str, value, most, default| {
            self.checks.within(&path.key(key), value, most, default)
        };
        let qps = within("qps", model.qps, 1000, defaults.qps);
        let burst = within("burst", model.burst, 1000, defaults.burst);
        let cache = within("cache", model.cache, 1_000_000, defaults.cache as u32);
        let budget = model.budget.map_or(defaults.budget, |span| span.0);
        if budget > MAX_BUDGET {
            let wrong = wrong("expected at most `10s`, found more");
            self.checks.wrong(&path.key("budget"), wrong.hint("the default is `250ms`"));
        }
        ObjectOptions { watch, qps, burst, budget, cache: cache as usize }
    }

    fn resources(&mut self, path: &Path, resources: &[Text]) -> Vec<ResourceName> {
        let mut all: Vec<ResourceName> = Vec::new();
        for (i, text) in resources.iter().enumerate() {
            let path = path.index(i);
            let Some(name) = self.checks.parsed(&path, text, validate::resource) else { continue };
            if all.contains(&name) {
                let wrong = wrong(format!("expected each resource once, found `{name}` twice"));
                self.checks.wrong(&path, wrong.hint("remove one of the two"));
            }
            all.push(name);
        }
        all
    }

    pub(super) fn enrich(&mut self, path: &Path, model: &EnrichModel) -> Enrich {
        let mut patterns = |key: &str, patterns: &[Text]| {
            let mut all = Vec::new();
            for (i, text) in patterns.iter().enumerate() {
                all.extend(self.checks.checked(
                    &path.key(key).index(i),
                    text,
                    validate::key_pattern,
                ));
            }
            KeyPatterns::new(all)
        };
        let labels = patterns("labels", &model.labels);
        let annotations = patterns("annotations", &model.annotations);
        if model.labels.is_empty() && model.annotations.is_empty() && !model.owners && !model.node {
            let wrong = wrong("expected something to tell of objects, found nothing");
            let hint = "name `labels`, `annotations`, `owners: true` or `node: true`, or remove it";
            self.checks.wrong_key(path, wrong.hint(hint));
        }
        Enrich { labels, annotations, owners: model.owners, node: model.node }
    }
}

/// A sink stands still while an event waits.
const MAX_BUDGET: std::time::Duration = std::time::Duration::from_secs(10);
