//! `match`: a CEL expression that says which events a sink wants.
//!
//! An expression speaks of `event` (the core/v1 Event), `change` (`"created"` or `"updated"`),
//! `delta` (by how much the occurrences rose), `cluster` (`name`, `uid`) and, for a sink that is
//! told of it, `object` (`labels`, `annotations`, `owners`, `node`, `missing`), and of nothing else.
//! It is parsed, checked and rewritten once; unknown variables, functions and fields, comparisons
//! that can never hold and results that are no boolean are refused then.
//!
//! **Absent fields read as zero values**: "" for texts (timestamps are texts, RFC 3339), 0 for
//! numbers, empty for lists and maps, and so on inside objects; a label or annotation that is not
//! there reads as "". A member that is `null` is absent. `has(event.series)` is true if the API
//! server sent the member and it is not null, whatever its value. An object inside a list
//! (`ownerReferences`) always has all of its fields.
//!
//! **Costs are bounded**: an expression is at most 4 KiB long and 48 deep, loops nest at most
//! twice, patterns of `matches` are literals and compiled once, to at most 1 MiB. Of an event only
//! the members that the expression names are decoded. Outside of loops each part of an expression is
//! evaluated once, at a cost that grows with the event as reading it does. Loops, and what makes
//! larger values of the event's (`+`), have a budget of 100 000 steps for an event ([`meter`]),
//! beyond which there is no answer but [`EvalError::Budget`].

mod check;
mod meter;
mod rules;
mod slots;
mod types;

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use cel::{
    Context, Env, Value,
    common::ast::{IdedExpr, SourceInfo},
    context::VariableResolver,
    parser::Parser,
};
use regex::Regex;
use tokio::task::spawn_blocking;

use self::{
    check::{Checker, Slot},
    slots::{Plan, Slots},
};
use super::tasks::answer_of;
use crate::{
    event::{EVENTS, Field, Record, Shape, field},
    plain::shortened,
};

/// A longer expression is refused.
const MAX_LENGTH: usize = 4096;
/// So many steps may be taken between other tasks: half a millisecond.
const STEPS_BETWEEN: u64 = 5_000;
/// A larger event is not read between other tasks.
const BYTES_BETWEEN: usize = 16 << 10;
/// For parser and check, which recurse more than any worker's stack could bear: a debug build
/// needs 40 KiB for each pair of parentheses.
const PARSER_STACK_BYTES: usize = 64 << 20;

/// The variables of an expression over an answer of HTTP.
const ANSWER: &[Field] =
    &[field("status", Shape::Int), field("headers", Shape::Texts), field("body", Shape::Any)];

/// A compiled expression. Cloning is cheap.
#[derive(Clone)]
pub struct Filter(Arc<Compiled>);

impl PartialEq for Filter {
    /// By their source, in which all of an expression stands.
    fn eq(&self, other: &Self) -> bool {
        self.0.source == other.0.source
    }
}

struct Compiled {
    source: String,
    expression: IdedExpr,
    slots: Vec<Slot>,
    plan: Plan,
    regexes: Vec<Arc<Regex>>,
}

/// Why an expression is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct FilterError {
    /// What is wrong with it.
    pub what: String,
    /// How to mend it, where that can be guessed.
    pub hint: Option<String>,
    /// The byte of the expression at which it is wrong.
    pub offset: usize,
}

/// Why an expression could not be evaluated on an event. The event is to be let through.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The envelope is not JSON, or a member is not of the type that the API gives it.
    #[error("the event cannot be read: {0}")]
    Event(String),
    /// For instance a division by zero or an index past the end of a list.
    #[error("the expression fails: {0}")]
    Expression(String),
    /// Its loops would go over more than an event may cost.
    #[error(
        "the expression takes more than {} steps on this event: its loops go over too much",
        meter::BUDGET
    )]
    Budget,
}

impl Filter {
    /// Parses and checks an expression over events.
    pub fn compile(source: &str) -> Result<Self, FilterError> {
        Self::over(EVENTS, source)
    }

    /// Parses and checks an expression over answers of HTTP: `status`, `headers` by their names in small letters,
    /// and `body`, which is what its JSON holds.
    pub(crate) fn over_answers(source: &str) -> Result<Self, FilterError> {
        Self::over(ANSWER, source)
    }

