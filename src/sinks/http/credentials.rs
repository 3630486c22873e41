//! Whether a receiver that forbids something means who asks, not what is sent.

use crate::event::Record;

/// Receivers say these of a request that they do not know the sender of, or no longer.
const WORDS: [&str; 9] = [
    "api key",
    "api-key",
    "apikey",
    "access key",
    "authenticat",
    "credential",
    "password",
    "signature",
    "token",
];

/// Whether words are about credentials. Text of the records may be quoted in them, and says nothing.
pub(crate) fn are_spoken_of(words: &str, sent: &[Record]) -> bool {
    let words = words.to_ascii_lowercase();
    WORDS.into_iter().any(|word| words.contains(word) && !holds(sent, word))
}

fn holds(records: &[Record], word: &str) -> bool {
    let is_word = |bytes: &[u8]| bytes.eq_ignore_ascii_case(word.as_bytes());
    records.iter().any(|record| record.envelope.windows(word.len()).any(is_word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::fixtures;

    #[test]
    fn an_answer_speaks_of_credentials_unless_an_event_has_the_word() {
        let silent = [fixtures::record(1, "back-off")];
        let speaks = [fixtures::record(2, "cannot mount the Token")];
        for (words, of_silent, of_speaks) in [
            ("The security token has expired", true, false),
            ("Incorrect API key: token t0", true, true),
            ("blocked by rule 942100", false, false),
            ("", false, false),
        ] {
            assert_eq!(are_spoken_of(words, &silent), of_silent, "{words}");
            assert_eq!(are_spoken_of(words, &speaks), of_speaks, "{words}");
        }
    }
}
