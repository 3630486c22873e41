//! Finding a place of a text in the YAML scalar that the text was written as.

use std::ops::Range;

/// The bytes of the file where byte `offset` of `text` stands; `span` is the whole scalar.
///
/// Quotes, escapes, indentation and folding lie between the two, so the word at the offset is
/// looked for: as often as it occurs in the text before the offset, as often it is passed over.
/// Where even that fails the answer is the scalar as a whole.
pub(super) fn locate(file: &str, span: &Range<usize>, text: &str, offset: usize) -> Range<usize> {
    let Some(scalar) = file.get(span.clone()) else { return span.clone() };
    let (before, rest) = text.split_at_checked(offset).unwrap_or((text, ""));
    let stops = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\');
    let word = rest.split(stops).next().unwrap_or("");
    let word_len = word.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(word.len());
    if let Some(start) = scalar.find(text.trim_end()) {
        let start = span.start + start + offset;
        return start.min(span.end)..(start + word_len.max(1)).min(span.end);
    }
    if word.is_empty() {
        return span.clone();
    }
    // Occurrences may overlap the offset's own: what starts before it counts.
    let passed = text.match_indices(word).take_while(|(at, _)| *at < before.len()).count();
    match scalar.match_indices(word).nth(passed) {
        Some((at, _)) => span.start + at..span.start + at + word_len.max(1),
        None => span.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_through_quotes_folds_and_indentation() {
        let cases = [
            ("match: event.typ == 'x'", "event.typ == 'x'", "typ"),
            ("match: 'event.typ == \"x\"'", "event.typ == \"x\"", "typ"),
            (r#"match: "event.type == \"x\" && evnt.a""#, "event.type == \"x\" && evnt.a", "evnt"),
            ("match: 'a == ''x'' && typ'", "a == 'x' && typ", "typ"),
            ("match: |\n    a ==\n      typ\n", "a ==\n  typ\n", "typ"),
            ("match: >-\n    event.type\n    && evnt.type", "event.type && evnt.type", "evnt"),
        ];
        for (file, text, word) in cases {
            let scalar = 7 + usize::from(file.contains(['|', '>'])) * 2..file.len();
            let offset = text.find(word).unwrap();
            let found = locate(file, &scalar, text, offset);
            assert_eq!(&file[found.clone()], word, "{file}");
            assert_eq!(found.start, file.find(word).unwrap(), "{file}");
        }
        assert_eq!(locate("a: \"\\x61\"", &(3..9), "a", 0), 3..9);
        assert_eq!(locate("a: b +", &(3..6), "b +", 3), 6..6);
    }
}
