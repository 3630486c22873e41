//! Where dead letters are forwarded to: to a sink that there is, and never back.

use std::collections::BTreeMap;

use super::Builder;
use crate::{
    config::{path::Path, settings::SinkSettings, validate::wrong},
    suggest::nearest,
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
                let hint = match nearest(to, names.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("the sinks are {}", names.join(", ")),
                };
                self.wrong(&path, wrong(format!("there is no sink `{to}`")).hint(hint));
            } else if to == sink {
                let wrong = wrong("a sink cannot take its own dead letters");
                self.wrong(&path, wrong.hint("name another sink, or remove `deadLetters`"));
            } else if let Some(circle) = circle(sink, &forwards) {
                let wrong = wrong(format!("dead letters would go in a circle: {circle}"));
                self.wrong(&path, wrong.hint("remove `deadLetters` from one of these sinks"));
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
