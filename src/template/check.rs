//! The static check of a template: every name in it is known, in every branch.

use minijinja::{
    Environment, Error, context,
    machinery::{
        ast::{BinOpKind, Call, CallArg, CompareOpKind, Expr, Spanned, Stmt},
        parse,
    },
    syntax::SyntaxConfig,
};

use super::{Escape, TemplateError};
use crate::{
    event::{Field, Shape},
    suggest::{did_you_mean, one_of},
};

/// Checks a template over these variables.
pub(super) fn check(
    source: &str,
    escape: Escape,
    variables: &'static [Field],
    environment: &Environment<'_>,
) -> Result<(), TemplateError> {
    let tree =
        parse(source, "", SyntaxConfig::default()).map_err(|error| syntax(source, &error))?;
    Checker { escape, variables, environment, locals: Vec::new() }.statement(&tree)
}

/// A template that cannot be parsed.
pub(super) fn syntax(source: &str, error: &Error) -> TemplateError {
    let offset = error.range().map_or(0, |range| range.start).min(source.len());
    let offset = (0..=offset).rev().find(|at| source.is_char_boundary(*at)).unwrap_or(0);
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    // In backticks as a whole: the words may quote the template, which may be a secret.
    let detail = detail.replace('`', "'");
    let what = format!("expected a template, found a mistake: `{detail}`");
    TemplateError { what, hint: None, offset }
}

struct Checker<'a> {
    escape: Escape,
    variables: &'static [Field],
    environment: &'a Environment<'a>,
    /// Names that the template gives to values, with the shapes of them.
    locals: Vec<(String, Shape)>,
}

type Checked<T = ()> = Result<T, TemplateError>;

fn fault<T>(offset: u32, what: String, hint: impl Into<Option<String>>) -> Checked<T> {
    Err(TemplateError { what, hint: hint.into(), offset: offset as usize })
}

