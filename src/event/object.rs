//! The member `object` of an envelope: what is known of the object that an Event is about.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The facts of an involved object, as far as a sink asks for them; empty ones are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectInfo {
    /// The labels that the sink asks for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The annotations that the sink asks for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The controllers above it, the nearest first: of a Pod its ReplicaSet, then the Deployment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Owner>,
    /// The node on which it is, of a Node the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The node is the claim of an Event, whose writer may write what he likes; the API server was
    /// not asked for it, or did not know it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub node_claimed: bool,
    /// Why nothing is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
}

/// A controller above an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the members are those of meta/v1 OwnerReference")]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
}

/// Why nothing is known of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Missing {
    /// The object was not known within the budget; or its event is older than what is kept of objects.
    Timeout,
    /// The API server has no such object, or only another one of the same name.
    NotFound,
    /// The API server does not let the bridge read it.
    Forbidden,
    /// The API server could not be asked, or could not answer.
    Unavailable,
}

impl Missing {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Timeout, Self::NotFound, Self::Forbidden, Self::Unavailable];

    /// The spelling in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::NotFound => "notFound",
            Self::Forbidden => "forbidden",
            Self::Unavailable => "unavailable",
        }
    }
}
