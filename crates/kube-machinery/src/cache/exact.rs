//! Reading JSON into vectors of exactly their length.
//!
//! JSON does not say how long an array is, so serde grows a vector by doubling, with room for four from the
//! start. What is left over stays allocated as long as the object lives, which in a cache is long: of a Pod
//! it is a seventh. So the arrays of the text are counted first, and whoever visits one is told its length.
//!
//! A length is a hint and no more: where one is wrong, a vector is too large or grows.

use std::{cell::Cell, fmt};

use serde::{
    Deserialize as _,
    de::{
        DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess,
        VariantAccess, Visitor,
    },
};
use serde_json::value::RawValue;

/// By this name serde_json asks itself for a piece of the text, unread.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

/// Deeper than this API servers take no object, and hints are not worth the memory.
const MOST_OPEN: usize = 10_000;

/// The same as [`serde_json::from_slice`], but for the room in vectors.
pub(super) fn from_slice<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    // What is ignored is read more strictly with hints: text that is not UTF-8 is refused.
    counted(json).or_else(|_| serde_json::from_slice(json))
}

fn counted<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    let lengths = Lengths::of(json);
    let mut text = serde_json::Deserializer::from_slice(json);
    let value = T::deserialize(Counted { inner: &mut text, lengths: &lengths })?;
    text.end()?;
    Ok(value)
}

/// The lengths of all arrays of a text, in the order in which they begin, which is that of their visits.
struct Lengths {
    all: Vec<usize>,
    next: Cell<usize>,
}

impl Lengths {
    fn of(json: &[u8]) -> Self {
        let (mut all, mut open) = (Vec::new(), Vec::new());
        let mut at = 0;
        while let Some(&byte) = json.get(at) {
            at += 1;
            match byte {
                b'"' => at += string_length(&json[at..]),
                b'{' | b'[' if open.len() == MOST_OPEN => {
                    return Self { all: Vec::new(), next: Cell::new(0) };
                }
                b'{' => open.push(None),
                b'[' => {
                    open.push(Some(all.len()));
                    let first = json[at..].iter().find(|byte| !byte.is_ascii_whitespace());
                    all.push(usize::from(first != Some(&b']')));
                }
                b'}' | b']' => {
                    open.pop();
                }
                b',' => {
                    if let Some(&Some(array)) = open.last() {
                        all[array] += 1;
                    }
                }
                _ => {}
            }
        }
        Self { all, next: Cell::new(0) }
    }

    fn next(&self) -> Option<usize> {
        let at = self.next.get();
        self.next.set(at + 1);
        self.all.get(at).copied()
    }

    /// The arrays within this piece of the text are not visited.
    fn skip(&self, piece: &str) {
        self.next.set(self.next.get() + Self::of(piece.as_bytes()).all.len());
    }
}

/// The length of the rest of a string, with its end.
fn string_length(rest: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &rest[at..]) {
        at += found + 1;
        if rest[at - 1] == b'"' {
            return at;
        }
        at = rest.len().min(at + 1);
    }
    rest.len()
}

/// A deserializer, a visitor, or anything else of serde's, with the lengths of the arrays that are to come.
struct Counted<'l, T> {
    inner: T,
    lengths: &'l Lengths,
}

impl<'l, T> Counted<'l, T> {
    fn with<U>(&self, inner: U) -> Counted<'l, U> {
        Counted { inner, lengths: self.lengths }
    }
}

