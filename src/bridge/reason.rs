//! Words that are not ours.
//!
//! A receiver, a proxy, a broker or a library says why something failed, and that goes to the log,
//! the status page, the dead letters and Events. Some repeat what they were sent, credentials
//! included: "Cannot POST /services/T0/B0/x" is some frameworks' whole 404. Some hold what moves a
//! terminal's cursor or turns the order of its letters. [`Reason`] is the only form in which the
//! bridge takes such words, and [`Secrets::reason`] the only place where one is made.

mod forms;

use std::{collections::BTreeSet, fmt, ops::Deref, sync::Arc};

use crate::plain::one_line;
use forms::Form;

/// A reason has at most so many characters.
const MOST_CHARS: usize = 300;
/// No more of what was said is looked at; the rest would not fit.
const MOST_BYTES: usize = 16 * 1024;
/// A shorter text is no secret, and may stand anywhere.
const SHORTEST: usize = 4;

/// Why something failed, on one line of at most 300 characters, without control and format
/// characters and without the secrets of the sink that it is about.
///
/// Made by [`Secrets::reason`] alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(Arc<str>);

impl Reason {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.0.as_ref().to_owned()
    }
}

/// The texts of one sink that nobody else is to read: passwords, tokens, keys, and what of an
/// address is as good as one.
///
/// A sink makes them once, of its options, and every [`Reason`] that it gives by them. Each text is
/// recognised as it is, percent-encoded, escaped as in JSON, HTML or a program's source, in base64,
/// alone or within something longer, and where a text breaks off in the midst of it.
#[derive(Clone, Default)]
pub struct Secrets(Arc<[Form]>);

impl Secrets {
    /// Those of a sink that has none; and what a reason is made by that holds no words but ours.
    pub fn none() -> Self {
        Self::default()
    }

    /// These texts. One of less than four bytes is left out: it would be found everywhere.
    pub fn of(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut forms = BTreeSet::new();
        for text in texts {
            if text.as_ref().len() >= SHORTEST {
                Form::all(text.as_ref(), &mut forms);
            }
        }
        Self(forms.into_iter().collect())
    }

    /// A reason in these words, with an ellipsis for each secret in them.
    pub fn reason(&self, words: impl fmt::Display) -> Reason {
        let words = one_line(&words.to_string(), MOST_BYTES);
        let mut text = String::new();
        let mut next = 0;
        for secret in forms::find(&words, &self.0, SHORTEST) {
            text.push_str(&words[next..secret.start]);
            text.push('…');
            next = secret.end;
        }
        text.push_str(&words[next..]);
        if let Some((end, _)) = text.char_indices().nth(MOST_CHARS - 1)
            && text[end..].chars().nth(1).is_some()
        {
            text.truncate(end);
            text.push('…');
        }
        Reason(text.into())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(…)")
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose};
    use proptest::prelude::*;

    use super::*;

    /// Every byte as `%xx`.
    fn percent(text: &str) -> String {
        text.bytes().fold(String::new(), |all, byte| format!("{all}%{byte:02x}"))
    }

    /// Every character as `\uxxxx`.
    fn json(text: &str) -> String {
        text.encode_utf16().fold(String::new(), |all, unit| format!("{all}\\u{unit:04X}"))
    }

    fn html(text: &str) -> String {
        text.chars().fold(String::new(), |all, c| format!("{all}&#{};", u32::from(c)))
    }

    #[test]
    fn a_secret_is_found_in_every_form() {
        let secret = r#"p/4 "s+\w%r&d<é>"#;
        let secrets = Secrets::of([secret]);
        let base64 = |text: &str| general_purpose::STANDARD.encode(text);
        for form in [
            secret.to_owned(),
            percent(secret),
            percent(secret).to_uppercase(),
            "p%2F4%20%22s%2B%5Cw%25r%26d%3C%C3%A9%3E".to_owned(),
            "p%2F4+%22s%2B%5Cw%25r%26d%3C%C3%A9%3E".to_owned(),
            json(secret),
            serde_json::to_string(secret).unwrap().trim_matches('"').to_owned(),
            r#"p\/4 \"s+\\w%r&d<\u00e9>"#.to_owned(),
            json(&percent(secret)),
            percent(&json(secret)),
            html(secret),
            html(secret).replace(';', ""),
            html(secret).replace("&#", "&#0000"),
            "p/4 &quot;s+\\w%r&amp;d&lt;é&gt;".to_owned(),
            "p&sol;4 &quot;s&plus;&bsol;w&percnt;r&amp;d<é>".to_owned(),
            format!("{secret:?}").trim_matches('"').to_owned(),
            secret.replace('"', "\\x22"),
            secret.replace('+', " "),
            secret.replace(' ', "\u{200b} \n"),
            secret.replace('/', "\u{fe0f}/\u{34f}"),
        ] {
            let reason = secrets.reason(format!("no {form} here"));
            assert_eq!(&*reason, "no … here", "{form}");
        }
        for whole in
            [base64(secret), base64(&format!("user:{secret}")), base64(&format!("\0u\0{secret}"))]
        {
            let reason = secrets.reason(format_args!("no {whole} here"));
            assert_eq!(&*reason, "no … here", "{whole}");
        }
    }

