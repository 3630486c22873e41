//! The budget of an evaluation: how many steps an expression may take on one event.
//!
//! The cost of a step is fixed when the expression is compiled, and how many there are follows from
//! the event. A loop pays for all its turns before the first one: for what it goes over, and for
//! each turn as much as its body has nodes. Where the cost of a node grows with a value (a
//! comparison, a search in a text, a sum of texts or lists), the node pays for the value's size;
//! outside of loops only what makes new values does, for the rest is done once. So between two
//! payments there is no more work than was paid for, and values grow no larger than the budget.
//!
//! Paying is a function that answers its first operand, and the check of the expression puts calls
//! of it in. Once the budget is spent every further payment fails, so that what CEL goes on with
//! after an error (`||`, `exists`) comes to its end, too. What it comes to does not count.

use std::cell::Cell;

use cel::{
    Env, ExecutionError,
    common::{
        ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators},
        functions::Function,
        types::{CelBytes, CelList, CelMap, CelString, CelUInt, DYN_TYPE},
        value::{CowVal, Val},
    },
};

use super::types::Type;

/// So many steps an expression may take on one event: some 10 ms.
pub(super) const BUDGET: u64 = 100_000;
/// The cost of a turn of a loop beside the nodes of its body.
const TURN: u64 = 4;
/// So many bytes of a text are as much as a step.
const BYTES_A_STEP: usize = 64;

// No CEL identifier starts so.
const LOOP: &str = "@loop";
const WEIGH: &str = "@weigh";
const LABEL: &str = "@label";
/// The result so far of a loop, as CEL's macros name it.
const RESULT: &str = "@result";

/// Has a loop pay for its turns.
pub(super) fn meter_loop(comprehension: &mut ComprehensionExpr) {
    let turn = TURN + nodes(&comprehension.loop_cond) + nodes(&comprehension.loop_step);
    let range = &mut comprehension.iter_range;
    let turn = Expr::Literal(LiteralValue::UInt(turn.into()));
    let turn = IdedExpr { id: range.id, expr: turn };
    wrap(range, LOOP, Some(turn));
}

/// Has a call pay for those of its operands that its cost grows with.
pub(super) fn meter_call(call: &mut CallExpr, types: &[Type], in_loop: bool) {
    let of_unknown_key = types.last() == Some(&Type::Any);
    let operands = call.target.iter_mut().map(|target| &mut **target).chain(&mut call.args);
    for (place, (operand, type_)) in operands.zip(types).enumerate() {
        let read = match (&*call.func_name, place) {
            (operators::ADD, _) => true,
            (
                operators::CONDITIONAL
                | operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::LOGICAL_NOT
                | operators::NOT_STRICTLY_FALSE,
                _,
            ) => false,
            // With a key of another type than it takes, an error is made of all of it.
            (operators::INDEX, 0) => in_loop && of_unknown_key,
            (operators::IN, 1) => in_loop && !matches!(type_, Type::Map(_) | Type::Object(_)),
            ("size", _) => in_loop && matches!(type_, Type::Text | Type::Bytes | Type::Any),
            _ => in_loop,
        };
        if read {
            meter_value(operand, type_);
        }
    }
}

/// Has whoever takes this value pay for its size.
pub(super) fn meter_value(expr: &mut IdedExpr, type_: &Type) {
    let grows = match &expr.expr {
        // No larger than they are written; and what is not written in them pays by itself.
        Expr::Literal(_) | Expr::List(_) | Expr::Map(_) => false,
        // Of `map` and `filter`, which append to it.
        Expr::Ident(name) if name == RESULT => false,
        // Its parts have paid.
        Expr::Call(call) if call.func_name == operators::ADD => false,
        _ => !matches!(type_, Type::Bool | Type::Int | Type::Uint | Type::Double | Type::Null),
    };
    if grows {
        wrap(expr, WEIGH, None);
    }
}

/// Has `labels[key]` answer "" for a key that is not there: an absent label reads as "", however
/// its key is come by.
pub(super) fn label_or_empty(call: &mut CallExpr) {
    LABEL.clone_into(&mut call.func_name);
}

fn wrap(expr: &mut IdedExpr, function: &str, more: Option<IdedExpr>) {
    let id = expr.id;
    let mut args = vec![std::mem::take(expr)];
    args.extend(more);
    let func_name = function.to_owned();
    *expr = IdedExpr { id, expr: Expr::Call(CallExpr { func_name, target: None, args }) };
}