macro_rules! deserialize {
    ($($method:ident($($name:ident: $type:ty),*))*) => {$(
        fn $method<V: Visitor<'de>>(self, $($name: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            let visitor = self.with(visitor);
            self.inner.$method($($name,)* visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Counted<'_, D> {
    type Error = D::Error;

    deserialize! {
        deserialize_any() deserialize_bool() deserialize_i8() deserialize_i16() deserialize_i32()
        deserialize_i64() deserialize_i128() deserialize_u8() deserialize_u16() deserialize_u32()
        deserialize_u64() deserialize_u128() deserialize_f32() deserialize_f64() deserialize_char()
        deserialize_str() deserialize_string() deserialize_bytes() deserialize_byte_buf()
        deserialize_option() deserialize_unit() deserialize_seq() deserialize_map()
        deserialize_identifier()
        deserialize_unit_struct(name: &'static str)
        deserialize_tuple(length: usize)
        deserialize_tuple_struct(name: &'static str, length: usize)
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        if name == RAW_VALUE {
            // Its arrays are not visited, nor is their number known: there are no hints behind it.
            self.lengths.next.set(usize::MAX / 2);
        }
        let visitor = self.with(visitor);
        self.inner.deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let ignored = <&RawValue>::deserialize(self.inner)?;
        self.lengths.skip(ignored.get());
        visitor.visit_unit()
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visit {
    ($($method:ident($type:ty))*) => {$(
        fn $method<E: serde::de::Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Counted<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit! {
        visit_bool(bool) visit_i8(i8) visit_i16(i16) visit_i32(i32) visit_i64(i64) visit_i128(i128)
        visit_u8(u8) visit_u16(u16) visit_u32(u32) visit_u64(u64) visit_u128(u128) visit_f32(f32)
        visit_f64(f64) visit_char(char) visit_str(&str) visit_borrowed_str(&'de str)
        visit_string(String) visit_bytes(&[u8]) visit_borrowed_bytes(&'de [u8])
        visit_byte_buf(Vec<u8>)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let deserializer = self.with(deserializer);
        self.inner.visit_some(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<V::Value, D::Error> {
        let deserializer = self.with(deserializer);
        self.inner.visit_newtype_struct(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        let left = self.lengths.next();
        let elements = self.with(elements);
        self.inner.visit_seq(Array { elements, left })
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        let members = self.with(members);
        self.inner.visit_map(members)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        let variant = self.with(variant);
        self.inner.visit_enum(variant)
    }
}

/// The elements of an array, and how many are left as far as is known.
struct Array<'l, A> {
    elements: Counted<'l, A>,
    left: Option<usize>,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Array<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.left = self.left.map(|left| left.saturating_sub(1));
        let seed = self.elements.with(seed);
        self.elements.inner.next_element_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.left
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Counted<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let seed = self.with(seed);
        self.inner.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.with(seed);
        self.inner.next_value_seed(seed)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Counted<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let deserializer = self.with(deserializer);
        self.inner.deserialize(deserializer)
    }
}

impl<'de, 'l, A: EnumAccess<'de>> EnumAccess<'de> for Counted<'l, A> {
    type Error = A::Error;
    type Variant = Counted<'l, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let Self { inner, lengths } = self;
        let (value, variant) = inner.variant_seed(Counted { inner: seed, lengths })?;
        Ok((value, Counted { inner: variant, lengths }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Counted<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.with(seed);
        self.inner.newtype_variant_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.with(visitor);
        self.inner.tuple_variant(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.with(visitor);
        self.inner.struct_variant(fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use proptest::prelude::*;
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    /// Every shape that serde knows.
    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "camelCase")]
    struct Shapes {
        first: Vec<Vec<u8>>,
        pair: (i64, Vec<String>),
        one_of: Vec<OneOf>,
        maybe: Option<Vec<Option<bool>>>,
        any: Value,
        #[serde(flatten)]
        rest: std::collections::BTreeMap<String, Untagged>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    enum OneOf {
        Unit,
        Newtype(Vec<u8>),
        Tuple(u8, Vec<u8>),
        Struct { last: Vec<char> },
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(untagged)]
    enum Untagged {
        Number(f64),
        List(Vec<Untagged>),
        Text(String),
    }

    #[test]
    fn every_shape_is_read_as_serde_json_reads_it() {
        let json = json!({
            "first": [[], [1], [1, 2, 3]],
            "pair": [-1, ["a,]\"[", "\\", ""]],
            "oneOf": ["Unit", {"Newtype": [1]}, {"Tuple": [1, [2, 3]]}, {"Struct": {"last": ["x"]}}],
            "maybe": [null, true],
            "any": {"a": [1, [2.5, {"b": []}], null]},
            "more": [1, ["x"], []],
            "evenMore": "text",
        })
        .to_string();
        let read: Shapes = from_slice(json.as_bytes()).unwrap();
        assert_eq!(read, serde_json::from_str(&json).unwrap());
        assert_eq!((read.first.capacity(), read.first[2].capacity()), (3, 3));
        assert_eq!((read.pair.1.capacity(), read.one_of.capacity()), (3, 4));
    }

    #[test]
    fn arrays_that_nobody_reads_leave_the_lengths_of_the_others_right() {
        #[derive(Deserialize)]
        struct Few {
            last: Vec<u8>,
        }
        let json = br#"{"new": {"a": [[1], ["]"]], "b": [ ]}, "last": [ 1 , 2 , 3 , 4 , 5 ]}"#;
        let few: Few = from_slice(json).unwrap();
        assert_eq!((few.last.len(), few.last.capacity()), (5, 5));
    }

    #[test]
    fn behind_a_piece_that_stays_text_vectors_grow_as_ever() {
        #[derive(Deserialize)]
        struct Raw {
            raw: Box<RawValue>,
            last: Vec<u8>,
        }
        let read: Raw = from_slice(br#"{"raw": [[[1, 2], 3]], "last": [1, 2]}"#).unwrap();
        assert_eq!((read.raw.get(), &*read.last), ("[[[1, 2], 3]]", &[1, 2][..]));
    }

    #[test]
    fn a_pods_vectors_have_no_room_left() {
        let container =
            |name: &str| json!({"name": name, "env": [{"name": "A"}], "args": ["a", "b"]});
        let json = json!({
            "metadata": {"name": "web-0", "finalizers": ["one"]},
            "spec": {"containers": [container("a"), container("b"), container("c")]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let pod: Pod = from_slice(json.to_string().as_bytes()).unwrap();
        let spec = pod.spec.unwrap();
        assert_eq!(spec.containers.capacity(), 3);
        for container in &spec.containers {
            assert_eq!(container.env.as_ref().unwrap().capacity(), 1);
            assert_eq!(container.args.as_ref().unwrap().capacity(), 2);
        }
        assert_eq!(pod.metadata.finalizers.unwrap().capacity(), 1);
        assert_eq!(pod.status.unwrap().conditions.unwrap().capacity(), 1);
    }

    #[test]
    fn errors_are_those_of_serde_json() {
        for json in [r#"{"metadata": {"name": 7}}"#, "[", "", r#"{"spec": {}} {}"#, r#"{"spec": {"#]
        {
            let error = from_slice::<Pod>(json.as_bytes()).unwrap_err();
            let expected = serde_json::from_str::<Pod>(json).unwrap_err();
            assert_eq!(error.to_string(), expected.to_string());
        }
        let deep = "[".repeat(200);
        assert!(
            from_slice::<Value>(deep.as_bytes()).unwrap_err().to_string().contains("recursion")
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_as_serde_json_does(json in r#"[\[\]{}",:\\ a1]{0,40}"#) {
            let ours = from_slice::<Value>(json.as_bytes()).map_err(|e| e.to_string());
            let theirs = serde_json::from_str::<Value>(&json).map_err(|e| e.to_string());
            prop_assert_eq!(ours, theirs);
        }
    }
}
