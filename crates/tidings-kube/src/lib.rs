#![cfg_attr(
    all(feature = "informer", feature = "recorder", feature = "workqueue"),
    doc = include_str!("../README.md")
)]
#![cfg_attr(
    not(all(feature = "informer", feature = "recorder", feature = "workqueue")),
    doc = "client-go's machinery for Rust; its README.md is the guide."
)]

#[cfg(feature = "broadcaster")]
pub mod broadcaster;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "correlator")]
pub mod correlator;
#[cfg(any(feature = "informer", feature = "recorder", feature = "workqueue"))]
mod foreign;
#[cfg(feature = "informer")]
pub mod informer;
#[cfg(feature = "informer")]
pub mod object;
#[cfg(feature = "recorder")]
pub mod recorder;
#[cfg(feature = "informer")]
pub mod reflector;
// For the program `tidings`, which says the words of others by the same rules.
#[doc(hidden)]
pub mod text;
#[cfg(feature = "workqueue")]
pub mod workqueue;

#[cfg(feature = "client")]
pub use client::client_without_retry;
