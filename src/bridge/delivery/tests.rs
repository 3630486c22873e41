//! Each ticket has one fate and no key is overtaken, whatever a receiver says and when.

mod harness;
mod lanes;
