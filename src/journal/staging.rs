//! Where a list that comes in pages is kept until it is whole.
//!
//! After a gap all Events that exist are listed, perhaps a hundred thousand, and those that are new
//! are exported in resourceVersion order, which is not the order they are listed in. So they go to
//! a file, and where each of them is there, with its resourceVersion, to an external sort. Memory
//! holds a few hundred KiB, whatever the number. [`StagedUids`] does the same for the uids of a
//! list, which tell what has been deleted.

use std::{
    io::{self, BufWriter, Write as _},
    os::unix::fs::FileExt as _,
};

use super::{
    Directory,
    scratch::Scratch,
    sorted_runs::{Gathering, Sorted},
};
use crate::event::UidKey;

const BUFFER: usize = 64 << 10;

/// A resourceVersion, where its item is, and how long: big-endian, so that their order is that of
/// the bytes.
type Place = [u8; 20];

fn place(resource_version: u64, at: u64, length: u32) -> Place {
    let mut place = [0; 20];
    place[..8].copy_from_slice(&resource_version.to_be_bytes());
    place[8..16].copy_from_slice(&at.to_be_bytes());
    place[16..].copy_from_slice(&length.to_be_bytes());
    place
}

/// A number of up to eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A staging area that is being filled. Its files are removed when this or what
/// [`into_sorted`](Self::into_sorted) made of it is dropped; what a crash leaves, when the
/// directory is opened.
#[derive(Debug)]
pub struct Staging {
    items: BufWriter<Scratch>,
    end: u64,
    places: Gathering<20>,
}

/// A staging area that is being read back.
#[derive(Debug)]
pub struct SortedStaging {
    items: Scratch,
    places: Sorted<20>,
}

impl Staging {
    /// An empty one; there may be several at a time.
    pub fn create(directory: &Directory) -> io::Result<Self> {
        let items = BufWriter::with_capacity(BUFFER, Scratch::create(directory)?);
        Ok(Self { items, end: 0, places: Gathering::new(directory) })
    }

    /// Adds an item. After an error the staging area is of no use any more: drop it, list again.
    pub fn push(&mut self, resource_version: u64, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.items.write_all(bytes)?;
        self.places.push(place(resource_version, self.end, length))?;
        self.end += u64::from(length);
        Ok(())
    }

    /// How many items it holds.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size on disk, in bytes.
    pub fn bytes(&self) -> u64 {
        self.end + (self.len() * size_of::<Place>()) as u64
    }

    /// Keeps the half of it that has the lowest resourceVersions, one item at least, and answers the
    /// highest of those. Half as much again is needed on disk meanwhile.
    pub fn halve(self, directory: &Directory) -> io::Result<(Self, u64)> {
        let (half, mut sorted) = (self.bytes() / 2, self.into_sorted()?);
        let (mut kept, mut highest, mut item) = (Self::create(directory)?, 0, Vec::new());
        while let Some(version) = sorted.next_into(&mut item)? {
            if !kept.is_empty() && kept.bytes() + item.len() as u64 > half && version > highest {
                break;
            }
            kept.push(version, &item)?;
            highest = version;
        }
        Ok((kept, highest))
    }

    /// Turns it round to be read in resourceVersion order; of the same, in the order of pushing.
    pub fn into_sorted(self) -> io::Result<SortedStaging> {
        let items = self.items.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(SortedStaging { items, places: self.places.into_sorted()? })
    }
}

impl SortedStaging {
    /// Puts the next item's bytes into `out`, in place of what is there, and answers its
    /// resourceVersion; nothing after the last. After an error it is of no use any more.
    pub fn next_into(&mut self, out: &mut Vec<u8>) -> io::Result<Option<u64>> {
        let Some(place) = self.places.next()? else { return Ok(None) };
        out.resize(number(&place[16..]) as usize, 0);
        self.items.file.read_exact_at(out, number(&place[8..16]))?;
        Ok(Some(number(&place[..8])))
    }

    /// How many items are left.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The uids of a list, in any order.
#[derive(Debug)]
pub struct StagedUids(Gathering<16>);

/// The uids of a list, ascending.
#[derive(Debug)]
pub struct SortedUids(Sorted<16>);

impl StagedUids {
    /// None yet.
    pub fn new(directory: &Directory) -> Self {
        Self(Gathering::new(directory))
    }

    /// Adds one. After an error it is of no use any more: drop it, list again.
    pub fn push(&mut self, uid: UidKey) -> io::Result<()> {
        self.0.push(uid.0.to_be_bytes())
    }

    /// Turns it round to be read in order.
    pub fn into_sorted(self) -> io::Result<SortedUids> {
        self.0.into_sorted().map(SortedUids)
    }
}

impl SortedUids {
    /// The next one; nothing after the last. After an error it is of no use any more.
    pub fn next_uid(&mut self) -> io::Result<Option<UidKey>> {
        Ok(self.0.next()?.map(|bytes| UidKey(u128::from_be_bytes(bytes))))
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
        let mut staging = Staging::create(&directory).unwrap();
        for version in [7, 1, 9, 4, 2, 4, 8] {
            staging.push(version, &[b'x'; 100]).unwrap();
        }
        assert_eq!(staging.bytes(), 7 * 120);
        let (kept, highest) = staging.halve(&directory).unwrap();
        assert_eq!((kept.len(), highest), (4, 4), "with all of the highest version");
        drop(kept);
        let left = |name: &str| dir.path().join(name).exists();
        assert!(!left("staging-0.tmp") && !left("staging-1.tmp"));
    }
}
