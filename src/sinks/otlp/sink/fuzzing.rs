//! The answers of receivers, as the fuzz targets have them read.

use tonic::{Code, Status};

use super::{grpc_status, http};
use crate::{
    bridge::{Outcome, Secrets},
    event::Batch,
    sinks::http::Reply,
};

pub(crate) fn http(reply: &Reply, sent: u64) -> Outcome {
    http::outcome(reply, &Batch::default(), sent, &Secrets::none())
}

pub(crate) fn grpc(code: i32, message: &str, details: &[u8]) -> Outcome {
    let details = bytes::Bytes::copy_from_slice(details);
    let status = Status::with_details(Code::from_i32(code), message, details);
    Outcome::Failed(grpc_status::to_failure(&status, &Batch::default(), &Secrets::none()))
}
