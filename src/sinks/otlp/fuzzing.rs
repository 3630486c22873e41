//! Doors for `fuzz/`, which are no part of the library.

use tonic::{Code, Status};

use super::{super::http::Reply, grpc_status, http, taken};
use crate::bridge::{Outcome, Secrets};

pub(in crate::sinks) fn http(reply: &Reply, sent: u64) -> Outcome {
    let none = Secrets::none();
    http::read(reply, &none).map_or_else(|outcome| outcome, |response| taken(response, sent, &none))
}

pub(in crate::sinks) fn grpc(code: i32, message: &str, details: &[u8]) -> Outcome {
    let details = bytes::Bytes::copy_from_slice(details);
    let status = Status::with_details(Code::from_i32(code), message, details);
    grpc_status::to_outcome(&status, &Secrets::none())
}