/// So many nodes are evaluated at most when this one is, but for the turns of loops.
fn nodes(expr: &IdedExpr) -> u64 {
    1 + match &expr.expr {
        Expr::Comprehension(of) => nodes(&of.iter_range) + nodes(&of.accu_init) + nodes(&of.result),
        _ => children(expr).into_iter().map(nodes).sum(),
    }
}

/// So many evaluations are in each other when this one is at its deepest.
pub(super) fn depth(expr: &IdedExpr) -> usize {
    1 + children(expr).into_iter().map(depth).max().unwrap_or(0)
}

fn children(expr: &IdedExpr) -> Vec<&IdedExpr> {
    match &expr.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(of) => {
            vec![&of.iter_range, &of.accu_init, &of.loop_cond, &of.loop_step, &of.result]
        }
        Expr::Select(select) => vec![&select.operand],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| parts(&entry.expr)).collect(),
        Expr::Struct(_) | Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
    }
}

fn parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        EntryExpr::StructField(field) => vec![&field.value],
    }
}

thread_local! {
    /// The steps that the evaluation on this thread has left; nothing if it has spent them.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Has what this thread evaluates next begin with so many steps.
pub(super) fn begin(steps: u64) {
    LEFT.set(Some(steps));
}

/// The steps that are left; nothing if more were needed than there were.
pub(super) fn left() -> Option<u64> {
    LEFT.get()
}

fn pay(steps: u64) -> Result<(), ExecutionError> {
    LEFT.set(LEFT.get().and_then(|left| left.checked_sub(steps)));
    can_pay()
}

fn can_pay() -> Result<(), ExecutionError> {
    let spent = || ExecutionError::function_error("match", "it takes too many steps");
    LEFT.get().map(drop).ok_or_else(spent)
}

/// The size of a value in steps.
fn weight(value: &dyn Val) -> u64 {
    let bytes = |length: usize| 1 + (length / BYTES_A_STEP) as u64;
    if let Some(text) = value.downcast_ref::<CelString>() {
        bytes(text.inner().len())
    } else if let Some(list) = value.downcast_ref::<CelList>() {
        1 + list.inner().iter().map(|item| weight(item.as_ref())).sum::<u64>()
    } else if let Some(map) = value.downcast_ref::<CelMap>() {
        let members = map.inner().iter();
        1 + members.map(|(key, value)| weight(key.inner()) + weight(value.as_ref())).sum::<u64>()
    } else if let Some(some) = value.downcast_ref::<CelBytes>() {
        bytes(some.inner().len())
    } else {
        1
    }
}

/// CEL's standard functions, and those that the check puts in.
pub(super) fn environment() -> Env {
    let mut env = Env::stdlib();
    let functions: [(_, _, Function); 3] =
        [(WEIGH, 1, weigh), (LOOP, 2, begin_loop), (LABEL, 2, label)];
    for (name, args, function) in functions {
        // They have names of their own, so that none is declared twice.
        let _ = env.add_overload(name, name, (0..args).map(|_| DYN_TYPE).collect(), function);
    }
    env
}

type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// Takes the operands that the check gave a function.
fn operands<'b, 'v, const N: usize>(
    args: Vec<CowVal<'b, 'v>>,
) -> Result<[CowVal<'b, 'v>; N], ExecutionError> {
    let miscounted = |args: Vec<_>| ExecutionError::invalid_argument_count(N, args.len());
    args.try_into().map_err(miscounted)
}

fn weigh<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    can_pay()?;
    let [value] = operands(args)?;
    pay(weight(value.as_ref()))?;
    Ok(value)
}

fn begin_loop<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    can_pay()?;
    let [range, turn] = operands(args)?;
    let turns = range.as_sizer().map_or(0, |sized| sized.size().into_inner()).unsigned_abs();
    let turn = turn.downcast_ref::<CelUInt>().map_or(TURN, |turn| *turn.inner());
    pay(weight(range.as_ref()).saturating_add(turns.saturating_mul(turn)))?;
    Ok(range)
}

fn label<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let [labels, key] = operands(args)?;
    let no_map = || ExecutionError::function_error(LABEL, "not a map");
    let found = match labels {
        CowVal::Borrowed(labels) => labels.as_indexer().ok_or_else(no_map)?.get(key.as_ref()),
        CowVal::Owned(labels) => {
            let labels = labels.into_indexer().ok_or_else(no_map)?;
            labels.steal(key.as_ref()).map(CowVal::Owned)
        }
    };
    match found {
        Err(ExecutionError::NoSuchKey(_)) => Ok(CowVal::owned(CelString::from(""))),
        found => found,
    }
}

#[cfg(test)]
mod tests;
