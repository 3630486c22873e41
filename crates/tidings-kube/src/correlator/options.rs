//! What a correlator can be told.

use std::fmt;

use k8s_openapi::api::core::v1::Event;

/// The group of an Event, and what tells it apart there; client-go's `EventAggregatorKeyFunc`.
pub type KeyFunc = Box<dyn Fn(&Event) -> (String, String) + Send>;
/// The message of a combined Event; client-go's `EventAggregatorMessageFunc`.
pub type MessageFunc = Box<dyn Fn(&Event) -> String + Send>;
/// What an Event shares its tokens with; client-go's `EventSpamKeyFunc`.
pub type SpamKeyFunc = Box<dyn Fn(&Event) -> String + Send>;

/// Options of an [`EventCorrelator`](super::EventCorrelator), in the shape of client-go's
/// `CorrelatorOptions`: 0 and `None` stand for the default, negative numbers are kept and do what
/// they do there.
///
/// The last three are improvements on client-go. They are off by default.
#[derive(Default)]
pub struct CorrelatorOptions {
    /// Entries of each of the three caches; 4096. Negative: nothing is kept, so every event is the
    /// first.
    pub lru_cache_size: i64,
    /// Events that a source may send about an object at once; 25. Negative: none at all.
    pub burst_size: i64,
    /// How many more it may send each second; 1/300. Negative: none.
    pub qps: f32,
    /// The size at which a group's messages are combined; 10. Negative: never.
    pub max_events: i64,
    /// After more seconds than this a group begins anew; 600. Negative: with each event. It wraps
    /// round where the nanoseconds of it have more than 64 bits.
    pub max_interval_in_seconds: i64,
    /// By source, object, type, reason and reporter, and there by message.
    pub key_func: Option<KeyFunc>,
    /// "(combined from similar events): " and the message of the Event at hand.
    pub message_func: Option<MessageFunc>,
    /// By source, object and type. It is asked about the Event that would be written.
    pub spam_key_func: Option<SpamKeyFunc>,

    /// Keep the parts of keys apart. client-go sets them end to end, so that the object "1web" in
    /// "shop" is counted with "web" in "shop1".
    pub separated_keys: bool,
    /// Let counts stay at 2³¹ − 1. In client-go the next one is −2³¹, and the Event is created
    /// once more from there on.
    pub saturating_counts: bool,
    /// Create what was never passed on. client-go patches whatever has a count above 1, also where
    /// the spam filter has skipped all that was seen of it so far, or where an Event came with a
    /// count: it costs a call that answers 404.
    pub create_unwritten: bool,
}

impl fmt::Debug for CorrelatorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CorrelatorOptions")
            .field("lru_cache_size", &self.lru_cache_size)
            .field("burst_size", &self.burst_size)
            .field("qps", &self.qps)
            .field("max_events", &self.max_events)
            .field("max_interval_in_seconds", &self.max_interval_in_seconds)
            .field("key_func", &self.key_func.is_some())
            .field("message_func", &self.message_func.is_some())
            .field("spam_key_func", &self.spam_key_func.is_some())
            .field("separated_keys", &self.separated_keys)
            .field("saturating_counts", &self.saturating_counts)
            .field("create_unwritten", &self.create_unwritten)
            .finish()
    }
}
