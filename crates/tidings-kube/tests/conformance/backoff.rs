//! `backoff`: the waits of the reflector's back-off.

use std::time::Duration;

use serde_json::{Value, json};
use tidings_kube::reflector::{Backoff, BackoffManager};
use tokio::time::advance;

use super::{
    compare::Difference,
    vector::{Vector, virtual_time},
};

pub(crate) fn drive(vector: &Vector) -> Result<Vec<Value>, String> {
    let number = |member: &str| {
        vector.options[member].as_f64().ok_or_else(|| format!("no option {member:?}"))
    };
    let ms = |member: &str| number(member).map(|ms| Duration::from_secs_f64(ms / 1e3));
    let backoff = Backoff {
        initial: ms("init_ms")?,
        max: ms("max_ms")?,
        factor: number("factor")?,
        jitter: number("jitter")?,
        reset: ms("reset_ms")?,
    };
    virtual_time(async {
        let mut backoff = BackoffManager::new(backoff);
        let mut waits = Vec::new();
        for step in &vector.steps {
            let wait = backoff.next_wait();
            waits.push(json!(wait.as_secs_f64() * 1e3));
            // Until the next call the caller waits, unless something else is said.
            let quiet = step["then_quiet_ms"].as_u64().map(Duration::from_millis);
            advance(quiet.unwrap_or(wait)).await;
        }
        Ok(waits)
    })
}

/// Each wait is in its range; a range of no width is an exact wait.
pub(crate) fn compare(expected: &[Value], actual: &[Value]) -> Result<(), Difference> {
    for (step, (expected, actual)) in expected.iter().zip(actual).enumerate() {
        let (min, below) = (expected["min_ms"].as_f64(), expected["below_ms"].as_f64());
        let (Some(min), Some(below)) = (min, below) else { continue };
        let wait = actual.as_f64().unwrap();
        let fits =
            if min < below { (min..below).contains(&wait) } else { (wait - min).abs() < 1e-6 };
        if !fits {
            let what = format!("expected {expected}, waited {wait} ms");
            return Err(Difference { step: Some(step), what });
        }
    }
    if expected.len() != actual.len() {
        let what = format!("expected {} waits, got {}", expected.len(), actual.len());
        return Err(Difference { step: None, what });
    }
    Ok(())
}
