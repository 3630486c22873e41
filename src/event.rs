//! The core/v1 Event: its lean decoding, its identity, how often it occurred, and the envelope
//! in which a change of it travels. No I/O.
//!
//! An Event is decoded once, at ingest, and only as far as needed: [`Incoming`] borrows from the
//! bytes that the API server sent. What goes on from there is the [envelope](Envelope): one line
//! of JSON that is written once, kept in the journal, and handed to every sink byte for byte.

mod correlation;
mod cut;
mod envelope;
mod fields;
mod head;
mod incoming;
mod model;
mod object;
mod record;
mod seen;
mod smaller;
mod time;

pub use correlation::{Correlation, CorrelationAction, SummarisedMessage};
pub use cut::LEAST_ENVELOPE;
pub(crate) use envelope::with_namespace;
pub use envelope::{Cluster, DeadLetterInfo, Envelope, EnvelopeParts};
pub(crate) use fields::{EVENTS, Field, Shape, field};
pub use head::EnvelopeHead;
pub use incoming::{DecodeError, Incoming};
pub use model::{EventFields, EventSource, Metadata, ObjectReference, Series, Text};
pub use object::{Missing, ObjectInfo, Owner};
pub use record::{Batch, Record};
pub use seen::{Change, SeenChanges, SeenEntry, UidKey};
pub use smaller::smaller;
#[cfg(feature = "loki")]
pub(crate) use time::BEFORE_CREATION;
#[cfg(any(feature = "splunk", feature = "syslog"))]
pub(crate) use time::stable_time;
pub(crate) use time::{bounded, day, timestamp};
