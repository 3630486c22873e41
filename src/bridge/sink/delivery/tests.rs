//! Each ticket has one fate and no key is overtaken, whatever a receiver says and when; and whoever
//! fails steps aside, so that the others go on.

mod harness;
mod lanes;
mod left;
mod model;
mod relocation;
mod room;
mod silence;
mod verdicts;
