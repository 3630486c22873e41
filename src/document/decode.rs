//! From the tree to the model, by serde, with errors that say where, what and how to mend it.

use std::fmt::{self, Display};

use serde::de::{
    self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    Visitor, value::StrDeserializer,
};

use super::{
    Wrong, wrong,
    yaml::{Entry, Node, Origin, Value},
};
use crate::suggest::did_you_mean;

/// An error of decoding, at a node that serde was looking at.
#[derive(Debug)]
pub(crate) struct DecodeError {
    pub(crate) at: Option<Origin>,
    pub(crate) wrong: Wrong,
}

impl DecodeError {
    fn new(what: impl Into<String>) -> Self {
        Self { at: None, wrong: wrong(what) }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self { wrong: self.wrong.hint(hint), ..self }
    }

    /// Keeps the innermost place.
    fn at(mut self, origin: &Origin) -> Self {
        self.at.get_or_insert_with(|| origin.clone());
        self
    }
}

impl Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.wrong.what)
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    /// Makes an error of a message, in which a hint may stand behind a line feed.
    fn custom<T: Display>(message: T) -> Self {
        let message = message.to_string();
        match message.split_once('\n') {
            Some((what, hint)) => Self::new(what).hint(hint),
            None => Self::new(message),
        }
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(format!("expected {expected}"))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let keys = || format!("the keys here are {}", list(expected));
        let hint = did_you_mean(field, expected.iter().copied(), keys);
        Self::new(format!("expected a known key, found `{field}`")).hint(hint)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let these = || "write one of these".to_owned();
        let hint = did_you_mean(variant, expected.iter().copied(), these);
        Self::new(format!("expected one of {}, found `{variant}`", list(expected))).hint(hint)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("expected the key `{field}`, found none"))
            .hint(format!("add `{field}: …`"))
    }
}

/// Names in backticks, comma-separated.
pub(crate) fn list(names: &[impl std::fmt::Display]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Decodes a node. `path` is what the node is called in errors, such as `sinks.audit`.
pub(crate) fn decode<T: de::DeserializeOwned>(node: &Node, path: &str) -> Result<T, DecodeError> {
    T::deserialize(NodeDe { node, path: path.to_owned() })
}

struct NodeDe<'a> {
    node: &'a Node,
    path: String,
}

impl NodeDe<'_> {
    fn wrong_type(&self, expected: &str) -> DecodeError {
        let what = format!("`{}`: expected {expected}, found {}", self.path, self.node.describe());
        let error = DecodeError::new(what).at(&self.node.origin);
        match self.node.value {
            Value::Null => error.hint("write a value, or remove the key to have the default"),
            _ => error,
        }
    }

    fn text(&self, expected: &str) -> Result<&str, DecodeError> {
        match &self.node.value {
            Value::Scalar { text, .. } => Ok(text),
            _ => Err(self.wrong_type(expected)),
        }
    }

    /// Adds path and place to an error that a visitor raised about this very node.
    fn here(&self, error: DecodeError) -> DecodeError {
        if error.at.is_some() {
            return error;
        }
        DecodeError { wrong: error.wrong.at(&self.path), ..error }.at(&self.node.origin)
    }

    fn number<T: std::str::FromStr + Display + Copy>(&self, most: T) -> Result<T, DecodeError> {
        let expected = "a whole number";
        let Value::Scalar { text, quoted } = &self.node.value else {
            return Err(self.wrong_type(expected));
        };
        match text.parse() {
            Ok(_) if *quoted => Err(self.wrong_type(expected).hint("take the quotes away")),
            Ok(number) => Ok(number),
            Err(_) if text.parse::<f64>().is_ok() => {
                let (bound, hint) = if text.bytes().all(|byte| byte.is_ascii_digit()) {
                    (format!(" of at most {most}"), "write a smaller one")
                } else {
                    (String::new(), "write digits only")
                };
                let what = format!("expected {expected}{bound}, found {text}");
                Err(self.here(DecodeError::new(what).hint(hint)))
            }
            Err(_) => Err(self.wrong_type(expected).hint("write digits only")),
        }
    }
}

/// The expectation of a visitor, in its own words.
struct Expecting<'v, V>(&'v V);

