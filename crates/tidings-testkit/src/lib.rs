#![doc = include_str!("../README.md")]

pub mod api_server;
mod http;
pub mod ledger;
pub mod receiver;
pub mod story;
