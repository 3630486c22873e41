//! The program and the files that are shipped with it: commands in processes of their own, the admin server, the
//! log, manifests, configurations, examples.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../bridge/support.rs"]
#[expect(dead_code, reason = "shared with the bridge's tests, which use more of it")]
mod support;

mod admin;
mod config_files;
mod deploy;
mod docs;
mod examples;
mod fuzz_seeds;
mod import;
mod layering;
mod log_lines;
mod operator;
mod stop;
mod systems;
