//! Where the library's default differs from client-go on purpose. Each has its reason in
//! `docs/conformance.md`.

use super::{compare::Difference, vector::Vector};

/// A difference by design: which vectors and steps it covers, and why.
struct Purpose {
    kind: &'static str,
    covers: fn(&Vector, &Difference) -> bool,
    /// The heading of its reason in `docs/conformance.md`.
    reason: &'static str,
}

const PURPOSES: [Purpose; 0] = [];

/// The reason for a difference, for vectors of what client-go does by accident only.
pub(crate) fn of(vector: &Vector, difference: &Difference) -> Option<&'static str> {
    if !vector.is_quirk() {
        return None;
    }
    PURPOSES
        .iter()
        .find(|purpose| purpose.kind == vector.kind && (purpose.covers)(vector, difference))
        .map(|purpose| purpose.reason)
}
