//! A configuration file: it is taken, or refused with a message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidings::config;

fuzz_target!(|text: &str| {
    // What a file names is read, and a device may never end.
    if text.contains("/dev") || text.contains("/proc") {
        return;
    }
    let variables = [("TIDINGS_LOG__LEVEL".into(), "debug".into()), ("TOKEN".into(), "t".into())];
    if let Err(error) = config::parse("tidings.yaml", text, variables) {
        assert!(!error.to_string().is_empty());
    }
});
