//! The types of expressions, as far as they are known before an event is.

use cel::common::ast::operators;

use crate::event::{Field, Shape};

/// What an expression evaluates to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Null,
    List(Box<Type>),
    Map(Box<Type>),
    Object(&'static [Field]),
    /// Known only when it is evaluated.
    Any,
}

impl From<Shape> for Type {
    fn from(shape: Shape) -> Self {
        match shape {
            Shape::Text => Self::Text,
            Shape::Int => Self::Int,
            Shape::Bool => Self::Bool,
            Shape::Texts => Self::Map(Box::new(Self::Text)),
            Shape::TextList => Self::List(Box::new(Self::Text)),
            Shape::Object(fields) => Self::Object(fields),
            Shape::ObjectList(fields) => Self::List(Box::new(Self::Object(fields))),
            Shape::Any => Self::Any,
        }
    }
}

impl Type {
    /// The type in an error.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Bool => "a boolean",
            Self::Int | Self::Uint => "a whole number",
            Self::Double => "a number",
            Self::Text => "a text",
            Self::Bytes => "bytes",
            Self::Null => "null",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
            Self::Object(_) => "an object",
            Self::Any => "a value",
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Whether it can be, or turn out to be, `other`.
    pub(super) fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _)
            | (_, Self::Any)
            | (Self::Object(_), Self::Map(_))
            | (Self::Map(_), Self::Object(_)) => true,
            (Self::List(a), Self::List(b)) | (Self::Map(a), Self::Map(b)) => a.fits(b),
            (a, b) => a == b,
        }
    }

    /// Whether `==` between them can be true; numbers of different types compare by value.
    pub(super) fn comparable(&self, other: &Self) -> bool {
        self.fits(other) || self.is_number() && other.is_number()
    }

    /// Whether `<` and its kin work between them.
    pub(super) fn ordered(&self, other: &Self) -> bool {
        let orders = |t: &Self| {
            t.is_number() || matches!(t, Self::Any | Self::Text | Self::Bool | Self::Bytes)
        };
        orders(self) && orders(other) && self.comparable(other)
    }

    /// What an arithmetic operator makes of two operands, if it takes them.
    pub(super) fn arithmetic(operator: &str, left: &Self, right: &Self) -> Option<Self> {
        if !left.fits(right) {
            return None;
        }
        let known = if *left == Self::Any { right } else { left };
        let takes = match known {
            Self::Any | Self::Int | Self::Uint => true,
            Self::Double => operator != operators::MODULO,
            Self::Text | Self::Bytes | Self::List(_) => operator == operators::ADD,
            _ => false,
        };
        takes.then(|| known.clone())
    }

    /// What both are, for the branches of a conditional or the elements of a list.
    pub(super) fn join(self, other: &Self) -> Self {
        if self == *other { self } else { Self::Any }
    }
}
