//! One line of the log a second, for each sink and reason; and for ingest, of Events that it cuts.
//!
//! Whoever makes events decides how many of them are refused, and a log of 450 lines a second tells no
//! more than one of two: the first is written at once, and what follows within a second is counted
//! and told in one line at its end, and so on for as long as more comes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use tracing::Level;

use super::{Reason, shared::lock};

/// A line of a kind is followed by another one after this time.
const EVERY: Duration = Duration::from_secs(1);

const WARNING: &str = "the receiver took all events, with a warning";

/// The kind of a line: its level, its words, and a class of reasons. Not the reason itself, in which each
/// event may have its own.
type Kind = (Level, &'static str, String);

/// The lines about one sink, or of ingest, that may come for each event. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct LogLines(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The sink's name; nothing for ingest.
    sink: Option<String>,
    /// The kinds of which a line was written less than a second ago, and the events left out since.
    left_out: Mutex<BTreeMap<Kind, u64>>,
}

impl LogLines {
    /// None of a sink was written yet.
    pub(crate) fn new(sink: &str) -> Self {
        Self(Arc::new(Inner { sink: Some(sink.to_owned()), left_out: Mutex::default() }))
    }

    /// None of ingest was written yet.
    pub(super) fn of_ingest() -> Self {
        Self(Arc::new(Inner { sink: None, left_out: Mutex::default() }))
    }

    /// The sink's name.
    #[cfg(feature = "kafka")]
    pub(crate) fn sink(&self) -> &str {
        self.0.sink.as_deref().unwrap_or_default()
    }

    /// Whether a line about so many events is to be written now. One that is not is counted, and told
    /// with others of its kind.
    pub(crate) fn admit(&self, level: Level, what: &'static str, class: &str, events: u64) -> bool {
        // Without a runtime nobody would come back to tell it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return true };
        let kind = (level, what, class.to_owned());
        let mut left_out = lock(&self.0.left_out);
        if let Some(left_out) = left_out.get_mut(&kind) {
            *left_out += events;
            return false;
        }
        left_out.insert(kind.clone(), 0);
        runtime.spawn(tell(Arc::downgrade(&self.0), kind));
        true
    }

    /// Tells what a receiver says that took so many events.
    pub(super) fn warn_of(&self, warning: &Reason, events: u64) {
        if self.admit(Level::WARN, WARNING, "", events) {
            tracing::warn!(
                sink = self.0.sink.as_deref(),
                events,
                warning = &**warning,
                "{WARNING}"
            );
        }
    }
}

/// Once a second tells what was left out, until nothing was.
async fn tell(inner: Weak<Inner>, kind: Kind) {
    loop {
        tokio::time::sleep(EVERY).await;
        // The last of them told it.
        let Some(inner) = inner.upgrade() else { return };
        let mut left_out = lock(&inner.left_out);
        let Some(events) = left_out.get_mut(&kind).map(std::mem::take).filter(|events| *events > 0)
        else {
            left_out.remove(&kind);
            return;
        };
        drop(left_out);
        inner.write(&kind, events);
    }
}

impl Inner {
    fn write(&self, (level, what, class): &Kind, events: u64) {
        macro_rules! write {
            ($level:expr) => {
                tracing::event!(
                    $level,
                    sink = self.sink.as_deref(),
                    class = (!class.is_empty()).then_some(&**class),
                    events,
                    "as many more in the last second: {what}"
                )
            };
        }
        // The level of an event is a constant.
        match *level {
            Level::ERROR => write!(Level::ERROR),
            Level::WARN => write!(Level::WARN),
            _ => write!(Level::INFO),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let left_out = std::mem::take(&mut *lock(&self.left_out));
        for (kind, events) in left_out {
            if events > 0 {
                self.write(&kind, events);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::heard::Levels;

    fn kind(what: &'static str, class: &str) -> Kind {
        (Level::WARN, what, class.to_owned())
    }

    fn left_out(lines: &LogLines) -> BTreeMap<Kind, u64> {
        lock(&lines.0.left_out).clone()
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_is_written_at_once_and_the_others_are_counted_by_the_second() {
        let lines = LogLines::new("audit");
        let mut admitted = 0;
        for _ in 0..1000 {
            admitted += u32::from(lines.admit(Level::WARN, "refused", "invalid", 1));
        }
        assert_eq!(admitted, 1);
        assert_eq!(left_out(&lines), [(kind("refused", "invalid"), 999)].into());
        assert!(
            lines.admit(Level::WARN, "refused", "too-large", 1),
            "another reason has a line of its own"
        );
        assert!(lines.clone().admit(Level::WARN, "given up", "", 7));
        assert!(!lines.clone().admit(Level::WARN, "given up", "", 7));

        // What was left out has been told, and what comes now is, a second later.
        tokio::time::sleep(EVERY * 3 / 2).await;
        let told = [(kind("refused", "invalid"), 0), (kind("given up", ""), 0)];
        assert_eq!(left_out(&lines), told.into());
        assert!(!lines.admit(Level::WARN, "refused", "invalid", 1));
        tokio::time::sleep(EVERY * 3).await;
        assert_eq!(left_out(&lines), BTreeMap::new(), "after a quiet second all is as at first");
        assert!(lines.admit(Level::WARN, "refused", "invalid", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_told_in_a_line_a_second_and_the_last_of_it_at_the_end() {
        let (levels, _guard) = Levels::heard();
        let lines = LogLines::of_ingest();
        let tell = || {
            if lines.admit(Level::WARN, "an Event was cut", "", 1) {
                tracing::warn!("cut");
            }
        };
        (0..100).for_each(|_| tell());
        assert_eq!((levels.take().len(), left_out(&lines)[&kind("an Event was cut", "")]), (1, 99));
        tokio::time::sleep(EVERY * 3 / 2).await;
        assert_eq!((levels.take().len(), left_out(&lines)[&kind("an Event was cut", "")]), (1, 0));
        tell();
        drop(lines);
        assert_eq!(levels.take().len(), 1, "the last of them are told at the end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_sum_has_the_level_of_the_lines_that_it_stands_for() {
        let (levels, _guard) = Levels::heard();
        let lines = LogLines::new("audit");
        for level in [Level::ERROR, Level::WARN, Level::INFO] {
            for _ in 0..3 {
                lines.admit(level, "told", "", 1);
            }
            tokio::time::sleep(EVERY * 3).await;
            assert_eq!(levels.take(), [level]);
        }
    }
}
