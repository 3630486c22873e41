//! How objects are written: whole, or their metadata alone for whoever asks for that.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{resource::Resource, status::ApiStatus};
use crate::http::Request;

/// How an answer writes its objects.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    Whole(&'a Resource),
    /// `meta.k8s.io/v1 PartialObjectMetadata`.
    Metadata,
}

/// What an `Accept` header asks for that JSON alone is not.
fn asked_for(request: &Request) -> Option<&str> {
    // The first that the server can do; of protobuf it speaks none.
    let first = request
        .header("accept")
        .split(',')
        .find(|media| media.split(';').next().is_some_and(|kind| kind.trim().ends_with("/json")))?;
    let parameter = |name: &str| {
        first.split(';').find_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            (key.trim() == name).then_some(value.trim())
        })
    };
    (parameter("g") == Some("meta.k8s.io") && parameter("v") == Some("v1"))
        .then(|| parameter("as"))?
}

impl<'a> Shape<'a> {
    /// For one object, or the objects of a watch.
    pub(super) fn of_object(request: &Request, resource: &'a Resource) -> Result<Self, ApiStatus> {
        match asked_for(request) {
            Some("PartialObjectMetadata") => Ok(Self::Metadata),
            Some("PartialObjectMetadataList") => Err(ApiStatus::not_acceptable(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list \
                 (*core.{})",
                resource.kind
            ))),
            _ => Ok(Self::Whole(resource)),
        }
    }

    /// For the items of a list.
    pub(super) fn of_list(request: &Request, resource: &'a Resource) -> Result<Self, ApiStatus> {
        match asked_for(request) {
            Some("PartialObjectMetadataList") => Ok(Self::Metadata),
            Some("PartialObjectMetadata") => Err(ApiStatus::not_acceptable(format!(
                "you requested PartialObjectMetadata, but the requested object is a list \
                 (*core.{}List)",
                resource.kind
            ))),
            _ => Ok(Self::Whole(resource)),
        }
    }

    /// What stands before and after the items of a list.
    pub(super) fn list_frame(self, metadata: &str, empty: bool) -> (String, &'static str) {
        let (kind, api_version) = match self {
            Self::Whole(resource) => (resource.kind.as_str(), resource.api_version()),
            Self::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1"),
        };
        let head = format!(
            r#"{{"kind":"{kind}List","apiVersion":"{api_version}","metadata":{{{metadata}}},"items":"#
        );
        match self {
            // As Go writes a list that it never appended to.
            Self::Metadata if empty => (head, "null}\n"),
            _ => (head + "[", "]}\n"),
        }
    }

    /// Appends an object as it is written on its own.
    pub(super) fn push(self, out: &mut Vec<u8>, item: &[u8]) {
        match self {
            Self::Whole(resource) => {
                out.extend_from_slice(resource.typed().as_bytes());
                out.extend_from_slice(item.get(1..).unwrap_or_default());
            }
            Self::Metadata => {
                out.extend_from_slice(
                    br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#,
                );
                out.extend_from_slice(metadata_of(item).as_bytes());
                out.push(b'}');
            }
        }
    }

    /// Appends an object as an item of a list: whole ones go without `kind` and `apiVersion`.
    pub(super) fn push_item(self, out: &mut Vec<u8>, item: &[u8]) {
        match self {
            Self::Whole(_) => out.extend_from_slice(item),
            Self::Metadata => self.push(out, item),
        }
    }

    /// Appends a line of a watch.
    pub(super) fn push_line(self, out: &mut Vec<u8>, kind: &str, item: &[u8]) {
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        self.push(out, item);
        out.extend_from_slice(b"}\n");
    }
}

/// The JSON of an item's metadata. It is its first member, so the rest need not be read.
pub(super) fn metadata_of(item: &[u8]) -> &str {
    let from = br#"{"metadata":"#.len();
    serde_json::Deserializer::from_slice(item.get(from..).unwrap_or_default())
        .into_iter::<&RawValue>()
        .next()
        .and_then(Result::ok)
        .map_or("{}", RawValue::get)
}

/// What names an object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Names {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
}

pub(super) fn names_of(item: &[u8]) -> Names {
    serde_json::from_str(metadata_of(item)).unwrap_or_default()
}

/// The item at another revision. Before the version stand only names, which hold no quotes.
pub(super) fn restamped(item: &Bytes, revision: u64) -> Bytes {
    const KEY: &[u8] = br#""resourceVersion":""#;
    let Some(from) = memchr::memmem::find(item, KEY).map(|at| at + KEY.len()) else {
        return item.clone();
    };
    let to = memchr::memchr(b'"', &item[from..]).map_or(item.len(), |length| from + length);
    [&item[..from], revision.to_string().as_bytes(), &item[to..]].concat().into()
}
