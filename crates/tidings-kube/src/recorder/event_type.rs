//! The type of an event.

use std::{fmt, str::FromStr};

/// What kind of news an event is. Kubernetes knows these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Something went as it should.
    Normal,
    /// Something may need a look.
    Warning,
}

/// A type that Kubernetes does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unsupported event type {0:?}: it is \"Normal\" or \"Warning\", exactly")]
pub struct UnknownEventType(pub String);

impl EventType {
    /// The spelling in an event.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// client-go `tools/record/util.ValidateEventType`: no other spelling is accepted.
impl FromStr for EventType {
    type Err = UnknownEventType;

    fn from_str(text: &str) -> Result<Self, UnknownEventType> {
        match text {
            "Normal" => Ok(Self::Normal),
            "Warning" => Ok(Self::Warning),
            other => Err(UnknownEventType(other.to_owned())),
        }
    }
}
