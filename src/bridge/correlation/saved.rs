//! What is kept of a correlator across runs.
//!
//! A version byte, whether it suppresses, the secret of the keys, the groups, the counts, the spam
//! filter and what is held, each as a count and that many entries from the least recent to the most
//! recent, and whether what is held [comes out](Correlator::let_go); before what is held stands what
//! was [read](Correlator::read) and how much of that may come behind it. Numbers are little endian. The
//! position up to which it knows everything goes with it in the state store, and its
//! [inputs](super::inputs) from there on.
//!
//! An entry of what is held ends with its [messages](super::Messages): how many are known, in a byte,
//! and those; the versions that bore the first four of them; in a byte how many are the last, and
//! those, each with its version. Version 2, of Tidings 0.1, has none, and what was held then has no words but
//! those of its last version and of what came since; nor does an entry say how many versions have no
//! fate, which is one.

use lru::LruCache;
use rustc_hash::FxBuildHasher;
use tidings_kube::correlator::{Aggregator, Damaged, Key, Keys, SpamFilter, defaults};
use tidings_log::Position;

use super::{
    CAPACITY, Correlator, Messages,
    held::{Entry, Held},
};
use crate::{bridge::CorrelateMode, journal::SavedCorrelator};

/// The version of the form above.
const VERSION: u8 = 5;
/// That of Tidings 0.1.
const EARLIER: u8 = 2;

impl Correlator {
    /// What is to be kept of one that knows everything before `position`. Where there is none,
    /// nothing, instead of the state of an earlier one: that could not be brought up from here.
    pub(in crate::bridge) fn save(
        correlator: Option<&Self>,
        position: Position,
    ) -> SavedCorrelator {
        let bytes = correlator.map(Self::to_bytes).unwrap_or_default().into();
        SavedCorrelator { position, bytes }
    }

    /// All that is known, for [`load`](Self::load).
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![VERSION, u8::from(self.mode == CorrelateMode::Suppress)];
        self.keys.save(&mut out);
        self.groups.save(&mut out);
        out.extend_from_slice(&(self.counts.len() as u32).to_le_bytes());
        for (key, count) in self.counts.iter().rev() {
            out.extend_from_slice(&key.to_bytes());
            out.extend_from_slice(&count.to_le_bytes());
        }
        self.spam.save(&mut out);
        out.extend_from_slice(&self.held.read_bytes().to_le_bytes());
        out.extend_from_slice(&self.held.most_bytes().to_le_bytes());
        out.extend_from_slice(&(self.held.len() as u32).to_le_bytes());
        for (key, entry) in self.held.iter() {
            out.extend_from_slice(&key.to_bytes());
            for number in [
                entry.since_ms,
                entry.since_bytes,
                entry.first,
                entry.last,
                entry.delta,
                entry.versions,
                entry.pending,
                entry.count,
            ] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.push(u8::from(entry.aggregated));
            entry.messages.save(&mut out);
        }
        out.push(u8::from(self.letting_go));
        out
    }

    /// The secret of the keys in what [`to_bytes`](Self::to_bytes) left; nothing if it is not of
    /// that form.
    pub(in crate::bridge) fn keys_of(bytes: &[u8]) -> Option<Keys> {
        let mut rest = Reader(bytes);
        let [version, _] = rest.array().ok()?;
        let (keys, _) = Keys::load(rest.0).ok()?;
        [EARLIER, VERSION].contains(&version).then_some(keys)
    }

    /// What [`to_bytes`](Self::to_bytes) left.
    ///
    /// # Errors
    ///
    /// The bytes are not of that form.
    pub(in crate::bridge) fn load(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut rest = Reader(bytes);
        let [version] = rest.array()?;
        if ![EARLIER, VERSION].contains(&version) {
            return Err(Damaged);
        }
        let earlier = version == EARLIER;
        let mode = if rest.flag()? { CorrelateMode::Suppress } else { CorrelateMode::Annotate };
        let (keys, rest) = Keys::load(rest.0)?;
        let (groups, rest) = Aggregator::load(
            rest,
            defaults::LRU_CACHE_SIZE,
            defaults::MAX_EVENTS,
            defaults::MAX_INTERVAL,
        )?;
        let mut rest = Reader(rest);
        let mut counts = LruCache::with_hasher(CAPACITY, FxBuildHasher);
        for _ in 0..rest.u32()? {
            counts.push(rest.key()?, rest.u64()?);
        }
        let (spam, rest) =
            SpamFilter::load(rest.0, defaults::LRU_CACHE_SIZE, defaults::BURST, defaults::QPS)?;
        let mut rest = Reader(rest);
        let mut held = Held::saved(rest.u64()?, rest.u64()?);
        for _ in 0..rest.u32()? {
            let key = rest.key()?;
            let entry = Entry {
                since_ms: rest.u64()?,
                since_bytes: rest.u64()?,
                first: rest.u64()?,
                last: rest.u64()?,
                delta: rest.u64()?,
                versions: rest.u64()?,
                pending: if earlier { 1 } else { rest.u64()? },
                count: rest.u64()?,
                aggregated: rest.flag()?,
                messages: if earlier { Messages::default() } else { rest.messages()? },
            };
            held.restore(key, entry);
        }
        held.settles_early = earlier;
        let letting_go = rest.flag()?;
        Ok(Self { mode, keys, groups, counts, spam, held, letting_go })
    }
}

impl Messages {
    /// Appends them.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        out.push(self.known.len() as u8);
        for number in self.known.iter().chain(&self.first) {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.push(self.last.len() as u8);
        for (message, seq) in &self.last {
            out.extend_from_slice(&message.to_le_bytes());
            out.extend_from_slice(&seq.to_le_bytes());
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, Damaged> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Damaged> {
        self.array().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Result<bool, Damaged> {
        self.array().map(|[byte]| byte != 0)
    }

    /// A count in a byte, of no more than there may be.
    fn count(&mut self, most: usize) -> Result<usize, Damaged> {
        let [count] = self.array()?;
        let count = usize::from(count);
        if count <= most { Ok(count) } else { Err(Damaged) }
    }

    fn messages(&mut self) -> Result<Messages, Damaged> {
        let known = self.count(Messages::MOST_KNOWN)?;
        Ok(Messages {
            known: (0..known).map(|_| self.u64()).collect::<Result<_, _>>()?,
            first: (0..known.min(Messages::MOST_TOLD))
                .map(|_| self.u64())
                .collect::<Result<_, _>>()?,
            last: (0..self.count(Messages::MOST_TOLD)?)
                .map(|_| Ok((self.u64()?, self.u64()?)))
                .collect::<Result<_, _>>()?,
        })
    }

    fn key(&mut self) -> Result<Key, Damaged> {
        self.array().map(Key::from_bytes)
    }
}
