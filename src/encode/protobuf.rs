//! The few pieces of the protobuf wire format that OTLP logs need, appended to a vector.
//!
//! Writing borrowed strings straight to the wire saves two allocations for each attribute, which
//! is most of what encoding through generated message types costs.

use crate::varint;

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LEN: u32 = 2;

pub(super) fn varint_len(value: u64) -> usize {
    // Seven bits a byte; zero still takes one.
    (70 - (value | 1).leading_zeros() as usize) / 7
}

pub(super) fn put_varint(out: &mut Vec<u8>, value: u64) {
    varint::put(value, |byte| out.push(byte));
}

fn put_tag(out: &mut Vec<u8>, field: u32, wire_type: u32) {
    put_varint(out, u64::from(field << 3 | wire_type));
}

/// The tag and length in front of `len` bytes.
pub(super) fn put_head(out: &mut Vec<u8>, field: u32, len: usize) {
    put_tag(out, field, LEN);
    put_varint(out, len as u64);
}

/// The length of a field below 16 that holds `len` bytes.
pub(super) fn field_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

pub(super) fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_head(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// A string field, left out when empty as proto3 does.
pub(super) fn put_str(out: &mut Vec<u8>, field: u32, text: &str) {
    if !text.is_empty() {
        put_bytes(out, field, text.as_bytes());
    }
}

/// An integer field, left out when zero.
pub(super) fn put_uint(out: &mut Vec<u8>, field: u32, value: u64) {
    if value != 0 {
        put_tag(out, field, VARINT);
        put_varint(out, value);
    }
}

/// A `fixed64` field, left out when zero.
pub(super) fn put_fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    if value != 0 {
        put_tag(out, field, FIXED64);
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// An `AnyValue` that holds a string.
pub(super) fn put_any_str(out: &mut Vec<u8>, field: u32, text: &str) {
    put_head(out, field, field_len(text.len()));
    put_bytes(out, 1, text.as_bytes());
}

/// A `KeyValue` that holds a string; an empty one says nothing and is left out.
pub(super) fn put_attr(out: &mut Vec<u8>, field: u32, key: &str, value: &str) {
    if !value.is_empty() {
        let any = field_len(value.len());
        put_head(out, field, field_len(key.len()) + field_len(any));
        put_bytes(out, 1, key.as_bytes());
        put_any_str(out, 2, value);
    }
}

/// A `KeyValue` that holds an integer.
pub(super) fn put_attr_int(out: &mut Vec<u8>, field: u32, key: &str, value: u64) {
    // A tag and the value: `int_value` is field 3.
    put_attr_varint(out, field, key, 3, value);
}

/// A `KeyValue` that holds `true`.
pub(super) fn put_attr_true(out: &mut Vec<u8>, field: u32, key: &str) {
    // `bool_value` is field 2.
    put_attr_varint(out, field, key, 2, 1);
}

/// A `KeyValue` that holds an array of strings; an empty one is left out.
pub(super) fn put_attr_strs<'a>(
    out: &mut Vec<u8>,
    field: u32,
    key: &str,
    values: impl Iterator<Item = &'a str>,
) {
    let mut array = Vec::new();
    for value in values {
        // `ArrayValue.values`
        put_any_str(&mut array, 1, value);
    }
    if !array.is_empty() {
        let any = field_len(array.len());
        put_head(out, field, field_len(key.len()) + field_len(any));
        put_bytes(out, 1, key.as_bytes());
        put_head(out, 2, any);
        // `array_value` is field 5.
        put_bytes(out, 5, &array);
    }
}

fn put_attr_varint(out: &mut Vec<u8>, field: u32, key: &str, any_field: u32, value: u64) {
    let any = 1 + varint_len(value);
    put_head(out, field, field_len(key.len()) + field_len(any));
    put_bytes(out, 1, key.as_bytes());
    put_head(out, 2, any);
    put_tag(out, any_field, VARINT);
    put_varint(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_varint_is_what_it_takes() {
        for value in [0, 1, 127, 128, 16_383, 16_384, (1 << 35) - 1, 1 << 35, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out.len(), varint_len(value), "{value}");
            let field_len = out.len();
            assert!(field_len <= 10);
        }
    }
}
