//! `delivered/<sink>`: which records a sink has had that its saved state may know nothing of.
//!
//! The state store saves cursors once a second. Records that were delivered after the last save are delivered again after
//! a `kill -9`, under the same ids: this file tells how many these are, over any number of kills. Those behind the
//! position count as delivered in the status. Of records that are gone from the log before they could be delivered again,
//! the file tells which the receiver has, and which are lost. Where versions are held back, it has what was decided by up
//! to there, too: then it can be told, of those, whose increments the receiver has.
//!
//! The file is written after each answer, and where versions are held back before each attempt, and never synced. It
//! outlives the process; if the machine goes down with it, less is said to have been delivered than was.
//!
//! The file is [`MAGIC`] and then entries, each added by one write: the CRC-32C of what follows it in
//! the entry, the length of the rest, and as numbers of seven bits a byte how many were delivered
//! again in all, and ranges of sequences: how far each is behind the one before, and how long it is.
//! Behind a range of no length come [inputs](Inputs).
//! Reading ends at an entry that is not whole. When much of it is about what the state knows by now,
//! the rest is written anew beside it and takes its place. Earlier builds wrote eight bytes: the
//! sequence up to which everything was taken to have been delivered.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use tidings_log::{Directory, private};

use super::{Inputs, Standing, ranges::Ranges};

/// The directory of these files, in that of the journal.
pub(super) const DIR: &str = "delivered";

/// As a number it is beyond the end of any log, so that an earlier build sets the file aside.
const MAGIC: &[u8; 8] = b"tidings1";
/// A file that is no larger is not written anew.
const REWRITE_AT: u64 = 16 << 10;
/// A file that was taken away is missed after so many milliseconds at the latest.
const LOOK_EVERY_MS: u64 = 1_000;

/// So many inputs are kept: 3 MiB, and as many as there are in a second, but in a burst.
const MOST_INPUTS: usize = 1 << 15;

/// What the saved state may not know of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// The records that the receiver has.
    pub(crate) delivered: Ranges,
    /// What the correlator decided by up to there.
    pub(crate) inputs: Inputs,
}

impl Noted {
    fn decided_by(&mut self, inputs: &Inputs) {
        self.inputs.merge(inputs, 0..inputs.len());
        self.inputs.leave_last(MOST_INPUTS);
    }

    /// Forgets what the state knows that was saved there.
    fn drop_before(&mut self, saved: Standing) {
        self.delivered.drop_before(saved.unsettled_from());
        self.inputs.drop_before(saved.position.next);
    }

    /// Whether it is known what was decided on a record, be it nothing.
    pub(crate) fn is_decided(&self, sequence: u64) -> bool {
        let known = self.inputs.len() < MOST_INPUTS || self.inputs.start() <= sequence;
        known && sequence < self.inputs.end()
    }

    /// Whether there is nothing.
    fn is_empty(&self) -> bool {
        self.delivered.is_empty() && self.inputs.is_empty()
    }

    /// The sequence after the last of all.
    fn end(&self) -> u64 {
        self.delivered.end().max(self.inputs.end())
    }
}

/// What a file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) noted: Noted,
    /// An earlier build wrote it: the ranges begin with the first record of the journal.
    plain: bool,
    redelivered: u64,
    /// The bytes that were understood.
    length: u64,
}

/// What the file at `path` says; nothing of one that was just made, or that a crash of the machine
/// cut.
pub(super) fn read(path: &Path) -> io::Result<Content> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(parse(&bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Content::default()),
        Err(e) => Err(e),
    }
}

fn parse(bytes: &[u8]) -> Content {
    let mut content = Content::default();
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        if let Ok(next) = bytes.try_into().map(u64::from_le_bytes) {
            content.noted.delivered.add(0..next);
            content.plain = true;
        }
        return content;
    };
    while let Some((entry, behind)) = entry(rest) {
        let mut numbers = Numbers(entry);
        content.redelivered = numbers.next().unwrap_or(content.redelivered);
        let mut end = 0_u64;
        while let (Some(behind), Some(length)) = (numbers.next(), numbers.next()) {
            if length == 0 {
                content.noted.decided_by(&Inputs::parse(numbers.0));
                break;
            }
            let start = end.saturating_add(behind);
            end = start.saturating_add(length);
            content.noted.delivered.add(start..end);
        }
        rest = behind;
    }
    content.length = (bytes.len() - rest.len()) as u64;
    content
}

