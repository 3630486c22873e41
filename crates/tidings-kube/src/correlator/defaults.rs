//! client-go's constants (`tools/record/events_cache.go`).

/// Entries of each cache.
pub const LRU_CACHE_SIZE: usize = 4096;

/// The size at which a group's set is combined: nine messages stand alone, the tenth does not.
pub const MAX_EVENTS: usize = 10;

/// After more than this without an event of it a group begins anew, in nanoseconds: 600 s.
pub const MAX_INTERVAL: i64 = 600 * 1_000_000_000;

/// Events that a source may send about an object at once.
pub const BURST: i64 = 25;

/// Events that it may send each second beyond that: one in 300 s. As in client-go the rate has
/// single precision, so the event comes back 7.26 µs before that.
pub const QPS: f32 = 1.0 / 300.0;
