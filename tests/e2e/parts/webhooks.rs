//! The reference libraries of Standard Webhooks.

use std::io::Write as _;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::installed;

/// A library; the programs that verify with it are in `tests/parts/webhooks`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WebhookLibrary {
    Go,
    /// Takes bodies for text, so none that is compressed.
    Python,
}

/// A request as a receiver verifies it.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    pub(crate) secret: &'static str,
    /// Those of Standard Webhooks, by their names.
    pub(crate) headers: Value,
    pub(crate) body: Vec<u8>,
}

impl WebhookLibrary {
    /// Its complaint about each request: none about one that it accepts.
    pub(crate) fn verify(self, requests: &[Signed]) -> Vec<Option<String>> {
        let request = |signed: &Signed| {
            let body = STANDARD.encode(&signed.body);
            json!({"secret": signed.secret, "headers": signed.headers, "body": body})
        };
        let requests = Value::Array(requests.iter().map(request).collect());
        let mut verifier = self.program();
        verifier.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = verifier.spawn().unwrap_or_else(|error| panic!("{verifier:?}: {error}"));
        // It reads all of it before it answers.
        let mut input = running.stdin.take().expect("its standard input");
        input.write_all(requests.to_string().as_bytes()).expect("a reader");
        drop(input);
        let output = running.wait_with_output().expect("its output");
        assert!(output.status.success(), "{verifier:?} ended with {}", output.status);
        serde_json::from_slice(&output.stdout).expect("a verdict on each")
    }

    fn program(self) -> Command {
        match self {
            Self::Go => Command::new(installed("webhooks-go", "bin/verify")),
            Self::Python => {
                let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parts/webhooks/verify.py");
                let mut python = Command::new("python3");
                python.arg(script).env("PYTHONPATH", installed("webhooks-python", "lib"));
                python
            }
        }
    }
}
