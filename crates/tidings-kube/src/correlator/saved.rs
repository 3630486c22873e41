//! Reading what was saved.

use super::Key;

/// Bytes that no `save` wrote: they end too early, or hold what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the saved state of the correlator is damaged")]
pub struct Damaged;

/// Takes little-endian numbers off the front of bytes.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// A version byte, which has to be this one.
    pub(super) fn version(&mut self, expected: u8) -> Result<(), Damaged> {
        if self.array()? == [expected] { Ok(()) } else { Err(Damaged) }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Damaged> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Damaged> {
        self.array().map(i64::from_le_bytes)
    }

    pub(super) fn f64(&mut self) -> Result<f64, Damaged> {
        self.array().map(f64::from_le_bytes)
    }

    pub(super) fn key(&mut self) -> Result<Key, Damaged> {
        self.array().map(Key::from_bytes)
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }
}
