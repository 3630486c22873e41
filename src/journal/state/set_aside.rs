//! Copies of the records that sinks have set aside.
//!
//! A sink's position may pass them: they are saved in the transaction that moves it.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use bytes::Bytes;
use redb::{ReadableDatabase as _, TableDefinition, WriteTransaction};

use super::{
    ReadError, SetAside, SetAsideChanges,
    seen_table::{Store, WeakStore},
};

/// By sink and sequence: how often it was sent, when first, in milliseconds since the epoch, and the
/// envelope.
pub(super) const SET_ASIDE: TableDefinition<'_, (&str, u64), (u32, u64, &[u8])> =
    TableDefinition::new("set aside");

/// Reads the copies while somebody else writes them. Clones are cheap. Blocks on the disk. It does not
/// keep the journal open: once the state is dropped nothing can be read.
#[derive(Clone, Debug)]
pub(crate) struct SetAsideReader(WeakStore);

impl SetAsideReader {
    pub(super) fn new(store: &Arc<Store>) -> Self {
        Self(WeakStore::of(store))
    }

    /// The record that a sink has set aside under that sequence; nothing if it has none, or it is not saved yet.
    pub(crate) fn get(&self, sink: &str, sequence: u64) -> Result<Option<SetAside>, ReadError> {
        self.0.read(|database| {
            let table = database.begin_read()?.open_table(SET_ASIDE)?;
            Ok(table.get((sink, sequence))?.map(|row| read(row.value())))
        })
    }

    /// How many records a sink has set aside.
    pub(crate) fn count(&self, sink: &str) -> Result<u64, ReadError> {
        self.0.read(|database| {
            let table = database.begin_read()?.open_table(SET_ASIDE)?;
            table
                .range(of(sink))?
                .try_fold(0, |count, item| item.map(|_| count + 1))
                .map_err(Into::into)
        })
    }

    /// Calls with each record that a sink has set aside, in the order of the sequences.
    pub(crate) fn for_each(
        &self,
        sink: &str,
        mut call: impl FnMut(u64, SetAside),
    ) -> Result<(), ReadError> {
        self.0.read(|database| {
            let table = database.begin_read()?.open_table(SET_ASIDE)?;
            for item in table.range(of(sink))? {
                let (key, row) = item?;
                call(key.value().1, read(row.value()));
            }
            Ok(())
        })
    }
}

/// The keys of a sink's records.
fn of(sink: &str) -> RangeInclusive<(&str, u64)> {
    (sink, 0)..=(sink, u64::MAX)
}

fn read((attempts, first_ms, envelope): (u32, u64, &[u8])) -> SetAside {
    SetAside { attempts, first_ms, envelope: Bytes::copy_from_slice(envelope) }
}

pub(super) fn write(
    transaction: &WriteTransaction,
    changes: &BTreeMap<String, SetAsideChanges>,
) -> Result<(), redb::Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut table = transaction.open_table(SET_ASIDE)?;
    for (sink, changes) in changes {
        for (sequence, change) in changes {
            let key = (sink.as_str(), *sequence);
            match change {
                Some(SetAside { attempts, first_ms, envelope }) => {
                    table.insert(key, (*attempts, *first_ms, &**envelope))?;
                }
                None => _ = table.remove(key)?,
            }
        }
    }
    Ok(())
}