/// What is in the first entry, and what follows it; nothing if it is not whole.
fn entry(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (crc, rest) = bytes.split_first_chunk()?;
    let (length, _) = rest.split_first_chunk()?;
    let end = usize::try_from(u32::from_le_bytes(*length)).ok()?.checked_add(length.len())?;
    let (entry, behind) = rest.split_at_checked(end)?;
    (crc32c::crc32c(entry) == u32::from_le_bytes(*crc)).then_some((&entry[length.len()..], behind))
}

fn entry_of(noted: &Noted, redelivered: u64) -> Vec<u8> {
    let mut out = vec![0; 8];
    put(&mut out, redelivered);
    let mut end = 0;
    for range in noted.delivered.iter() {
        put(&mut out, range.start - end);
        put(&mut out, range.end - range.start);
        end = range.end;
    }
    if !noted.inputs.is_empty() {
        out.extend([0, 0]);
        noted.inputs.write(&mut out);
    }
    // There is not so much that it could be longer.
    let length = (out.len() - 8) as u32;
    out[4..8].copy_from_slice(&length.to_le_bytes());
    let crc = crc32c::crc32c(&out[4..]);
    out[..4].copy_from_slice(&crc.to_le_bytes());
    out
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The numbers of an entry.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> Option<u64> {
        let length = self.0.iter().position(|byte| byte & 0x80 == 0)? + 1;
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        let number = bytes.iter().rev().fold(0, |sum, byte| sum << 7 | u64::from(byte & 0x7f));
        Some(number)
    }
}

/// See the [module](self). One for each sink.
#[derive(Debug)]
pub(crate) struct Delivered {
    file: File,
    path: PathBuf,
    /// What earlier runs noted and may not have saved.
    earlier: Arc<Noted>,
    /// The same of all runs.
    all: Noted,
    redelivered: u64,
    /// What the file does not say yet.
    unwritten: Noted,
    /// Where the next entry goes, and from where on the file is written anew.
    length: u64,
    rewrite_at: u64,
    /// When it was last looked whether the file is in its place.
    looked_ms: u64,
}

impl Delivered {
    /// Opens the file of a sink whose saved position is `next`, in a log that ends at `tail`. A file
    /// that cannot be of this log is set aside.
    ///
    /// # Errors
    ///
    /// What the operating system answers to opening or writing it.
    pub(crate) fn open(
        directory: &Directory,
        sink: &str,
        next: u64,
        tail: u64,
        now_ms: u64,
    ) -> io::Result<Self> {
        let (dir, name) = (directory.path().join(DIR), format!("{DIR}/{sink}"));
        let cost = "from here on the redelivered are counted anew";
        if dir.exists() && !dir.is_dir() {
            directory.set_aside(DIR, &format!("it is no directory; {cost}"), now_ms)?;
        }
        private::directory().create(&dir)?;
        let path = dir.join(sink);
        let mut content = match read(&path) {
            Ok(content) if content.noted.end() > tail => {
                let end = content.noted.end();
                let reason = format!("it says {end}, and the log ends at {tail}; {cost}");
                directory.set_aside(&name, &reason, now_ms)?;
                Content { redelivered: content.redelivered, ..Content::default() }
            }
            Err(e) if e.kind() == io::ErrorKind::IsADirectory => {
                directory.set_aside(&name, &format!("it is no file; {cost}"), now_ms)?;
                Content::default()
            }
            read => read?,
        };
        if content.plain {
            // Of what was held before the position, it knew nothing.
            content.noted.delivered.drop_before(next);
        }
        let file = private::file().write(true).create(true).truncate(false).open(&path)?;
        let mut delivered = Self {
            file,
            path,
            earlier: Arc::new(content.noted.clone()),
            all: content.noted,
            redelivered: content.redelivered,
            unwritten: Noted::default(),
            length: content.length,
            rewrite_at: REWRITE_AT,
            looked_ms: now_ms,
        };
        if content.length == 0 {
            // A disk may be full; then it is done with the first write.
            let _ = delivered.rewrite();
        }
        Ok(delivered)
    }

    /// What earlier runs delivered, and decided by, and may not have saved.
    pub(crate) fn earlier(&self) -> Arc<Noted> {
        Arc::clone(&self.earlier)
    }

    /// Forgets what was decided by: the correlator that decided so is gone with the state. The file does
    /// so, too, for the next run may have a state again.
    pub(crate) fn forget_inputs(&mut self) {
        if self.all.inputs.is_empty() {
            return;
        }
        Arc::make_mut(&mut self.earlier).inputs = Inputs::default();
        self.all.inputs = Inputs::default();
        // On a full disk they stay, as they did before.
        let _ = self.rewrite();
    }

    /// The records that the receiver has, as far as they are [written](Self::write) and the state may not know them.
    pub(crate) fn all(&self) -> &Ranges {
        &self.all.delivered
    }

