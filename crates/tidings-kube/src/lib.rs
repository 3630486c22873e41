#![cfg_attr(
    all(feature = "informer", feature = "recorder", feature = "workqueue"),
    doc = include_str!("../README.md")
)]

#[cfg(feature = "broadcaster")]
pub mod broadcaster;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "correlator")]
pub mod correlator;
#[cfg(feature = "informer")]
pub mod informer;
#[cfg(feature = "informer")]
pub mod object;
#[cfg(feature = "recorder")]
pub mod recorder;
#[cfg(feature = "informer")]
pub mod reflector;
pub mod text;
#[cfg(feature = "workqueue")]
pub mod workqueue;

#[cfg(feature = "client")]
pub use client::client_without_retry;
