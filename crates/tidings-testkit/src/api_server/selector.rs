//! Field and label selectors.

use std::{cell::LazyCell, collections::BTreeMap};

use kube::core::{Expression, Selector as LabelSelector, SelectorExt as _};
use serde::Deserialize;
use serde_json::Value;

use super::{
    resource::{Fields, Resource},
    shape::{metadata_of, names_of},
    status::ApiStatus,
};
use crate::http::Request;

/// The fields that the API server lets Events be selected by, beside those of every object.
const OF_EVENTS: [&str; 11] = [
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    SOURCE,
    "type",
];
/// `source.component`, or the reporting component where that is empty.
const SOURCE: &str = "source";

/// Both selectors of a request: terms that must all hold.
#[derive(Clone, Debug)]
pub(super) struct Selector {
    known: Fields,
    fields: Vec<Term>,
    labels: LabelSelector,
}

#[derive(Clone, Debug)]
struct Term {
    field: String,
    value: String,
    equal: bool,
}

impl Selector {
    pub(super) fn of(request: &Request, resource: &Resource) -> Result<Self, ApiStatus> {
        let fields = request.param("fieldSelector");
        let labels = request.param("labelSelector");
        Self::parse(resource.fields, fields, labels)
    }

    fn parse(known: Fields, fields: &str, labels: &str) -> Result<Self, ApiStatus> {
        let fields = fields.split(',').filter(|term| !term.is_empty()).map(|term| {
            let (field, value, equal) = None
                .or_else(|| term.split_once("!=").map(|(field, value)| (field, value, false)))
                .or_else(|| term.split_once("==").map(|(field, value)| (field, value, true)))
                .or_else(|| term.split_once('=').map(|(field, value)| (field, value, true)))
                .ok_or_else(|| {
                    ApiStatus::bad_request(format!(
                        "invalid selector: '{fields}'; can't understand '{term}'"
                    ))
                })?;
            known.check(field)?;
            Ok(Term { field: field.to_owned(), value: value.to_owned(), equal })
        });
        let fields = fields.collect::<Result<_, _>>()?;
        let labels: Result<LabelSelector, _> =
            requirements(labels).into_iter().map(expression).collect();
        Ok(Self { known, fields, labels: labels? })
    }

    /// Whether it selects everything.
    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.labels.selects_all()
    }

    /// Whether it selects the object with this JSON.
    pub(super) fn matches(&self, item: &[u8]) -> bool {
        (self.fields.is_empty() || self.fields_match(item))
            && (self.labels.selects_all() || self.labels.matches(&labels_of(item)))
    }

    fn fields_match(&self, item: &[u8]) -> bool {
        let holds = |value: &str, term: &Term| (value == term.value) == term.equal;
        let names = names_of(item);
        // Parsed only for what is no name, and once.
        let object = LazyCell::new(|| serde_json::from_slice(item).unwrap_or_default());
        self.fields.iter().all(|term| match term.field.as_str() {
            "metadata.name" => holds(&names.name, term),
            "metadata.namespace" => holds(&names.namespace, term),
            SOURCE if self.known == Fields::Event => {
                let component = text_at(&object, "source.component");
                let reporting = || text_at(&object, "reportingComponent");
                holds(&Some(component).filter(|c| !c.is_empty()).unwrap_or_else(reporting), term)
            }
            path => holds(&text_at(&object, path), term),
        })
    }
}

impl Fields {
    /// Refuses a field that cannot be selected by.
    fn check(self, field: &str) -> Result<(), ApiStatus> {
        let common = matches!(field, "metadata.name" | "metadata.namespace");
        let refusal = match self {
            Self::Event if common || OF_EVENTS.contains(&field) => return Ok(()),
            Self::Core(paths) if common || paths.contains(&field) => return Ok(()),
            Self::None if common => return Ok(()),
            Self::Event | Self::Core(_) => format!("field label not supported: {field}"),
            Self::None => format!(
                "{field:?} is not a known field selector: only \"metadata.name\", \
                 \"metadata.namespace\""
            ),
        };
        Err(ApiStatus::bad_request(refusal))
    }
}

/// The scalar at a path of members; empty when it is absent.
fn text_at(object: &Value, path: &str) -> String {
    match path.split('.').try_fold(object, |value, member| value.get(member)) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(yes)) => yes.to_string(),
        _ => String::new(),
    }
}

