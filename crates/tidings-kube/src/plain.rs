//! Texts that came from outside, made fit for a terminal.

use std::borrow::Cow;

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
}
