//! Texts that came from outside, made fit for a terminal.

use std::fmt::Write as _;

use tidings_kube::text::is_unseen;
pub(crate) use tidings_kube::text::plain;

/// JSON that says the same with such characters escaped: they stand within strings only, but for the
/// line feeds between them.
pub(crate) fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && is_unseen(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c);
        }
    }
    text
}

/// A text of lines, as long in bytes, with question marks in place of such characters.
pub(crate) fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        let ends_line = c == '\n' || text[at..].starts_with("\r\n");
        if ends_line || c == '\t' || !is_unseen(c) {
            visible.push(c);
        } else {
            visible.extend(std::iter::repeat_n('?', c.len_utf8()));
        }
    }
    visible
}

/// A plain text with one space wherever there is white space, and not much more than so many bytes.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    for word in plain(text).split_whitespace() {
        if line.len() > most {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        let room = word.floor_char_boundary(most);
        line.push_str(&word[..room]);
    }
    line
}

/// The start of an error's words, which may quote values, and be long.
pub(crate) fn shortened(text: &str) -> String {
    let text = &*plain(text);
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_visible_has_its_lines_and_is_as_long() {
        let text = "a\tb\r\nc\rd\u{202e}e\u{9b}\nf\r";
        assert_eq!(visible(text), "a\tb\r\nc?d???e??\nf?");
    }

    #[test]
    fn escaped_json_says_the_same() {
        let value = serde_json::json!({"a": "\u{202e}b\u{9b}\u{7f}\u{e0001} é\n"});
        let json = serde_json::to_string_pretty(&value).unwrap();
        let safe = escaped(&json);
        assert_eq!(safe, "{\n  \"a\": \"\\u202eb\\u009b\\u007f\\udb40\\udc01 é\\n\"\n}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }
}
