//! A place for items that come in one order and are appended in another, as those of a list that is
//! read in pages.
//!
//! Their bytes go to a file, and where each of them is there, with the number that it is ordered by,
//! to an [external sort](ExternalSort). Memory holds a few hundred KiB up to about a million items.

use std::{
    io::{self, BufWriter, Write as _},
    os::unix::fs::FileExt as _,
};

use super::{
    Directory,
    external_sort::{ExternalSort, Sorted},
    scratch::Scratch,
};

const BUFFER: usize = 64 << 10;

/// The number of an item, where the item is, and how long: big-endian, so that their order is that of
/// the bytes.
type Place = [u8; 20];

fn place(order: u64, at: u64, length: u32) -> Place {
    let mut place = [0; 20];
    place[..8].copy_from_slice(&order.to_be_bytes());
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
    places: ExternalSort<20>,
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
        Ok(Self { items, end: 0, places: ExternalSort::new(directory) })
    }

    /// Adds an item. After an error the staging area is of no use any more.
    pub fn push(&mut self, order: u64, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.items.write_all(bytes)?;
        self.places.push(place(order, self.end, length))?;
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

    /// What it takes on disk, in bytes.
    pub fn bytes(&self) -> u64 {
        self.end + (self.len() * size_of::<Place>()) as u64
    }

    /// Keeps the half of it that has the lowest numbers, one item at least, and answers the
    /// highest of those. Half as much again is needed on disk meanwhile.
    pub fn halve(self, directory: &Directory) -> io::Result<(Self, u64)> {
        let (half, mut sorted) = (self.bytes() / 2, self.into_sorted()?);
        let (mut kept, mut highest, mut item) = (Self::create(directory)?, 0, Vec::new());
        while let Some(order) = sorted.next_into(&mut item)? {
            if !kept.is_empty() && kept.bytes() + item.len() as u64 > half && order > highest {
                break;
            }
            kept.push(order, &item)?;
            highest = order;
        }
        Ok((kept, highest))
    }

    /// Turns it round to be read in order; items of one number in the order of pushing.
    pub fn into_sorted(self) -> io::Result<SortedStaging> {
        let items = self.items.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(SortedStaging { items, places: self.places.into_sorted()? })
    }
}

impl SortedStaging {
    /// Puts the next item's bytes into `out`, in place of what is there, and answers its
    /// number; nothing after the last. After an error it is of no use any more.
    pub fn next_into(&mut self, out: &mut Vec<u8>) -> io::Result<Option<u64>> {
        let Some(place) = self.places.next_record()? else { return Ok(None) };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_back_in_order_and_the_file_goes() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path(), &[]).unwrap();
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
