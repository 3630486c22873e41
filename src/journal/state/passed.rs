//! Records behind the positions of sinks that have their fates, or are set aside, as rows of ranges: a commit
//! writes those that changed.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    ops::Range,
};

use redb::{
    ReadTransaction, ReadableTable as _, ReadableTableMetadata as _, TableDefinition,
    WriteTransaction,
};

use super::{META, OLDEST_VERSION, SinkState, VERSION};
use crate::journal::ranges::Ranges;

/// By sink and first sequence: the sequence after the last.
pub(super) const PASSED: TableDefinition<'_, (&str, u64), u64> = TableDefinition::new("passed");

/// Changes of a sink's ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassedChanges {
    /// Ranges that begin before it are gone,
    before: u64,
    /// and by their first sequences those that are new or have another end, and nothing for one that is gone.
    ranges: BTreeMap<u64, Option<u64>>,
}

impl PassedChanges {
    /// Changes after which all is these, whatever was there before.
    pub(crate) fn all(ranges: &Ranges) -> Self {
        let ranges = ranges.iter().map(|range| (range.start, Some(range.end))).collect();
        Self { before: u64::MAX, ranges }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.before == 0 && self.ranges.is_empty()
    }

    /// Adds a range to all that there are, and notes the change.
    pub(crate) fn add(&mut self, all: &mut Ranges, range: Range<u64>) {
        all.add_noting(range, |start, end| _ = self.ranges.insert(start, end));
    }

    /// Takes a sequence out, and notes the change.
    pub(crate) fn remove(&mut self, all: &mut Ranges, sequence: u64) {
        all.remove_noting(sequence, |start, end| _ = self.ranges.insert(start, end));
    }

    /// Drops what is before a sequence, and notes the change.
    pub(crate) fn drop_before(&mut self, all: &mut Ranges, sequence: u64) {
        if all.iter().next().is_none_or(|first| first.start >= sequence) {
            return;
        }
        all.drop_before(sequence);
        self.before = self.before.max(sequence);
        self.ranges = self.ranges.split_off(&sequence);
        if let Some(first) = all.iter().next().filter(|first| first.start == sequence) {
            self.ranges.insert(first.start, Some(first.end));
        }
    }

    /// Adds changes that came later.
    pub(crate) fn append(&mut self, later: Self) {
        if later.before > 0 {
            self.ranges = self.ranges.split_off(&later.before);
        }
        self.before = self.before.max(later.before);
        self.ranges.extend(later.ranges);
    }
}

pub(super) fn write(
    transaction: &WriteTransaction,
    changes: &BTreeMap<String, PassedChanges>,
) -> Result<(), redb::Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut table = transaction.open_table(PASSED)?;
    for (sink, PassedChanges { before, ranges }) in changes {
        let sink = sink.as_str();
        if *before > 0 {
            table.retain_in((sink, 0)..(sink, *before), |_, _| false)?;
        }
        for (start, end) in ranges {
            match end {
                Some(end) => _ = table.insert((sink, *start), *end)?,
                None => _ = table.remove((sink, *start))?,
            }
        }
    }
    // A build before this table would send again what is in it, and count it twice.
    let version = if table.is_empty()? { OLDEST_VERSION } else { VERSION };
    transaction.open_table(META)?.insert("version", version)?;
    Ok(())
}

/// Adds them to what is known of sinks. States of earlier builds have them in one value with that.
pub(super) fn load(
    transaction: &ReadTransaction,
    sinks: &mut BTreeMap<String, SinkState>,
) -> Result<(), redb::Error> {
    for item in transaction.open_table(PASSED)?.iter()? {
        let (key, end) = item?;
        let (sink, start) = key.value();
        if let Entry::Occupied(mut state) = sinks.entry(sink.to_owned()) {
            state.get_mut().passed.add(start..end.value());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Applies changes to rows.
    fn apply(rows: &mut BTreeMap<u64, u64>, changes: &PassedChanges) {
        rows.retain(|start, _| *start >= changes.before);
        for (start, end) in &changes.ranges {
            match end {
                Some(end) => _ = rows.insert(*start, *end),
                None => _ = rows.remove(start),
            }
        }
    }

    proptest! {
        #[test]
        fn rows_are_the_ranges_after_each_save(
            before in prop::collection::vec((0u64..60, 1u64..4), 0..10),
            steps in prop::collection::vec((0u8..6, 0u64..100), 0..120),
        ) {
            let (mut all, mut rows) = (Ranges::default(), BTreeMap::from([(7, 9), (80, 200)]));
            for (start, length) in &before {
                all.add(*start..start + length);
            }
            let mut changes = PassedChanges::all(&all);
            for (what, sequence) in steps {
                match what {
                    0 | 1 => changes.add(&mut all, sequence..sequence + 1),
                    2 => changes.remove(&mut all, sequence),
                    3 => changes.drop_before(&mut all, sequence / 4),
                    4 => {
                        // A save that fails may be stored all the same. Meanwhile there is more.
                        if sequence % 2 == 0 {
                            apply(&mut rows, &changes);
                        }
                        let mut failed = std::mem::take(&mut changes);
                        changes.add(&mut all, sequence..sequence + 2);
                        changes.drop_before(&mut all, sequence / 8);
                        failed.append(std::mem::take(&mut changes));
                        changes = failed;
                    }
                    _ => {
                        apply(&mut rows, &std::mem::take(&mut changes));
                        let expected: BTreeMap<_, _> =
                            all.iter().map(|range| (range.start, range.end)).collect();
                        prop_assert_eq!(&rows, &expected);
                    }
                }
            }
        }
    }
}
