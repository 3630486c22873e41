//! The partitions of the topic, and which of them a key goes to: as Java producers choose it, so that a
//! key has one partition whoever writes it.
//!
//! librdkafka asks for each message, and says how many there are: what it knows of the topic is so known here,
//! too. Before the first message, brokers are asked. Who looks a record's partition up before it is queued
//! finds what librdkafka will be answered.

use std::sync::atomic::{AtomicI32, Ordering};

use rdkafka::producer::Partitioner;

/// See the [module](self). Shared by the sink and its producers.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    /// 0 is not known yet.
    count: AtomicI32,
}

impl Partitions {
    /// How many there are, if that is known.
    pub(super) fn count(&self) -> Option<i32> {
        Some(self.count.load(Ordering::Relaxed)).filter(|count| *count > 0)
    }

    /// Notes how many there are.
    pub(super) fn are(&self, count: i32) {
        self.count.store(count, Ordering::Relaxed);
    }
}

impl Partitioner for Partitions {
    fn partition(
        &self,
        _topic: &str,
        key: Option<&[u8]>,
        count: i32,
        _is_available: impl Fn(i32) -> bool,
    ) -> i32 {
        self.are(count);
        of_hash(murmur2(key.unwrap_or_default()), count)
    }
}

/// The partition of a key with this hash, of so many.
pub(super) fn of_hash(hash: u32, count: i32) -> i32 {
    (hash & 0x7fff_ffff).cast_signed() % count
}

/// The hash of a key: MurmurHash2 with the seed of Kafka's clients.
pub(super) fn murmur2(key: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let (words, tail) = key.as_chunks::<4>();
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    let mut hash = 0x9747_b28c ^ length;
    for word in words {
        let mixed = u32::from_le_bytes(*word).wrapping_mul(M);
        let mixed = (mixed ^ (mixed >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ mixed;
    }
    if !tail.is_empty() {
        for (at, byte) in tail.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_hash_of_java_clients() {
        // The first five are of Apache Kafka's UtilsTest.testMurmur2, the others of librdkafka, where
        // they are what the Java client answers.
        let vectors: [(&str, u32); 11] = [
            ("21", 0xc5f2_f8ec),
            ("foobar", 0xd0e4_7bbe),
            ("a-little-bit-long-string", 0xc53b_1da0),
            ("a-little-bit-longer-string", 0xa768_c9c3),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", 0xfc7d_49cd),
            ("kafka", 0xd067_cf64),
            ("giberish123456789", 0x8f55_2b0c),
            ("1234", 0x9fc9_7b14),
            ("234", 0xe7c0_09ca),
            ("4", 0x5a4b_5ca1),
            ("", 0x106e_08d9),
        ];
        for (key, hash) in vectors {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key:?}");
        }
    }

    #[test]
    fn a_partition_is_not_known_before_librdkafka_asks() {
        let partitions = Partitions::default();
        assert_eq!(partitions.count(), None);
        assert_eq!(partitions.partition("t", Some(b"abc"), 12, |_| true), 479_470_107 % 12);
        assert_eq!(partitions.count(), Some(12));
        assert_eq!(partitions.partition("t", Some(b"21"), 12, |_| false), 1_173_551_340 % 12);
    }
}
