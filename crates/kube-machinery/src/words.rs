//! Words of others, as far as they are repeated.

use std::{borrow::Cow, error::Error};

use crate::plain::plain;

/// So many characters of an API server's words are repeated.
const MOST_CHARS: usize = 1000;

/// The words of an API server, or what stands in front of it, as far as they are repeated: on one line,
/// and without what moves a terminal's cursor or turns the order of letters.
pub fn short(words: &str) -> Cow<'_, str> {
    let words = plain(words);
    match words.char_indices().nth(MOST_CHARS) {
        None => words,
        Some((end, _)) => Cow::Owned(format!("{}…", &words[..end])),
    }
}

/// An error of the client with its causes: what went wrong is often the last of them.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = short(&error.to_string()).into_owned();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        let more = short(&more);
        if !text.contains(&*more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_an_api_server_move_no_cursor_and_are_short() {
        assert_eq!(short("no\u{1b}[31m\nERROR \u{202e}gnitset"), "no [31m ERROR gnitset");
        assert_eq!(short(&"ä".repeat(MOST_CHARS + 1)).chars().count(), MOST_CHARS + 1);
        assert!(short(&"ä".repeat(MOST_CHARS + 1)).ends_with('…'));
    }
}
