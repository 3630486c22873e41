//! The cache through public doors, over an API server that does what a test says. Time is paused,
//! so that waits cost nothing and can be told to the millisecond.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod controller;
mod dead_connection;
mod enqueue;
mod informer;
mod informer_end;
mod informer_factory;
mod informer_model;
mod informer_stream;
mod informer_support;
mod informer_unreadable;
mod lister_watcher;
#[path = "../record/log.rs"]
mod log;
mod low_level;
mod made_source;
mod model_server;
mod reflector_bodies;
mod reflector_changes;
mod reflector_healing;
mod reflector_lists;
mod reflector_metrics;
mod reflector_pace;
mod reflector_streaming_lists;
mod reflector_watches;
mod resource_api;
mod scripted;
mod silence;
mod support;
#[allow(dead_code, reason = "shared with the vectors, which ask for more")]
mod told;
mod undelta_store;
mod workqueue_metrics;
