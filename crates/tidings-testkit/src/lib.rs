#![doc = include_str!("../README.md")]

pub mod api_server;
pub mod story;
