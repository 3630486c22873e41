//! The correlator: which events are similar, which are repeats, which are too many.
//!
//! It is client-go's `EventCorrelator` (`tools/record/events_cache.go`), which keeps a controller
//! that says the same thing over and over from filling the API server. Event and time go in, a
//! decision comes out: there is no I/O here, no task and no clock.
//!
//! # The way of an Event
//!
//! ```text
//!           ┌─ aggregate ──────────┐   ┌─ observe ────────────┐   ┌─ spam filter ─┐
//! Event ──▶ │ the tenth message of │──▶│ seen before? then    │──▶│ a token left? │──▶ create or patch
//!           │ a group within 600 s │   │ the first one's name,│   │               │
//!           │ stands for the group │   │ count + 1, a patch   │   └───────┬───────┘
//!           └──────────────────────┘   └──────────────────────┘           └──▶ skip
//! ```
//!
//! 1. **Aggregate.** Events of one source, object, type, reason and reporter are a *group*; they
//!    differ in their messages. Nine different messages stand alone. Every further one becomes one
//!    Event for all: "(combined from similar events): …", with a name and times of its own. A group
//!    begins anew once it was silent for more than 600 s. See [`Aggregator`].
//! 2. **Observe.** An Event that was seen before takes over its first one's name, first timestamp
//!    and resourceVersion, its count is that one's plus one, and a [`Patch`] says so. That a count
//!    is 0 means that it was not seen.
//! 3. **Spam filter.** A source may send 25 events about an object at once, and then one in 300 s.
//!    What it sends beyond that is skipped; but it was aggregated and counted, and the next that
//!    passes has the count of all. See [`SpamFilter`].
//!
//! Once the Event is written, [`update_state`](EventCorrelator::update_state) takes note of what
//! the server made of it.
//!
//! ```
//! use k8s_openapi::api::core::v1::{Event, ObjectReference};
//! use tidings_kube::correlator::EventCorrelator;
//!
//! let event = |message: &str| Event {
//!     count: Some(1),
//!     involved_object: ObjectReference { name: Some("web-0".into()), ..Default::default() },
//!     message: Some(message.into()),
//!     ..Default::default()
//! };
//! let mut correlator = EventCorrelator::default();
//! let now = jiff::Timestamp::UNIX_EPOCH;
//!
//! // The first is created, its repeat is a patch of it.
//! assert!(!correlator.correlate(&event("no route"), now).is_update());
//! let repeat = correlator.correlate(&event("no route"), now);
//! assert!(repeat.is_update());
//! assert_eq!(repeat.event.count, Some(2));
//!
//! // Nine messages of a group stand alone, the tenth stands for it.
//! for nth in 2..=9 {
//!     let single = correlator.correlate(&event(&format!("no route to {nth}")), now);
//!     assert_eq!(single.event.message, Some(format!("no route to {nth}")));
//! }
//! let combined = correlator.correlate(&event("no route to 10"), now);
//! assert_eq!(
//!     combined.event.message.as_deref(),
//!     Some("(combined from similar events): no route to 10")
//! );
//!
//! // 25 at once are enough: that were 11, and 14 more may pass.
//! let passed = |_: &usize| !correlator.correlate(&event("no route"), now).skip;
//! assert_eq!((0..100).filter(passed).count(), 14);
//! ```
//!
//! # Two layers
//!
//! [`EventCorrelator`] does this for Events as `k8s_openapi` has them, and does it as client-go
//! does: its accidents too, as long as [`CorrelatorOptions`] do not ask for better. It is what a
//! recorder needs.
//!
//! Below it is a core that knows no Event, for programs that keep events in a form of their own. It works on [`Key`]s: fingerprints of 16 bytes, made by [`Keys`] under a secret, so
//! that memory is bounded however long the messages are. Its time is in nanoseconds since the Unix
//! epoch. An [`Aggregator`] and a [`SpamFilter`] can be saved and loaded, from which they go on as
//! if nothing had been; the `Keys` that made their keys are saved with them.
//!
//! # Where client-go leaves it open
//!
//! A full group of client-go forgets an arbitrary message for each new one, in the order of a Go
//! map. Here it forgets the new one: the first nine messages keep Events of their own until the
//! group begins anew. It is one of the outcomes that client-go may have, and always the same.

mod aggregate;
mod bounded;
pub mod defaults;
mod event_correlator;
mod key;
mod names;
mod observation;
mod options;
mod patch;
mod saved;
mod spam;
#[cfg(test)]
mod tests;

pub use aggregate::{Aggregator, Observed};
pub use event_correlator::{Correlated, EventCorrelator};
pub use key::{Key, KeyPrefix, Keys};
pub use options::{CorrelatorOptions, KeyFunc, MessageFunc, SpamKeyFunc};
pub use patch::Patch;
pub use saved::Damaged;
pub use spam::SpamFilter;
