//! What makes events.

pub mod events_v1;