    fn over(variables: &'static [Field], source: &str) -> Result<Self, FilterError> {
        if source.len() > MAX_LENGTH {
            return Err(FilterError {
                what: format!("the expression is longer than {MAX_LENGTH} bytes"),
                hint: None,
                offset: 0,
            });
        }
        let internal = |what: &str| FilterError { what: what.to_owned(), hint: None, offset: 0 };
        // The thread gives the parser the stack that it needs, and keeps a panic of it away.
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("match".to_owned())
                .stack_size(PARSER_STACK_BYTES)
                .spawn_scoped(scope, || compile(variables, source))
                .map_err(|error| internal(&format!("no thread to parse the expression: {error}")))?
                .join()
                .unwrap_or_else(|_| Err(internal("the parser failed on this expression")))
        })
        .map(|compiled| Self(Arc::new(compiled)))
    }

    /// The expression as it was written.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Whether the expression speaks of `object`, so that it can be evaluated only on records that
    /// are enriched.
    pub fn names_object(&self) -> bool {
        let first = |slot: &Slot| slot.path.first().is_some_and(|name| name == "object");
        self.0.slots.iter().any(first)
    }

    /// Whether the sink wants a record.
    pub fn wants(&self, record: &Record) -> Result<bool, EvalError> {
        self.holds(&record.envelope, meter::BUDGET)
    }

    /// Whether it is true of an object of its variables, as JSON.
    #[cfg(any(feature = "webhook", test))]
    pub(crate) fn is_true_of(&self, variables: &[u8]) -> Result<bool, EvalError> {
        self.holds(variables, meter::BUDGET)
    }

    /// The same in a task, which holds up no other: an evaluation that takes long goes to a thread that
    /// may be kept busy.
    pub(super) async fn decide(&self, record: &Record) -> Result<bool, EvalError> {
        if record.envelope.len() <= BYTES_BETWEEN {
            let decided = self.holds(&record.envelope, STEPS_BETWEEN);
            if decided != Err(EvalError::Budget) {
                return decided;
            }
        }
        let (filter, record) = (self.clone(), record.clone());
        answer_of(spawn_blocking(move || filter.wants(&record))).await
    }

    fn holds(&self, json: &[u8], budget: u64) -> Result<bool, EvalError> {
        let Compiled { slots, plan, .. } = &*self.0;
        let values = Slots::read(plan, slots, json)
            .map_err(|error| EvalError::Event(shortened(&error.to_string())))?;
        self.evaluate(&values, budget)
    }

    fn evaluate(&self, values: &dyn VariableResolver, budget: u64) -> Result<bool, EvalError> {
        let Compiled { expression, regexes, .. } = &*self.0;
        let mut context = Context::with_env(environment());
        context.set_variable_resolver(values);
        for (index, regex) in regexes.iter().enumerate() {
            let regex = Arc::clone(regex);
            context
                .add_function(&check::regex_name(index), move |text: Arc<String>| {
                    regex.is_match(&text)
                })
                .map_err(|error| EvalError::Expression(error.to_string()))?;
        }
        meter::begin(budget);
        let result = Value::resolve(expression, &context);
        if meter::left().is_none() {
            return Err(EvalError::Budget);
        }
        match result {
            Ok(Value::Bool(wanted)) => Ok(wanted),
            Ok(other) => Err(EvalError::Expression(format!(
                "the result is of type {}, not a boolean",
                other.type_of()
            ))),
            Err(error) => Err(EvalError::Expression(shortened(&error.to_string()))),
        }
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Filter").field(&self.0.source).finish()
    }
}

/// What expressions can call; shared, for building it is not free.
fn environment() -> Arc<Env> {
    static ENVIRONMENT: OnceLock<Arc<Env>> = OnceLock::new();
    Arc::clone(ENVIRONMENT.get_or_init(|| Arc::new(meter::environment())))
}

fn compile(variables: &'static [Field], source: &str) -> Result<Compiled, FilterError> {
    let (mut expression, info) =
        Parser::new().parse_with_source_info(source).map_err(|errors| syntax(source, &errors))?;
    let mut checker = Checker::new(variables);
    checker.run(&mut expression).map_err(|fault| {
        let offset =
            offset_of(&info, fault.at.0).saturating_add_signed(fault.at.1).min(source.len());
        FilterError { what: fault.what, hint: fault.hint, offset }
    })?;
    let Checker { slots, regexes, .. } = checker;
    let plan = Plan::new(variables, &slots);
    let regexes = regexes.into_iter().map(Arc::new).collect();
    Ok(Compiled { source: source.to_owned(), expression, slots, plan, regexes })
}

fn offset_of(info: &SourceInfo, id: u64) -> usize {
    info.offset_for(id).and_then(|(start, _)| usize::try_from(start).ok()).unwrap_or(0)
}

/// The first syntax error, in plain words.
fn syntax(source: &str, errors: &cel::ParseErrors) -> FilterError {
    let Some(first) = errors.errors.first() else {
        return FilterError { what: "not a CEL expression".into(), hint: None, offset: 0 };
    };
    // Lines and columns from 1, columns in characters.
    let line = usize::try_from(first.pos.0 - 1).unwrap_or(0);
    let column = usize::try_from(first.pos.1 - 1).unwrap_or(0);
    let start: usize = source.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = &source[start..];
    let offset = start + rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at);
    let message = first.msg.trim_start_matches("Syntax error: ");
    // The list of what could stand there is long and helps nobody.
    let message = message.split(" expecting {").next().unwrap_or(message);
    let what = match message {
        _ if source.trim().is_empty() => "the expression is empty".to_owned(),
        "mismatched input '<EOF>'" => "the expression ends too early".to_owned(),
        _ if message.starts_with("token recognition error")
            || message.starts_with("mismatched input")
            || message.starts_with("extraneous input") =>
        {
            let word: String =
                source[offset..].split_whitespace().next().unwrap_or("").chars().take(30).collect();
            format!("not a CEL expression: `{word}` cannot stand here")
        }
        _ => format!("not a CEL expression: {message}"),
    };
    let at = &source[offset..];
    let hint = if at.starts_with("and ") || at.starts_with("or ") || at.starts_with("not ") {
        Some("CEL writes `&&`, `||` and `!`")
    } else if at.starts_with("=~") {
        Some("CEL writes `event.reason.matches(\"^Failed\")`")
    } else if at.starts_with('=') && !at.starts_with("==") {
        Some("CEL compares with `==`")
    } else if (at.starts_with('&') || at.starts_with('|')) && !at[1..].starts_with(&at[..1]) {
        Some("CEL writes `&&` and `||`")
    } else {
        None
    };
    FilterError { what, hint: hint.map(str::to_owned), offset }
}

#[cfg(test)]
mod tests;
