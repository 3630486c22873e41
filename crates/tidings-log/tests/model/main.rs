//! The log against a model of it: a plain vector of what was appended. Under any order of appends, reads,
//! retention, crashes that tear off the end, and damage:
//!
//! - nothing is read that was not appended, nothing twice, nothing out of order;
//! - everything is read that stands undamaged in a file;
//! - ordinals account for exactly the records that are missing;
//! - resume points are never ahead of the records they cover, nor further back than need be;
//! - the next sequence is above every one a view knows;
//! - opening never fails.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod model;

use std::time::Duration;

use proptest::{collection::vec, prelude::*, sample::Index};
use tidings_log::Sync;

use self::model::Model;

#[derive(Clone, Debug)]
enum Op {
    Append {
        source: u8,
        sizes: Vec<u16>,
        forgotten: u8,
        advance: u8,
    },
    Sync,
    /// A view learns of everything appended so far.
    Floor,
    Tick(u32),
    Retain {
        hold: Option<Index>,
    },
    Reader {
        start: Index,
        within: Index,
    },
    Read {
        reader: Index,
        max_bytes: u32,
    },
    /// The process dies, and of what it did not sync the end is missing from some byte on.
    Crash {
        cut: Index,
    },
    /// The process ends, and the files suffer before the next one starts.
    Damage(Vec<Damage>),
    /// A bit flips under a running process.
    LiveFlip {
        file: Index,
        at: Index,
        bit: u8,
    },
    ClusterUid(u8),
}

#[derive(Clone, Debug)]
enum Damage {
    Flip {
        file: Index,
        at: Index,
        bit: u8,
    },
    Zeros {
        file: Index,
        at: Index,
        length: u16,
    },
    Truncate {
        file: Index,
        at: Index,
    },
    Garbage {
        file: Index,
        bytes: Vec<u8>,
    },
    Delete {
        file: Index,
    },
    /// A segment that was created and never written.
    Touch,
}

fn damage() -> impl Strategy<Value = Damage> {
    let file = any::<Index>;
    let at = any::<Index>;
    prop_oneof![
        6 => (file(), at(), 0u8..8).prop_map(|(file, at, bit)| Damage::Flip { file, at, bit }),
        2 => (file(), at(), 1u16..5000).prop_map(|(file, at, length)| Damage::Zeros { file, at, length }),
        3 => (file(), at()).prop_map(|(file, at)| Damage::Truncate { file, at }),
        1 => (file(), vec(any::<u8>(), 1..200)).prop_map(|(file, bytes)| Damage::Garbage { file, bytes }),
        1 => file().prop_map(|file| Damage::Delete { file }),
        1 => Just(Damage::Touch),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let append = (0u8..3, vec(0u16..24_000, 0..5), 0u8..3, 0u8..5).prop_map(
        |(source, sizes, forgotten, advance)| Op::Append { source, sizes, forgotten, advance },
    );
    let reader = (any::<Index>(), any::<Index>());
    prop_oneof![
        24 => append,
        2 => Just(Op::Sync),
        2 => Just(Op::Floor),
        3 => (1u32..4_000_000).prop_map(Op::Tick),
        2 => proptest::option::of(any::<Index>()).prop_map(|hold| Op::Retain { hold }),
        4 => reader.prop_map(|(start, within)| Op::Reader { start, within }),
        10 => (any::<Index>(), 1u32..200_000)
            .prop_map(|(reader, max_bytes)| Op::Read { reader, max_bytes }),
        3 => any::<Index>().prop_map(|cut| Op::Crash { cut }),
        3 => vec(damage(), 0..4).prop_map(Op::Damage),
        1 => (any::<Index>(), any::<Index>(), 0u8..8)
            .prop_map(|(file, at, bit)| Op::LiveFlip { file, at, bit }),
        1 => (0u8..3).prop_map(Op::ClusterUid),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4096, ..ProptestConfig::default() })]

    #[test]
    fn the_log_keeps_what_it_was_given_and_tells_what_is_missing(
        size in prop_oneof![Just(200_000u64), Just(600_000), Just(100 << 20)],
        sync in prop_oneof![
            2 => Just(Sync::Interval(Duration::from_secs(1))),
            1 => Just(Sync::Never),
            1 => Just(Sync::Always),
        ],
        ops in vec(op(), 1..80),
    ) {
        let mut model = Model::new(size, sync);
        for op in &ops {
            model.apply(op);
        }
        model.finish();
    }
}
