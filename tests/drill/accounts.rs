//! What the bridge says of itself, held against what was found.

use std::ops::RangeInclusive;
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

/// Whether all that is journalled has a fate at a sink or is held, and nothing is to come again.
pub(crate) fn is_settled(status: &Value, sink: &Value) -> bool {
    let (position, end) =
        (number(sink, "nextSequence"), number(&status["journal"], "nextSequence"));
    number(sink, "pending") == number(sink, "held") && position >= end
}

/// Waits until the journal has been given so many events in all, and each of them has a fate at
/// every sink or is held by its correlator. Answers how long that took.
pub(crate) async fn settle(bridge: &Bridge, journalled: u64) -> Duration {
    let started = Instant::now();
    until_within(SETTLES_WITHIN, "every event has a fate", async || {
        let status = bridge.status().await;
        let is_seen = |sink: &Value| number(sink, "seen") >= journalled;
        sinks_of(&status).iter().all(|sink| is_seen(sink) && is_settled(&status, sink))
    })
    .await;
    started.elapsed()
}

/// Has all dead letters of a sink sent again, by the command that an operator has for it, and waits
/// until there are none. Answers how many there were.
pub(crate) async fn retry_dead_letters(bridge: &Bridge, sink: &str) -> u64 {
    let counted = async || number(&bridge.sink(sink).await, "deadLettered");
    let letters = counted().await;
    if letters > 0 {
        list_dead_letters(bridge, sink, letters).await;
        bridge.command(&["dead-letters", "retry", "--all", "--sink", sink]).await;
        until_within(SETTLES_WITHIN, "no dead letter is left", async || counted().await == 0).await;
    }
    letters
}

/// What `tidings dead-letters list` has of a sink, as soon as it has so many: they are kept with the
/// next commit.
pub(crate) async fn list_dead_letters(bridge: &Bridge, sink: &str, count: u64) -> Vec<Value> {
    if count == 0 {
        // The command asks for a limit of one at least.
        return Vec::new();
    }
    let limit = count.to_string();
    let list = ["dead-letters", "list", "--sink", sink, "--limit", &limit, "--output", "json"];
    let mut letters = Vec::<Value>::new();
    until_within(SETTLES_WITHIN, "the dead letters are kept", async || {
        letters = serde_json::from_str(&bridge.command(&list).await).expect("a list");
        letters.len() as u64 == count
    })
    .await;
    letters
}

/// Holds `seen` of a sink against what the API server wrote, and `delivered` against what arrived. Behind a gap not all that was written was shown, but what arrived was.
pub(crate) fn add_up(sink: &Value, verdict: &Verdict, written: RangeInclusive<u64>) {
    let (seen, delivered) = (number(sink, "seen"), number(sink, "delivered"));
    assert!(written.contains(&seen), "{written:?} were written: {verdict}; {sink}");
    let arrived = verdict.delivered + verdict.again;
    assert_eq!(delivered, arrived, "delivered has arrived: {verdict}; {sink}");
}