impl Checker<'_> {
    fn statement(&mut self, statement: &Stmt<'_>) -> Checked {
        match statement {
            Stmt::Template(all) => self.statements(&all.children),
            Stmt::EmitExpr(emit) => self.expr(&emit.expr).map(drop),
            Stmt::EmitRaw(_) => Ok(()),
            Stmt::ForLoop(each) => {
                let element = match self.expr(&each.iter)? {
                    Shape::ObjectList(fields) => Shape::Object(fields),
                    // A loop over a map goes over its keys.
                    Shape::TextList | Shape::Texts | Shape::Object(_) => Shape::Text,
                    Shape::Any | Shape::Text | Shape::Int | Shape::Bool => Shape::Any,
                };
                let outer = self.locals.len();
                self.assign(&each.target, element);
                self.locals.push(("loop".to_owned(), Shape::Any));
                self.optional(each.filter_expr.as_ref())?;
                self.statements(&each.body)?;
                self.locals.truncate(outer);
                self.statements(&each.else_body)
            }
            Stmt::IfCond(either) => {
                self.expr(&either.expr)?;
                self.statements(&either.true_body)?;
                self.statements(&either.false_body)
            }
            Stmt::WithBlock(with) => {
                let outer = self.locals.len();
                for (target, value) in &with.assignments {
                    let shape = self.expr(value)?;
                    self.assign(target, shape);
                }
                self.statements(&with.body)?;
                self.locals.truncate(outer);
                Ok(())
            }
            Stmt::Set(set) => {
                let shape = self.expr(&set.expr)?;
                self.assign(&set.target, shape);
                Ok(())
            }
            Stmt::SetBlock(set) => {
                self.no_block("a block of `set`", set.span().start_offset)?;
                self.optional(set.filter.as_ref())?;
                self.statements(&set.body)?;
                self.assign(&set.target, Shape::Any);
                Ok(())
            }
            Stmt::AutoEscape(block) => fault(
                block.span().start_offset,
                "expected another block, found `autoescape`: values are always escaped for the \
                 place that the template is for"
                    .to_owned(),
                "remove it".to_owned(),
            ),
            Stmt::FilterBlock(block) => {
                self.no_block("a block of `filter`", block.span().start_offset)?;
                self.expr(&block.filter)?;
                self.statements(&block.body)
            }
            Stmt::Do(statement) => self.call(&statement.call).map(drop),
        }
    }

    fn statements(&mut self, all: &[Stmt<'_>]) -> Checked {
        all.iter().try_for_each(|statement| self.statement(statement))
    }

    /// Refuses a block whose text would be escaped within it, and once more as a whole.
    fn no_block(&self, block: &str, offset: u32) -> Checked {
        if self.escape == Escape::Plain {
            return Ok(());
        }
        let hint = "join texts by `~`: `{% set x = event.reason ~ \": \" ~ event.message %}`";
        fault(offset, format!("expected a value, found {block}"), hint.to_owned())
    }

    /// Names that are values of a shape from here on.
    fn assign(&mut self, target: &Expr<'_>, shape: Shape) {
        match target {
            Expr::Var(name) => self.locals.push((name.id.to_owned(), shape)),
            Expr::List(list) => list.items.iter().for_each(|one| self.assign(one, Shape::Any)),
            Expr::Tuple(tuple) => tuple.items.iter().for_each(|one| self.assign(one, Shape::Any)),
            _ => {}
        }
    }

    fn optional(&self, expr: Option<&Expr<'_>>) -> Checked {
        expr.map_or(Ok(()), |expr| self.expr(expr).map(drop))
    }

    fn all<'a>(&self, exprs: impl IntoIterator<Item = &'a Expr<'a>>) -> Checked<Shape> {
        exprs.into_iter().try_for_each(|expr| self.expr(expr).map(drop))?;
        Ok(Shape::Any)
    }

    fn args(&self, args: &[CallArg<'_>]) -> Checked<Shape> {
        for arg in args {
            match arg {
                CallArg::Pos(expr)
                | CallArg::Kwarg(_, expr)
                | CallArg::PosSplat(expr)
                | CallArg::KwargSplat(expr) => self.expr(expr)?,
            };
        }
        Ok(Shape::Any)
    }

    /// The shape of a value, which is `Any` where it is known only when it is rendered.
    fn expr(&self, expr: &Expr<'_>) -> Checked<Shape> {
        match expr {
            Expr::Var(name) => self.variable(name.id, name.span().start_offset),
            Expr::Const(_) => Ok(Shape::Any),
            Expr::Slice(slice) => {
                self.expr(&slice.expr)?;
                for part in [&slice.start, &slice.stop, &slice.step] {
                    self.optional(part.as_ref())?;
                }
                Ok(Shape::Any)
            }
            Expr::UnaryOp(unary) => self.all([&unary.expr]),
            Expr::BinOp(binary) => {
                self.expr(&binary.left)?;
                let shape = self.expr(&binary.right)?;
                if matches!(binary.op, BinOpKind::In) {
                    holds(shape, &binary.right)?;
                }
                Ok(Shape::Any)
            }
            Expr::Compare(compare) => {
                self.expr(&compare.expr)?;
                for operand in &compare.ops {
                    let shape = self.expr(&operand.expr)?;
                    if matches!(operand.op, CompareOpKind::In | CompareOpKind::NotIn) {
                        holds(shape, &operand.expr)?;
                    }
                }
                Ok(Shape::Any)
            }
            Expr::IfExpr(either) => {
                self.optional(either.false_expr.as_ref())?;
                self.all([&either.test_expr, &either.true_expr])
            }
            Expr::Filter(filter) => {
                self.optional(filter.expr.as_ref())?;
                self.known("filter", filter.name, filter.span().start_offset)?;
                self.args(&filter.args)
            }
            Expr::Test(test) => {
                self.expr(&test.expr)?;
                self.known("test", test.name, test.span().start_offset)?;
                if let ("in", [CallArg::Pos(container)]) = (test.name, &*test.args) {
                    holds(self.expr(container)?, container)?;
                }
                self.args(&test.args)
            }
            Expr::GetAttr(get) => {
                let name_at = get.span().end_offset.saturating_sub(get.name.len() as u32);
                member(self.expr(&get.expr)?, get.name, name_at)
            }
            Expr::GetItem(get) => {
                let shape = self.expr(&get.expr)?;
                match &get.subscript_expr {
                    Expr::Const(key) if key.value.as_str().is_some() => member(
                        shape,
                        key.value.as_str().unwrap_or_default(),
                        key.span().start_offset,
                    ),
                    subscript => self.all([subscript]),
                }
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.all(&list.items),
            Expr::Tuple(tuple) => self.all(&tuple.items),
            Expr::Map(map) => self.all(map.keys.iter().chain(&map.values)),
        }
    }

    fn variable(&self, name: &str, offset: u32) -> Checked<Shape> {
        if let Some((_, shape)) = self.locals.iter().rev().find(|(local, _)| local == name) {
            return Ok(*shape);
        }
        if let Some(variable) = self.variables.iter().find(|variable| variable.name == name) {
            return Ok(variable.shape);
        }
        if self.environment.globals().any(|(global, _)| global == name) {
            return Ok(Shape::Any);
        }
        let has_field = |variable: &&Field| match variable.shape {
            Shape::Object(fields) => fields.iter().any(|field| field.name == name),
            _ => false,
        };
        let hint = match self.variables.iter().find(has_field) {
            Some(variable) => format!("write `{}.{name}`", variable.name),
            None => one_of(name, self.variables.iter().map(|v| v.name), "the variables"),
        };
        fault(offset, format!("expected a variable, found `{name}`"), hint)
    }

    /// Checks the name of a filter or test.
    fn known(&self, kind: &str, name: &str, offset: u32) -> Checked {
        let asked = format!("name is {kind}");
        let known = self.environment.compile_expression(&asked);
        let known = known.and_then(|known| known.eval(context! { name }));
        if known.is_ok_and(|known| known.is_true()) {
            return Ok(());
        }
        let hint = match (kind, name) {
            ("filter", "safe" | "e" | "escape") => {
                "remove it: values are always escaped for the place that the template is for"
                    .to_owned()
            }
            ("filter", _) => did_you_mean(name, FILTERS, || {
                "the filters are those of Jinja, without `safe` and `escape`".to_owned()
            }),
            _ => "the tests are those of Jinja".to_owned(),
        };
        fault(offset, format!("expected a {kind}, found `{name}`"), hint)
    }

    fn call(&self, call: &Spanned<Call<'_>>) -> Checked<Shape> {
        match &call.expr {
            Expr::Var(name) => self.variable(name.id, name.span().start_offset)?,
            Expr::GetAttr(get) if matches!(&get.expr, Expr::Var(name) if name.id == "loop") => {
                self.expr(&get.expr)?
            }
            other => {
                let hint = "write a filter: `event.message | lower`".to_owned();
                let what = "expected a filter or a function, found a method".to_owned();
                return fault(other.span().start_offset, what, hint);
            }
        };
        self.args(&call.args)
    }
}

/// Filters that people reach for, for the hint at a mistyped one.
const FILTERS: [&str; 13] = [
    "first",
    "int",
    "items",
    "join",
    "last",
    "length",
    "lower",
    "replace",
    "split",
    "tojson",
    "trim",
    "upper",
    "urlencode",
];

/// Refuses a container which every key is in, for an absent one reads as a text or an object, too.
fn holds(shape: Shape, container: &Expr<'_>) -> Checked {
    if !matches!(shape, Shape::Texts | Shape::Object(_)) {
        return Ok(());
    }
    let what = "expected a text or a list behind `in`, found a map".to_owned();
    let hint = "an absent key reads as \"\": write `event.metadata.labels.app != \"\"`".to_owned();
    fault(container.span().start_offset, what, hint)
}

/// The member of a value.
fn member(shape: Shape, name: &str, offset: u32) -> Checked<Shape> {
    let found = match shape {
        Shape::Any => return Ok(Shape::Any),
        Shape::Texts => return Ok(Shape::Text),
        Shape::Object(fields) => {
            if let Some(field) = fields.iter().find(|field| field.name == name) {
                return Ok(field.shape);
            }
            let hint = one_of(name, fields.iter().map(|field| field.name), "the fields here");
            return fault(offset, format!("expected a field, found `{name}`"), hint);
        }
        Shape::Text => "a text",
        Shape::Int => "a whole number",
        Shape::Bool => "a boolean",
        Shape::TextList | Shape::ObjectList(_) => "a list",
    };
    fault(offset, format!("expected an object before `{name}`, found {found}"), None)
}
