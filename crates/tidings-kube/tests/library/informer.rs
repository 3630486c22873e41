//! Reflector and informers through public doors, over an API server that does what a test says. Time is paused,
//! so that waits cost nothing and can be told to the millisecond.

mod controller;
mod informer_end;
mod informer_factory;
mod informer_model;
mod informer_support;
mod informer_unreadable;
mod memory;
mod panics;
mod reflector_bodies;
mod reflector_changes;
mod reflector_healing;
mod reflector_lists;
mod reflector_pace;
mod reflector_streaming_lists;
mod reflector_watches;
mod resource_api;
mod scripted;
mod shared;
mod sources;
mod support;
mod told;
mod undelta_store;
