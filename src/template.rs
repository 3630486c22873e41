//! Templates: texts with expressions of Jinja in them, rendered for each event by `minijinja`.
//!
//! A template speaks of the variables of `match` (`event`, `id`, `change`, `time`, `occurrences`, `delta`, `cluster`
//! and `object`) and of `day`, the UTC date `YYYY.MM.DD` of the event, which is the same for an id at all times.
//! **Absent fields read as zero values**, as in `match`: "" for texts, 0 for numbers, empty for lists and maps.
//!
//! A template is checked when it is compiled: unknown variables, fields, filters, tests and functions are refused
//! with their place, whether a branch reaches them or not. `safe`, `escape` and `autoescape` are not known, nor are blocks
//! that keep text where that is escaped: in JSON and addresses an event's text cannot leave the value that it stands
//! in ([`Escape`]).
//!
//! **Costs are bounded**: a template is at most 16 KiB long, and one rendering has a budget for its steps
//! and for all texts that it makes.

mod check;
#[cfg(test)]
mod tests;
mod values;

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value, value::Rest};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use regex::Regex;

use crate::{
    event::{EVENTS, Field, Record, Shape, field},
    plain::shortened,
};

/// The name of the one template in its environment.
const NAME: &str = "template";
/// A longer template is refused.
const MAX_LENGTH: usize = 16 << 10;
/// For parser, check and compiler, which recurse as deep as a chain of operators is long: a debug build needs 5 KiB for
/// each.
const PARSER_STACK_BYTES: usize = 256 << 20;
/// A rendering may take so many steps, or make and read 64 bytes for each of them: 6.4 MB in all.
const FUEL: u64 = 100_000;
/// All that a segment of a path or a value of a query may hold as it is.
const NOT_UNRESERVED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A tag of a template.
static TAG: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?s)\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}").ok());

/// The variables of a template: those of an event, and the day.
const VARIABLES: &[Field] = &{
    let mut variables = [field("day", Shape::Text); EVENTS.len() + 1];
    let mut i = 0;
    while i < EVENTS.len() {
        variables[i] = EVENTS[i];
        i += 1;
    }
    variables
};

/// A compiled template. Cloning is cheap.
#[derive(Clone)]
pub struct Template {
    source: Arc<str>,
    environment: Arc<Environment<'static>>,
    escape: Escape,
}

impl PartialEq for Template {
    /// By their source, in which all of a template stands.
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source && self.escape == other.escape
    }
}

/// How `{{ x }}` is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// As it is: a text without quotes.
    Plain,
    /// As a value of JSON: a text with its quotes.
    Json,
    /// Percent-encoded, but for letters, digits and `-._~`: within a segment of a path or a value of a query.
    Url,
}

/// Why a template is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct TemplateError {
    /// The fault.
    pub what: String,
    /// How to mend it, where that can be guessed.
    pub hint: Option<String>,
    /// The byte of the template at which it is wrong.
    pub offset: usize,
}

/// Why a template makes nothing of an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The envelope is not JSON, or a member is not of the type that the API gives it.
    #[error("the event cannot be read: {0}")]
    Event(String),
    /// For instance a division by zero, or an index past the end of a list.
    #[error("the template fails in line {line}: {what}")]
    Template {
        /// The line of the template, from 1.
        line: usize,
        /// The fault.
        what: String,
    },
}

/// A text that is the same for every event, or a template of one.
#[derive(Clone, Debug, PartialEq)]
pub enum Templated {
    /// The same for every event.
    Fixed(String),
    /// Made for each event.
    Template(Template),
}

impl Templated {
    /// Reads a text; a template where it holds tags.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if Template::is_in(text) {
            return Template::compile(text, Escape::Plain).map(Self::Template);
        }
        Ok(Self::Fixed(text.to_owned()))
    }

    /// Whether it is made for each event.
    pub fn is_template(&self) -> bool {
        matches!(self, Self::Template(_))
    }

    /// The text for an event, which only a template reads.
    pub fn render(
        &self,
        context: impl FnOnce() -> Result<Context, RenderError>,
    ) -> Result<Cow<'_, str>, RenderError> {
        match self {
            Self::Fixed(text) => Ok(Cow::Borrowed(text)),
            Self::Template(template) => template.render(&context()?).map(Cow::Owned),
        }
    }
}

