//! The variables of a template, read from an envelope by the shapes of their fields.

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use minijinja::{
    Value,
    value::{Enumerator, Object},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use crate::event::{Field, Shape, day};

/// Reads an object of these variables.
pub(super) fn read(
    variables: &'static [Field],
    envelope: &[u8],
) -> Result<Value, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(envelope);
    let mut members = Read(variables).deserialize(&mut json)?;
    json.end()?;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let created = members
        .get("event")
        .and_then(|event| event.get_attr("metadata").ok())
        .and_then(|metadata| metadata.get_attr("creationTimestamp").ok());
    let time = text(members.get("time")).unwrap_or_default();
    let day = day(&time, &text(created.as_ref()).unwrap_or_default());
    members.set("day", Value::from(day));
    Ok(Value::from_object(members))
}

/// An object of known fields, of which some may be absent.
#[derive(Debug)]
struct Members {
    fields: &'static [Field],
    values: Vec<Option<Value>>,
}

impl Members {
    fn none(fields: &'static [Field]) -> Self {
        Self { fields, values: vec![None; fields.len()] }
    }

    fn at(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(self.at(name)?)?.as_ref()
    }

    fn set(&mut self, name: &str, value: Value) {
        if let Some(slot) = self.at(name).and_then(|at| self.values.get_mut(at)) {
            *slot = Some(value);
        }
    }
}

impl Object for Members {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, name: &str) -> Option<Value> {
        let field = self.fields.get(self.at(name)?)?;
        Some(self.get(name).cloned().unwrap_or_else(|| zero(field.shape)))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let there = self.fields.iter().zip(&self.values).filter(|(_, value)| value.is_some());
        Enumerator::Values(there.map(|(field, _)| Value::from(field.name)).collect())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.values.iter().flatten().count())
    }
}

/// Texts by any key; one that is absent reads as "".
#[derive(Debug, Default)]
struct Texts(BTreeMap<String, Value>);

impl Object for Texts {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        Some(self.0.get(key).cloned().unwrap_or_else(|| Value::from("")))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.keys().map(|key| Value::from(&**key)).collect())
    }

    // Asked for its truth in a loop over itself, it would cost more than a rendering may.
    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.len())
    }
}

/// The value of what is absent.
fn zero(shape: Shape) -> Value {
    match shape {
        Shape::Text => Value::from(""),
        Shape::Int => Value::from(0),
        Shape::Bool => Value::from(false),
        Shape::Texts => Value::from_object(Texts::default()),
        Shape::TextList | Shape::ObjectList(_) => Value::from(Vec::<Value>::new()),
        Shape::Object(fields) => Value::from_object(Members::none(fields)),
        Shape::Any => Value::from(()),
    }
}

/// Reads an object of these fields.
struct Read(&'static [Field]);

impl<'de> DeserializeSeed<'de> for Read {
    type Value = Members;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Members, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Read {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members = Members::none(self.0);
        while let Some(Key(name)) = map.next_key()? {
            let Some(at) = members.at(&name) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if let Some(value) = map.next_value_seed(Member(self.0[at].shape))? {
                members.values[at] = Some(value);
            }
        }
        Ok(members)
    }
}

/// The name of a member.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads a value of a shape; null is absent.
struct Member(Shape);

impl<'de> DeserializeSeed<'de> for Member {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Value>, D::Error> {
        Ok(match self.0 {
            Shape::Text => {
                Option::<Key<'de>>::deserialize(deserializer)?.map(|t| Value::from(&*t.0))
            }
            Shape::Int => Option::<i64>::deserialize(deserializer)?.map(Value::from),
            Shape::Bool => Option::<bool>::deserialize(deserializer)?.map(Value::from),
            Shape::TextList => Option::<Vec<String>>::deserialize(deserializer)?.map(Value::from),
            Shape::Texts => Option::<BTreeMap<String, Option<Key<'de>>>>::deserialize(
                deserializer,
            )?
            .map(|texts| {
                let text = |(key, text): (_, Option<Key<'_>>)| Some((key, Value::from(&*text?.0)));
                Value::from_object(Texts(texts.into_iter().filter_map(text).collect()))
            }),
            Shape::Object(_) | Shape::ObjectList(_) => deserializer.deserialize_option(self)?,
            // No variable of an event is of it.
            Shape::Any => {
                IgnoredAny::deserialize(deserializer)?;
                None
            }
        })
    }
}

impl<'de> Visitor<'de> for Member {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list of them")
    }

    fn visit_unit<E>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Value>, D::Error> {
        if let Shape::Object(fields) = self.0 {
            return Ok(Some(Value::from_object(Read(fields).deserialize(deserializer)?)));
        }
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Option<Value>, A::Error> {
        let Shape::ObjectList(fields) = self.0 else { return Ok(None) };
        let mut all = Vec::new();
        while let Some(members) = seq.next_element_seed(Read(fields))? {
            all.push(Value::from_object(members));
        }
        Ok(Some(Value::from(all)))
    }
}