    /// How many were delivered again, over all runs.
    pub(crate) fn redelivered(&self) -> u64 {
        self.redelivered
    }

    /// More were, by what the state says.
    pub(crate) fn redelivered_at_least(&mut self, redelivered: u64) {
        self.redelivered = self.redelivered.max(redelivered);
    }

    /// A record has been delivered.
    pub(crate) fn add(&mut self, sequence: u64) {
        self.redelivered += u64::from(self.earlier.delivered.contains(sequence));
        self.unwritten.delivered.add(sequence..sequence + 1);
    }

    /// What comes next was decided by these. They are to be [written](Self::write) before it is sent, so
    /// that it is decided on in the same way if that is cut off.
    pub(crate) fn decided_by(&mut self, inputs: &Inputs) {
        self.unwritten.decided_by(inputs);
    }

    /// Writes down what was added. Everything before the place that `saved` answers is in the state, and need
    /// not be known here any longer.
    pub(crate) fn write(&mut self, now_ms: u64, saved: impl Fn() -> Standing) {
        if self.unwritten.is_empty() {
            return;
        }
        if !self.unwritten.inputs.is_empty() {
            self.unwritten.inputs.drop_before(saved().position.next);
        }
        for range in self.unwritten.delivered.iter() {
            self.all.delivered.add(range.clone());
        }
        self.all.decided_by(&self.unwritten.inputs);
        let in_place = self.is_in_place(now_ms);
        // It is only a count, so a full disk is no reason for an error; the next entry says it, too.
        if in_place && self.length > 0 {
            let entry = entry_of(&self.unwritten, self.redelivered);
            if self.file.write_all_at(&entry, self.length).is_ok() {
                self.length += entry.len() as u64;
                self.unwritten = Noted::default();
            }
        }
        if !in_place || self.length == 0 || self.length >= self.rewrite_at {
            self.all.drop_before(saved());
            // Where there is no room for another file, this one grows on.
            let _ = self.rewrite();
        }
    }

    /// Whether the file has its name, without which nobody would ever read it. That is looked at once a
    /// second: it takes longer than to write an entry.
    fn is_in_place(&mut self, now_ms: u64) -> bool {
        if now_ms.abs_diff(self.looked_ms) < LOOK_EVERY_MS {
            return true;
        }
        self.looked_ms = now_ms;
        private::is_at(&self.file, &self.path).unwrap_or(true)
    }

