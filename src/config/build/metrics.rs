//! The settings of the counters that are made of Events.

use super::Builder;
use crate::{
    bridge::{EventCounter, Filter},
    config::{model::MetricModel, validate},
    document::{Path, wrong},
    sinks::keys::templated,
    template::Templated,
};

/// Of all metrics together: each takes up to some KiB of memory.
const MOST_SERIES: u32 = 100_000;
const SERIES: u32 = 1000;
const MOST_LABELS: usize = 15;
const NO_OBJECT: &str = "counters are told nothing of objects: read `event`";

impl Builder<'_> {
    pub(super) fn metrics(&mut self) -> Vec<EventCounter> {
        let mut all: Vec<EventCounter> = Vec::new();
        for (i, model) in self.loaded.model.metrics.iter().enumerate() {
            let path = Path::root("metrics").index(i);
            let Some(counter) = self.metric(&path, model) else { continue };
            if all.iter().any(|other| other.name == counter.name) {
                let what = format!("expected each name once, found `{}` twice", counter.name);
                self.checks.wrong(&path.key("name"), wrong(what).hint("give one another name"));
            }
            all.push(counter);
        }
        let series: usize = all.iter().map(|counter| counter.max).sum();
        if series > MOST_SERIES as usize {
            let what = format!("expected at most {MOST_SERIES} series together, found {series}");
            self.checks.wrong(&Path::root("metrics"), wrong(what).hint("lower `max` of some"));
        }
        all
    }

    fn metric(&mut self, path: &Path, model: &MetricModel) -> Option<EventCounter> {
        let name = self.checks.checked(&path.key("name"), &model.name, validate::metric_name);
        let at = path.key("match");
        let filter = model.filter.as_ref();
        let filter = filter.and_then(|filter| self.checks.parsed(&at, filter, Filter::compile));
        if filter.as_ref().is_some_and(Filter::names_object) {
            let wrong = wrong("expected a `match` without `object`, found one with it");
            self.checks.wrong(&at, wrong.hint(NO_OBJECT));
        }
        let mut labels = Vec::new();
        for (label, text) in &model.labels {
            let path = path.key("labels").key(label);
            if let Err(wrong) = validate::metric_label(label) {
                self.checks.wrong_key(&path, wrong);
            }
            let value = self.checks.parsed(&path, text, |text| templated(text, |_| Ok(())));
            if let Some(Templated::Template(template)) = &value
                && template.names_object()
            {
                let wrong = wrong("expected a template without `object`, found one with it");
                self.checks.wrong(&path, wrong.hint(NO_OBJECT));
            }
            labels.extend(value.map(|value| (label.clone(), value)));
        }
        if labels.len() > MOST_LABELS {
            let what = format!("expected at most {MOST_LABELS} labels, found {}", labels.len());
            let path = path.key("labels");
            self.checks.wrong(&path, wrong(what).hint("each value of each makes series"));
        }
        let max = self.checks.within(&path.key("max"), model.max, MOST_SERIES, SERIES) as usize;
        Some(EventCounter { name: name?, filter, labels, max })
    }
}
