//! Numbers in as few bytes as they need, seven bits each, the lowest first: LEB128, the varint of protobuf.

pub(crate) fn put(mut number: u64, mut byte: impl FnMut(u8)) {
    while number >= 0x80 {
        byte(number as u8 | 0x80);
        number >>= 7;
    }
    byte(number as u8);
}

/// Reads a number; nothing if the bytes end before it does.
pub(crate) fn take(mut byte: impl FnMut() -> Option<u8>) -> Option<u64> {
    let (mut number, mut shift) = (0, 0u32);
    loop {
        let next = byte()?;
        number |= u64::from(next & 0x7F).checked_shl(shift).unwrap_or(0);
        shift += 7;
        if next < 0x80 {
            return Some(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_is_read_as_it_was_written_and_not_from_a_part(number: u64, shift in 0..64u32) {
            let number = number >> shift;
            let mut bytes = Vec::new();
            put(number, |byte| bytes.push(byte));
            let mut rest = bytes.iter().copied();
            prop_assert_eq!((take(|| rest.next()), rest.next()), (Some(number), None));
            let mut part = bytes[..bytes.len() - 1].iter().copied();
            prop_assert_eq!(take(|| part.next()), None);
        }
    }
}
