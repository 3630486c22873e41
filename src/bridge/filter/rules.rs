//! Which operators and functions there are, what they work on and what they make.

use cel::common::ast::operators;

use super::{check::Fault, types::Type};
use crate::suggest::did_you_mean;

/// Checks an operator and answers what it makes.
pub(super) fn operator(id: u64, name: &str, types: &[Type]) -> Result<Type, Fault> {
    let refuse = |verb: &str| {
        let operands: Vec<_> = types.iter().map(Type::name).collect();
        Fault::new(id, format!("cannot {verb} {}", operands.join(" and ")))
    };
    match (name, types) {
        (operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT, _) => {
            match types.iter().find(|type_| !type_.fits(&Type::Bool)) {
                Some(other) => {
                    let what = format!("expected a boolean, found {}", other.name());
                    Err(Fault::new(id, what))
                }
                None => Ok(Type::Bool),
            }
        }
        (operators::NOT_STRICTLY_FALSE, _) => Ok(Type::Bool),
        (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => {
            if left.comparable(right) {
                Ok(Type::Bool)
            } else {
                Err(refuse("compare").hint("they are never equal"))
            }
        }
        (
            operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS,
            [left, right],
        ) => {
            if left.ordered(right) {
                Ok(Type::Bool)
            } else {
                Err(refuse("order"))
            }
        }
        (operators::IN, [needle, hay]) => match hay {
            Type::List(element) if needle.comparable(element) => Ok(Type::Bool),
            Type::Map(_) | Type::Object(_) if needle.fits(&Type::Text) => Ok(Type::Bool),
            Type::Any => Ok(Type::Bool),
            Type::Text => Err(Fault::new(id, "expected a list or a map behind `in`, found a text")
                .hint("write `text.contains(part)`")),
            _ => Err(Fault::new(id, format!("{} is never in {}", needle.name(), hay.name()))),
        },
        (operators::CONDITIONAL, [condition, yes, no]) => {
            if condition.fits(&Type::Bool) {
                Ok(yes.clone().join(no))
            } else {
                Err(Fault::new(id, format!("the condition is {}", condition.name())))
            }
        }
        (operators::NEGATE, [operand]) => {
            Type::arithmetic(operators::SUBSTRACT, operand, operand).ok_or_else(|| refuse("negate"))
        }
        (operators::INDEX, [container, key]) => match container {
            Type::List(element) if key.fits(&Type::Int) => Ok((**element).clone()),
            Type::Map(value) if key.fits(&Type::Text) => Ok((**value).clone()),
            Type::Object(_) if key.fits(&Type::Text) => Ok(Type::Any),
            Type::Any => Ok(Type::Any),
            _ => Err(Fault::new(
                id,
                format!("{} cannot be indexed with {}", container.name(), key.name()),
            )),
        },
        (
            operators::ADD
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO,
            [left, right],
        ) => Type::arithmetic(name, left, right).ok_or_else(|| refuse("calculate with")),
        _ => Err(Fault::new(id, "this operator is not available")),
    }
}

const METHODS: &[&str] = &["contains", "startsWith", "endsWith", "matches", "size"];
const FUNCTIONS: &[&str] = &["size", "matches", "string", "int", "uint", "double", "bool"];
const MACROS: &[&str] = &["has", "all", "exists", "exists_one", "map", "filter"];

/// Checks a function or method and answers what it returns. A method's target is the first type.
pub(super) fn function(id: u64, name: &str, method: bool, types: &[Type]) -> Result<Type, Fault> {
    let misused = |usage: &str| {
        let given: Vec<_> = types.iter().map(Type::name).collect();
        let what = if given.is_empty() {
            format!("`{name}` is given nothing")
        } else {
            format!("`{name}` does not work on {}", given.join(" and "))
        };
        Fault::new(id, what).hint(format!("write `{usage}`"))
    };
    let text = |type_: &Type| type_.fits(&Type::Text);
    match (name, method, types) {
        ("contains" | "startsWith" | "endsWith", true, [a, b]) if text(a) && text(b) => {
            Ok(Type::Bool)
        }
        ("contains" | "startsWith" | "endsWith", _, _) => {
            Err(misused(&format!("text.{name}(\"part\")")))
        }
        (
            "size",
            _,
            [
                Type::Text
                | Type::Bytes
                | Type::List(_)
                | Type::Map(_)
                | Type::Object(_)
                | Type::Any,
            ],
        )
        | ("int", false, [_]) => Ok(Type::Int),
        ("size", _, _) => Err(misused("size(text, list or map)")),
        ("string", false, [_]) => Ok(Type::Text),
        ("uint", false, [_]) => Ok(Type::Uint),
        ("double", false, [_]) => Ok(Type::Double),
        ("bool", false, [_]) => Ok(Type::Bool),
        ("string" | "int" | "uint" | "double" | "bool", _, _) => {
            Err(misused(&format!("{name}(value)")))
        }
        ("has", _, _) => Err(misused("has(event.series)")),
        ("all" | "exists" | "exists_one" | "map" | "filter", _, _) => {
            Err(misused(&format!("list.{name}(item, condition)")))
        }
        _ => {
            let known = METHODS.iter().chain(FUNCTIONS).chain(MACROS).copied();
            let all = || {
                let functions = FUNCTIONS[2..].join(", ");
                format!("there are {}, {functions} and {}", METHODS.join(", "), MACROS.join(", "))
            };
            let fault = Fault::new(id, format!("there is no function `{name}`"));
            Err(fault.hint(did_you_mean(name, known, all)))
        }
    }
}
