//! The view `seen`: for each Event that exists, which version was last journalled and how often
//! it had occurred by then. It turns absolute counts into increments.

use std::{collections::HashMap, hash::BuildHasherDefault, num::NonZero};

use rustc_hash::FxHasher;
use sha2::{Digest, Sha256};

/// An Event's uid in 16 bytes: the UUID itself, else the start of the SHA-256 of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UidKey(pub u128);

impl UidKey {
    /// The key of a uid as the API server writes it.
    pub fn of(uid: &str) -> Self {
        parse_uuid(uid).map_or_else(|| Self::of_digest(uid), Self)
    }

    fn of_digest(uid: &str) -> Self {
        let digest = Sha256::digest(uid.as_bytes());
        let mut first = [0; 16];
        first.copy_from_slice(&digest[..16]);
        Self(u128::from_be_bytes(first))
    }
}

/// A UUID in its canonical lower-case form; other spellings are other uids.
fn parse_uuid(text: &str) -> Option<u128> {
    let bytes: &[u8; 36] = text.as_bytes().try_into().ok()?;
    let digits = |range: std::ops::Range<usize>| {
        bytes[range].iter().fold((0, 0), |(value, bad), byte| {
            let digit = DIGITS[usize::from(*byte)];
            (value << 4 | u64::from(digit), bad | digit)
        })
    };
    let groups = [digits(0..8), digits(9..13), digits(14..18), digits(19..23), digits(24..36)];
    let are_digits = groups.iter().fold(0, |bad, group| bad | group.1) < 16;
    let are_dashes = [8, 13, 18, 23].iter().all(|at| bytes[*at] == b'-');
    let [low_time, mid_time, high_time, clock, node] = groups.map(|group| group.0);
    let (high, low) = (low_time << 32 | mid_time << 16 | high_time, clock << 48 | node);
    (are_digits && are_dashes).then_some(u128::from(high) << 64 | u128::from(low))
}

/// The values of the digits `0` to `f`, and 255 for other bytes.
static DIGITS: [u8; 256] = {
    let mut digits = [255; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

/// The entry of one live Event, in 16 bytes; so is an `Option` of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenEntry {
    /// The version last journalled.
    pub resource_version: u64,
    /// Its occurrences, saturated at `u32::MAX`; without those of versions that were
    /// [shed](crate::event::Shed), which the next version brings.
    pub occurrences: u32,
    /// The source's number, counted from one.
    source: NonZero<u16>,
    /// The increments of versions shed since, saturated.
    pub shed: u16,
}

impl SeenEntry {
    /// An entry for an Event of a source, which the owner of the view numbers from zero to 65 534.
    pub fn new(resource_version: u64, occurrences: u64, source: u16) -> Self {
        Self {
            resource_version,
            occurrences: u32::try_from(occurrences).unwrap_or(u32::MAX),
            source: NonZero::<u16>::MIN.saturating_add(source),
            shed: 0,
        }
    }

    /// The same of a version that was shed, as the last of some that had so many increments.
    #[must_use]
    pub fn with_shed(self, increments: u64) -> Self {
        Self { shed: u16::try_from(increments).unwrap_or(u16::MAX), ..self }
    }

    /// The number of the source that it belongs to.
    pub fn source(self) -> u16 {
        self.source.get() - 1
    }

    /// By how much a version raises what was seen before.
    ///
    /// Without a predecessor: all of its occurrences when the Event was created after the source's
    /// first start, else 1, because what came before that start is not ours to announce. Fewer
    /// occurrences than before (a recorder that started over): 0.
    pub fn delta(
        before: Option<Self>,
        occurrences: u64,
        created_after_start: impl FnOnce() -> bool,
    ) -> u64 {
        match before {
            Some(entry) => occurrences.saturating_sub(u64::from(entry.occurrences)),
            None if created_after_start() => occurrences,
            None => 1,
        }
    }
}

/// Changes of the view, one for each Event at most: what is known now, or nothing where the Event
/// no longer exists.
pub type SeenChanges = HashMap<UidKey, Option<SeenEntry>, BuildHasherDefault<FxHasher>>;

/// Whether a version is the first that the bridge exports of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The first version seen.
    Created,
    /// A later version of an Event seen before.
    Updated,
}

impl Change {
    /// The spelling in the envelope.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_takes_16_bytes_and_knows_as_much_of_what_was_shed_as_fits() {
        assert_eq!(size_of::<Option<SeenEntry>>(), 16);
        let shed = |increments| SeenEntry::new(7, 5, 1).with_shed(increments).shed;
        assert_eq!([0, 9, 65_535, 65_536].map(shed), [0, 9, 65_535, 65_535]);
    }

    #[test]
    fn a_canonical_uuid_is_its_own_key_and_any_other_uid_has_that_of_its_digest() {
        let key = UidKey::of("01234567-89ab-cdef-fedc-ba9876543210");
        assert_eq!(key, UidKey(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210));
        for other in [
            "",
            "01234567-89AB-cdef-fedc-ba9876543210",
            "01234567-89ab-cdef-fedc-ba987654321",
            "01234567-89ab-cdef-fedc-ba98765432100",
            "0123456-789ab-cdef-fedc-ba9876543210",
            "01234567x89ab-cdef-fedc-ba9876543210",
            "01234567-89ab-cdef-fedc-ba987654321g",
        ] {
            assert_eq!(UidKey::of(other), UidKey::of_digest(other), "{other}");
        }
    }
}