/// One event, as the templates of a sink see it.
#[derive(Clone, Debug)]
pub struct Context(Value);

/// The texts that several keys make of one record, which is read once for all of them.
pub(crate) struct Rendering<'a> {
    record: &'a Record,
    context: Option<Context>,
}

/// Why a key makes nothing of an event.
#[derive(Debug, thiserror::Error)]
#[error("`{key}`: {error}")]
pub(crate) struct KeyError {
    key: String,
    error: RenderError,
}

impl<'a> Rendering<'a> {
    pub(crate) fn of(record: &'a Record) -> Self {
        Self { record, context: None }
    }

    /// The text of a key.
    pub(crate) fn text<'t>(
        &mut self,
        key: &str,
        text: &'t Templated,
    ) -> Result<Cow<'t, str>, KeyError> {
        let Self { record, context } = self;
        let rendered = text.render(|| match context {
            Some(context) => Ok(context.clone()),
            None => Ok(context.insert(Context::of(record)?).clone()),
        });
        rendered.map_err(|error| KeyError { key: key.to_owned(), error })
    }
}

/// Events that a template is tried on when it is checked: an ordinary one, and one with no field at all.
const SAMPLES: [&str; 2] = [
    r#"{"id":"9f86d081-8842","cluster":{"name":"prod","uid":"4a7d1ed4"},"change":"created","time":"2026-01-02T03:04:05Z","occurrences":1,"delta":1,"event":{"apiVersion":"v1","kind":"Event","metadata":{"name":"web-0.17","namespace":"shop","uid":"9f86d081","resourceVersion":"8842","creationTimestamp":"2026-01-02T03:04:05Z"},"involvedObject":{"apiVersion":"v1","kind":"Pod","namespace":"shop","name":"web-0","uid":"5d41402a"},"reason":"BackOff","message":"Back-off restarting failed container","source":{"component":"kubelet","host":"node-1"},"firstTimestamp":"2026-01-02T03:04:05Z","lastTimestamp":"2026-01-02T03:04:05Z","count":1,"type":"Warning"}}"#,
    "{}",
];

impl Context {
    /// The sample events of `check`.
    pub(crate) fn samples() -> impl Iterator<Item = Self> {
        SAMPLES.iter().filter_map(|envelope| {
            Self::of(&Record { seq: 0, envelope: Bytes::from_static(envelope.as_bytes()) }).ok()
        })
    }

    /// The ordinary one of them.
    pub(crate) fn sample() -> Result<Self, RenderError> {
        Self::of(&Record { seq: 0, envelope: Bytes::from_static(SAMPLES[0].as_bytes()) })
    }

    /// Reads a record.
    pub fn of(record: &Record) -> Result<Self, RenderError> {
        values::read(VARIABLES, &record.envelope)
            .map(Self)
            .map_err(|error| RenderError::Event(shortened(&error.to_string())))
    }
}

