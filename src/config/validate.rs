//! Checks of single values, beyond their type. No message repeats a value that may be a secret.

use std::net::SocketAddr;

use crate::{
    bridge::{NotAResource, ResourceName},
    document::{Wrong, wrong},
    suggest::did_you_mean,
};

/// A sink's name: it labels metrics and names files.
pub(super) fn sink_name(name: &str) -> Result<(), Wrong> {
    let allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '.' | '_');
    let hint = "a name is made of lower-case letters, digits, `-`, `.` and `_`, starts with a \
        letter or digit, and has at most 63 characters";
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if starts && name.len() <= 63 && name.chars().all(allowed) {
        Ok(())
    } else {
        Err(wrong(format!("expected a name for a sink, found `{name}`")).hint(hint))
    }
}

/// The name of a counter of events.
pub(super) fn metric_name(name: &str) -> Result<(), Wrong> {
    is_metric_word(name).then_some(()).ok_or_else(|| {
        wrong(format!("expected a name for a metric, found `{name}`")).hint(METRIC_WORD)
    })
}

/// A label of one.
pub(super) fn metric_label(label: &str) -> Result<(), Wrong> {
    if label == "metric" || label.starts_with("__") {
        return Err(wrong(format!("expected a label of your own, found `{label}`"))
            .hint("`metric` is the name of the counter, and `__` begins what Prometheus keeps"));
    }
    is_metric_word(label).then_some(()).ok_or_else(|| {
        wrong(format!("expected a label of a metric, found `{label}`")).hint(METRIC_WORD)
    })
}

const METRIC_WORD: &str = "letters, digits and `_`, not a digit first, at most 63 characters";

fn is_metric_word(word: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = word.starts_with(|c: char| !c.is_ascii_digit());
    starts && word.len() <= 63 && word.chars().all(allowed)
}

pub(super) fn namespace(name: &str) -> Result<(), Wrong> {
    let allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-');
    if !name.is_empty()
        && name.len() <= 63
        && name.chars().all(allowed)
        && !name.starts_with('-')
        && !name.ends_with('-')
    {
        Ok(())
    } else {
        Err(wrong(format!("expected the name of a namespace, found `{name}`"))
            .hint("a name is made of lower-case letters, digits and `-`; patterns are not taken"))
    }
}

pub(super) fn resource(name: &str) -> Result<ResourceName, Wrong> {
    name.parse().map_err(|error: NotAResource| {
        wrong(error.to_string())
            .hint("write `plural` or `plural.group`: `pods`, `deployments.apps`")
    })
}

/// A key of the labels of a cluster.
pub(super) fn label_key(key: &str) -> Result<(), Wrong> {
    if key.is_empty() || !key.chars().all(is_of_a_key) {
        return Err(wrong(format!("expected the key of a label, found `{key}`"))
            .hint("a key is made of letters, digits, `-`, `_`, `.` and `/`"));
    }
    Ok(())
}

fn is_of_a_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/')
}

/// The key of a label or annotation, or the beginning of one and a `*`.
pub(super) fn key_pattern(pattern: &str) -> Result<(), Wrong> {
    let key = pattern.strip_suffix('*').unwrap_or(pattern);
    if pattern.is_empty() || !key.chars().all(is_of_a_key) {
        let hint = "write a key, or its beginning and `*`: `app`, `app.kubernetes.io/*`, `*`";
        return Err(wrong(format!("expected the key of a label or annotation, found `{pattern}`"))
            .hint(hint));
    }
    Ok(())
}

/// The fields of an Event that the API server selects by.
const SELECTABLE: [&str; 13] = [
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
    "metadata.name",
    "metadata.namespace",
];

