//! An external sort: any number of small records, put in order in little memory.
//!
//! Records are gathered in a run of some thousand, which is sorted and written to a file when it
//! is full. Reading merges the runs, a few KiB of each at a time. What is small enough never sees
//! a file.

use std::{cmp::Reverse, collections::BinaryHeap, io, os::unix::fs::FileExt as _};

use super::{Directory, scratch::Scratch};

/// A run has so many records. Of a million records, memory then holds a run, and 4 KiB for each of
/// 122 of them.
const RUN: usize = 8192;
/// So much of each run is read at a time, in bytes.
const READ: usize = 4096;

/// Records of `N` bytes that are being gathered; their order is that of their bytes.
#[derive(Debug)]
pub struct ExternalSort<const N: usize> {
    directory: Directory,
    file: Option<Scratch>,
    written: u64,
    run: Vec<[u8; N]>,
}

impl<const N: usize> ExternalSort<N> {
    /// Nothing yet; what does not fit in memory goes to a file in the directory.
    pub fn new(directory: &Directory) -> Self {
        Self { directory: directory.clone(), file: None, written: 0, run: Vec::new() }
    }

    /// How many have been added.
    pub(super) fn len(&self) -> usize {
        self.written as usize + self.run.len()
    }

    /// Adds one. After an error it is of no use any more.
    pub fn push(&mut self, record: [u8; N]) -> io::Result<()> {
        self.run.push(record);
        if self.run.len() == RUN { self.write_run() } else { Ok(()) }
    }

    fn write_run(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(Scratch::create(&self.directory)?),
        };
        self.run.sort_unstable();
        file.file.write_all_at(self.run.as_flattened(), self.written * N as u64)?;
        self.written += self.run.len() as u64;
        self.run.clear();
        Ok(())
    }

    /// Turns it round to be read in order.
    pub fn into_sorted(mut self) -> io::Result<Sorted<N>> {
        self.run.sort_unstable();
        let left = self.len();
        let whole = self.written / RUN as u64;
        let mut runs: Vec<Run<N>> = (0..whole).map(Run::in_file).collect();
        runs.push(Run::in_memory(self.run));
        let mut sorted = Sorted { file: self.file, runs, heads: BinaryHeap::new(), left };
        for run in 0..sorted.runs.len() {
            sorted.advance(run)?;
        }
        Ok(sorted)
    }
}

/// A run as it is read: what is left of it in the file, by the number of the record, and what has
/// been read already, last first.
#[derive(Debug)]
struct Run<const N: usize> {
    in_file: std::ops::Range<u64>,
    read: Vec<[u8; N]>,
}

impl<const N: usize> Run<N> {
    fn in_file(number: u64) -> Self {
        let first = number * RUN as u64;
        Self { in_file: first..first + RUN as u64, read: Vec::new() }
    }

    fn in_memory(mut records: Vec<[u8; N]>) -> Self {
        records.reverse();
        Self { in_file: 0..0, read: records }
    }

    fn next(&mut self, file: Option<&Scratch>) -> io::Result<Option<[u8; N]>> {
        if self.read.is_empty()
            && !self.in_file.is_empty()
            && let Some(file) = file
        {
            let count = (self.in_file.end - self.in_file.start).min((READ / N).max(1) as u64);
            self.read.resize(count as usize, [0; N]);
            let at = self.in_file.start * N as u64;
            file.file.read_exact_at(self.read.as_flattened_mut(), at)?;
            self.read.reverse();
            self.in_file.start += count;
        }
        Ok(self.read.pop())
    }
}

/// Records that are being read in order.
#[derive(Debug)]
pub struct Sorted<const N: usize> {
    file: Option<Scratch>,
    runs: Vec<Run<N>>,
    /// The next record of each run that has one, and the run.
    heads: BinaryHeap<Reverse<([u8; N], usize)>>,
    left: usize,
}

impl<const N: usize> Sorted<N> {
    /// How many are left.
    pub(super) fn len(&self) -> usize {
        self.left
    }

    /// The next one; nothing after the last. After an error it is of no use any more.
    pub fn next_record(&mut self) -> io::Result<Option<[u8; N]>> {
        let Some(Reverse((record, run))) = self.heads.pop() else { return Ok(None) };
        self.advance(run)?;
        self.left -= 1;
        Ok(Some(record))
    }

    fn advance(&mut self, run: usize) -> io::Result<()> {
        if let Some(record) = self.runs[run].next(self.file.as_ref())? {
            self.heads.push(Reverse((record, run)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_any_number_come_back_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path(), &[]).unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        for count in [0, 1, RUN - 1, RUN, RUN + 1, 5 * RUN + 100] {
            // With repeats, and within the merge as well.
            let mut records: Vec<[u8; 8]> =
                (0..count).map(|_| random.u64(..count as u64).to_be_bytes()).collect();
            let mut gathering = ExternalSort::new(&directory);
            for record in &records {
                gathering.push(*record).unwrap();
            }
            assert_eq!(gathering.len(), count);
            let mut sorted = gathering.into_sorted().unwrap();
            records.sort_unstable();
            for (at, record) in records.iter().enumerate() {
                assert_eq!(sorted.len(), count - at);
                assert_eq!(sorted.next_record().unwrap().as_ref(), Some(record));
            }
            assert_eq!(sorted.next_record().unwrap(), None);
        }
        assert!(!dir.path().join("staging-0.tmp").exists());
    }

    #[test]
    fn records_larger_than_a_read_come_back_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path(), &[]).unwrap();
        let mut sort = ExternalSort::new(&directory);
        for record in (0..RUN + 5).rev() {
            let mut bytes = [0; READ + 1];
            bytes[..8].copy_from_slice(&record.to_be_bytes());
            sort.push(bytes).unwrap();
        }
        let mut sorted = sort.into_sorted().unwrap();
        for record in 0..RUN + 5 {
            assert_eq!(sorted.next_record().unwrap().unwrap()[..8], record.to_be_bytes());
        }
        assert_eq!(sorted.next_record().unwrap(), None);
    }
}
