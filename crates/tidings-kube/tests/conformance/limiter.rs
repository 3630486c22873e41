//! `limiter`: the rate limiters of the work queue, with texts for items.

use std::time::Duration;

use serde_json::{Value, json};
use tidings_kube::workqueue::{
    BucketRateLimiter, ItemExponentialFailureRateLimiter, ItemFastSlowRateLimiter,
    MaxOfRateLimiter, RateLimiter, default_controller_rate_limiter,
};

use crate::vector::{Vector, virtual_time};

pub(crate) fn drive(vector: &Vector) -> Result<Vec<Value>, String> {
    virtual_time(async {
        let limiter = limiter(&vector.options)?;
        let mut answers = Vec::new();
        for step in &vector.steps {
            answers.push(play(&*limiter, step).await?);
        }
        Ok(answers)
    })
}

fn limiter(options: &Value) -> Result<Box<dyn RateLimiter<String>>, String> {
    Ok(match options["kind"].as_str() {
        Some("item_exponential") => Box::new(exponential(options)?),
        Some("item_fast_slow") => {
            // Go counts down from any integer; fewer than none is none.
            let attempts = options["fast_attempts"].as_i64().ok_or("no fast_attempts")?;
            let attempts = u32::try_from(attempts.max(0)).map_err(|error| error.to_string())?;
            let (fast, slow) = (millis(options, "fast_ms")?, millis(options, "slow_ms")?);
            Box::new(ItemFastSlowRateLimiter::new(fast, slow, attempts))
        }
        // It has a constructor of its own.
        Some("max_of") if *options == controller_default() => {
            Box::new(default_controller_rate_limiter())
        }
        Some("max_of") => {
            let mut limiters: Vec<Box<dyn RateLimiter<String>>> = Vec::new();
            if let part @ Value::Object(_) = &options["item_exponential"] {
                limiters.push(Box::new(exponential(part)?));
            }
            if let part @ Value::Object(_) = &options["bucket"] {
                limiters.push(Box::new(bucket(part)?));
            }
            Box::new(MaxOfRateLimiter::new(limiters))
        }
        Some("bucket") => Box::new(bucket(options)?),
        _ => return Err(format!("unknown limiter {options}")),
    })
}

fn controller_default() -> Value {
    let (exponential, bucket) =
        (json!({"base_ms": 5, "max_ms": 1_000_000}), json!({"qps": 10, "burst": 100}));
    json!({"kind": "max_of", "item_exponential": exponential, "bucket": bucket})
}

fn exponential(of: &Value) -> Result<ItemExponentialFailureRateLimiter<String>, String> {
    Ok(ItemExponentialFailureRateLimiter::new(millis(of, "base_ms")?, millis(of, "max_ms")?))
}

fn bucket(of: &Value) -> Result<BucketRateLimiter, String> {
    let qps = of["qps"].as_f64().ok_or_else(|| format!("no qps in {of}"))?;
    let burst = u32::try_from(number(of, "burst")?).map_err(|error| error.to_string())?;
    Ok(BucketRateLimiter::new(qps, burst))
}

async fn play(limiter: &dyn RateLimiter<String>, step: &Value) -> Result<Value, String> {
    let item = step["item"].as_str().unwrap_or_default().to_owned();
    Ok(match step["op"].as_str() {
        Some("when") => {
            let delay = u64::try_from(limiter.when(&item).as_nanos());
            json!({ "delay_ns": delay.map_err(|error| error.to_string())? })
        }
        Some("requeues") => json!({ "requeues": limiter.requeues(&item) }),
        Some("forget") => {
            limiter.forget(&item);
            json!({})
        }
        Some("advance") => {
            tokio::time::advance(millis(step, "ms")?).await;
            json!({})
        }
        _ => return Err(format!("unknown op in {step}")),
    })
}

/// Milliseconds, perhaps with a fraction.
fn millis(of: &Value, member: &str) -> Result<Duration, String> {
    let ms = of[member].as_f64().ok_or_else(|| format!("no number {member:?} in {of}"))?;
    Duration::try_from_secs_f64(ms / 1000.0).map_err(|error| error.to_string())
}

fn number(of: &Value, member: &str) -> Result<u64, String> {
    of[member].as_u64().ok_or_else(|| format!("no number {member:?} in {of}"))
}
