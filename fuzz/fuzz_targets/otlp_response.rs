//! The answer of an OTLP receiver: partial success, `google.rpc.Status`, gRPC codes and RetryInfo
//! become outcomes that add up.
//!
//! A byte that says how it comes, one that says how many records were sent, two of status, one that
//! says how long the header or the message is, that, and the body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidings::{
    bridge::{Failure, Outcome},
    sinks::fuzzing::{otlp_grpc, otlp_http},
};

fuzz_target!(|data: &[u8]| {
    let [how, sent, high, low, length, rest @ ..] = data else { return };
    let (words, body) = rest.split_at(usize::from(*length).min(rest.len()));
    let sent = u64::from(*sent).max(1);
    let outcome = if how % 2 == 0 {
        let status = u16::from_be_bytes([*high, *low]) % 1000;
        otlp_http(status, words, body, sent)
    } else {
        let message = String::from_utf8_lossy(words);
        Some(otlp_grpc(i32::from(*low % 18), &message, body))
    };
    match outcome {
        Some(Outcome::Partial { rejected, reason }) => {
            // None where it took all and warns.
            assert!(rejected <= sent);
            assert!(!reason.is_empty());
        }
        Some(Outcome::Failed(Failure { reason, .. })) => {
            assert!(reason.len() < 4096, "{}", reason.len());
            assert!(!reason.contains('\n'), "{reason}");
        }
        Some(Outcome::PerEvent(_)) => panic!("OTLP names no records"),
        Some(Outcome::Delivered) | None => {}
    }
});
