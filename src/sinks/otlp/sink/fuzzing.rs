//! Doors for `fuzz/`, which are no part of the library.

use tonic::{Code, Status};

use super::{grpc_status, http, taken};
use crate::{
    bridge::{Outcome, Secrets},
    event::Batch,
    sinks::http::Reply,
};

pub(crate) fn http(reply: &Reply, sent: u64) -> Outcome {
    let none = Secrets::none();
    let read = http::read(reply, &Batch::default(), &none);
    read.map_or_else(Outcome::Failed, |response| taken(response, sent, &none))
}

pub(crate) fn grpc(code: i32, message: &str, details: &[u8]) -> Outcome {
    let details = bytes::Bytes::copy_from_slice(details);
    let status = Status::with_details(Code::from_i32(code), message, details);
    Outcome::Failed(grpc_status::to_failure(&status, &Batch::default(), &Secrets::none()))
}
