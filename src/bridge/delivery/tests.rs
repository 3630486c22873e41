//! Each record has one fate and no object is overtaken, whatever a receiver says and when; and one Event stops no sink.

mod harness;
mod model;
mod rules;
