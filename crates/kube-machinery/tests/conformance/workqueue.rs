//! `workqueue`: the work queue with its delays and its rate limiter, and workers that wait for it.

use std::{collections::BTreeMap, time::Duration};

use kube_machinery::cache::workqueue::{
    Item, ItemExponentialFailureRateLimiter, RateLimitingQueue,
};
use serde_json::{Value, json};
use tokio::{
    task::{JoinHandle, yield_now},
    time::advance,
};

use crate::vector::{Vector, virtual_time};

/// A task of its own as each worker and each drain is one: what it has got.
enum Caller {
    Gets(JoinHandle<Option<Item<String>>>),
    Drains(JoinHandle<()>),
}

struct Player {
    queue: RateLimitingQueue<String>,
    callers: BTreeMap<String, Caller>,
    /// The items that workers have and are not done with.
    out: Vec<Item<String>>,
    /// The answers that each caller has got.
    got: BTreeMap<String, Value>,
}

pub(crate) fn drive(vector: &Vector) -> Result<Vec<Value>, String> {
    let limit = |name| vector.options[name].as_u64().map(Duration::from_millis).ok_or("no limits");
    let limiter = ItemExponentialFailureRateLimiter::new(limit("base_ms")?, limit("max_ms")?);
    virtual_time(async {
        let queue = RateLimitingQueue::new(limiter);
        let mut player =
            Player { queue, callers: BTreeMap::new(), out: Vec::new(), got: BTreeMap::new() };
        let mut answers = Vec::new();
        for step in &vector.steps {
            answers.push(player.play(step).await?);
        }
        Ok(answers)
    })
}

impl Player {
    async fn play(&mut self, step: &Value) -> Result<Value, String> {
        let item = step["item"].as_str().unwrap_or_default().to_owned();
        let id = step["id"].as_str().unwrap_or_default().to_owned();
        // Go has delays below zero.
        let ms =
            Duration::from_millis(step["ms"].as_i64().unwrap_or_default().max(0).unsigned_abs());
        let queue = self.queue.clone();
        match step["op"].as_str() {
            Some("add") => queue.add(item),
            Some("add_after") => queue.add_after(item, ms),
            Some("add_rate_limited") => queue.add_rate_limited(item),
            Some("forget") => queue.forget(&item),
            Some("requeues") => return Ok(json!({ "requeues": queue.num_requeues(&item) })),
            Some("len") => return Ok(json!({ "len": queue.len() })),
            Some("shutting_down") => {
                return Ok(json!({ "shutting_down": queue.is_shutting_down() }));
            }
            Some("shut_down") => queue.shut_down(),
            Some("advance") => advance(ms).await,
            Some("done") => {
                let has = |out: &Item<String>| **out == item;
                let at = self.out.iter().position(has).ok_or("nobody has it")?;
                drop(self.out.remove(at));
            }
            Some("get") => {
                let get = tokio::spawn(async move { queue.get().await });
                self.callers.insert(id.clone(), Caller::Gets(get));
                return self.see(&id).await;
            }
            Some("shut_down_with_drain") => {
                let drain = tokio::spawn(async move { queue.shut_down_with_drain().await });
                self.callers.insert(id.clone(), Caller::Drains(drain));
                return self.see(&id).await;
            }
            Some("see") => return self.see(&id).await,
            _ => return Err(format!("unknown op in {step}")),
        }
        settle().await;
        Ok(json!({}))
    }

    /// The answer that a caller has got by now.
    async fn see(&mut self, id: &str) -> Result<Value, String> {
        settle().await;
        for (id, caller) in &mut self.callers {
            let got = match caller {
                Caller::Gets(task) if task.is_finished() => match task.await.unwrap() {
                    Some(item) => {
                        let got = json!({ "item": *item });
                        self.out.push(item);
                        got
                    }
                    None => json!({ "shut_down": true }),
                },
                Caller::Drains(task) if task.is_finished() => json!({ "drained": true }),
                _ => continue,
            };
            self.got.insert(id.clone(), got);
        }
        self.callers.retain(|id, _| !self.got.contains_key(id));
        if self.callers.contains_key(id) {
            return Ok(json!({ "waits": true }));
        }
        self.got.get(id).cloned().ok_or_else(|| format!("nobody is called {id:?}"))
    }
}

/// Until every task waits.
async fn settle() {
    for _ in 0..32 {
        yield_now().await;
    }
}
