//! The bridge over the in-process API server: what is created there arrives at every sink, once
//! for each version, in order, with deltas that add up, whatever happens in between.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod accounting;
mod basics;
mod changed_sources;
mod correlation;
mod counters;
mod crash;
mod damage;
mod dead_letters;
mod delivery;
mod destinations;
mod disk;
#[cfg(feature = "elasticsearch")]
mod elasticsearch;
mod enrichment;
mod file;
mod forged;
#[cfg(feature = "otlp")]
mod fronts;
mod gaps;
mod gone;
mod handover;
mod heartbeat;
mod held;
mod lanes;
mod large;
mod lists;
#[cfg(feature = "loki")]
mod loki;
mod overflow;
mod own_events;
mod recording;
mod reflector;
mod replay;
mod retention;
mod silence;
mod sources;
#[cfg(feature = "splunk")]
mod splunk;
mod support;
#[cfg(feature = "syslog")]
mod syslog;
mod upgrade;
