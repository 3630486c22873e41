//! The answer of a webhook: an outcome whose words are short and hold no secret.
//!
//! Two bytes of status, one that says how long `Retry-After` is, that, and the body.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tidings::{
    bridge::{Failure, FailureClass, Outcome},
    sinks::{Format, HttpOptions, WebhookMethod, WebhookOptions, fuzzing::webhook},
};

const TOKEN: &str = "T0ken-0123456789";

static OPTIONS: LazyLock<WebhookOptions> = LazyLock::new(|| WebhookOptions {
    http: HttpOptions::new(format!("http://receiver/hook/{TOKEN}")),
    method: WebhookMethod::Post,
    success: None,
    retry_when: None,
    signing_secrets: Vec::new(),
    format: Format::Envelope,
    single: false,
});

fuzz_target!(|data: &[u8]| {
    let [high, low, length, rest @ ..] = data else { return };
    let status = u16::from_be_bytes([*high, *low]) % 1000;
    let (header, body) = rest.split_at(usize::from(*length).min(rest.len()));
    let reason = match webhook(&OPTIONS, status, header, body) {
        None => return,
        Some(Outcome::Delivered) => {
            assert!((200..300).contains(&status));
            return;
        }
        Some(Outcome::Failed(Failure { class, reason, .. })) => {
            let refused = matches!(class, FailureClass::Refused(_));
            assert_eq!(refused, [400, 413, 422].contains(&status));
            reason
        }
        Some(other) => panic!("{other:?}"),
    };
    assert!(reason.len() < 4096, "{}", reason.len());
    assert!(!reason.contains(TOKEN), "{reason}");
    assert!(!reason.contains('\n'), "{reason}");
});
