//! Reading what an expression needs, and no more, from an envelope.

use std::{borrow::Cow, collections::HashMap, fmt};

use cel::{
    common::{
        types::{
            CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt,
        },
        value::{CowVal, Val},
    },
    context::VariableResolver,
};
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value as Json;

use super::check::{Asks, Slot};
use crate::event::{Field, Shape};

/// The slots of an expression as a tree along the envelope's members.
#[derive(Debug)]
pub(super) struct Plan {
    name: String,
    shape: Shape,
    /// The slot that takes the value.
    value: Option<usize>,
    /// The slot that takes whether it is there.
    presence: Option<usize>,
    children: Vec<Plan>,
}

impl Plan {
    /// The plan that fills `slots` in their order, from an object of these variables.
    pub(super) fn new(variables: &'static [Field], slots: &[Slot]) -> Self {
        let mut root = Self::node("", Shape::Object(variables));
        for (index, slot) in slots.iter().enumerate() {
            let leaf = slot.path.iter().fold(&mut root, |node, name| node.child(name));
            match slot.asks {
                Asks::Value(_) => leaf.value = Some(index),
                Asks::Presence => leaf.presence = Some(index),
            }
        }
        root
    }

    fn node(name: &str, shape: Shape) -> Self {
        let name = name.to_owned();
        Self { name, shape, value: None, presence: None, children: Vec::new() }
    }

    fn child(&mut self, name: &str) -> &mut Self {
        let at = self.children.iter().position(|child| child.name == name).unwrap_or_else(|| {
            // The check has been here before: only fields of the schema come by.
            let shape = match self.shape {
                Shape::Object(fields) => fields
                    .iter()
                    .find(|field| field.name == name)
                    .map_or(Shape::Text, |field| field.shape),
                _ => Shape::Text,
            };
            self.children.push(Self::node(name, shape));
            self.children.len() - 1
        });
        &mut self.children[at]
    }
}

/// The value of one slot.
enum Held<'a> {
    Text(CelString<'a>),
    Int(CelInt),
    Bool(CelBool),
    Other(Box<dyn Val>),
}

/// The values of all slots for one event; the variables of the evaluation.
pub(super) struct Slots<'a>(Vec<Held<'a>>);

impl<'a> Slots<'a> {
    /// Reads an envelope. The error says which member is not what the API promises.
    pub(super) fn read(
        plan: &Plan,
        slots: &[Slot],
        envelope: &'a [u8],
    ) -> Result<Self, serde_json::Error> {
        let absent = |slot: &Slot| match slot.asks {
            Asks::Value(Shape::Text) => Held::Text(CelString::from("")),
            Asks::Value(Shape::Int) => Held::Int(CelInt::from(0)),
            Asks::Value(Shape::Bool) | Asks::Presence => Held::Bool(CelBool::from(false)),
            Asks::Value(shape) => Held::Other(zero(shape)),
        };
        let mut held: Vec<_> = slots.iter().map(absent).collect();
        if held.is_empty() {
            return Ok(Self(held));
        }
        let mut json = serde_json::Deserializer::from_slice(envelope);
        Fill { plan, held: &mut held }.deserialize(&mut json)?;
        json.end()?;
        Ok(Self(held))
    }
}

impl VariableResolver for Slots<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let index: usize = variable.strip_prefix('#')?.parse().ok()?;
        Some(CowVal::Borrowed(match self.0.get(index)? {
            Held::Text(text) => text,
            Held::Int(int) => int,
            Held::Bool(bool) => bool,
            Held::Other(value) => value.as_ref(),
        }))
    }
}

/// Fills the slots at and below one node of the plan.
struct Fill<'p, 'h, 'a> {
    plan: &'p Plan,
    held: &'h mut [Held<'a>],
}

impl<'a> Fill<'_, '_, 'a> {
    /// Notes that the member is there and not null, and refuses a value of another type.
    fn scalar<E: de::Error>(self, held: Option<Held<'a>>) -> Result<(), E> {
        if let Some(slot) = self.plan.presence {
            self.held[slot] = Held::Bool(CelBool::from(true));
        }
        match (held, self.plan.value) {
            (Some(held), Some(slot)) => self.held[slot] = held,
            (None, Some(_)) => return Err(wrong_type(self.plan)),
            (_, None) if !self.plan.children.is_empty() => return Err(wrong_type(self.plan)),
            (_, None) => {}
        }
        Ok(())
    }

    fn text<E: de::Error>(self, text: Cow<'a, str>) -> Result<(), E> {
        let held = (self.plan.shape == Shape::Text).then(|| Held::Text(CelString::from(text)));
        self.scalar(held)
    }

    fn int<E: de::Error>(self, int: Option<i64>) -> Result<(), E> {
        let int = int.filter(|_| self.plan.shape == Shape::Int);
        self.scalar(int.map(|int| Held::Int(CelInt::from(int))))
    }

    /// A list or object that is wanted whole.
    fn whole<E: de::Error>(&mut self, slot: usize, json: &Json) -> Result<(), E> {
        let value = value_of(json, self.plan.shape).ok_or_else(|| wrong_type(self.plan))?;
        self.held[slot] = Held::Other(value);
        Ok(())
    }

    fn present(&mut self) {
        if let Some(slot) = self.plan.presence {
            self.held[slot] = Held::Bool(CelBool::from(true));
        }
    }
}

fn wrong_type<E: de::Error>(plan: &Plan) -> E {
    E::custom(format!("`{}` is not of the type that the API gives it", plan.name))
}

