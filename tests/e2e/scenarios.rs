//! What the bridge, the recorders and the informers are held to, each test named after what it shows.

mod access;
mod cluster;
mod correlation;
mod enrichment;
mod gaps;
mod informer;
mod journal;
mod load;
mod outages;
mod recorder;
mod refusals;
mod siem;
mod signatures;
