//! What a list or watch asks for, and what the API server refuses of it.

use super::{resource::Resource, selector::Selector, status::ApiStatus};
use crate::http::Request;

/// How `resourceVersion` is meant on a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum VersionMatch {
    #[default]
    Unset,
    Exact,
    NotOlderThan,
}

/// The parameters of a list or watch.
#[derive(Clone, Debug)]
pub(super) struct ListParams {
    pub(super) limit: usize,
    pub(super) token: Option<ContinueToken>,
    /// None when the parameter is absent or empty.
    pub(super) version: Option<u64>,
    pub(super) version_match: VersionMatch,
    pub(super) selector: Selector,
    pub(super) timeout_seconds: Option<u64>,
    pub(super) initial_events: bool,
    pub(super) bookmarks: bool,
}

impl ListParams {
    pub(super) fn of(
        request: &Request,
        resource: &Resource,
        watch: bool,
    ) -> Result<Self, ApiStatus> {
        let version = match request.param("resourceVersion") {
            "" => None,
            text => Some(number("resourceVersion", text)?),
        };
        let match_text = request.param("resourceVersionMatch");
        let initial_events = watch && request.flag("sendInitialEvents");
        let forbidden = |why: &str| Err(ApiStatus::forbidden_option("resourceVersionMatch", why));
        if !watch && !request.param("sendInitialEvents").is_empty() {
            let why = "sendInitialEvents is forbidden for list";
            return Err(ApiStatus::forbidden_option("sendInitialEvents", why));
        }
        if !match_text.is_empty() {
            if watch && request.param("sendInitialEvents").is_empty() {
                return forbidden(
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                );
            }
            if version.is_none() && !watch {
                return forbidden(
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            if !request.param("continue").is_empty() {
                return forbidden("resourceVersionMatch is forbidden when continue is provided");
            }
        }
        let version_match = match match_text {
            "" => VersionMatch::Unset,
            "Exact" if version == Some(0) => {
                return forbidden(
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                );
            }
            "Exact" => VersionMatch::Exact,
            "NotOlderThan" => VersionMatch::NotOlderThan,
            other => {
                let cause = format!("Unsupported value: {other:?}");
                return Err(ApiStatus::invalid(
                    "ListOptions.meta.k8s.io",
                    "",
                    "resourceVersionMatch",
                    &cause,
                ));
            }
        };
        if initial_events && version_match != VersionMatch::NotOlderThan {
            return forbidden(
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
        }
        let token = match request.param("continue") {
            "" => None,
            _ if watch => None,
            text => Some(ContinueToken::parse(text)?),
        };
        if token.is_some() && version.is_some_and(|version| version > 0) {
            return Err(ApiStatus::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let optional = |name: &str| match request.param(name) {
            "" => Ok(None),
            text => number(name, text).map(Some),
        };
        Ok(Self {
            limit: optional("limit")?.and_then(|n| n.try_into().ok()).unwrap_or_default(),
            token,
            version,
            version_match,
            selector: Selector::of(request, resource)?,
            timeout_seconds: optional("timeoutSeconds")?,
            initial_events,
            bookmarks: watch && request.flag("allowWatchBookmarks"),
        })
    }
}

fn number(name: &str, text: &str) -> Result<u64, ApiStatus> {
    text.parse().map_err(|_| {
        ApiStatus::bad_request(format!(
            "{name}: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

/// Where a list goes on. Opaque to clients: the hexadecimal digits of `revision/key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContinueToken {
    /// None: at the latest revision, which is how an expired list may go on.
    pub(super) revision: Option<u64>,
    /// The first key of the next page.
    pub(super) start: String,
}

impl ContinueToken {
    fn parse(text: &str) -> Result<Self, ApiStatus> {
        let bytes: Option<Vec<u8>> = text
            .as_bytes()
            .chunks(2)
            .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())
            .collect();
        bytes
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .and_then(|text| {
                let (revision, start) = text.split_once('/')?;
                let revision = match revision {
                    "-1" => None,
                    revision => Some(revision.parse().ok()?),
                };
                Some(Self { revision, start: start.to_owned() })
            })
            .ok_or_else(|| ApiStatus::bad_request("continue key is not valid"))
    }
}

impl std::fmt::Display for ContinueToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let revision = self.revision.map_or_else(|| "-1".to_owned(), |n| n.to_string());
        format!("{revision}/{}", self.start).bytes().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continue_token_survives_its_journey() {
        for revision in [None, Some(17)] {
            let token = ContinueToken { revision, start: "shop/web-1.a\0".into() };
            assert_eq!(ContinueToken::parse(&token.to_string()), Ok(token));
        }
        assert!(ContinueToken::parse("nonsense").is_err());
    }
}
