//! The index that events go to, and the names that one can have.

use crate::{
    document::{Wrong, wrong},
    template::{Context, RenderError, Template},
};

/// A longer name is refused, in bytes.
const MOST_BYTES: usize = 255;
/// No name has any of these, nor white space nor a control character.
const NOT_IN_NAMES: &str = "\\/*?\"<>|,#:";

const HINT: &str = "a name has no blanks and none of `\\ / * ? \" < > | , # :`, and does not start with `-`, `_`, `+` or `.`";

/// Why there is no index for an event.
#[derive(Debug, thiserror::Error)]
pub(super) enum IndexError {
    #[error("`index`: {0}")]
    Render(#[from] RenderError),
    #[error("`index`: {}", .0.what)]
    Name(Wrong),
}

/// The name that a template makes of an event.
pub(super) fn render(template: &Template, context: &Context) -> Result<String, IndexError> {
    let rendered = template.render(context)?;
    name(&rendered).map_err(IndexError::Name)?;
    Ok(rendered)
}

/// Checks the name of an index or a data stream.
pub(super) fn name(text: &str) -> Result<(), Wrong> {
    let expected =
        |found: String| wrong(format!("expected the name of an index, found {found}")).hint(HINT);
    let is_bad = |c: &char| NOT_IN_NAMES.contains(*c) || c.is_whitespace() || c.is_control();
    if text.is_empty() {
        return Err(expected("an empty text".to_owned()));
    }
    if let Some(bad) = text.chars().find(|c| c.is_uppercase()) {
        let wrong = expected(format!("one with the capital `{bad}`"));
        return Err(wrong.hint("names are in lower case; in a template write `| lower`"));
    }
    if let Some(bad) = text.chars().find(is_bad) {
        return Err(expected(format!("one with {bad:?} in it")));
    }
    if text.starts_with(['-', '_', '+', '.']) {
        let first = &text[..1];
        return Err(expected(format!("one that starts with `{first}`")));
    }
    if text.len() > MOST_BYTES {
        return Err(expected(format!("one of more than {MOST_BYTES} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{document::refused, event::Record, sinks::keys::templated, template::Templated};

    #[test]
    fn bad_names_are_refused() {
        let long = "x".repeat(256);
        assert!(name(&long).is_err() && name(&long[1..]).is_ok());
        for good in ["k8s-events", "logs-kubernetes.events-prod", "a_b+c-1.2", "événements"] {
            assert!(name(good).is_ok(), "{good}");
        }
        let texts = [
            "",
            "K8s",
            "É",
            "a b",
            "a,b",
            "a*",
            "<a-{now/d}>",
            "a/b",
            "a\\b",
            "a:b",
            "a#b",
            "-a",
            "_all",
            "+a",
            ".security",
            "..",
            "a\nb",
            "{{ day }",
            "{{ dya }}",
            "k8s-{{ event.reason }}",
        ];
        let read = |text: &'static str| (text, templated(text, name).map_err(|bad| bad.wrong));
        insta::assert_snapshot!(refused(texts.map(read)));
    }

    #[test]
    fn a_template_makes_a_name_or_says_why_not() {
        let of = |source: &str, namespace: &str| {
            let event = serde_json::json!({ "metadata": { "namespace": namespace } });
            let envelope = format!(r#"{{"id":"a","time":"2026-11-21T10:00:00Z","event":{event}}}"#);
            let context = Context::of(&Record { seq: 1, envelope: envelope.into() }).unwrap();
            let Ok(Templated::Template(template)) = templated(source, name) else {
                panic!("{source}")
            };
            render(&template, &context).map_err(|error| error.to_string())
        };
        assert_eq!(of("k8s-{{ day }}", "").as_deref(), Ok("k8s-2026.11.21"));
        let by_namespace = "k8s-{{ event.metadata.namespace }}";
        assert_eq!(of(by_namespace, "shop").as_deref(), Ok("k8s-shop"));
        for (namespace, error) in [
            ("shop,other", "`index`: expected the name of an index, found one with ',' in it"),
            ("*", "`index`: expected the name of an index, found one with '*' in it"),
            ("Shop", "`index`: expected the name of an index, found one with the capital `S`"),
        ] {
            assert_eq!(of(by_namespace, namespace).unwrap_err(), error);
        }
        let bare = of("{{ event.metadata.namespace }}", ".security");
        assert!(bare.unwrap_err().ends_with("found one that starts with `.`"));
    }
}