    #[test]
    fn a_long_secret_is_found_when_its_lines_are_wrapped() {
        let secret =
            (0..124u32).filter_map(|n| char::from_u32(33 + n * 7 % 90)).collect::<String>();
        let secrets = Secrets::of([&secret]);
        let base64 = |text: &str| general_purpose::STANDARD.encode(text);
        let more = base64(&format!("authorization: bearer {secret}\r\nhost: example.org\r\n"));
        for (width, form) in [(76, base64(&secret)), (64, more), (40, secret.clone())] {
            for end in ["\n", "\r\n", "\n    ", "\\n"] {
                let lines: Vec<_> =
                    form.as_bytes().chunks(width).map(String::from_utf8_lossy).collect();
                let reason = secrets.reason(format!("no {} here", lines.join(end)));
                let left = reason.strip_prefix("no ").and_then(|rest| rest.strip_suffix(" here"));
                assert!(left.is_some(), "{reason}");
                let leaks = |form: &str| {
                    form.as_bytes()
                        .windows(12)
                        .any(|part| reason.as_bytes().windows(12).any(|of| of == part))
                };
                assert!(!leaks(&secret) && !leaks(&base64(&secret)), "{reason}");
            }
        }
        // Words around it stay, and a short one is not made out of two words.
        let secrets = Secrets::of(["lockkeeper"]);
        assert_eq!(&*secrets.reason("the lock keeper says no"), "the lock keeper says no");
    }

    #[test]
    fn a_secret_that_is_broken_off_is_a_secret() {
        let secrets = Secrets::of(["hunter2hunter2"]);
        assert_eq!(&*secrets.reason("the password hunter2hun"), "the password …");
        assert_eq!(&*secrets.reason(format!("{}hunter2h", " ".repeat(9000))), "…");
        assert_eq!(&*secrets.reason("the password hun"), "the password hun");
        for end in
            ["%68%75%6e%74%6", "%68%75%6e%74%", "\\u0068unte\\u00", "hunt&#10", "hunter2hunter\\"]
        {
            assert_eq!(&*secrets.reason(format_args!("no {end}")), "no …", "{end}");
        }
    }

    #[test]
    fn most_of_a_secret_is_a_secret_wherever_it_breaks_off() {
        let secrets = Secrets::of(["hunter2hunter2hunter3", "short-secret"]);
        for (said, told) in [
            ("no <hunter2hunter2hunte...> here", "no <…...> here"),
            ("no hunter2hunter2hunter2hunter3 here", "no … here"),
            ("no hunter2hunte here", "no … here"),
            ("no hunter2hunt here", "no hunter2hunt here"),
            ("no short-secre here", "no short-secre here"),
        ] {
            assert_eq!(&*secrets.reason(said), told);
        }
    }

    #[test]
    fn nothing_moves_a_cursor_and_nothing_is_long() {
        let none = Secrets::none();
        let said = none.reason("a\u{1b}[31m\r\n\u{9b}2J b\u{202e}c\u{2066}\u{feff}\u{ad}d\0");
        assert_eq!(&*said, "a [31m 2J bcd");
        assert_eq!(none.reason("ä".repeat(300)).chars().count(), 300);
        assert!(none.reason("ä".repeat(300)).ends_with('ä'));
        assert_eq!(none.reason("ä".repeat(301)).chars().count(), 300);
        assert!(none.reason("ä".repeat(301)).ends_with("ä…"));
        assert_eq!(&*none.reason(""), "");
        assert_eq!(format!("{:?}", Secrets::of(["hunter2"])), "Secrets(…)");
    }

    #[test]
    fn a_short_secret_may_stand_anywhere() {
        assert_eq!(&*Secrets::of(["", "a", "abc"]).reason("abc a abc"), "abc a abc");
    }

    proptest! {
        #[test]
        fn no_words_make_it_panic_or_leak(
            words in prop::collection::vec(prop::sample::select(vec![
                "hunter2", "%68unter2", "hunt", "er2", "\\u0068unter2", "\\", "%", "%2", "&", "&#", "&#x68;",
                "\\u{68}", "\\ud83d", "\\ude00", "é", " ", "\n", "aHVudGVyMg", "😀", "\u{202e}", "u\\x6eter2",
            ]), 0..20)
        ) {
            let reason = Secrets::of(["hunter2", "😀😀"]).reason(words.concat());
            prop_assert!(!reason.contains("hunter2"), "{reason}");
            prop_assert!(!reason.contains("aHVudGVyMg"), "{reason}");
            prop_assert!(reason.chars().count() <= 300);
        }

        #[test]
        fn arbitrary_text_causes_no_panic(words in "\\PC{0,60}", secret in "\\PC{0,9}") {
            let reason = Secrets::of([&secret]).reason(&words);
            prop_assert!(reason.chars().count() <= 300);
        }
    }
}
