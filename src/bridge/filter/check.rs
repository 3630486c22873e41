//! The static check of an expression, and its rewriting for fast evaluation.
//!
//! Every name is resolved and every operator typed as far as that can be before an event is seen.
//! On the way each path into the variables (`event.involvedObject.kind`) is replaced by a slot,
//! so that evaluation looks up one number instead of walking maps, and each `matches` by a
//! function with its regular expression compiled already.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators,
};
use regex::{Regex, RegexBuilder};

use super::{
    meter,
    rules::{function, operator},
    types::Type,
};
use crate::{
    event::{Field, Shape},
    suggest::{nearest, one_of},
};

/// Deeper expressions are refused: evaluation recurses, on the stack of a worker thread.
const MAX_DEPTH: usize = 48;
/// So many loops may be nested: each multiplies the steps by the length of its list.
const MAX_LOOPS: usize = 2;
/// A compiled regular expression may take so much memory.
const MAX_REGEX_BYTES: usize = 1 << 20;

/// Why an expression is refused, at one of its nodes.
#[derive(Debug)]
pub(super) struct Fault {
    /// The node, and how many bytes from its token the culprit starts.
    pub(super) at: (u64, isize),
    pub(super) what: String,
    pub(super) hint: Option<String>,
}

impl Fault {
    pub(super) fn new(id: u64, what: impl Into<String>) -> Self {
        Self { at: (id, 0), what: what.into(), hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// At the name behind the dot of a selection.
    fn behind_dot(mut self) -> Self {
        self.at.1 = 1;
        self
    }

    /// At the name before the parenthesis of a call.
    fn before_parenthesis(mut self, name: &str) -> Self {
        self.at.1 = 0isize.saturating_sub_unsigned(name.len());
        self
    }
}

/// What an expression asks of an event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slot {
    /// The members on the way from the envelope.
    pub(super) path: Vec<String>,
    pub(super) asks: Asks,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Asks {
    /// The value itself.
    Value(Shape),
    /// Whether it is there, and not null.
    Presence,
}

/// Collects what the expression needs while it is checked.
pub(super) struct Checker {
    variables: &'static [Field],
    pub(super) slots: Vec<Slot>,
    pub(super) regexes: Vec<Regex>,
    /// Variables of the loops around the node under check.
    locals: Vec<(String, Type)>,
    loops: usize,
}

/// The name under which a slot is looked up; no CEL identifier starts so.
pub(super) fn slot_name(index: usize) -> String {
    format!("#{index}")
}

/// The name under which a compiled `matches` is called.
pub(super) fn regex_name(index: usize) -> String {
    format!("@matches{index}")
}

impl Checker {
    /// One of expressions over these variables.
    pub(super) fn new(variables: &'static [Field]) -> Self {
        Self { variables, slots: Vec::new(), regexes: Vec::new(), locals: Vec::new(), loops: 0 }
    }

    /// Checks a whole expression: it must be a boolean.
    pub(super) fn run(&mut self, expr: &mut IdedExpr) -> Result<(), Fault> {
        let type_ = self.check(expr, 0)?;
        // No node has the id 0: it is the expression as a whole.
        if Type::Bool.fits(&type_) {
            let deep = meter::depth(expr) > MAX_DEPTH + 1;
            let fault = || too_deep(0).hint("loops that follow each other count twice");
            return if deep { Err(fault()) } else { Ok(()) };
        }
        Err(Fault::new(0, format!("the expression is {}, not a boolean", type_.name()))
            .hint("compare it with something, for instance by `==`"))
    }

    fn check(&mut self, expr: &mut IdedExpr, depth: usize) -> Result<Type, Fault> {
        let id = expr.id;
        if depth > MAX_DEPTH {
            return Err(too_deep(id));
        }
        if let Some((path, shape)) = self.path(expr)? {
            let ident = self.slot(path, Asks::Value(shape));
            expr.expr = Expr::Ident(ident);
            return Ok(shape.into());
        }
        match &mut expr.expr {
            Expr::Ident(name) => self.local(name).ok_or_else(|| self.unknown_variable(id, name)),
            Expr::Literal(literal) => Ok(literal_type(literal)),
            Expr::Select(select) if select.test => {
                if let Some((mut path, shape)) = self.path(&select.operand)?
                    && shape != Shape::Any
                {
                    // The path already resolves when only read, so resolving it again with the
                    // tested field cannot fail for another reason than the field.
                    step(id, &path, shape, &select.field).map_err(Fault::behind_dot)?;
                    path.push(select.field.clone());
                    let ident = self.slot(path, Asks::Presence);
                    expr.expr = Expr::Ident(ident);
                } else {
                    self.select(id, select, depth)?;
                }
                Ok(Type::Bool)
            }
            Expr::Select(select) => self.select(id, select, depth),
            Expr::List(list) => {
                let mut element: Option<Type> = None;
                for item in &mut list.elements {
                    let next = self.check(item, depth + 1)?;
                    meter::meter_value(item, &next);
                    element = Some(match element {
                        Some(element) => element.join(&next),
                        None => next,
                    });
                }
                Ok(Type::List(Box::new(element.unwrap_or(Type::Any))))
            }
            Expr::Map(map) => {
                for entry in &mut map.entries {
                    if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                        for part in [&mut entry.key, &mut entry.value] {
                            let type_ = self.check(part, depth + 1)?;
                            meter::meter_value(part, &type_);
                        }
                    }
                }
                Ok(Type::Map(Box::new(Type::Any)))
            }
            Expr::Comprehension(comprehension) => self.comprehension(id, comprehension, depth),
            Expr::Call(_) => self.call(expr, depth),
            Expr::Struct(_) | Expr::Unspecified => {
                Err(Fault::new(id, "messages cannot be made here"))
            }
        }
    }

    /// The path that an expression spells from a variable, with what it leads to: `event.type`,
    /// `event["type"]`, `event.metadata.labels.app`. `None` for every other expression.
    fn path(&self, expr: &IdedExpr) -> Result<Option<(Vec<String>, Shape)>, Fault> {
        let (operand, name, behind_dot) = match &expr.expr {
            Expr::Ident(name) if self.local(name).is_none() => {
                let variable = self.variables.iter().find(|variable| variable.name == name);
                return Ok(variable.map(|variable| (vec![name.clone()], variable.shape)));
            }
            Expr::Select(SelectExpr { operand, field, test: false }) => (&**operand, field, true),
            Expr::Call(CallExpr { func_name, target: None, args })
                if func_name == operators::INDEX =>
            {
                match args.as_slice() {
                    [operand, IdedExpr { expr: Expr::Literal(LiteralValue::String(key)), .. }] => {
                        let Some((path, shape)) = self.path(operand)? else { return Ok(None) };
                        if shape == Shape::Any {
                            return Ok(None);
                        }
                        return extend(expr.id, path, shape, key.inner()).map(Some);
                    }
                    _ => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        let Some((path, shape)) = self.path(operand)? else { return Ok(None) };
        if shape == Shape::Any {
            return Ok(None);
        }
        let extended = extend(expr.id, path, shape, name);
        extended.map(Some).map_err(|fault| if behind_dot { fault.behind_dot() } else { fault })
    }

    fn unknown_variable(&self, id: u64, name: &str) -> Fault {
        let fault = Fault::new(id, format!("there is no variable `{name}`"));
        let names = || self.variables.iter().map(|variable| variable.name);
        let is_field = |variable: &&Field| match variable.shape {
            Shape::Object(fields) => fields.iter().any(|field| field.name == name),
            _ => false,
        };
        if let Some(variable) = self.variables.iter().find(is_field) {
            fault.hint(format!("write `{}.{name}`", variable.name))
        } else if let Some(near) = nearest(name, names()) {
            fault.hint(format!("did you mean `{near}`?"))
        } else {
            let names: Vec<_> = names().map(|name| format!("`{name}`")).collect();
            fault.hint(format!("the variables are {}; texts stand in quotes", names.join(", ")))
        }
    }

    fn slot(&mut self, path: Vec<String>, asks: Asks) -> String {
        let slot = Slot { path, asks };
        let index = self.slots.iter().position(|known| *known == slot).unwrap_or_else(|| {
            self.slots.push(slot);
            self.slots.len() - 1
        });
        slot_name(index)
    }

    fn local(&self, name: &str) -> Option<Type> {
        self.locals.iter().rev().find(|(local, _)| local == name).map(|(_, type_)| type_.clone())
    }

    /// A selection on something that is no path: a variable of a loop, or a computed map.
    fn select(&mut self, id: u64, select: &mut SelectExpr, depth: usize) -> Result<Type, Fault> {
        match self.check(&mut select.operand, depth + 1)? {
            Type::Object(fields) => find_field(id, fields, &select.field)
                .map(|field| field.shape.into())
                .map_err(Fault::behind_dot),
            Type::Map(value) => Ok(*value),
            Type::Any => Ok(Type::Any),
            other => {
                let what = format!("{} has no fields, so no `{}`", other.name(), select.field);
                Err(Fault::new(id, what).behind_dot())
            }
        }
    }

    fn comprehension(
        &mut self,
        id: u64,
        comprehension: &mut ComprehensionExpr,
        depth: usize,
    ) -> Result<Type, Fault> {
        if self.loops == MAX_LOOPS {
            return Err(Fault::new(id, format!("loops are nested more than {MAX_LOOPS} deep")));
        }
        let element = match self.check(&mut comprehension.iter_range, depth + 1)? {
            Type::List(element) => *element,
            // A loop over a map goes over its keys.
            Type::Map(_) | Type::Object(_) => Type::Text,
            Type::Any => Type::Any,
            other => {
                let what = format!("{} cannot be looped over", other.name());
                return Err(Fault::new(comprehension.iter_range.id, what));
            }
        };
        let start = self.check(&mut comprehension.accu_init, depth + 1)?;
        let locals = self.locals.len();
        self.loops += 1;
        self.locals.push((comprehension.iter_var.clone(), element));
        if let Some(second) = &comprehension.iter_var2 {
            self.locals.push((second.clone(), Type::Any));
        }
        let accumulator = self.locals.len();
        self.locals.push((comprehension.accu_var.clone(), start));
        self.check(&mut comprehension.loop_cond, depth + 1)?;
        let step = self.check(&mut comprehension.loop_step, depth + 1)?;
        if let Some((_, type_)) = self.locals.get_mut(accumulator) {
            *type_ = step;
        }
        let result = self.check(&mut comprehension.result, depth + 1)?;
        self.locals.truncate(locals);
        self.loops -= 1;
        meter::meter_loop(comprehension);
        Ok(result)
    }

    fn call(&mut self, expr: &mut IdedExpr, depth: usize) -> Result<Type, Fault> {
        let id = expr.id;
        let Expr::Call(call) = &mut expr.expr else { return Ok(Type::Any) };
        if call.func_name == "matches" {
            return self.matches(expr, depth);
        }
        let mut types = Vec::with_capacity(call.args.len() + 1);
        if let Some(target) = &mut call.target {
            // The message about `optional.of(…)` is about the function, not about a variable.
            let spelt = matches!(&target.expr, Expr::Ident(name) if name == "optional");
            types.push(if spelt { Type::Any } else { self.check(target, depth + 1)? });
        }
        for arg in &mut call.args {
            types.push(self.check(arg, depth + 1)?);
        }
        let made =
            if call.target.is_none() && !call.func_name.starts_with(|c: char| c.is_alphabetic()) {
                operator(id, &call.func_name, &types)?
            } else {
                function(id, &call.func_name, call.target.is_some(), &types)
                    .map_err(|fault| fault.before_parenthesis(&call.func_name))?
            };
        meter::meter_call(call, &types, self.loops > 0);
        if call.func_name == operators::INDEX && types[0] == Shape::Texts.into() {
            meter::label_or_empty(call);
        }
        Ok(made)
    }

    /// `text.matches("…")` and `matches(text, "…")`: the pattern is compiled now.
    fn matches(&mut self, expr: &mut IdedExpr, depth: usize) -> Result<Type, Fault> {
        let id = expr.id;
        let Expr::Call(call) = &mut expr.expr else { return Ok(Type::Any) };
        let mut args: Vec<IdedExpr> =
            call.target.take().map(|target| *target).into_iter().collect();
        args.append(&mut call.args);
        let Ok([mut text, pattern]) = <[IdedExpr; 2]>::try_from(args) else {
            return Err(Fault::new(id, "`matches` takes a text and a pattern")
                .hint(r#"write `event.reason.matches("^Failed")`"#));
        };
        let type_ = self.check(&mut text, depth + 1)?;
        if !type_.fits(&Type::Text) {
            return Err(Fault::new(
                id,
                format!("`matches` works on a text, not on {}", type_.name()),
            ));
        }
        if self.loops > 0 {
            meter::meter_value(&mut text, &type_);
        }
        let Expr::Literal(LiteralValue::String(literal)) = &pattern.expr else {
            return Err(Fault::new(pattern.id, "the pattern of `matches` must be a literal text")
                .hint("it is compiled once, not for each event"));
        };
        let regex = RegexBuilder::new(literal.inner())
            .size_limit(MAX_REGEX_BYTES)
            .dfa_size_limit(MAX_REGEX_BYTES)
            .build()
            .map_err(|error| {
                // The last line says what is wrong, those above draw the pattern.
                let text = error.to_string();
                let reason = text.lines().last().unwrap_or("").trim_start_matches("error: ");
                Fault::new(pattern.id, format!("not a regular expression: {reason}"))
            })?;
        self.regexes.push(regex);
        expr.expr = Expr::Call(CallExpr {
            func_name: regex_name(self.regexes.len() - 1),
            target: None,
            args: vec![text],
        });
        Ok(Type::Bool)
    }
}

fn too_deep(id: u64) -> Fault {
    Fault::new(id, format!("the expression is nested more than {MAX_DEPTH} deep"))
}

fn literal_type(literal: &LiteralValue) -> Type {
    match literal {
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Bytes(_) => Type::Bytes,
        LiteralValue::Double(_) => Type::Double,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::Null => Type::Null,
        LiteralValue::String(_) => Type::Text,
        LiteralValue::UInt(_) => Type::Uint,
    }
}

fn extend(
    id: u64,
    mut path: Vec<String>,
    shape: Shape,
    name: &str,
) -> Result<(Vec<String>, Shape), Fault> {
    let shape = step(id, &path, shape, name)?;
    path.push(name.to_owned());
    Ok((path, shape))
}

/// What the member `name` of what stands at `path` is.
fn step(id: u64, path: &[String], shape: Shape, name: &str) -> Result<Shape, Fault> {
    match shape {
        Shape::Object(fields) => find_field(id, fields, name).map_or_else(
            |mut fault| {
                fault.what = format!("{} in `{}`", fault.what, path.join("."));
                // What the Event says of it, it says there.
                let said = ["kind", "name", "namespace", "uid", "apiVersion"].contains(&name);
                if said && (path == ["object"] || path == ["event"]) {
                    fault.hint = Some(format!("write `event.involvedObject.{name}`"));
                }
                Err(fault)
            },
            |field| Ok(field.shape),
        ),
        Shape::Texts => Ok(Shape::Text),
        _ => {
            let whole = path.join(".");
            let type_ = Type::from(shape).name();
            let fault = Fault::new(id, format!("`{whole}` is {type_}, it has no `{name}`"));
            Err(match name {
                "length" | "size" | "len" => fault.hint(format!("write `size({whole})`")),
                _ => fault,
            })
        }
    }
}

fn find_field(id: u64, fields: &'static [Field], name: &str) -> Result<&'static Field, Fault> {
    if let Some(field) = fields.iter().find(|field| field.name == name) {
        return Ok(field);
    }
    let fault = Fault::new(id, format!("there is no field `{name}`"));
    Err(if name == "managedFields" {
        fault.hint("managed fields are not kept")
    } else {
        fault.hint(one_of(name, fields.iter().map(|field| field.name), "the fields here"))
    })
}
