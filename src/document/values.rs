//! The kinds of values that a configuration is written in: durations, sizes, and texts that may
//! be references.

use std::{borrow::Cow, fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{
        self, MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};

pub(crate) fn by_text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expecting: &'static str,
    parse: fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    struct ByText<T>(&'static str, fn(&str) -> Result<T, String>);
    impl<T> Visitor<'_> for ByText<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            (self.1)(text).map_err(E::custom)
        }
    }
    deserializer.deserialize_str(ByText(expecting, parse))
}

/// A span of time: whole numbers with units, largest first: `10s`, `1h30m`, `500ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Reads a duration. The error carries a hint behind a line feed.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong =
        |what: &str, hint: &str| format!("expected a duration, found `{text}`: {what}\n{hint}");
    let hint = "write whole numbers with units: `500ms`, `10s`, `1h30m`, `7d`";
    let mut rest = text;
    let mut millis = 0u64;
    let mut last_unit = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, tail) = rest.split_at(digits);
        if number.is_empty() {
            let what = if tail.starts_with('-') {
                "it cannot be negative"
            } else if tail.starts_with('.') {
                "fractions are not taken"
            } else {
                "a number is missing"
            };
            return Err(wrong(what, hint));
        }
        let letters = tail.len() - tail.trim_start_matches(|c: char| c.is_alphabetic()).len();
        let (unit, tail) = tail.split_at(letters);
        if unit.is_empty() {
            let what = if tail.starts_with('.') {
                "fractions are not taken"
            } else if tail.starts_with(' ') {
                "a blank is not taken"
            } else {
                "the unit is missing"
            };
            let hint = if tail.is_empty() {
                format!("for seconds write `{text}s`; the units are ms, s, m, h and d")
            } else {
                hint.to_owned()
            };
            return Err(wrong(what, &hint));
        }
        let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            let what = format!("`{unit}` is no unit of time");
            return Err(wrong(&what, "the units are ms, s, m, h and d"));
        };
        if *factor >= last_unit {
            return Err(wrong("the units stand from large to small, each once", hint));
        }
        last_unit = *factor;
        millis = number
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_mul(*factor))
            .and_then(|n| n.checked_add(millis))
            // A hundred years: more is a slip, and additions to the clock would overflow.
            .filter(|n| *n <= 36_525 * 86_400_000)
            .ok_or_else(|| wrong("it is longer than a hundred years", hint))?;
        rest = tail;
    }
    if text.is_empty() {
        return Err(wrong("it is empty", hint));
    }
    Ok(Duration::from_millis(millis))
}

impl std::str::FromStr for Span {
    type Err = String;

    /// The error carries a hint behind a line feed.
    fn from_str(text: &str) -> Result<Self, String> {
        parse_duration(text).map(Self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        by_text(deserializer, "a duration such as `10s`", |text| parse_duration(text).map(Self))
    }
}

/// The pattern of a duration, for the schema.
pub(crate) const DURATION_PATTERN: &str = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$";

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Whole numbers with units from large to small: `500ms`, `10s`, `1h30m`, `7d`.",
            "pattern": DURATION_PATTERN,
            "minLength": 2,
        })
    }
}

/// A number of bytes: `1GiB`, `64MiB`, `500MB`, or a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

const SIZE_UNITS: [(&str, u64); 11] = [
    ("", 1),
    ("B", 1),
    ("kB", 1000),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

fn parse_size(text: &str) -> Result<u64, String> {
    let hint = "write a whole number and a unit: `1GiB`, `64MiB`, `500MB`, or bytes alone";
    let wrong = |what: &str| format!("expected a size, found `{text}`: {what}\n{hint}");
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    if number.is_empty() {
        return Err(wrong(if text.starts_with('-') {
            "it cannot be negative"
        } else {
            "it does not start with a number"
        }));
    }
    let factor = if let Some((_, factor)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) {
        *factor
    } else if unit.starts_with('.') {
        return Err(wrong("fractions are not taken"));
    } else if let "K" | "M" | "G" | "k" | "Ki" | "Mi" | "Gi" = unit {
        return Err(format!(
            "expected a size, found `{text}`: the unit is `{}B` in full\nwrite `{number}{}B`",
            unit.to_ascii_uppercase().replace('I', "i"),
            unit.to_ascii_uppercase().replace('I', "i"),
        ));
    } else {
        return Err(wrong(&format!("`{unit}` is no unit of size")));
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
        .filter(|n| i64::try_from(*n).is_ok())
        .ok_or_else(|| wrong("it is too large"))
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        by_text(deserializer, "a size such as `64MiB`", |text| parse_size(text).map(Self))
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of bytes: `1GiB`, `64MiB`, `500MB`, or a plain number.",
            "anyOf": [
                { "type": "integer", "minimum": 0 },
                { "type": "string", "pattern": "^[0-9]+ *(B|[kK]B|MB|GB|TB|KiB|MiB|GiB|TiB)?$" },
            ],
        })
    }
}

