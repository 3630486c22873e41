//! What the bridge is held to, each test named after what it shows.

mod access;
mod correlation;
mod gaps;
mod journal;
mod load;
mod outages;
mod refusals;
