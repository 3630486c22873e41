//! Checks of single values, beyond their type. No message repeats a value that may be a secret.

use std::net::SocketAddr;

use http::{HeaderName, HeaderValue, Uri};

use crate::{
    bridge::{NotAResource, ResourceName},
    sinks::{is_reserved_header, parse_signing_key},
    suggest::nearest,
};

/// What is wrong with a value, and how to mend it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) what: String,
    pub(super) hint: Option<String>,
}

pub(super) fn wrong(what: impl Into<String>) -> Wrong {
    Wrong { what: what.into(), hint: None }
}

impl Wrong {
    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// A sink's name: it labels metrics and names files.
pub(super) fn sink_name(name: &str) -> Result<(), Wrong> {
    let allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '.' | '_');
    let hint = "a name is made of lower-case letters, digits, `-`, `.` and `_`, starts with a \
        letter or digit, and has at most 63 characters";
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if starts && name.len() <= 63 && name.chars().all(allowed) {
        Ok(())
    } else {
        Err(wrong(format!("`{name}` is no name for a sink")).hint(hint))
    }
}

/// A namespace's name, as Kubernetes has it.
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
        Err(wrong(format!("`{name}` is no name of a namespace"))
            .hint("a name is made of lower-case letters, digits and `-`; patterns are not taken"))
    }
}

/// A resource by its plural and group.
pub(super) fn resource(name: &str) -> Result<ResourceName, Wrong> {
    name.parse().map_err(|error: NotAResource| {
        wrong(error.to_string())
            .hint("write `plural` or `plural.group`: `pods`, `deployments.apps`")
    })
}

