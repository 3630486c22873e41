//! What the bridge and the recorders are held to, each test named after what it shows.

mod access;
mod correlation;
mod gaps;
mod journal;
mod load;
mod outages;
mod recorder;
mod refusals;
