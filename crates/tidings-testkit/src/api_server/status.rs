//! Refusals: the `Status` objects of the API server, in its words.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::resource::Resource;

/// A `meta/v1 Status` that says no.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message} ({reason}, {code})")]
pub struct ApiStatus {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason; empty for none.
    pub reason: String,
    /// The sentence.
    pub message: String,
    details: Option<Box<Value>>,
    continue_token: Option<Box<str>>,
}

impl ApiStatus {
    /// A status without details.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            details: None,
            continue_token: None,
        }
    }

    fn with_details(mut self, details: Value) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(super) fn forbidden(
        user: &str,
        verb: &str,
        resource: &Resource,
        name: Option<&str>,
        namespace: Option<&str>,
    ) -> Self {
        let what = name.map_or_else(
            || resource.name().to_owned(),
            |name| format!("{} {name:?}", resource.name()),
        );
        let place = namespace.map_or_else(
            || "at the cluster scope".to_owned(),
            |namespace| format!("in the namespace {namespace:?}"),
        );
        let (plural, group) = (&resource.plural, &resource.group);
        let message = format!(
            "{what} is forbidden: User {user:?} cannot {verb} resource {plural:?} in API group {group:?} {place}"
        );
        Self::new(403, "Forbidden", message).with_details(about(resource, name))
    }

    /// The same for what is no resource.
    pub(super) fn forbidden_path(user: &str, path: &str) -> Self {
        let message = format!("forbidden: User {user:?} cannot get path {path:?}");
        Self::new(403, "Forbidden", message).with_details(json!({}))
    }

    pub(super) fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", resource.name()))
            .with_details(about(resource, Some(name)))
    }

    pub(super) fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", resource.name()))
            .with_details(about(resource, Some(name)))
    }

    /// An update of another version than the current one.
    pub(super) fn conflict(resource: &Resource, name: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: the object has been modified; please apply your changes to the latest version and try again",
            resource.name()
        );
        Self::new(409, "Conflict", message).with_details(about(resource, Some(name)))
    }

    pub(super) fn not_acceptable(message: String) -> Self {
        Self::new(406, "NotAcceptable", message)
    }

    /// A field that validation does not take: 422.
    pub(super) fn invalid(kind: &str, name: &str, field: &str, cause: &str) -> Self {
        let message = format!("{kind} {name:?} is invalid: {field}: {cause}");
        Self::new(422, "Invalid", message).with_details(json!({
            "name": name, "kind": kind, "causes": [{"message": cause, "field": field}]
        }))
    }

    /// An option of a list or watch that must not be given.
    pub(super) fn forbidden_option(field: &str, why: &str) -> Self {
        let cause = format!("Forbidden: {why}");
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {cause}");
        Self::new(422, "Invalid", message).with_details(json!({
            "group": "meta.k8s.io", "kind": "ListOptions",
            "causes": [{"reason": "FieldValueForbidden", "message": cause, "field": field}]
        }))
    }

    /// The refusal of a resource that a known group does not have.
    pub(super) fn no_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message).with_details(json!({}))
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_details(json!({}))
    }

    pub(super) fn expired_list() -> Self {
        Self::new(410, "Expired", "The resourceVersion for the provided list is too old.")
    }

    pub(super) fn expired_watch() -> Self {
        Self::new(410, "Expired", "The resourceVersion for the provided watch is too old.")
    }

    /// The same where the watch cache says it.
    pub(super) fn expired_watch_cache(version: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {version} ({oldest})"))
    }

    /// An expired continue token; the answer carries one to go on with, inconsistently.
    pub(super) fn expired_continue(token: String) -> Self {
        let mut status = Self::new(
            410,
            "Expired",
            "The provided continue parameter is too old to display a consistent list result. You \
             can start a new list without the continue parameter, or use the continue token in \
             this response to retrieve the remainder of the results. Continuing with the provided \
             token results in an inconsistent list - objects that were created, modified, or \
             deleted between the time the first chunk was returned and now may show up in the list.",
        );
        status.continue_token = Some(token.into());
        status
    }

    pub(super) fn too_large(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        Self::new(504, "Timeout", message).with_details(json!({"causes": [
            {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        ]}))
    }

    /// The same where the watch cache says it, which waited for that version: it tells when to ask
    /// again, here and in the header that goes with it.
    pub(super) fn too_large_for_cache(wanted: u64, current: u64) -> Self {
        let mut status = Self::too_large(wanted, current);
        if let Some(details) = &mut status.details {
            details["retryAfterSeconds"] = 1.into();
        }
        status
    }

    /// When the client is to ask again, in seconds.
    pub(super) fn retry_after(&self) -> Option<u64> {
        self.details.as_ref()?.get("retryAfterSeconds")?.as_u64()
    }

    /// What an API server says whose etcd does not answer.
    pub(super) fn internal() -> Self {
        Self::new(500, "", "etcdserver: request timed out")
    }

    /// The same in the stream of a watch.
    pub(super) fn internal_in_stream() -> Self {
        let message = "Internal error occurred: etcdserver: no leader";
        Self::new(500, "InternalError", message)
            .with_details(json!({"causes": [{"message": "etcdserver: no leader"}]}))
    }

    pub(super) fn unavailable() -> Self {
        let message = "the server is currently unable to handle the request";
        Self::new(503, "ServiceUnavailable", message)
    }

    /// The JSON of the Status, without a line feed.
    pub fn to_json(&self) -> Bytes {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".to_owned(), token.to_string().into());
        }
        let mut status = Map::new();
        status.insert("kind".to_owned(), "Status".into());
        status.insert("apiVersion".to_owned(), "v1".into());
        status.insert("metadata".to_owned(), metadata.into());
        status.insert("status".to_owned(), "Failure".into());
        status.insert("message".to_owned(), self.message.as_str().into());
        if !self.reason.is_empty() {
            status.insert("reason".to_owned(), self.reason.as_str().into());
        }
        if let Some(details) = &self.details {
            status.insert("details".to_owned(), (**details).clone());
        }
        status.insert("code".to_owned(), self.code.into());
        Value::Object(status).to_string().into()
    }
}

/// The details of what concerns one object, or a whole resource.
fn about(resource: &Resource, name: Option<&str>) -> Value {
    let mut details = Map::new();
    if let Some(name) = name {
        details.insert("name".to_owned(), name.into());
    }
    if !resource.group.is_empty() {
        details.insert("group".to_owned(), resource.group.as_str().into());
    }
    details.insert("kind".to_owned(), resource.plural.as_str().into());
    details.into()
}
