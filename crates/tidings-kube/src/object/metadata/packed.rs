//! Many short texts in one: each with its length before it.
//!
//! A length is written in characters below 128, six bits in each from the lowest on, the seventh
//! says that more follow. So the whole is a text itself: it is valid UTF-8 by its type, and a part
//! of it is found and given out without looking at its bytes again.

const MORE: u8 = 0x40;
const BITS: u32 = 6;

/// Appends a number.
pub(super) fn push_number(packed: &mut String, mut number: usize) {
    while number >= usize::from(MORE) {
        packed.push(char::from((number as u8 & (MORE - 1)) | MORE));
        number >>= BITS;
    }
    packed.push(char::from(number as u8));
}

/// Appends a text.
pub(super) fn push_text(packed: &mut String, text: &str) {
    push_number(packed, text.len());
    packed.push_str(text);
}

/// Reads what was appended, in that order. Beyond the end there are zeros and empty texts.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a str);

impl<'a> Reader<'a> {
    pub(super) fn number(&mut self) -> usize {
        let (mut number, mut shift) = (0, 0);
        for (at, byte) in self.0.bytes().enumerate() {
            number |= usize::from(byte & (MORE - 1)).checked_shl(shift).unwrap_or(0);
            shift += BITS;
            if byte & MORE == 0 {
                self.0 = self.0.get(at + 1..).unwrap_or_default();
                break;
            }
        }
        number
    }

    pub(super) fn text(&mut self) -> &'a str {
        let length = self.number();
        let (text, rest) = self.0.split_at_checked(length).unwrap_or_default();
        self.0 = rest;
        text
    }

    /// Steps over as many texts.
    pub(super) fn skip(mut self, texts: usize) -> Self {
        for _ in 0..texts {
            self.text();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_goes_in_comes_out(texts in prop::collection::vec(".*", 0..8), number: usize) {
            let mut packed = String::new();
            push_number(&mut packed, number);
            for text in &texts {
                push_text(&mut packed, text);
            }
            let mut reader = Reader(&packed);
            prop_assert_eq!(reader.number(), number);
            for text in &texts {
                prop_assert_eq!(reader.text(), text);
            }
            prop_assert_eq!((reader.0, reader.number(), reader.text()), ("", 0, ""));
        }

        #[test]
        fn any_text_can_be_read(packed in ".*") {
            let mut reader = Reader(&packed);
            for _ in 0..10 {
                reader.text();
                reader.number();
            }
        }
    }

    #[test]
    fn lengths_take_one_byte_up_to_63_and_two_up_to_4095() {
        for (length, bytes) in [(0, 1), (63, 1), (64, 2), (4095, 2), (4096, 3)] {
            let mut packed = String::new();
            push_text(&mut packed, &"x".repeat(length));
            assert_eq!(packed.len(), length + bytes);
        }
    }
}
