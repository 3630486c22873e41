//! Where dead letters are forwarded to: to a sink that there is, and never back.

use std::collections::BTreeMap;

use super::Builder;
use crate::{
    config::settings::SinkSettings,
    document::{Path, shown_of, wrong},
    suggest::did_you_mean,
};

impl Builder<'_> {
    pub(super) fn check_forwards(&mut self, sinks: &[SinkSettings]) {
        let forwards: BTreeMap<&str, &str> = sinks
            .iter()
            .filter_map(|sink| Some((&*sink.name, sink.forward_dead_letters.as_deref()?)))
            .collect();
        for (sink, to) in &forwards {
            let path = Path::root("sinks").key(sink).key("deadLetters").key("sink");
            if !sinks.iter().any(|other| other.name == *to) {
                let names: Vec<_> = sinks.iter().map(|other| &*other.name).collect();
                let sinks = || format!("the sinks are {}", names.join(", "));
                let hint = did_you_mean(to, names.iter().copied(), sinks);
                let mut what = format!("expected the name of a sink, found `{to}`");
                let model = self.loaded.model.sinks.iter().find(|(name, _)| name == sink);
                if let Some(letters) =
                    model.and_then(|(_, model)| model.common.dead_letters.as_ref())
                {
                    what = shown_of(&letters.sink, what);
                }
                self.checks.wrong(&path, wrong(what).hint(hint));
            } else if to == sink {
                let wrong = wrong("expected another sink, found this one");
                self.checks.wrong(&path, wrong.hint("name another sink, or remove `deadLetters`"));
            } else if let Some(circle) = circle(sink, &forwards) {
                let wrong =
                    wrong(format!("expected a chain with an end, found a circle: {circle}"));
                self.checks
                    .wrong(&path, wrong.hint("remove `deadLetters` from one of these sinks"));
            }
        }
    }
}

/// The way from a sink back to it, if its letters' way leads there.
fn circle(sink: &str, forwards: &BTreeMap<&str, &str>) -> Option<String> {
    let mut way = vec![sink];
    while let Some(next) = forwards.get(way.last()?) {
        let seen = way.contains(next);
        way.push(next);
        if seen {
            return (*next == sink).then(|| way.join(", "));
        }
    }
    None
}
