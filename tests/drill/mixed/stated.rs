//! Statements of the bridge about gaps and new epochs, over all its lives.

use jiff::Timestamp;
use serde_json::Value;

/// A gap, as the log of the bridge states it.
pub(crate) struct Stated {
    /// Which life of the bridge says so.
    life: usize,
    from: Timestamp,
    to: Timestamp,
    replayed: u64,
    pub(crate) skipped: u64,
}

impl Stated {
    /// All of them.
    ///
    /// No kill takes a gap away: it is stated when the end of its list is in the log, and saved as
    /// stated after that; what a bridge finds to be in the log and not saved it states when it
    /// starts. So a kill between a statement and the save makes it come again. It is taken once.
    pub(crate) fn all(log: &[Value]) -> Vec<Self> {
        let (mut life, mut stated) = (0, Vec::<Self>::new());
        for line in log {
            life += usize::from(line["message"] == "starting");
            let news = Self::of(line, life);
            stated.extend(news.filter(|one| !stated.iter().any(|before| one.repeats(before))));
        }
        stated
    }

    fn of(line: &Value, life: usize) -> Option<Self> {
        let time = |name: &str| line[name].as_str()?.parse().ok();
        Some(Self {
            life,
            from: time("from")?,
            to: time("to")?,
            replayed: line["replayed"].as_u64()?,
            skipped: line["skipped_increments"].as_u64()?,
        })
    }

    /// Whether this is that, which an earlier life has stated, once more.
    fn repeats(&self, that: &Self) -> bool {
        let facts = |one: &Self| (one.replayed, one.skipped);
        // Two gaps do not overlap.
        self.life > that.life && facts(self) == facts(that) && self.from < that.to
    }

    /// Whether what happened then lies within.
    pub(crate) fn holds(&self, time: Timestamp) -> bool {
        self.from <= time && time <= self.to
    }
}