impl Template {
    /// Parses and checks a template.
    pub fn compile(source: &str, escape: Escape) -> Result<Self, TemplateError> {
        if source.len() > MAX_LENGTH {
            let what =
                format!("expected a template of at most {MAX_LENGTH} bytes, found a longer one");
            return Err(TemplateError { what, hint: None, offset: 0 });
        }
        let compile = || {
            let mut environment = environment(escape);
            check::check(source, escape, VARIABLES, &environment)?;
            environment
                .add_template_owned(NAME, source.to_owned())
                .map_err(|error| check::syntax(source, &error))?;
            for Context(sample) in Context::samples() {
                let template = environment.get_template(NAME);
                if let Err(error) = template.and_then(|template| template.render(sample))
                    && is_mistake(error.kind())
                {
                    return Err(check::syntax(source, &error));
                }
            }
            Ok(environment)
        };
        let internal = || TemplateError {
            what: "expected a template, found one that cannot be read here".to_owned(),
            hint: None,
            offset: 0,
        };
        let environment = std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("template".to_owned())
                .stack_size(PARSER_STACK_BYTES)
                .spawn_scoped(scope, compile)
                .map_err(|_| internal())?
                .join()
                .unwrap_or_else(|_| Err(internal()))
        })?;
        Ok(Self { source: source.into(), environment: Arc::new(environment), escape })
    }

    /// Whether a text holds tags of a template, and is not the same for every event.
    pub fn is_in(text: &str) -> bool {
        ["{{", "{%", "{#"].iter().any(|tag| text.contains(tag))
    }

    /// The pieces of a text that stand outside of its tags, and are the same for every event.
    pub(crate) fn literals(text: &str) -> impl Iterator<Item = &str> {
        TAG.iter().flat_map(|tag| tag.split(text)).filter(|piece| !piece.is_empty())
    }

    /// The texts in quotes within its tags.
    pub(crate) fn quoted(text: &str) -> impl Iterator<Item = &str> {
        static QUOTED: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r#"'[^']*'|"[^"]*""#).ok());
        let tags = TAG.iter().flat_map(|tag| tag.find_iter(text));
        tags.flat_map(|tag| QUOTED.iter().flat_map(move |quoted| quoted.find_iter(tag.as_str())))
            .map(|quoted| quoted.as_str().trim_matches(['\'', '"']))
    }

    /// The template as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether it speaks of `object`, which is empty for who is told nothing of objects.
    pub(crate) fn names_object(&self) -> bool {
        let template = self.environment.get_template(NAME);
        template.is_ok_and(|template| template.undeclared_variables(false).contains("object"))
    }

    /// How its values are written.
    pub fn escape(&self) -> Escape {
        self.escape
    }

    /// The text that it makes of an event.
    pub fn render(&self, context: &Context) -> Result<String, RenderError> {
        let template = self.environment.get_template(NAME);
        template.and_then(|template| template.render(context.0.clone())).map_err(|error| {
            let what = match (error.kind(), error.detail()) {
                (ErrorKind::OutOfFuel, _) => format!("expected at most {FUEL} steps, found more"),
                (_, Some(detail)) => shortened(detail),
                (kind, None) => kind.to_string(),
            };
            RenderError::Template { line: error.line().unwrap_or(1), what }
        })
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its text may hold a secret.
        f.debug_struct("Template").field("escape", &self.escape).finish_non_exhaustive()
    }
}

/// Whether an error is the template's, whatever the event.
fn is_mistake(kind: ErrorKind) -> bool {
    use ErrorKind::{MissingArgument, TooManyArguments, UnknownFilter, UnknownMethod, UnknownTest};
    matches!(kind, MissingArgument | TooManyArguments | UnknownFilter | UnknownMethod | UnknownTest)
}

/// The language of templates.
fn environment(escape: Escape) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_debug(true);
    // A text is written for the place of the template, and in no other way.
    for filter in ["safe", "e", "escape"] {
        environment.remove_filter(filter);
    }
    // They show what they like, or make values of any depth.
    for function in ["debug", "namespace"] {
        environment.remove_global(function);
    }
    if escape == Escape::Json {
        // Every value is.
        environment.add_filter("tojson", |value: Value, _: Rest<Value>| value);
        environment.set_auto_escape_callback(|_| AutoEscape::Json);
    }
    environment.set_formatter(move |out, state, value| match escape {
        Escape::Url => {
            let text = value.to_string();
            out.write_fmt(format_args!("{}", utf8_percent_encode(&text, NOT_UNRESERVED)))
                .map_err(Into::into)
        }
        // No text is taken for one that is escaped.
        Escape::Json if value.is_safe() => {
            let text = Value::from(value.as_str().unwrap_or_default());
            minijinja::escape_formatter(out, state, &text)
        }
        Escape::Json | Escape::Plain => minijinja::escape_formatter(out, state, value),
    });
    environment
}