/// The key of a label or annotation, or the beginning of one and a `*`.
pub(super) fn key_pattern(pattern: &str) -> Result<(), Wrong> {
    let key = pattern.strip_suffix('*').unwrap_or(pattern);
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    if pattern.is_empty() || !key.chars().all(allowed) {
        let hint = "write a key, or its beginning and `*`: `app`, `app.kubernetes.io/*`, `*`";
        return Err(wrong(format!("`{pattern}` is no key of a label or annotation")).hint(hint));
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
            return Err(wrong(format!("`{term}` compares nothing")).hint(HINT));
        };
        let (field, value) = (&term[..at], &term[at + 1..]);
        let field = field.strip_suffix('!').unwrap_or(field);
        let value = value.strip_prefix('=').unwrap_or(value);
        if field.is_empty() || unescaped(value, '=') {
            return Err(wrong(format!("`{term}` is no comparison")).hint(HINT));
        }
        if !SELECTABLE.contains(&field) {
            let wrong = wrong(format!("Events cannot be selected by `{field}`"));
            return Err(match nearest(field, SELECTABLE) {
                Some(near) => wrong.hint(format!("did you mean `{near}`?")),
                None => wrong.hint(format!("the fields are {}", SELECTABLE.join(", "))),
            });
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

/// What the admin server listens on.
pub(super) fn listen(text: &str) -> Result<SocketAddr, Wrong> {
    text.parse().map_err(|_| {
        let wrong = wrong(format!("`{text}` is not an IP address and a port"));
        match text.rsplit_once(':') {
            Some(("", port)) => {
                wrong.hint(format!("write `127.0.0.1:{port}`, or `[::]:{port}` for every address"))
            }
            Some(("localhost", port)) => wrong.hint(format!("write `127.0.0.1:{port}`")),
            _ => wrong.hint("write for instance `127.0.0.1:8080` or `[::]:8080`"),
        }
    })
}

/// What opens the admin server to whoever shows it.
pub(super) fn token(text: &str) -> Result<(), Wrong> {
    // It is guessed at as fast as the server answers.
    const LEAST: usize = 16;
    let hint = "for instance what `openssl rand -hex 32` prints";
    if text.len() < LEAST {
        let what = format!("the token has {} characters, and needs {LEAST}", text.len());
        return Err(wrong(what).hint(hint));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let what = "the token holds what no header can, or a space";
        return Err(wrong(what).hint(hint));
    }
    Ok(())
}

/// `host:port` of a Kafka broker.
pub(super) fn broker(text: &str) -> Result<(), Wrong> {
    const HINT: &str = "write `host:port`, for instance `kafka:9092`";
    if text.contains("://") {
        return Err(wrong("a broker has no scheme").hint(HINT));
    }
    // Credentials do not belong here; they are not repeated either.
    if text.contains('@') {
        return Err(wrong("a broker has no user").hint("credentials stand in `sasl`"));
    }
    let Some((host, port)) = text
        .rsplit_once(':')
        .filter(|(host, _)| !host.contains(':') || host.starts_with('[') && host.ends_with(']'))
    else {
        return Err(wrong(format!("the broker `{text}` has no port")).hint(HINT));
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '/') {
        return Err(wrong(format!("the broker `{text}` has no host")).hint(HINT));
    }
    match port.parse::<u16>() {
        Ok(1..) => Ok(()),
        _ => Err(wrong(format!("`{port}` is no port")).hint(HINT)),
    }
}

/// A Kafka topic.
pub(super) fn topic(text: &str) -> Result<(), Wrong> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if text.is_empty() || text == "." || text == ".." || text.len() > 249 {
        return Err(wrong("this is no name of a topic")
            .hint("a topic's name has 1 to 249 characters and is not `.` or `..`"));
    }
    if !text.chars().all(allowed) {
        return Err(wrong(format!("`{text}` is no name of a topic"))
            .hint("a topic's name is made of letters, digits, `.`, `_` and `-`"));
    }
    Ok(())
}

/// An address of HTTP; answers whether it is `https`. Addresses carry tokens, so none is repeated.
pub(super) fn url(text: &str) -> Result<Uri, Wrong> {
    const HINT: &str = "write `https://host/path` or `http://host:port/path`";
    let Some((scheme, _)) = text.split_once("://") else {
        return Err(wrong("the address has no scheme").hint(HINT));
    };
    if !matches!(scheme, "http" | "https") {
        let known = scheme.len() <= 10 && scheme.chars().all(|c| c.is_ascii_alphanumeric());
        let scheme = if known { format!("`{scheme}` is") } else { "this is".to_owned() };
        return Err(wrong(format!("{scheme} no scheme that can be spoken here")).hint(HINT));
    }
    let uri: Uri = text.parse().map_err(|_| wrong("this is not an address").hint(HINT))?;
    let Some(authority) = uri.authority().filter(|authority| !authority.host().is_empty()) else {
        return Err(wrong("the address has no host").hint(HINT));
    };
    if authority.as_str().contains('@') {
        return Err(wrong("the address has a user and password in it")
            .hint("put them into `headers` as `Authorization`"));
    }
    let port = authority.as_str().rsplit_once(':').map(|(_, port)| port);
    if port.is_some_and(|port| !port.ends_with(']')) && !matches!(authority.port_u16(), Some(1..)) {
        return Err(wrong("the port of the address is none").hint("a port is 1 to 65535"));
    }
    Ok(uri)
}

/// The name of a header that a sink may be given.
pub(super) fn header_name(name: &str, grpc: bool) -> Result<(), Wrong> {
    let Ok(parsed) = HeaderName::from_bytes(name.as_bytes()) else {
        return Err(wrong(format!("`{name}` is no name of a header"))
            .hint("a name is made of letters, digits and `-`"));
    };
    let parsed = parsed.as_str();
    if is_reserved_header(parsed) {
        return Err(wrong(format!("the header `{name}` is set by the bridge")).hint("remove it"));
    }
    if grpc && parsed.ends_with("-bin") {
        return Err(wrong(format!("the header `{name}` would be binary in gRPC"))
            .hint("remove `-bin` from its name"));
    }
    Ok(())
}

/// The value of a header. It is most often a secret.
pub(super) fn header_value(value: &str) -> Result<(), Wrong> {
    // The `http` crate takes Latin-1 too, gRPC does not.
    let printable = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if printable && HeaderValue::from_str(value).is_ok() {
        Ok(())
    } else {
        Err(wrong("the value of the header holds what no header can")
            .hint("a value is one line of printable ASCII"))
    }
}

/// What a PEM text must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pem {
    Certificate,
    PrivateKey,
}

