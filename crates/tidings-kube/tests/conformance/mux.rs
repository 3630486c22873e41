//! `mux`: the broadcaster, with numbers for items.
//!
//! On one thread and with the clock at rest, a sleep ends when no task can go on: the vector's
//! `settle`, exactly.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Map, Value, json};
use tidings_kube::broadcaster::{
    Broadcaster, Empty, FullChannel, INCOMING_QUEUE_LENGTH, NotSent, Stopped, Watcher,
};

use crate::{
    compare::{Difference, pruned, step_by_step},
    vector::Vector,
};

pub(crate) fn drive(vector: &Vector) -> Result<Vec<Value>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut stage = Stage::new(&vector.options)?;
        let mut answers = Vec::new();
        for step in &vector.steps {
            answers.push(stage.play(step).await?);
        }
        Ok(answers)
    })
}

/// An answer that says nothing of a member says that it is nothing.
pub(crate) fn compare(expected: &[Value], actual: &[Value]) -> Result<(), Difference> {
    let plain = |answers: &[Value]| answers.iter().cloned().map(pruned).collect::<Vec<_>>();
    step_by_step(&plain(expected), &plain(actual))
}

struct Stage {
    broadcaster: Broadcaster<u64>,
    watchers: BTreeMap<String, Watcher<u64>>,
}

impl Stage {
    fn new(options: &Value) -> Result<Self, String> {
        let queue = number(options, "queue_length")?;
        let incoming = match text(options, "constructor")? {
            "short" => INCOMING_QUEUE_LENGTH,
            "long" => queue,
            other => return Err(format!("unknown constructor {other:?}")),
        };
        let full = match text(options, "full_channel")? {
            "drop" => FullChannel::Drop { queue },
            "wait" => FullChannel::Wait { queue },
            other => return Err(format!("unknown full_channel {other:?}")),
        };
        let broadcaster = Broadcaster::new(incoming, full);
        Ok(Self { broadcaster, watchers: BTreeMap::new() })
    }

    async fn play(&mut self, step: &Value) -> Result<Value, String> {
        Ok(match text(step, "op")? {
            "watch" => self.register(step, Vec::new()).await?,
            "watch_prefix" => self.register(step, numbers(step, "prefix")?).await?,
            "action" => self.publish(step).await?,
            "action_async" => {
                let (items, broadcaster) = (items(step)?, self.broadcaster.clone());
                tokio::spawn(async move {
                    for item in items {
                        if broadcaster.publish(item).await.is_err() {
                            break;
                        }
                    }
                });
                json!({})
            }
            "action_or_drop" => self.publish_or_drop(step)?,
            "settle" => {
                settle().await;
                json!({})
            }
            "read" => {
                let count = number(step, "count")?;
                self.read(text(step, "id")?, count).await?.json()
            }
            "read_all" => self.read(text(step, "id")?, usize::MAX).await?.json(),
            "drain" => self.drain(step).await?,
            "stop" => {
                self.watcher(text(step, "id")?)?.stopper().stop();
                // client-go's Stop comes back when the loop has seen it.
                settle().await;
                json!({})
            }
            "shutdown" => {
                self.broadcaster.shutdown().await;
                json!({})
            }
            other => return Err(format!("unknown op {other:?}")),
        })
    }

    fn watcher(&mut self, id: &str) -> Result<&mut Watcher<u64>, String> {
        self.watchers.get_mut(id).ok_or_else(|| format!("no watcher {id:?}"))
    }

    async fn register(&mut self, step: &Value, prefix: Vec<u64>) -> Result<Value, String> {
        Ok(match self.broadcaster.watch_with_prefix(prefix).await {
            Ok(watcher) => {
                let capacity = watcher.capacity();
                self.watchers.insert(text(step, "id")?.to_owned(), watcher);
                json!({ "capacity": capacity })
            }
            Err(stopped) => error(stopped),
        })
    }

    async fn publish(&self, step: &Value) -> Result<Value, String> {
        let mut sent = 0;
        for item in items(step)? {
            match self.broadcaster.publish(item).await {
                Ok(()) => sent += 1,
                Err(stopped) => return Ok(error(stopped)),
            }
        }
        Ok(json!({ "sent": sent }))
    }

    fn publish_or_drop(&self, step: &Value) -> Result<Value, String> {
        let (mut sent, before) = (0, self.broadcaster.dropped());
        for item in items(step)? {
            match self.broadcaster.publish_or_drop(item) {
                Ok(()) => sent += 1,
                Err(NotSent::Full(_)) => {}
                Err(NotSent::Stopped(_)) => return Ok(error(Stopped)),
            }
        }
        Ok(json!({ "sent": sent, "dropped": self.broadcaster.dropped() - before }))
    }

    /// Up to `count` items, as long as some come.
    async fn read(&mut self, id: &str, count: usize) -> Result<Got, String> {
        let watcher = self.watcher(id)?;
        let (mut got, mut settled) = (Got::default(), false);
        while got.items.len() < count && !got.closed {
            match watcher.try_next() {
                Ok(Some(item)) => got.items.push(item),
                Ok(None) => got.closed = true,
                Err(Empty) if settled => break,
                Err(Empty) => {
                    settle().await;
                    settled = true;
                    continue;
                }
            }
            settled = false;
        }
        Ok(got)
    }

    /// One item of each in turn, until none of them has any.
    async fn drain(&mut self, step: &Value) -> Result<Value, String> {
        let ids = step["ids"].as_array().ok_or("drain without ids")?;
        let mut all: BTreeMap<String, Got> = BTreeMap::new();
        loop {
            let mut some = false;
            for id in ids {
                let id = id.as_str().ok_or("an id is a string")?;
                let got = self.read(id, 1).await?;
                some |= !got.items.is_empty();
                all.entry(id.to_owned()).or_default().items.extend(got.items);
            }
            if !some {
                let drained: Map<String, Value> =
                    all.into_iter().map(|(id, got)| (id, got.ranges().into())).collect();
                return Ok(json!({ "drained": drained }));
            }
        }
    }
}

#[derive(Default)]
struct Got {
    items: Vec<u64>,
    closed: bool,
}

impl Got {
    fn json(&self) -> Value {
        json!({ "got": self.ranges(), "closed": self.closed })
    }

    /// "1-5,9"
    fn ranges(&self) -> String {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for &item in &self.items {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == item => *last = item,
                _ => ranges.push((item, item)),
            }
        }
        let words = ranges.iter().map(|&(first, last)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        });
        words.collect::<Vec<_>>().join(",")
    }
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn error(stopped: Stopped) -> Value {
    json!({ "error": stopped.to_string() })
}

fn items(step: &Value) -> Result<std::ops::Range<u64>, String> {
    let from = number(step, "from")? as u64;
    Ok(from..from + number(step, "count")? as u64)
}

fn text<'a>(of: &'a Value, member: &str) -> Result<&'a str, String> {
    of[member].as_str().ok_or_else(|| format!("no text {member:?} in {of}"))
}

fn number(of: &Value, member: &str) -> Result<usize, String> {
    let number = of[member].as_u64().ok_or_else(|| format!("no number {member:?} in {of}"))?;
    usize::try_from(number).map_err(|error| error.to_string())
}

fn numbers(of: &Value, member: &str) -> Result<Vec<u64>, String> {
    let array = of[member].as_array().ok_or_else(|| format!("no list {member:?} in {of}"))?;
    Ok(array.iter().filter_map(Value::as_u64).collect())
}
