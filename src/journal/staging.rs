//! Where a list that comes in pages is kept until it is whole.
//!
//! After a gap all Events that exist are listed, perhaps a hundred thousand, and those that are new
//! are exported in resourceVersion order, which is not the order they are listed in. So they go to
//! a file, and memory holds 24 bytes for each.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufWriter, Write as _},
    os::unix::fs::FileExt as _,
    path::PathBuf,
};

use super::Directory;

const BUFFER: usize = 64 << 10;

#[derive(Clone, Copy, Debug)]
struct Item {
    resource_version: u64,
    at: u64,
    length: u32,
}

/// A staging area that is being filled. Its file is removed when this or what
/// [`into_sorted`](Self::into_sorted) made of it is dropped; what a crash leaves, when the
/// directory is opened.
#[derive(Debug)]
pub struct Staging {
    file: BufWriter<File>,
    end: u64,
    items: Vec<Item>,
    removal: Removal,
}

/// A staging area that is being read back.
#[derive(Debug)]
pub struct SortedStaging {
    file: File,
    items: std::vec::IntoIter<Item>,
    _removal: Removal,
}

/// Removes the file when dropped.
#[derive(Debug)]
struct Removal {
    path: PathBuf,
    /// So that no other process takes the directory, and removes the file as a leftover.
    _directory: Directory,
}

impl Drop for Removal {
    fn drop(&mut self) {
        // What stays is removed at the next open.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Staging {
    /// An empty one; there may be several at a time.
    pub fn create(directory: &Directory) -> io::Result<Self> {
        let mut number = 0u32;
        let (path, file) = loop {
            let path = directory.path().join(format!("staging-{number}.tmp"));
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => break (path, file),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(e),
            }
        };
        let file = BufWriter::with_capacity(BUFFER, file);
        let removal = Removal { path, _directory: directory.clone() };
        Ok(Self { file, end: 0, items: Vec::new(), removal })
    }

    /// Adds an item. After an error the staging area is of no use any more: drop it, list again.
    pub fn push(&mut self, resource_version: u64, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.file.write_all(bytes)?;
        self.items.push(Item { resource_version, at: self.end, length });
        self.end += u64::from(length);
        Ok(())
    }

    /// How many items it holds.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Turns it round to be read in resourceVersion order; of the same, in the order of pushing.
    pub fn into_sorted(self) -> io::Result<SortedStaging> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let mut items = self.items;
        items.sort_unstable_by_key(|item| (item.resource_version, item.at));
        Ok(SortedStaging { file, items: items.into_iter(), _removal: self.removal })
    }
}

impl SortedStaging {
    /// Puts the next item's bytes into `out`, in place of what is there, and answers its
    /// resourceVersion; nothing after the last. After an error the same item is tried again.
    pub fn next_into(&mut self, out: &mut Vec<u8>) -> io::Result<Option<u64>> {
        let Some(item) = self.items.as_slice().first().copied() else { return Ok(None) };
        out.resize(item.length as usize, 0);
        self.file.read_exact_at(out, item.at)?;
        self.items.next();
        Ok(Some(item.resource_version))
    }

    /// How many items are left.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.items.as_slice().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_back_in_resource_version_order_and_the_file_goes() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let mut staging = Staging::create(&directory).unwrap();
        let other = Staging::create(&directory).unwrap();
        let big = vec![b'x'; BUFFER + 1];
        for (version, bytes) in [(9, &b"nine"[..]), (3, &big), (5, b""), (3, b"again")] {
            staging.push(version, bytes).unwrap();
        }
        assert_eq!(staging.len(), 4);
        let mut sorted = staging.into_sorted().unwrap();
        let mut out = Vec::new();
        let mut got = Vec::new();
        while let Some(version) = sorted.next_into(&mut out).unwrap() {
            got.push((version, out.clone()));
        }
        let expected = [(3, big), (3, b"again".to_vec()), (5, Vec::new()), (9, b"nine".to_vec())];
        assert_eq!(got, expected);
        drop(sorted);
        drop(other);
        let left = |name: &str| dir.path().join(name).exists();
        assert!(!left("staging-0.tmp") && !left("staging-1.tmp"));
        assert_eq!(size_of::<Item>(), 24);
    }
}
