use std::{cell::Cell, fmt::Write as _};

use cel::{common::value::CowVal, context::VariableResolver};
use futures_util::FutureExt as _;
use proptest::prelude::*;

use super::*;
use crate::{
    bridge::filter::{EvalError, Filter, slots::Slots},
    event::Record,
};

/// An event with so many labels and finalizers, a message of so many bytes, and a few owners.
fn event(labels: usize, message: usize) -> Record {
    let mut members = String::new();
    for n in 0..labels {
        let comma = if n > 0 { "," } else { "" };
        let _ = write!(members, "{comma}\"l{n}\":\"{n}\"");
    }
    let owners = r#"{"kind":"Job","name":"j"},{"kind":"Pod","name":"p"}"#;
    let message = "x".repeat(message);
    let envelope = format!(
        r#"{{"id":"u-1","change":"created","delta":2,"event":{{"reason":"BackOff","message":"{message}",
        "metadata":{{"labels":{{{members}}},"finalizers":["a","b"],"ownerReferences":[{owners}]}}}}}}"#
    );
    Record { seq: 1, envelope: envelope.into() }
}

fn wants(expression: &str, record: &Record) -> Result<bool, EvalError> {
    Filter::compile(expression).unwrap_or_else(|e| panic!("{expression}: {e}")).wants(record)
}

const PAIRS: &str = "event.metadata.labels.exists(a, event.metadata.labels.exists(b, \
                     a != b && event.metadata.labels[a] == event.metadata.labels[b]))";

#[test]
fn nested_loops_over_a_flood_of_labels_come_to_an_end() {
    let filter = Filter::compile(PAIRS).unwrap();
    assert_eq!(filter.wants(&event(15_000, 0)), Err(EvalError::Budget));
    assert_eq!(filter.wants(&event(30, 0)), Ok(false), "an event pays for itself alone");
    for (expression, record) in [
        // What an operator goes on with after an error does not hide it.
        (format!("{PAIRS} || true"), event(15_000, 0)),
        (format!("true && !({PAIRS}) && false"), event(15_000, 0)),
        (PAIRS.replace("exists", "all").replace("!=", "=="), event(15_000, 0)),
        (PAIRS.replacen("exists", "exists_one", 1), event(15_000, 0)),
        (format!("{} != []", PAIRS.replacen("exists", "map", 1)), event(15_000, 0)),
        (format!("{} != []", PAIRS.replacen("exists", "filter", 1)), event(15_000, 0)),
        // A loop over little, in each turn of which much is read.
        (
            "event.metadata.labels.exists(a, event.message.contains(a + 'y'))".into(),
            event(30, 1 << 20),
        ),
        ("event.metadata.labels.exists(a, event.message.matches('y'))".into(), event(30, 1 << 20)),
        (
            "event.metadata.labels.exists(a, event.message == a + event.message)".into(),
            event(30, 1 << 20),
        ),
        ("event.metadata.labels.exists(a, size(event.message) == 1)".into(), event(30, 1 << 20)),
        ("event.metadata.labels.exists(a, [event.message] == [a])".into(), event(30, 1 << 20)),
    ] {
        assert_eq!(wants(&expression, &record), Err(EvalError::Budget), "{expression}");
    }
}

#[test]
fn values_do_not_grow_without_end() {
    let doubled = format!("size(['aaaa']{}) == 1", ".map(x, x + x)".repeat(20));
    assert_eq!(wants(&doubled, &event(1, 0)), Err(EvalError::Budget));
    let lists = format!("size([['aaaa']]{}) == 1", ".map(x, x + x)".repeat(20));
    assert_eq!(wants(&lists, &event(1, 0)), Err(EvalError::Budget));
    let sum = format!("size({}) == 1", vec!["event.message"; 40].join(" + "));
    assert_eq!(wants(&sum, &event(1, 1 << 20)), Err(EvalError::Budget));
    assert_eq!(wants(&sum, &event(1, 100)), Ok(false));
}

#[test]
fn ordinary_expressions_keep_within_the_budget() {
    for expression in [
        "event.type == 'Warning' && event.reason in ['BackOff', 'FailedScheduling', 'OOMKilling']",
        "!event.metadata.namespace.startsWith('sandbox-') || event.message.matches('(?i)oom|evict')",
        "event.metadata.labels.exists(k, k.startsWith('team/') && event.metadata.labels[k] != '')",
        "event.metadata.ownerReferences.exists(o, o.kind == 'Job' && o.name.startsWith('nightly'))",
        "object.labels.all(k, object.annotations.exists(a, a == k))",
        "['a', 'b', 'c'].exists(w, event.message.contains(w))",
        PAIRS,
    ] {
        assert!(wants(expression, &event(40, 8192)).is_ok(), "{expression}");
    }
    // Without loops nothing is refused, however large the event is.
    let large = event(15_000, 1 << 20);
    for expression in [
        "event.message.contains('y') || event.message.matches('y') || size(event.message) == 1",
        "event.message == event.reason || event.metadata.labels['l1'] == ''",
        "event.metadata.labels[event.reason] == '' && 'l1' in event.metadata.labels",
    ] {
        assert!(wants(expression, &large).is_ok(), "{expression}");
    }
}

