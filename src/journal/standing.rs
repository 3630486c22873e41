//! Where a sink stands in the log: one value, from a batch that is gathered to the saved state.

use serde::{Deserialize, Serialize};
use tidings_log::Position;

/// A sink's position, with everything before it that has no fate yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Everything before it has a fate, or is held.
    pub position: Position,
    /// Versions before it that have none, because the correlator holds them.
    #[serde(flatten)]
    pub held: Holding,
}

impl Standing {
    /// The sequence of the first record without a fate.
    pub fn unsettled_from(&self) -> u64 {
        self.held.first.map_or(self.position.next, |first| first.min(self.position.next))
    }
}

/// Versions that the correlator holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// How many versions wait for their fate.
    #[serde(rename = "held", default)]
    pub versions: u64,
    /// The sum, modulo 2^64, of a number for each key, made of the sequence of the version held last
    /// and of the increments that it stands for. It tells these versions from any others that might
    /// be held, so a saved correlator is known to fit a saved position.
    #[serde(rename = "held_mark", default)]
    pub mark: u64,
    /// The sequence of the first of them. Not saved: the correlator's state has it.
    #[serde(skip)]
    pub first: Option<u64>,
}

impl Holding {
    /// Whether these are the versions of a saved one, as far as that tells.
    pub(crate) fn fits(&self, saved: &Self) -> bool {
        (self.versions, self.mark) == (saved.versions, saved.mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::SinkState;

    #[test]
    fn a_standing_is_saved_in_the_form_of_earlier_builds() {
        let saved = r#"{"position":{"next":41,"skipped":3},"held":2,"held_mark":18446744073709551615,"totals":{"delivered":30},"positions":{}}"#;
        let state: SinkState = serde_json::from_str(saved).unwrap();
        let held = Holding { versions: 2, mark: u64::MAX, first: None };
        let standing = Standing { position: Position { next: 41, skipped: 3 }, held };
        assert_eq!(state.standing, standing);
        let held = Holding { first: Some(38), ..held };
        let state = SinkState { standing: Standing { held, ..standing }, ..state };
        let again = serde_json::to_value(state).unwrap();
        assert_eq!(again["position"], serde_json::json!({"next": 41, "skipped": 3}));
        assert_eq!((&again["held"], &again["held_mark"]), (&2.into(), &u64::MAX.into()));
        assert_eq!(again.as_object().unwrap().len(), 5, "{again}");
    }

    #[test]
    fn a_standing_is_unsettled_from_the_first_version_held() {
        let position = Position { next: 41, skipped: 3 };
        let from = |first| {
            Standing { position, held: Holding { first, ..Holding::default() } }.unsettled_from()
        };
        assert_eq!((from(None), from(Some(38)), from(Some(41))), (41, 38, 41));
    }
}
