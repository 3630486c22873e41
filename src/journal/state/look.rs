//! Looking at a state without touching it: what opening has to write goes to memory.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Mutex,
};

use redb::{Database, StorageBackend};

use super::{CACHE, Loaded, Unusable, load, unusable};
use crate::locks::lock;

/// Writes go to memory in blocks of so many bytes.
const BLOCK: u64 = 4096;

/// The contents of a state.
#[derive(Debug)]
pub(crate) struct Look {
    pub loaded: Loaded,
    pub dead_letters: u64,
    pub dead_letter_bytes: u64,
}

/// Reads a state, and checks all of it.
///
/// # Errors
///
/// The damage, in words.
pub(crate) fn look(path: &Path) -> Result<Look, String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    let length = file.metadata().map_err(|e| e.to_string())?.len();
    let overlay =
        Overlay { file, changed: Mutex::new(Changed { length, blocks: BTreeMap::new() }) };
    let read = || {
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE).set_check_integrity_on_open(true);
        let database = builder.create_with_backend(overlay).map_err(|e| unusable(e.into()))?;
        load(&database)
    };
    // As in opening it: that redb does not panic is not left to trust.
    let read = catch_unwind(AssertUnwindSafe(read));
    match read {
        Ok(Ok((loaded, dead))) => {
            let (dead_letters, dead_letter_bytes) = dead.kept();
            Ok(Look { loaded, dead_letters, dead_letter_bytes })
        }
        Ok(Err(Unusable::Damaged(reason))) => Err(reason),
        Ok(Err(Unusable::Unread(error))) => Err(error.to_string()),
        Ok(Err(Unusable::Newer(version))) => Err(format!("it is of the newer format {version}")),
        Ok(Err(Unusable::Held)) => Err("another process has it".to_owned()),
        Err(_) => Err("reading it failed in a way not foreseen".to_owned()),
    }
}

/// A file, and over it what would have been written to it.
#[derive(Debug)]
struct Overlay {
    file: File,
    changed: Mutex<Changed>,
}

#[derive(Debug)]
struct Changed {
    length: u64,
    /// By number.
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Overlay {
    /// A block as it is in the file; zeros beyond its end.
    fn block(&self, number: u64) -> io::Result<Vec<u8>> {
        let mut block = vec![0; BLOCK as usize];
        let mut done = 0;
        while done < block.len() {
            match self.file.read_at(&mut block[done..], number * BLOCK + done as u64)? {
                0 => break,
                n => done += n,
            }
        }
        Ok(block)
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.changed).length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let changed = lock(&self.changed);
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > changed.length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut at = offset;
        let mut rest = out;
        while !rest.is_empty() {
            let within = (at % BLOCK) as usize;
            let length = rest.len().min(BLOCK as usize - within);
            let (piece, others) = rest.split_at_mut(length);
            match changed.blocks.get(&(at / BLOCK)) {
                Some(block) => piece.copy_from_slice(&block[within..within + length]),
                None => {
                    piece.copy_from_slice(&self.block(at / BLOCK)?[within..within + length]);
                }
            }
            at += length as u64;
            rest = others;
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut changed = lock(&self.changed);
        if length < changed.length {
            // Should it grow again, there are zeros.
            for number in length / BLOCK..changed.length.div_ceil(BLOCK) {
                let mut block = match changed.blocks.remove(&number) {
                    Some(block) => block,
                    None => self.block(number)?,
                };
                let kept = length.saturating_sub(number * BLOCK).min(BLOCK) as usize;
                block[kept..].fill(0);
                changed.blocks.insert(number, block);
            }
        }
        changed.length = length;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changed = lock(&self.changed);
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let within = (at % BLOCK) as usize;
            let (piece, others) = rest.split_at(rest.len().min(BLOCK as usize - within));
            let block = match changed.blocks.entry(at / BLOCK) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(self.block(at / BLOCK)?),
            };
            block[within..within + piece.len()].copy_from_slice(piece);
            at += piece.len() as u64;
            rest = others;
        }
        Ok(())
    }
}
