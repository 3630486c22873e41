//! What the bridge says of itself, held against what was found.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bridge::Bridge;
use crate::judge::Verdict;
use crate::wait::until_within;

/// How long it may take until everything has arrived and is settled, on a busy machine.
pub(crate) const SETTLES_WITHIN: Duration = Duration::from_mins(10);

/// The sinks of a status.
pub(crate) fn sinks_of(status: &Value) -> &[Value] {
    status["sinks"].as_array().map_or(&[], Vec::as_slice)
}

/// One of them.
pub(crate) fn sink_of<'a>(status: &'a Value, name: &str) -> &'a Value {
    let sink = sinks_of(status).iter().find(|sink| sink["name"] == name);
    sink.unwrap_or_else(|| panic!("no sink {name} in {status}"))
}

/// A number in a status, or in a part of one.
pub(crate) fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("no number {name} in {of}"))
}

/// Waits until the journal has been given so many events in all, and each of them has a fate at
/// every sink or is held by its correlator. Answers how long that took.
pub(crate) async fn settle(bridge: &Bridge, journalled: u64) -> Duration {
    let started = Instant::now();
    until_within(SETTLES_WITHIN, "every event has a fate", async || {
        let status = bridge.status().await;
        sinks_of(&status).iter().all(|sink| {
            number(sink, "seen") >= journalled && number(sink, "pending") == number(sink, "held")
        })
    })
    .await;
    started.elapsed()
}

/// Has all dead letters sent again, by the command that an operator has for it, and waits until
/// there are none. Answers how many there were.
pub(crate) async fn retry_dead_letters(bridge: &Bridge) -> usize {
    let counted = async || {
        let status = bridge.status().await;
        sinks_of(&status).iter().map(|sink| number(sink, "deadLettered")).sum::<u64>()
    };
    if counted().await == 0 {
        return 0;
    }
    let listed = list_dead_letters(bridge).await.len();
    bridge.command(&["dead-letters", "retry", "--all"]).await;
    until_within(SETTLES_WITHIN, "no dead letter is left", async || counted().await == 0).await;
    listed
}

/// What `tidings dead-letters list` has, as soon as it has any: they are kept with the next commit.
pub(crate) async fn list_dead_letters(bridge: &Bridge) -> Vec<Value> {
    let mut letters = Vec::<Value>::new();
    until_within(SETTLES_WITHIN, "the dead letters are kept", async || {
        let list = bridge.command(&["dead-letters", "list", "--output", "json"]).await;
        letters = serde_json::from_str(&list).expect("a list");
        !letters.is_empty()
    })
    .await;
    letters
}

/// Every event that a sink has seen has exactly one fate, and what it says to have delivered is
/// what arrived.
pub(crate) fn add_up(sink: &Value, verdict: &Verdict) {
    let fates = ["delivered", "filtered", "correlatedAway", "deadLettered", "lost", "pending"];
    let sum: u64 = fates.into_iter().map(|fate| number(sink, fate)).sum();
    assert_eq!(number(sink, "seen"), sum, "every event has one fate: {sink}");
    let delivered = number(sink, "delivered");
    assert_eq!(delivered, verdict.delivered, "delivered has arrived: {verdict}; {sink}");
}