/// A text, or where to find it.
#[derive(Clone, PartialEq, Eq)]
pub enum Text {
    /// The text itself.
    Plain(String),
    /// `{env: NAME}`: the value of a variable of the environment.
    Env(String),
    /// `{file: PATH}`: what a file holds, less the line feed at its end.
    File(String),
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // It may be a password.
            Self::Plain(_) => f.write_str("…"),
            Self::Env(name) => write!(f, "{{env: {name}}}"),
            Self::File(path) => write!(f, "{{file: {path}}}"),
        }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::Plain(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, `{env: NAME}` or `{file: PATH}`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text::Plain(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Text, A::Error> {
                const HINT: &str = "write `{env: NAME}` or `{file: PATH}`";
                let custom = |what: &str| de::Error::custom(format!("{what}\n{HINT}"));
                let Some(key) = map.next_key::<String>()? else {
                    return Err(custom("expected a reference, found an empty one"));
                };
                let text = match &*key {
                    "env" => Text::Env(map.next_value()?),
                    "file" => Text::File(map.next_value()?),
                    _ => return Err(custom(&format!("expected `env` or `file`, found `{key}`"))),
                };
                if map.next_key::<String>()?.is_some() {
                    return Err(custom("expected one key in a reference, found two"));
                }
                Ok(text)
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

/// A text or a list of them.
#[derive(Clone, Debug)]
pub(crate) struct Texts {
    /// At least one.
    pub(crate) texts: Vec<Text>,
    /// Whether they stand in a list.
    pub(crate) listed: bool,
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextsVisitor;
        impl<'de> Visitor<'de> for TextsVisitor {
            type Value = Texts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, `{env: NAME}`, `{file: PATH}`, or a list of them")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts { texts: vec![Text::Plain(text.to_owned())], listed: false })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Texts, A::Error> {
                let text = Text::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Texts { texts: vec![text], listed: false })
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Texts, A::Error> {
                let texts = Vec::deserialize(SeqAccessDeserializer::new(seq))?;
                if texts.is_empty() {
                    return Err(de::Error::custom("the list is empty\nwrite at least one"));
                }
                Ok(Texts { texts, listed: true })
            }
        }
        // By a name that the model has for nothing else: a text or a list of them.
        deserializer.deserialize_tuple_struct("Texts", 1, TextsVisitor)
    }
}

impl JsonSchema for Texts {
    fn schema_name() -> Cow<'static, str> {
        "Texts".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let text = generator.subschema_for::<Text>();
        json_schema!({
            "description": "A text, a reference to one, or a list of them.",
            "anyOf": [text, { "type": "array", "items": text, "minItems": 1 }],
        })
    }
}

impl JsonSchema for Text {
    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let reference = |key: &str, what: &str| {
            json_schema!({
                "type": "object",
                "properties": { key: { "type": "string", "description": what } },
                "required": [key],
                "additionalProperties": false,
            })
        };
        json_schema!({
            "description": "A text, or a reference to one: `{env: NAME}` or `{file: PATH}`.",
            "anyOf": [
                { "type": ["string", "number", "boolean"] },
                reference("env", "A variable of the environment."),
                reference("file", "A file; a line feed at its end is dropped."),
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_with_units_from_large_to_small() {
        for (text, millis) in
            [("10s", 10_000), ("1h30m", 5_400_000), ("500ms", 500), ("1m500ms", 60_500), ("0s", 0)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        let wrong: Vec<_> =
            ["", "10", "-1s", "1.5h", "5 s", "10sec", "1s1h", "99999999999999d", "s"]
                .map(|text| parse_duration(text).unwrap_err().replace('\n', " / "))
                .into();
        insta::assert_snapshot!(wrong.join("\n"));
    }

    #[test]
    fn sizes_are_parsed_with_their_units() {
        for (text, bytes) in [
            ("1GiB", 1 << 30),
            ("64MiB", 64 << 20),
            ("500MB", 500_000_000),
            ("17", 17),
            ("1 KiB", 1024),
            ("2TiB", 2 << 40),
            ("3B", 3),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        let wrong: Vec<_> = ["", "GiB", "-1", "1.5GiB", "1G", "1Gi", "1gib", "99999999999TB"]
            .map(|text| parse_size(text).unwrap_err().replace('\n', " / "))
            .into();
        insta::assert_snapshot!(wrong.join("\n"));
    }
}