impl<'a> DeserializeSeed<'a> for Fill<'_, '_, 'a> {
    type Value = ();
    fn deserialize<D: Deserializer<'a>>(mut self, deserializer: D) -> Result<(), D::Error> {
        if let (Shape::Any, Some(slot)) = (self.plan.shape, self.plan.value) {
            return self.whole(slot, &Json::deserialize(deserializer)?);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Fill<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member of an envelope")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        let held = (self.plan.shape == Shape::Bool).then(|| Held::Bool(CelBool::from(value)));
        self.scalar(held)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.int(Some(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.int(i64::try_from(value).ok())
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        self.scalar(None)
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'a str) -> Result<(), E> {
        self.text(Cow::Borrowed(text))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.text(Cow::Owned(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'a>>(mut self, mut seq: A) -> Result<(), A::Error> {
        self.present();
        match self.plan.value {
            Some(slot) => {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element::<Json>()? {
                    items.push(item);
                }
                self.whole(slot, &Json::Array(items))
            }
            None if !self.plan.children.is_empty() => Err(wrong_type(self.plan)),
            None => {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(())
            }
        }
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.present();
        if let Some(slot) = self.plan.value {
            // Wanted whole: what is wanted of its members too is read from the copy.
            let json = Json::deserialize(de::value::MapAccessDeserializer::new(map))?;
            self.whole(slot, &json)?;
            if let Json::Object(members) = json {
                for (name, member) in members {
                    if let Some(plan) = self.plan.children.iter().find(|plan| plan.name == name) {
                        let fill = Fill { plan, held: &mut *self.held };
                        fill.deserialize(member).map_err(de::Error::custom)?;
                    }
                }
            }
            return Ok(());
        }
        while let Some(child) = map.next_key_seed(Member(&self.plan.children))? {
            match child {
                Some(plan) => map.next_value_seed(Fill { plan, held: &mut *self.held })?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Finds the child of a plan that a member's name leads to.
struct Member<'p>(&'p [Plan]);

impl<'de, 'p> DeserializeSeed<'de> for Member<'p> {
    type Value = Option<&'p Plan>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'p> Visitor<'_> for Member<'p> {
    type Value = Option<&'p Plan>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|plan| plan.name == name))
    }
}

/// What an absent member reads as.
fn zero(shape: Shape) -> Box<dyn Val> {
    match shape {
        Shape::Text => Box::new(CelString::from("")),
        Shape::Int => Box::new(CelInt::from(0)),
        Shape::Bool => Box::new(CelBool::from(false)),
        Shape::Texts => map([]),
        Shape::TextList | Shape::ObjectList(_) => list(Vec::new()),
        Shape::Any => Box::new(CelNull),
        Shape::Object(fields) => {
            map(fields.iter().map(|Field { name, shape }| ((*name).to_owned(), zero(*shape))))
        }
    }
}

fn map(members: impl IntoIterator<Item = (String, Box<dyn Val>)>) -> Box<dyn Val> {
    let members: HashMap<CelMapKey<'static>, Box<dyn Val>> =
        members.into_iter().map(|(name, value)| (CelMapKey::from(name), value)).collect();
    Box::new(CelMap::from(members))
}

fn list(items: Vec<Box<dyn Val>>) -> Box<dyn Val> {
    Box::new(CelList::from(items))
}

/// A JSON value as a shape, with every field of every object; `None` if it is of another type.
fn value_of(json: &Json, shape: Shape) -> Option<Box<dyn Val>> {
    Some(match (shape, json) {
        (_, Json::Null) => zero(shape),
        (Shape::Text, Json::String(text)) => Box::new(CelString::from(text.clone())),
        (Shape::Int, Json::Number(number)) => Box::new(CelInt::from(number.as_i64()?)),
        (Shape::Bool, Json::Bool(value)) => Box::new(CelBool::from(*value)),
        (Shape::Texts, Json::Object(members)) => {
            let member = |(name, value): (&String, &Json)| {
                Some((name.clone(), value_of(value, Shape::Text)?))
            };
            map(members.iter().map(member).collect::<Option<Vec<_>>>()?)
        }
        (Shape::Object(fields), Json::Object(members)) => {
            let member = |field: &Field| {
                let json = members.get(field.name).unwrap_or(&Json::Null);
                Some((field.name.to_owned(), value_of(json, field.shape)?))
            };
            map(fields.iter().map(member).collect::<Option<Vec<_>>>()?)
        }
        (Shape::TextList, Json::Array(items)) => {
            list(items.iter().map(|item| value_of(item, Shape::Text)).collect::<Option<_>>()?)
        }
        (Shape::ObjectList(fields), Json::Array(items)) => {
            let items = items.iter().map(|item| value_of(item, Shape::Object(fields)));
            list(items.collect::<Option<_>>()?)
        }
        (Shape::Any, json) => any(json),
        _ => return None,
    })
}

fn any(json: &Json) -> Box<dyn Val> {
    match json {
        Json::Null => Box::new(CelNull),
        Json::Bool(value) => Box::new(CelBool::from(*value)),
        Json::String(text) => Box::new(CelString::from(text.clone())),
        Json::Array(items) => list(items.iter().map(any).collect()),
        Json::Object(members) => {
            map(members.iter().map(|(name, value)| (name.clone(), any(value))))
        }
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Box::new(CelInt::from(int)),
            (None, Some(uint)) => Box::new(CelUInt::from(uint)),
            (None, None) => Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN))),
        },
    }
}
