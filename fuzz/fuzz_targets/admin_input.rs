//! Requests over the control socket: each is understood, or refused with a hint.
//!
//! One byte that says what it is, and that: the body of a command on letters, of a replay, or a query.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidings::admin::api::{Refusal, parse_query, parse_replay, parse_selection};

fuzz_target!(|data: &[u8]| {
    let Some((kind, input)) = data.split_first() else { return };
    let refused = match (kind % 3, str::from_utf8(input)) {
        (0, _) => parse_selection(input).err(),
        (1, _) => parse_replay(input).err(),
        (_, Ok(query)) => {
            let asked = parse_query(query);
            assert!(asked.as_ref().is_ok_and(|asked| asked.limit <= 1000) || asked.is_err());
            asked.err()
        }
        (_, Err(_)) => None,
    };
    if let Some(Refusal { error, hint }) = refused {
        assert!(!error.is_empty() && hint.is_none_or(|hint| !hint.is_empty()));
    }
});