impl<'de, V: Visitor<'de>> Display for Expecting<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            let number = self.number(<$type>::MAX)?;
            visitor.$visit(number).map_err(|error| self.here(error))
        }
    )*};
}

impl<'de> Deserializer<'de> for NodeDe<'_> {
    type Error = DecodeError;

    numbers!(
        deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64,
        deserialize_i64 visit_i64 i64, deserialize_i32 visit_i32 i32
    );

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.node.value {
            Value::Scalar { text, quoted: false } if text == "true" => visitor.visit_bool(true),
            Value::Scalar { text, quoted: false } if text == "false" => visitor.visit_bool(false),
            _ => Err(self.wrong_type("`true` or `false`").hint("write one of the two, unquoted")),
        }
        .map_err(|error: DecodeError| self.here(error))
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let expected = Expecting(&visitor).to_string();
        match &self.node.value {
            Value::Null => Err(self.wrong_type(&expected)),
            Value::Scalar { .. } => self.deserialize_str(visitor),
            // What is "a list or something else" says so by its name.
            Value::List(_) => Err(self.wrong_type(&expected).hint("write one value")),
            Value::Map(_) => self.deserialize_map(visitor),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let text = self.text(&Expecting(&visitor).to_string())?;
        visitor.visit_str(text).map_err(|error| self.here(error))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let text = self.text("a text")?;
        visitor.visit_str(text).map_err(|error| self.here(error))
    }

    /// A text or a list of them.
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match &self.node.value {
            Value::List(_) => self.deserialize_seq(visitor),
            _ => self.deserialize_any(visitor),
        }
    }

    /// A key that is there has a value: an empty one is no way to say "absent", because that is
    /// what a template that found nothing writes.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.node.value {
            Value::List(items) => {
                let path = &self.path;
                visitor.visit_seq(Items { items: items.iter().enumerate(), path })
            }
            Value::Null => visitor.visit_seq(Items { items: [].iter().enumerate(), path: "" }),
            _ => Err(self.wrong_type("a list").hint("write `- ` before each item")),
        }
        .map_err(|error: DecodeError| self.here(error))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let entries = match &self.node.value {
            Value::Map(entries) => entries.as_slice(),
            // A block whose lines are all commented out.
            Value::Null => &[],
            _ => return Err(self.wrong_type("a mapping")),
        };
        let map = Entries { rest: entries.iter(), current: None, path: &self.path };
        visitor.visit_map(map).map_err(|error| self.here(error))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        if let Value::Map(_) | Value::Null = self.node.value {
            self.deserialize_map(visitor)
        } else {
            let keys = if fields.is_empty() { "no keys".to_owned() } else { list(fields) };
            let hint = match fields {
                [] => "write `{}`".to_owned(),
                [first, ..] => format!("write for instance `{{{first}: …}}`"),
            };
            Err(self.wrong_type(&format!("a mapping with {keys}")).hint(hint))
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let text = self.text(&format!("one of {}", list(variants)))?;
        let word: StrDeserializer<'_, DecodeError> = text.into_deserializer();
        visitor.visit_enum(word).map_err(|error| self.here(error))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u128 f32 f64 char bytes byte_buf unit unit_struct tuple
        identifier ignored_any
    }
}

struct Items<'a> {
    items: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
    path: &'a str,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        self.items
            .next()
            .map(|(i, node)| seed.deserialize(NodeDe { node, path: format!("{}[{i}]", self.path) }))
            .transpose()
    }
}

struct Entries<'a> {
    rest: std::slice::Iter<'a, Entry>,
    current: Option<&'a Entry>,
    path: &'a str,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DecodeError> {
        self.current = self.rest.next();
        let Some(entry) = self.current else { return Ok(None) };
        let key = seed.deserialize(entry.key.as_str().into_deserializer());
        key.map(Some).map_err(|error: DecodeError| {
            DecodeError { wrong: error.wrong.at(self.path), ..error }.at(&entry.key_origin)
        })
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<T::Value, DecodeError> {
        let Some(entry) = self.current else {
            return Err(DecodeError::new("a value before its key"));
        };
        seed.deserialize(NodeDe { node: &entry.node, path: format!("{}.{}", self.path, entry.key) })
    }
}