    /// Writes the file anew, and makes its directory if that was taken away. That of the journal is
    /// not made here: whoever holds its lock does that, and says so.
    fn rewrite(&mut self) -> io::Result<()> {
        let dir = self.path.parent().unwrap_or(&self.path);
        match private::directory().recursive(false).create(dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            Ok(()) | Err(_) => {}
        }
        // A sink's name does not begin with a dot.
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = self.path.with_file_name(format!(".{name}"));
        let file = private::file().write(true).create(true).truncate(true).open(&temporary)?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(entry_of(&self.all, self.redelivered));
        file.write_all_at(&bytes, 0)?;
        std::fs::rename(&temporary, &self.path)?;
        self.file = file;
        self.length = bytes.len() as u64;
        self.rewrite_at = REWRITE_AT.max(2 * self.length);
        self.unwritten = Noted::default();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use tidings_log::Position;

    use super::*;

    fn set(ranges: &Ranges) -> BTreeSet<u64> {
        ranges.iter().cloned().flatten().collect()
    }

    fn at(next: u64) -> Standing {
        Standing { position: Position { next, skipped: 0 }, ..Standing::default() }
    }

    fn open(directory: &Directory, next: u64) -> Delivered {
        Delivered::open(directory, "audit", next, 1 << 40, 0).unwrap()
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A batch is delivered: so far behind the one before, and which of its records.
        Deliver(u64, Vec<bool>),
        /// The state is saved.
        Save,
        /// The process is killed, and the last write may be torn.
        Kill(Option<u8>),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0u64..50, prop::collection::vec(any::<bool>(), 1..600))
                .prop_map(|(behind, wanted)| Step::Deliver(behind, wanted)),
            2 => Just(Step::Save),
            2 => prop::option::of(any::<u8>()).prop_map(Step::Kill),
        ]
    }

    proptest! {
        #[test]
        fn the_file_knows_what_was_delivered_since_the_state_was_saved(
            steps in prop::collection::vec(step(), 1..60),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let directory = crate::journal::open(dir.path()).unwrap();
            let path = dir.path().join(DIR).join("audit");
            let (mut had, mut again, mut before) = (BTreeSet::new(), 0, BTreeSet::new());
            let (mut next, mut saved) = (1, 1);
            let mut delivered = open(&directory, saved);
            for step in steps {
                match step {
                    Step::Deliver(behind, wanted) => {
                        next += behind;
                        for wanted in wanted {
                            if wanted {
                                delivered.add(next);
                                again += u64::from(before.contains(&next));
                                had.insert(next);
                            }
                            next += 1;
                        }
                        delivered.write(0, || at(saved));
                        let most = REWRITE_AT.max(8 * had.len() as u64) + 4096;
                        prop_assert!(delivered.length < most, "{}", delivered.length);
                    }
                    Step::Save => saved = next,
                    Step::Kill(torn) => {
                        // What a write that did not come to its end leaves.
                        if let Some(byte) = torn {
                            let entry = entry_of(&delivered.all, u64::from(byte));
                            let part = usize::from(byte) % entry.len();
                            delivered.file.write_all_at(&entry[..part], delivered.length).unwrap();
                        }
                        before.clone_from(&had);
                        // What was not saved is delivered again.
                        next = saved;
                        delivered = open(&directory, saved);
                        prop_assert_eq!(delivered.redelivered(), again);
                        let expected: BTreeSet<u64> = had.range(saved..).copied().collect();
                        let known: BTreeSet<u64> = set(&delivered.earlier().delivered);
                        prop_assert_eq!(known.range(saved..).copied().collect::<BTreeSet<_>>(), expected);
                        prop_assert!(known.is_subset(&had));
                    }
                }
            }
            prop_assert!(read(&path).is_ok());
        }

        #[test]
        fn whatever_the_file_holds_it_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            parse(&bytes);
            parse(&[&MAGIC[..], &bytes].concat());
        }
    }

    #[test]
    fn a_file_of_an_earlier_build_is_understood_and_its_own_is_not_taken_for_one() {
        let dir = tempfile::tempdir().unwrap();
        let directory = crate::journal::open(dir.path()).unwrap();
        let path = dir.path().join(DIR).join("audit");
        std::fs::create_dir(dir.path().join(DIR)).unwrap();
        std::fs::write(&path, 50_u64.to_le_bytes()).unwrap();
        let delivered = open(&directory, 40);
        assert_eq!(set(&delivered.earlier().delivered), (40..50).collect());
        drop(delivered);
        assert_eq!(
            set(&open(&directory, 40).earlier().delivered),
            (40..50).collect(),
            "as it was rewritten"
        );
        let bytes = std::fs::read(&path).unwrap();
        let as_a_number = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        assert!(as_a_number > 1 << 60, "an earlier build sets it aside");
    }

    #[test]
    fn a_file_that_is_taken_away_is_there_again_with_the_first_write_after_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let directory = crate::journal::open(dir.path()).unwrap();
        let taken = dir.path().join(DIR);
        let mut delivered = open(&directory, 1);
        for sequence in 7..10 {
            delivered.add(sequence);
            delivered.write(sequence * LOOK_EVERY_MS, || at(1));
            match sequence {
                7 => std::fs::remove_file(taken.join("audit")).unwrap(),
                8 => std::fs::remove_dir_all(&taken).unwrap(),
                _ => {}
            }
        }
        drop(delivered);
        assert_eq!(set(&open(&directory, 1).earlier().delivered), (7..10).collect());
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&taken).unwrap());
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn what_was_decided_by_is_forgotten_for_good_where_the_state_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let directory = crate::journal::open(dir.path()).unwrap();
        let mut delivered = open(&directory, 1);
        let mut inputs = Inputs::default();
        inputs.push(7, [7; 89]);
        delivered.decided_by(&inputs);
        delivered.add(7);
        delivered.write(0, || at(1));
        drop(delivered);
        let mut delivered = open(&directory, 1);
        assert!(delivered.earlier().is_decided(7));
        delivered.forget_inputs();
        assert!(!delivered.earlier().is_decided(7));
        drop(delivered);
        let delivered = open(&directory, 1);
        assert!(!delivered.earlier().is_decided(7));
        assert_eq!(set(&delivered.earlier().delivered), [7].into());
    }

    #[test]
    fn a_file_that_is_beyond_the_log_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let directory = crate::journal::open(dir.path()).unwrap();
        let mut delivered = open(&directory, 1);
        delivered.add(7);
        delivered.write(0, || at(1));
        drop(delivered);
        let delivered = Delivered::open(&directory, "audit", 1, 7, 0).unwrap();
        assert!(delivered.earlier().delivered.is_empty());
        assert_eq!(directory.damages().count(), 1);
    }
}
