//! The words of a receiver that took a request, as far as its answer is there: of a long one the start
//! is kept, and one may be cut off. The number that it rejected stands before its words.

use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceResponse,
};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Reads what can be read. Of an answer of which that is nothing the status has said enough.
pub(super) fn decode(answer: &[u8]) -> ExportLogsServiceResponse {
    let mut response = ExportLogsServiceResponse::default();
    each_field(answer, |tag, _, message| {
        if tag == 1 {
            partial_success(message, response.partial_success.get_or_insert_default());
        }
    });
    response
}

fn partial_success(message: &[u8], partial: &mut ExportLogsPartialSuccess) {
    each_field(message, |tag, number, words| match tag {
        1 => partial.rejected_log_records = number.cast_signed(),
        2 => partial.error_message = String::from_utf8_lossy(words).into_owned(),
        _ => {}
    });
}

/// Calls with each number and each run of bytes of a message, the last of which may be cut.
fn each_field(mut message: &[u8], mut call: impl FnMut(u32, u64, &[u8])) {
    while let Ok((tag, kind)) = decode_key(&mut message) {
        let mut rest = message;
        match (kind, decode_varint(&mut rest)) {
            (WireType::Varint, Ok(number)) => call(tag, number, &[]),
            (WireType::LengthDelimited, Ok(length)) => {
                let length = usize::try_from(length).map_or(rest.len(), |l| l.min(rest.len()));
                call(tag, 0, &rest[..length]);
            }
            _ => {}
        }
        if skip_field(kind, tag, &mut message, DecodeContext::default()).is_err() {
            return;
        }
    }
}