/// A field selector: `field=value` and `field!=value`, comma-separated.
pub(super) fn field_selector(selector: &str) -> Result<(), Wrong> {
    const HINT: &str = "write `field=value` or `field!=value`, several with commas between: \
        `type=Warning,involvedObject.kind=Pod`";
    for term in split_unescaped(selector) {
        if term.is_empty() && selector.is_empty() {
            return Ok(());
        }
        let Some(at) = term.find('=') else {
            return Err(wrong(format!("expected a comparison, found `{term}`")).hint(HINT));
        };
        let (field, value) = (&term[..at], &term[at + 1..]);
        let field = field.strip_suffix('!').unwrap_or(field);
        let value = value.strip_prefix('=').unwrap_or(value);
        if field.is_empty() || unescaped(value, '=') {
            return Err(wrong(format!("expected a comparison, found `{term}`")).hint(HINT));
        }
        if !SELECTABLE.contains(&field) {
            let wrong = wrong(format!("expected a field that selects Events, found `{field}`"));
            let fields = || format!("the fields are {}", SELECTABLE.join(", "));
            return Err(wrong.hint(did_you_mean(field, SELECTABLE, fields)));
        }
    }
    Ok(())
}

/// The terms of a selector; a backslash takes a comma's meaning away.
fn split_unescaped(selector: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (i, c) in selector.char_indices() {
        if c == ',' && !escaped {
            terms.push(&selector[start..i]);
            start = i + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    terms.push(&selector[start..]);
    terms
}

fn unescaped(text: &str, wanted: char) -> bool {
    let mut escaped = false;
    text.chars().any(|c| {
        let found = c == wanted && !escaped;
        escaped = c == '\\' && !escaped;
        found
    })
}

/// Parses the address that the admin server listens on.
pub(super) fn listen(text: &str) -> Result<SocketAddr, Wrong> {
    text.parse().map_err(|_| {
        let wrong = wrong(format!("expected an IP address and a port, found `{text}`"));
        match text.rsplit_once(':') {
            Some(("", port)) => {
                wrong.hint(format!("write `127.0.0.1:{port}`, or `[::]:{port}` for every address"))
            }
            Some(("localhost", port)) => wrong.hint(format!("write `127.0.0.1:{port}`")),
            _ => wrong.hint("write for instance `127.0.0.1:8080` or `[::]:8080`"),
        }
    })
}

/// Checks the token that opens the admin server to whoever shows it.
pub(super) fn token(text: &str) -> Result<(), Wrong> {
    // It is guessed at as fast as the server answers.
    const LEAST: usize = 16;
    let hint = "for instance what `openssl rand -hex 32` prints";
    if text.len() < LEAST {
        let what = format!("expected at least {LEAST} characters, found {}", text.len());
        return Err(wrong(what).hint(hint));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let what = "expected printable ASCII without spaces, found other characters";
        return Err(wrong(what).hint(hint));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::refused;

    #[test]
    fn good_values_are_taken() {
        for name in ["a", "audit-2", "0.x_y"] {
            assert_eq!(sink_name(name), Ok(()), "{name}");
        }
        for selector in [
            "",
            "type=Warning",
            "type==Warning",
            "type!=Normal,involvedObject.kind=Pod",
            "reason=",
            r"reason=a\,b\=c",
        ] {
            assert_eq!(field_selector(selector), Ok(()), "{selector}");
        }
        for address in ["0.0.0.0:0", "[::]:8080"] {
            assert!(listen(address).is_ok(), "{address}");
        }
    }

    #[test]
    fn bad_values_are_refused() {
        let long = "x".repeat(64);
        let long: &'static str = long.leak();
        let shown = [
            refused(["", "A", "a b", "..", "-a", "ä", long].map(|t| (t, sink_name(t)))),
            refused(["", "Shop", "a*", "-a"].map(|t| (t, namespace(t)))),
            refused(
                ["type", "=x", "type=a=b", "typ=Warning", "spec.nodeName=x", "type=a,", "a=b, c=d"]
                    .map(|t| (t, field_selector(t))),
            ),
            refused([":8080", "localhost:8080", "8080", "0.0.0.0", "a:b"].map(|t| (t, listen(t)))),
            refused(["", "fifteen-letters", "sixteen letters and more"].map(|t| (t, token(t)))),
        ];
        insta::assert_snapshot!(shown.join("\n\n"));
    }
}
