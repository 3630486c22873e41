//! Words of others, made fit for a log and a terminal: what an API server says, what a panic says.

use std::{any::Any, borrow::Cow, error::Error};

/// A text with spaces instead of what would move a terminal's cursor or change its colours (control
/// characters, C1 among them), and without what changes the order of letters or cannot be seen.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unseen) {
        return Cow::Borrowed(text);
    }
    let kept = text.chars().filter(|c| !is_format(*c));
    Cow::Owned(kept.map(|c| if c.is_control() { ' ' } else { c }).collect())
}

/// Whether a character moves a terminal's cursor, changes its colours or the order of letters, or cannot
/// be seen.
pub fn is_unseen(c: char) -> bool {
    c.is_control() || is_format(c)
}

/// Whether Unicode has a character in its category Cf: bidirectional controls, joiners, tags and
/// others that change what is around them and cannot be seen.
fn is_format(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{2064}'
            | '\u{2066}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0001}'
            | '\u{e0020}'..='\u{e007f}'
    )
}

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

/// The message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_characters_are_those_of_unicode() {
        let category = regex::Regex::new(r"^\p{Cf}$").unwrap();
        for c in '\0'..=char::MAX {
            assert_eq!(is_format(c), category.is_match(c.encode_utf8(&mut [0; 4])), "{c:?}");
        }
    }

    #[test]
    fn words_of_an_api_server_move_no_cursor_and_are_short() {
        assert_eq!(short("no\u{1b}[31m\nERROR \u{202e}gnitset"), "no [31m ERROR gnitset");
        assert_eq!(short(&"ä".repeat(MOST_CHARS + 1)).chars().count(), MOST_CHARS + 1);
        assert!(short(&"ä".repeat(MOST_CHARS + 1)).ends_with('…'));
    }
}
