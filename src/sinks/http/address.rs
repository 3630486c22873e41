//! The address of requests, of which a template may make the path and the query.

use std::borrow::Cow;

use super::keys::url;
use crate::{
    document::{Misplaced, Wrong, wrong},
    template::{Context, Escape, RenderError, Template, TemplateError},
};

/// No header and no address that a template makes is longer, in bytes: servers take 8 KiB or more for all of them, and
/// refuse what is longer in ways that do not tell the event from the sink.
pub(crate) const MOST_BYTES: usize = 4096;

/// An address that is checked.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// All of it, or the scheme and host in front of a template.
    fixed: String,
    /// The path and the query.
    template: Option<Template>,
}

/// Why a template makes no address of an event.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AddressError {
    #[error("{0}")]
    Render(#[from] RenderError),
    #[error("expected a path whose segments are names, found `{0}` among them")]
    Dots(String),
    #[error("expected an address of at most {MOST_BYTES} bytes, found one of {0}")]
    Long(usize),
    #[error("{}", .0.what)]
    Url(Wrong),
}

impl Address {
    /// Reads an address of the configuration. The messages do not repeat it, but for names within tags.
    pub(crate) fn parse(text: &str) -> Result<Self, Misplaced> {
        if !Template::is_in(text) {
            url(text)?;
            return Ok(Self { fixed: text.to_owned(), template: None });
        }
        let host = text.find("://").map_or(0, |at| at + 3);
        let path = text[host..].find(['/', '?', '#']).map_or(text.len(), |at| host + at);
        let (fixed, path) = text.split_at(path);
        if Template::is_in(fixed) || !Template::is_in(path) {
            let wrong = wrong("expected a fixed scheme and host, found a template in them");
            return Err(wrong.hint("write one sink for each receiver, with a `match`").into());
        }
        url(fixed)?;
        let template = Template::compile(path, Escape::Url)
            .map_err(|error| TemplateError { offset: fixed.len() + error.offset, ..error })?;
        let address = Self { fixed: fixed.to_owned(), template: Some(template) };
        // An event without fields may well have no address.
        for context in Context::samples().take(1) {
            match address.of(&context) {
                Ok(_) | Err(AddressError::Render(_)) => {}
                Err(error) => return Err(wrong(error.to_string()).into()),
            }
        }
        Ok(address)
    }

    /// All of it, or its scheme and host.
    pub(crate) fn fixed(&self) -> &str {
        &self.fixed
    }

    /// Whether it is not the same for every event.
    pub(crate) fn is_template(&self) -> bool {
        self.template.is_some()
    }

    /// The address that a template makes of an event, without the query.
    pub(crate) fn destination(&self, context: &Context) -> Result<String, AddressError> {
        let mut address = self.of(context)?.into_owned();
        address.truncate(address.find(['?', '#']).unwrap_or(address.len()));
        Ok(address)
    }

    /// The address of an event.
    pub(crate) fn of(&self, context: &Context) -> Result<Cow<'_, str>, AddressError> {
        let Some(template) = &self.template else { return Ok(Cow::Borrowed(&self.fixed)) };
        let path = template.render(context)?;
        let (segments, _) = path.split_once(['?', '#']).unwrap_or((&path, ""));
        for segment in segments.split(['/', '\\']) {
            let dots = segment.to_ascii_lowercase().replace("%2e", ".");
            if matches!(&*dots, "." | "..") {
                return Err(AddressError::Dots(dots));
            }
        }
        let address = format!("{}{path}", self.fixed);
        if address.len() > MOST_BYTES {
            return Err(AddressError::Long(address.len()));
        }
        url(&address).map_err(AddressError::Url)?;
        Ok(Cow::Owned(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{document::refused, event::Record};

    fn of(address: &str, namespace: &str) -> String {
        let event = serde_json::json!({ "metadata": { "namespace": namespace } });
        let envelope = format!(r#"{{"event":{event}}}"#);
        let context = Context::of(&Record { seq: 1, envelope: envelope.into() }).unwrap();
        let address = Address::parse(address).unwrap_or_else(|bad| panic!("{}", bad.wrong.what));
        address.of(&context).map_or_else(|error| format!("! {error}"), Cow::into_owned)
    }

    #[test]
    fn a_template_makes_segments_and_values_and_nothing_else() {
        let ns = "{{ event.metadata.namespace }}";
        let address = format!("https://h:1/a/{ns}/b?ns={ns}&x=1");
        for (namespace, made) in [
            ("shop", "https://h:1/a/shop/b?ns=shop&x=1"),
            ("a/b?c&d#e", "https://h:1/a/a%2Fb%3Fc%26d%23e/b?ns=a%2Fb%3Fc%26d%23e&x=1"),
            (
                "\r\n @é\u{202e}",
                "https://h:1/a/%0D%0A%20%40%C3%A9%E2%80%AE/b?ns=%0D%0A%20%40%C3%A9%E2%80%AE&x=1",
            ),
            ("...", "https://h:1/a/.../b?ns=...&x=1"),
            ("..", "! expected a path whose segments are names, found `..` among them"),
            (".", "! expected a path whose segments are names, found `.` among them"),
            ("%2e%2E", "https://h:1/a/%252e%252E/b?ns=%252e%252E&x=1"),
            ("\\..", "https://h:1/a/%5C../b?ns=%5C..&x=1"),
        ] {
            assert_eq!(of(&address, namespace), made, "{namespace:?}");
        }
        let joined = format!("https://h/.{ns}");
        assert!(of(&joined, ".").starts_with("! "));
        assert_eq!(of(&joined, "x"), "https://h/.x");
        let long = "x".repeat(MOST_BYTES);
        assert_eq!(
            of("https://h/{{ event.metadata.namespace }}", &long),
            "! expected an address of at most 4096 bytes, found one of 4106"
        );
        assert_eq!(of("https://h?ns={{ event.metadata.namespace }}", "x"), "https://h?ns=x");
        assert_eq!(of("https://h/fixed?a=b", "x"), "https://h/fixed?a=b");
    }

    #[test]
    fn bad_addresses_are_refused() {
        let texts = [
            "{{ cluster.name }}",
            "https://{{ event.metadata.namespace }}.example.com/x",
            "https://h:{{ delta }}/x",
            "{{ cluster.name }}://h/x",
            "ftp://h/{{ id }}",
            "https:///{{ id }}",
            "https://h/{{ idd }}",
            "https://h/{{ id }",
            "https://h/../{{ id }}",
            "https://h/a b/{{ id }}",
        ];
        insta::assert_snapshot!(refused(texts.map(|text| {
            (
                text,
                Address::parse(text).map_err(|bad| {
                    let at = bad.offset.map(|at| format!("@{at} ")).unwrap_or_default();
                    Wrong { what: format!("{at}{}", bad.wrong.what), ..bad.wrong }
                }),
            )
        })));
    }
}