/// That a text is PEM of a kind.
pub(super) fn pem(text: &str, kind: Pem) -> Result<(), Wrong> {
    let (label, name) = match kind {
        Pem::Certificate => ("CERTIFICATE-----", "certificate"),
        Pem::PrivateKey => ("PRIVATE KEY-----", "private key"),
    };
    let begins = |line: &str| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(label);
    if text.lines().any(begins) {
        if !readable(text, kind) {
            return Err(wrong(format!("the {name} in it cannot be read"))
                .hint("it must be whole and in PEM format: base64 up to `-----END`"));
        }
        Ok(())
    } else {
        Err(wrong(format!("there is no {name} in it"))
            .hint("it must be in PEM format, which starts with `-----BEGIN`"))
    }
}

/// Whether what the frames of a PEM text hold is there and is base64. A build without TLS leaves it to
/// the transport.
fn readable(text: &str, kind: Pem) -> bool {
    #[cfg(feature = "tls")]
    {
        use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
        match kind {
            Pem::Certificate => CertificateDer::pem_slice_iter(text.as_bytes()).all(|c| c.is_ok()),
            Pem::PrivateKey => PrivateKeyDer::from_pem_slice(text.as_bytes()).is_ok(),
        }
    }
    #[cfg(not(feature = "tls"))]
    {
        let _ = (text, kind);
        true
    }
}

/// A Standard Webhooks secret.
pub(super) fn signing_secret(secret: &str) -> Result<(), Wrong> {
    parse_signing_key(secret)
        .map(drop)
        .map_err(|error| wrong(error.to_string()).hint(error.hint(secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T>(results: impl IntoIterator<Item = (&'static str, Result<T, Wrong>)>) -> String {
        let line = |(input, result): (&str, Result<T, Wrong>)| match result {
            Ok(_) => panic!("{input:?} is taken"),
            Err(Wrong { what, hint }) => {
                format!("{input:?}: {what} / {}", hint.unwrap_or_default())
            }
        };
        results.into_iter().map(line).collect::<Vec<_>>().join("\n")
    }

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
        for broker_text in ["kafka:9092", "10.0.0.1:9092", "[::1]:9092", "b-1.example.com:1"] {
            assert_eq!(broker(broker_text), Ok(()), "{broker_text}");
        }
        for address in ["http://a", "https://a.b/c?d=e", "http://[::1]:4317", "http://a:1/"] {
            assert!(url(address).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:0", "[::]:8080"] {
            assert!(listen(address).is_ok(), "{address}");
        }
        assert_eq!(header_name("Authorization", true), Ok(()));
        assert_eq!(header_value("Bearer a b"), Ok(()));
        assert_eq!(signing_secret("whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="), Ok(()));
        assert_eq!(signing_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), Ok(()));
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
            refused(
                ["kafka", "kafka://a:1", "a:0", "a:x", ":9092", "::1:9092", "u:p@h:1", ""]
                    .map(|t| (t, broker(t))),
            ),
            refused(["", "..", "a b", "ä"].map(|t| (t, topic(t)))),
            refused(
                [
                    "",
                    "collector:4317",
                    "htp://x",
                    "https://",
                    "http://a b",
                    "http://u:p@h",
                    "http://a:99999",
                    "http://a:0",
                    "file:///etc",
                    "http://:80",
                ]
                .map(|t| (t, url(t))),
            ),
            refused(
                ["", "a b", "Content-Type", "webhook-id", "x-bin", "ä"]
                    .map(|t| (t, header_name(t, true))),
            ),
            refused(["a\nb", "ä"].map(|t| (t, header_value(t)))),
            refused(["", "-----BEGIN PRIVATE KEY-----"].map(|t| (t, pem(t, Pem::Certificate)))),
            refused(["whsec_", "whsec_a", "whsec_!!!!"].map(|t| (t, signing_secret(t)))),
        ];
        insta::assert_snapshot!(shown.join("\n\n"));
    }
}
