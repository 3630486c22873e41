//! The script of a demo: outages and crashes over its time.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::demo::receivers::Outage;

/// Something that is done to the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A sink goes away, by its place in the row.
    TakeDown(usize, Outage),
    BringBack(usize),
    Kill,
    Restart,
    End,
}

/// One round of an endless demo, and the times in it.
const ROUND: Duration = Duration::from_secs(40);

/// The actions in their order, and what is going on between them.
#[derive(Debug)]
pub(super) struct Script {
    round: u32,
    actions: Vec<(Duration, Action)>,
    scene: Option<&'static str>,
}

impl Script {
    pub(super) fn new(lasting: Option<Duration>) -> Self {
        let mut script = Self { round: 0, actions: Vec::new(), scene: None };
        match lasting {
            Some(length) => {
                script.add_round(Duration::ZERO, length, 2);
                script.actions.push((length, Action::End));
            }
            None => script.add_round(Duration::ZERO, ROUND, 2),
        }
        script
    }

    /// One outage and one crash; the last part of the round is for recovery.
    fn add_round(&mut self, from: Duration, length: Duration, sink: usize) {
        let at = |share: f64| from + length.mul_f64(share);
        let down_for = length.mul_f64(0.1).min(Duration::from_secs(2));
        // Refusing is what most outages look like from here; a broker can only be gone.
        let how = if sink == 0 { Outage::Closed } else { Outage::Refusing };
        self.actions.extend([
            (at(0.15), Action::TakeDown(sink, how)),
            (at(0.4), Action::BringBack(sink)),
            (at(0.6), Action::Kill),
            (at(0.6) + down_for, Action::Restart),
        ]);
    }

    /// The scene, what is being done, in a sentence.
    pub(super) fn scene(&self) -> Option<&'static str> {
        self.scene
    }

    /// The next action, when it is due.
    pub(super) async fn next(&mut self, began: Instant) -> Action {
        if self.actions.is_empty() {
            self.round += 1;
            // Each round takes another sink down.
            let sink = (2 + self.round as usize) % 3;
            self.add_round(ROUND * self.round, ROUND, sink);
        }
        let (at, action) = self.actions[0];
        sleep_until(began + at).await;
        self.actions.remove(0);
        self.scene = match action {
            Action::TakeDown(0, _) => {
                Some("the Kafka broker is down; its events wait in the journal")
            }
            Action::TakeDown(1, _) => Some("the collector refuses; its events wait in the journal"),
            Action::TakeDown(..) => Some("the webhook answers 503; its events wait in the journal"),
            Action::Kill => {
                Some("the bridge was killed (kill -9); the API server keeps what comes")
            }
            Action::BringBack(_) | Action::Restart | Action::End => None,
        };
        action
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_short_demo_shows_an_outage_and_a_crash_and_leaves_time_to_recover() {
        let (mut script, began) = (Script::new(Some(Duration::from_secs(30))), Instant::now());
        let mut actions = Vec::new();
        while actions.last().is_none_or(|(_, action)| *action != Action::End) {
            let action = script.next(began).await;
            actions.push((began.elapsed().as_secs_f64().round(), action));
        }
        let expected = [
            (5.0, Action::TakeDown(2, Outage::Refusing)),
            (12.0, Action::BringBack(2)),
            (18.0, Action::Kill),
            (20.0, Action::Restart),
            (30.0, Action::End),
        ];
        assert_eq!(actions, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_demo_takes_each_sink_down_in_turn() {
        let (mut script, began) = (Script::new(None), Instant::now());
        let mut down = Vec::new();
        while down.len() < 4 {
            if let Action::TakeDown(sink, _) = script.next(began).await {
                down.push(sink);
            }
        }
        assert_eq!(down, [2, 0, 1, 2]);
    }
}
