//! The formats that events leave in, a file each. What a format keeps is the envelope's; how the
//! bytes travel is a sink's.
//!
//! The envelope itself needs no encoder: stdout, Kafka and webhooks send the bytes of the journal.

#[cfg(feature = "otlp")]
pub(crate) mod otlp;
#[cfg(feature = "otlp")]
mod protobuf;
