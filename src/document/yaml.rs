//! A YAML file as a tree that remembers where each node stood and how it was spelt.
//!
//! serde-saphyr does the parsing; the tree between it and the model is what lets an error name the
//! very line, the overlay put values in without a second parser, and `1.10` stay `1.10`.

use std::{fmt, ops::Range};

use super::{Wrong, wrong};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor, value::SeqAccessDeserializer},
};
use serde_saphyr::{
    MessageFormatter as _, Spanned, UserMessageFormatter,
    options::{DuplicateKeyPolicy, NonFiniteFloatPolicy},
};

/// Where a node comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// Bytes of the configuration file.
    File(Range<usize>),
    /// A variable of the environment overlay.
    Env(String),
}

#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

#[derive(Clone)]
pub(crate) enum Value {
    /// `null`, `~` or nothing at all.
    Null,
    /// Any other scalar as text. A plain one keeps the spelling of the file.
    Scalar {
        text: String,
        quoted: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One `key: value` of a mapping.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_origin: Origin,
    pub(crate) node: Node,
}

/// A mistake in the bytes of a YAML document.
pub(crate) type Mistake = (Range<usize>, Wrong);

impl Node {
    /// The value of `key`, if this is a mapping that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The entries of a mapping; of anything else none.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The node's type, for an error about it. Text is not repeated: it may be a secret.
    pub(crate) fn describe(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Scalar { quoted: true, .. } => "a quoted text",
            Value::Scalar { text, .. } if matches!(&**text, "true" | "false") => "true or false",
            Value::Scalar { text, .. } if text.parse::<f64>().is_ok() => "a number",
            Value::Scalar { .. } => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }
}

/// Parses one document, and says which of its keys stand twice or are null. An empty document is
/// [`Value::Null`].
pub(crate) fn parse(text: &str) -> Result<(Node, Vec<Mistake>), Mistake> {
    let options = serde_saphyr::options! {
        // Duplicates are refused below, with both places at hand.
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    };
    let parsed: Result<Spanned<Any>, _> = serde_saphyr::from_str_with_options(text, options);
    match parsed {
        Ok(any) => {
            let mut builder = Builder { text, mistakes: Vec::new() };
            let node = builder.node(any, &[]);
            Ok((node, builder.mistakes))
        }
        Err(_) if is_blank(text) => {
            Ok((Node { value: Value::Null, origin: Origin::File(0..0) }, Vec::new()))
        }
        Err(error) => Err(syntax_error(&error, text)),
    }
}

/// Whether nothing but comments and white space is there.
fn is_blank(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

fn syntax_error(error: &serde_saphyr::Error, text: &str) -> Mistake {
    let at = error.location().map_or(0..0, |location| bytes_of(location, text));
    // The parser's own words, first line only: what follows may quote the file.
    let message = UserMessageFormatter.format_message(error);
    let what = message.lines().next().unwrap_or("it cannot be read").to_owned();
    let line = text.get(..at.start).unwrap_or(text).rfind('\n').map_or(0, |end| end + 1);
    let line = text[line..].lines().next().unwrap_or_default();
    let indent_is_tab = line.chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t');
    let hint = if indent_is_tab {
        "YAML is indented with spaces, never with tabs"
    } else if what.contains("multiple") {
        "keep one document, and remove the lines `---`"
    } else if line.contains("{{") {
        "a template that begins with a brace stands in quotes: `\"{{ id }}\"`, or in a block behind `|`"
    } else {
        "check the brackets, quotes and indentation here and above"
    };
    (at, wrong(format!("expected YAML, found a mistake: {what}")).hint(hint))
}

fn bytes_of(location: serde_saphyr::Location, text: &str) -> Range<usize> {
    let span = location.span();
    // The scanner's own errors come without byte offsets, but with line and column.
    let by_line = || {
        let line = usize::try_from(location.line().saturating_sub(1)).unwrap_or(0);
        let column = usize::try_from(location.column().saturating_sub(1)).unwrap_or(0);
        let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
        let rest = text.get(start..).unwrap_or_default();
        start + rest.chars().take(column).map(char::len_utf8).sum::<usize>()
    };
    let start = span.byte_offset().and_then(|n| usize::try_from(n).ok()).unwrap_or_else(by_line);
    let len = span.byte_len().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let clip = |at: usize| (0..=at.min(text.len())).rev().find(|i| text.is_char_boundary(*i));
    clip(start).unwrap_or(0)..clip(start.saturating_add(len)).unwrap_or(0)
}

/// A node as serde-saphyr hands it over: numbers and booleans already recognised, which is why
/// their spelling is taken from the file again.
enum Any {
    Null,
    Recognised,
    Text(String),
    List(Vec<Spanned<Any>>),
    Map(Vec<(Key, Spanned<Any>)>),
}

/// A key as serde-saphyr hands it over: none where it reads one as null.
type Key = Spanned<Option<String>>;

struct Builder<'t> {
    text: &'t str,
    mistakes: Vec<Mistake>,
}

impl Builder<'_> {
    /// A node below the keys `path`.
    fn node(&mut self, any: Spanned<Any>, path: &[&str]) -> Node {
        // An alias is edited where it was defined, so that is where errors point.
        let span = bytes_of(any.defined, self.text);
        let slice = self.text.get(span.clone()).unwrap_or_default();
        let quoted = slice.starts_with(['"', '\'']);
        let value = match any.value {
            Any::Null => Value::Null,
            Any::Recognised => Value::Scalar { text: slice.trim().to_owned(), quoted: false },
            Any::Text(text) => Value::Scalar { text, quoted },
            Any::List(items) => {
                Value::List(items.into_iter().map(|item| self.node(item, path)).collect())
            }
            Any::Map(pairs) => Value::Map(self.map(pairs, path)),
        };
        Node { value, origin: Origin::File(span) }
    }

