//! "Did you mean": the nearest of a few known names.

/// The known name that a mistyped one most likely stands for, or none if nothing is near.
///
/// Near is one letter wrong in a short name, up to three in a long one. Letter case does not
/// count, and two letters swapped count once: those are what fingers do.
pub(crate) fn nearest<'a>(
    typed: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let folded = typed.to_ascii_lowercase();
    let limit = match typed.chars().count() {
        0..5 => 1,
        5..7 => 2,
        _ => 3,
    };
    known
        .into_iter()
        .map(|name| (distance(&folded, &name.to_ascii_lowercase()), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// A hint at the known name that a mistyped one stands for, or else the `other` one.
pub(crate) fn did_you_mean<'a>(
    typed: &str,
    known: impl IntoIterator<Item = &'a str>,
    other: impl FnOnce() -> String,
) -> String {
    nearest(typed, known).map_or_else(other, |near| format!("did you mean `{near}`?"))
}

/// The same, or else all names, as "`what` are …".
pub(crate) fn one_of<'a>(
    typed: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
    what: &str,
) -> String {
    did_you_mean(typed, known.clone(), || {
        let names: Vec<_> = known.into_iter().map(|name| format!("`{name}`")).collect();
        format!("{what} are {}", names.join(", "))
    })
}

/// Optimal string alignment: insertions, deletions, replacements and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // A name much longer than any known one is no near miss; this also bounds the table.
    if a.len().abs_diff(b.len()) > 3 {
        return usize::MAX;
    }
    let mut before_last = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                let swapped: &Vec<usize> = &before_last;
                best = best.min(swapped[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_are_found_and_far_ones_are_not() {
        let keys = ["brokers", "topic", "tls", "sasl", "maxAttempts"];
        for (typed, meant) in [
            ("broker", Some("brokers")),
            ("brookerz", Some("brokers")),
            ("borkers", Some("brokers")),
            ("Topic", Some("topic")),
            ("maxattempts", Some("maxAttempts")),
            ("max_attempts", Some("maxAttempts")),
            ("password", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, keys), meant, "{typed}");
        }
    }
}
