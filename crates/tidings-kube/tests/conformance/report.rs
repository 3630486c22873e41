//! The counts, per kind and all told.

use std::collections::BTreeMap;

use super::vector::Vector;

/// What became of a vector.
pub(crate) enum Verdict {
    Passed,
    /// With the heading of the reason.
    OnPurpose(&'static str),
    Failed(String),
    NotDriven,
}

#[derive(Default)]
struct Counts {
    passed: usize,
    on_purpose: usize,
    failed: usize,
    not_driven: usize,
}

impl Counts {
    fn all(&self) -> usize {
        self.passed + self.on_purpose + self.failed + self.not_driven
    }
}

#[derive(Default)]
pub(crate) struct Report {
    kinds: BTreeMap<String, Counts>,
    total: Counts,
}

impl Report {
    pub(crate) fn add(&mut self, vector: &Vector, verdict: &Verdict) {
        let Vector { kind, name, .. } = vector;
        match verdict {
            Verdict::Passed | Verdict::NotDriven => {}
            Verdict::OnPurpose(reason) => println!("differs on purpose: {kind} {name}: {reason}"),
            Verdict::Failed(why) => println!("FAILED: {kind} {name}: {why}"),
        }
        for counts in [self.kinds.entry(kind.clone()).or_default(), &mut self.total] {
            match verdict {
                Verdict::Passed => counts.passed += 1,
                Verdict::OnPurpose(_) => counts.on_purpose += 1,
                Verdict::Failed(_) => counts.failed += 1,
                Verdict::NotDriven => counts.not_driven += 1,
            }
        }
    }

    /// No failure, and something was run at all.
    pub(crate) fn good(&self) -> bool {
        self.total.failed == 0 && self.total.all() > 0
    }

    pub(crate) fn print(&self) {
        if self.total.all() == 0 {
            println!("no vector was found");
        }
        for (kind, counts) in &self.kinds {
            print_line(&format!("{kind:>10}: {}", counts.all()), counts);
        }
        print_line(&self.total.all().to_string(), &self.total);
    }
}

fn print_line(head: &str, counts: &Counts) {
    println!(
        "{head} vectors: {} passed, {} differ on purpose, {} failed, {} not driven",
        counts.passed, counts.on_purpose, counts.failed, counts.not_driven
    );
}