    fn map(&mut self, pairs: Vec<(Key, Spanned<Any>)>, path: &[&str]) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            let at = bytes_of(key.defined, self.text);
            let name = key.value.unwrap_or_else(|| {
                let written = self.text[at.clone()].to_owned();
                self.mistakes.push((at.clone(), null_key(&written, path)));
                written
            });
            let earlier = entries.iter().find(|entry| entry.key == name);
            if let Some(Entry { key_origin: Origin::File(first), .. }) = earlier {
                let line = self.text[..first.start].matches('\n').count() + 1;
                let hint = if path == ["sinks"] {
                    "give one of the two sinks another name"
                } else {
                    "remove one of the two"
                };
                let wrong = wrong(format!("expected `{name}` once, found it on line {line}, too"));
                self.mistakes.push((at.clone(), wrong.hint(hint)));
            }
            let below: Vec<&str> = path.iter().copied().chain([name.as_str()]).collect();
            let node = self.node(value, &below);
            entries.push(Entry { key: name, key_origin: Origin::File(at), node });
        }
        entries
    }
}

/// The refusal of a key that is null, below the keys `path`.
fn null_key(written: &str, path: &[&str]) -> Wrong {
    let wrong = match written {
        "" => wrong("expected a key, found nothing before the colon").hint("write one"),
        _ => wrong(format!("expected a key, found `{written}`, which is YAML for no value"))
            .hint(format!("write it in quotes: `\"{written}\"`")),
    };
    if path.is_empty() { wrong } else { wrong.at(path.join(".")) }
}

impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyVisitor;
        impl<'de> Visitor<'de> for AnyVisitor {
            type Value = Any;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }
            fn visit_bool<E>(self, _: bool) -> Result<Any, E> {
                Ok(Any::Recognised)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Any, E> {
                Ok(Any::Recognised)
            }
            fn visit_u64<E>(self, _: u64) -> Result<Any, E> {
                Ok(Any::Recognised)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Any, E> {
                Ok(Any::Recognised)
            }
            fn visit_str<E>(self, text: &str) -> Result<Any, E> {
                Ok(Any::Text(text.to_owned()))
            }
            fn visit_unit<E>(self) -> Result<Any, E> {
                Ok(Any::Null)
            }
            fn visit_none<E>(self) -> Result<Any, E> {
                Ok(Any::Null)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Any, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Any::List)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Any, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Any::Map(pairs))
            }
        }
        deserializer.deserialize_any(AnyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree in one line, each scalar with the source text that it stands on.
    fn show(node: &Node, text: &str) -> String {
        let Origin::File(at) = &node.origin else { return "env".to_owned() };
        match &node.value {
            Value::Null => "null".to_owned(),
            Value::Scalar { text: value, quoted } => {
                format!("{value:?}{}@{:?}", if *quoted { "q" } else { "" }, &text[at.clone()])
            }
            Value::List(items) => {
                format!("[{}]", items.iter().map(|i| show(i, text)).collect::<Vec<_>>().join(", "))
            }
            Value::Map(entries) => {
                let show = |e: &Entry| {
                    let Origin::File(at) = &e.key_origin else { return String::new() };
                    assert!(text[at.clone()].contains(&e.key), "{:?}", &text[at.clone()]);
                    format!("{}: {}", e.key, show(&e.node, text))
                };
                format!("{{{}}}", entries.iter().map(show).collect::<Vec<_>>().join(", "))
            }
        }
    }

    #[test]
    fn scalars_keep_their_spelling_and_their_place() {
        let text = "a: 1.10\nb: [off, '007', \"x\\ny\"]\nc: {d: 0x1F, e: ~, ü: é}\nf:\nl: |\n  one\n  two\n";
        let (node, mistakes) = parse(text).unwrap();
        assert!(mistakes.is_empty());
        assert!(matches!(parse("# nothing\n").unwrap().0.value, Value::Null));
        insta::assert_snapshot!(show(&node, text), @r#"{a: "1.10"@"1.10", b: ["off"@"off", "007"q@"'007'", "x\ny"q@"\"x\\ny\""], c: {d: "0x1F"@"0x1F", e: null, ü: "é"@"é"}, f: null, l: "one\ntwo\n"@"one\n  two\n"}"#);
    }
}