fn labels_of(item: &[u8]) -> BTreeMap<String, String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Labelled {
        labels: BTreeMap<String, String>,
    }
    serde_json::from_str::<Labelled>(metadata_of(item)).unwrap_or_default().labels
}

/// The requirements of a label selector: what stands between its commas, but for those of a set.
fn requirements(text: &str) -> Vec<&str> {
    let mut in_set = false;
    text.split(|c| {
        in_set = (in_set || c == '(') && c != ')';
        c == ',' && !in_set
    })
    .map(str::trim)
    .filter(|requirement| !requirement.is_empty())
    .collect()
}

fn expression(text: &str) -> Result<Expression, ApiStatus> {
    let refused = || ApiStatus::bad_request(format!("unable to parse requirement: found '{text}'"));
    let is_name = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
    };
    let name = |text: &str| {
        let text = text.trim();
        (is_name(text) && !text.is_empty()).then(|| text.to_owned()).ok_or_else(refused)
    };
    let value = |text: &str| {
        let text = text.trim();
        is_name(text).then(|| text.to_owned()).ok_or_else(refused)
    };
    let set = |text: &str| -> Result<_, ApiStatus> {
        let inner = text.trim().strip_prefix('(').and_then(|text| text.strip_suffix(')'));
        inner.ok_or_else(refused)?.split(',').map(value).collect()
    };
    if let Some(key) = text.strip_prefix('!') {
        return Ok(Expression::DoesNotExist(name(key)?));
    }
    if let Some((key, values)) = text.split_once(" notin ") {
        return Ok(Expression::NotIn(name(key)?, set(values)?));
    }
    if let Some((key, values)) = text.split_once(" in ") {
        return Ok(Expression::In(name(key)?, set(values)?));
    }
    if let Some((key, wanted)) = text.split_once("!=") {
        return Ok(Expression::NotEqual(name(key)?, value(wanted)?));
    }
    if let Some((key, wanted)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(Expression::Equal(name(key)?, value(wanted)?));
    }
    name(text).map(Expression::Exists)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_server::{EventObject, stored::Stored as _};

    #[test]
    fn fields_of_an_event_select() {
        let event = EventObject::about_pod("shop", "web-1", "BackOff", "m").warning().to_item();
        let parse = |text: &str| Selector::parse(Fields::Event, text, "");
        let selects = |text: &str| parse(text).unwrap().matches(&event);
        assert!(selects(""));
        assert!(selects("type=Warning,involvedObject.kind==Pod,reason!=Pulled"));
        assert!(!selects("type=Warning,involvedObject.name=web-2"));
        assert!(selects("source=kubelet,metadata.namespace=shop"));
        let refused = parse("spec.nodeName=a").unwrap_err();
        assert_eq!(refused.message, "field label not supported: spec.nodeName");
    }

    #[test]
    fn fields_of_another_object_select() {
        let pod = br#"{"metadata":{"name":"a","namespace":"shop"},"spec":{"nodeName":"n1"}}"#;
        let known = Fields::Core(&["spec.nodeName", "status.phase"]);
        let selects = |text: &str| Selector::parse(known, text, "").unwrap().matches(pod);
        assert!(selects("spec.nodeName=n1,metadata.name=a,status.phase!=Failed"));
        assert!(!selects("spec.nodeName=n2"));
        assert!(!selects("metadata.namespace!=shop"));
        assert_eq!(
            Selector::parse(Fields::None, "spec.x=1", "").unwrap_err().message,
            "\"spec.x\" is not a known field selector: only \"metadata.name\", \
             \"metadata.namespace\""
        );
    }

    #[test]
    fn labels_select() {
        let pod = br#"{"metadata":{"name":"a","labels":{"app":"web","tier":"front","x/y":""}}}"#;
        let parse = |text: &str| Selector::parse(Fields::None, "", text);
        let selects = |text: &str| parse(text).unwrap().matches(pod);
        for text in [
            "app",
            "!gone",
            "app=web,tier==front",
            "x/y=",
            "app!=db, none!=x",
            "app in (web,db),tier",
            "app notin (db, cache),none notin (a)",
        ] {
            assert!(selects(text), "{text}");
        }
        for text in ["gone", "!app", "app=db", "app!=web", "app in (db)", "app notin (web)"] {
            assert!(!selects(text), "{text}");
        }
        for text in ["app===web", "a b", "app in web", "=x"] {
            assert_eq!(parse(text).unwrap_err().code, 400, "{text}");
        }
    }
}
