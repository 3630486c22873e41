//! The tally of what each sink received, chapter by chapter, and whether it adds up.
//!
//! A chapter has one history of the API server. It ends when nothing is pending and nothing held, so
//! what belongs to which history is not in doubt: a restored API server gives out numbers a second
//! time, and what a bridge is shown again comes under ids that it has delivered already.

use std::collections::HashMap;

use serde_json::Value;

use super::others::{COLLECTORS, Others, TOPIC};
use super::play::Play;
use super::stated::Stated;
use crate::accounts::{SETTLES_WITHIN, add_up, number, retry_dead_letters, sink_of};
use crate::frame::Row;
use crate::judge::{Arrival, Key, Produced, Verdict, judge_after};
use crate::load::ALONE;
use crate::wait::until_within;

/// The one that suppresses.
const PAGER: &str = "pager";
/// Those that are sent poison, and take it in the end.
const POISONED: [&str; 3] = ["audit", PAGER, "spare"];

/// See the [module](self).
#[derive(Default)]
pub(super) struct Tally {
    /// The newest version of each Event at the end of the last chapter.
    earlier: Vec<Produced>,
    /// How much had been produced by then.
    produced: usize,
    /// So many versions of earlier chapters a restored API server may have shown again.
    shown_again: u64,
    sums: Vec<(&'static str, Verdict)>,
    retried: u64,
    status: Value,
}

impl Tally {
    /// Ends a chapter in which all harm is mended and nobody writes any more. The bridge is stopped
    /// in order, which makes it send what it holds, and started again.
    pub(super) async fn close(&mut self, play: &mut Play) {
        play.stage.settle().await;
        for sink in POISONED {
            self.retried += retry_dead_letters(&play.stage.bridge, sink).await;
        }
        for large in play.large.drain(..) {
            play.stage.server.delete(ALONE, &large).expect("it is there");
        }
        play.stage.bridge.stop_in_order().await;
        play.stage.open().await;
        self.status = play.stage.bridge.status().await;
        self.all_is_read(&mut play.others).await;
        let produced = play.stage.record.lock()[self.produced..].to_vec();
        self.shown_again += self.earlier.len() as u64;
        let webhooks = play.stage.sinks.iter();
        let webhooks =
            webhooks.map(|sink| (sink.name, std::mem::take(&mut *sink.receiver.arrivals())));
        for (sink, arrivals) in webhooks.chain(play.others.take()) {
            self.add(sink, &produced, &arrivals);
        }
        let mut newest: HashMap<Key, Produced> = HashMap::new();
        newest.extend(self.earlier.iter().chain(&produced).map(|one| (one.event, *one)));
        self.earlier = newest.into_values().collect();
        self.produced += produced.len();
    }

    /// Waits for what is acknowledged, and may yet be on its way to the one who reads the topic.
    async fn all_is_read(&self, others: &mut Others) {
        let before = self.sum(TOPIC).map_or(0, |sum| sum.delivered + sum.again);
        let delivered = number(sink_of(&self.status, TOPIC), "delivered");
        until_within(SETTLES_WITHIN, "the topic has been read", async || {
            others.note();
            before + others.distinct(TOPIC) >= delivered
        })
        .await;
    }

    fn add(&mut self, sink: &'static str, produced: &[Produced], arrivals: &[Arrival]) {
        let verdict = judge_after(&self.earlier, produced, arrivals);
        verdict.is_honest(sink);
        if sink == PAGER {
            verdict.adds_up(sink);
        }
        match self.sums.iter_mut().find(|(name, _)| *name == sink) {
            Some((_, sum)) => *sum += verdict,
            None => self.sums.push((sink, verdict)),
        }
        let sum = self.sum(sink).expect("it was added just now");
        let most = sum.produced + self.shown_again;
        add_up(sink_of(&self.status, sink), sum, sum.delivered + sum.again..=most);
    }

    fn sum(&self, sink: &str) -> Option<&Verdict> {
        self.sums.iter().find(|(name, _)| *name == sink).map(|(_, sum)| sum)
    }

    /// Holds all chapters against what the bridge has stated.
    pub(super) fn rows(self, play: &Play, fault: &str, notes: &str) -> Vec<Row> {
        let stated = Stated::all(&play.stage.bridge.log());
        for unseen in &play.unseen {
            let held = stated.iter().any(|one| one.holds(*unseen));
            assert!(held, "what came and went at {unseen} is in no interval that is stated");
        }
        let skipped: u64 = stated.iter().map(|one| one.skipped).sum();
        let again = format!("{} letters retried and taken", self.retried);
        let rows = self.sums.iter().map(|(sink, sum)| {
            let status = sink_of(&self.status, sink);
            let (lost, refused) = (number(status, "lost"), number(status, "deadLettered"));
            assert!(lost == 0 || *sink == "laggard", "{sink}: {status}");
            assert!(refused <= may_refuse(play, sink), "{sink}: {status}");
            let row = Row { lost: Some(lost), ..sum.row(fault, sink) };
            let row = row.note(&format!("{} came again of an earlier history", sum.again));
            if *sink == PAGER {
                return row.note(notes).note(&again);
            }
            // Each write is one increment, and no Event ends that anybody can see.
            let missing = skipped + lost + refused;
            assert_eq!(sum.missing, missing, "{sink}: {skipped} skipped: {sum}; {status}");
            let gone = sum.delta_in - sum.delta_out;
            // What is lost takes its own increments with it, and those that were skipped before it.
            let may_go = lost + refused..=missing;
            assert!(may_go.contains(&gone), "{sink}: {gone} increments are gone: {sum}");
            let row = row.note(&format!("{skipped} increments stated as skipped"));
            match (lost, refused) {
                (0, 0) => row.note("no increment is missing"),
                (0, refused) => row.note(&format!("{refused} refused, dead-lettered")),
                (lost, _) => row.note(&format!("{lost} stated as lost, which is the truth")),
            }
        });
        rows.collect()
    }
}

/// So many events a sink has refused for good.
fn may_refuse(play: &Play, sink: &str) -> u64 {
    let collectors = COLLECTORS.iter().zip(&play.others.collectors);
    let mut refused = collectors.filter(|(name, _)| **name == sink);
    refused.next().map_or(0, |(_, one)| one.rejected().len() as u64 + play.large_written)
}