#[test]
fn a_label_of_a_label_is_no_larger_than_it_is_written() {
    let (open, close) = ("event.metadata.labels[".repeat(40), "]".repeat(40));
    assert_eq!(wants(&format!("{open}event.reason{close} == ''"), &event(1, 0)), Ok(true));
}

/// Counts how often a slot is read, which is how often its node is evaluated.
struct Counting<'a> {
    slots: Slots<'a>,
    read: &'static std::thread::LocalKey<Cell<u64>>,
}

thread_local! {
    static READ: Cell<u64> = const { Cell::new(0) };
}

impl VariableResolver for Counting<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let found = self.slots.resolve(variable);
        self.read.set(self.read.get() + u64::from(found.is_some()));
        found
    }
}

/// Conditions with loops, in loops too; those with too many in each other are refused.
fn conditions() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "event.reason == 'x'",
        "event.message.contains('y')",
        "event.message.matches('y')",
        "delta > 1",
        "1 / event.count > 0",
        "event.metadata.labels['l1'] != ''",
        "event.metadata.labels[event.reason] == ''",
        "event.reason in event.metadata.finalizers",
        "[event.reason, event.message] == [change]",
        "true",
    ]);
    let lists = prop::sample::select(vec![
        "event.metadata.labels",
        "event.metadata.finalizers",
        "event.metadata.ownerReferences",
        "[event.reason, event.message]",
        "event.metadata.labels.map(m, m + event.reason)",
        "event.metadata.labels.filter(m, m != event.reason)",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(4, 16, 2, move |inner| {
        let both = (inner.clone(), inner.clone());
        let looped = (lists.clone(), inner.clone());
        prop_oneof![
            both.clone().prop_map(|(a, b)| format!("({a} && {b})")),
            both.prop_map(|(a, b)| format!("({a} || {b})")),
            inner.prop_map(|a| format!("!{a}")),
            looped.clone().prop_map(|(list, a)| format!("{list}.exists(x, {a})")),
            looped.clone().prop_map(|(list, a)| format!("{list}.all(x, {a})")),
            looped.clone().prop_map(|(list, a)| format!("{list}.exists_one(x, {a})")),
            looped.clone().prop_map(|(list, a)| format!("{list}.map(x, {a}).size() > 1")),
            looped.prop_map(|(list, a)| format!("{list}.filter(x, {a}).size() > 1")),
        ]
    })
}

proptest! {
    /// Each node that is evaluated is either paid for or stands outside of loops, and with less
    /// than that there is no answer.
    #[test]
    fn no_more_is_evaluated_than_is_paid_for(
        condition in conditions(),
        labels in 0_usize..40,
        message in 0_usize..2000,
    ) {
        let Ok(filter) = Filter::compile(&condition) else { return Ok(()) };
        let record = event(labels, message);
        let evaluate = |budget: u64| {
            let slots = Slots::read(&filter.0.plan, &filter.0.slots, &record.envelope).unwrap();
            READ.set(0);
            let answer = filter.evaluate(&Counting { slots, read: &READ }, budget);
            (answer, READ.get())
        };
        let outside = nodes(&filter.0.expression);
        let (answer, read) = evaluate(u64::MAX);
        let paid = u64::MAX - left().unwrap();
        prop_assert!(read <= outside + paid, "{read} > {outside} + {paid}");
        prop_assert_eq!(evaluate(paid).0, answer);
        if let Some(less) = paid.checked_sub(1) {
            prop_assert_eq!(evaluate(less).0, Err(EvalError::Budget));
        }
        // Also when it is spent, no more is done than was paid for, and what a turn has outside.
        let (_, read) = evaluate(paid / 2);
        prop_assert!(read <= 2 * (outside + paid), "{read} > 2 * ({outside} + {paid})");
    }
}

#[test]
fn an_evaluation_that_takes_long_holds_up_no_other_task() {
    // The one thread for what takes long is kept busy, so that nothing there is done at once.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.max_blocking_threads(1).build().unwrap();
    let filter = Filter::compile(PAIRS).unwrap();
    for (record, decided) in [
        (event(30, 0), Ok(false)),
        (event(300, 0), Err(EvalError::Budget)),
        (event(3, 1 << 16), Ok(false)),
    ] {
        let (release, released) = std::sync::mpsc::channel::<()>();
        runtime.spawn_blocking(move || released.recv());
        runtime.block_on(async {
            assert_eq!(filter.decide(&event(3, 0)).now_or_never(), Some(Ok(false)));
            assert_eq!(filter.decide(&record).now_or_never(), None, "another thread has it");
            drop(release);
            assert_eq!(filter.decide(&record).await, decided);
        });
    }
}
