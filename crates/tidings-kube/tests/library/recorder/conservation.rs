//! Whatever happens, every event has exactly one fate at every sink.

use std::{sync::Arc, time::Duration};

use kube::core::Status;
use proptest::prelude::*;
use tidings_kube::{
    correlator::CorrelatorOptions,
    recorder::{BroadcasterOptions, EventBroadcaster, EventType, RetryPolicy, Running, SinkError},
};
use tokio::time::{sleep, timeout};

use super::support::{Answer, MemorySink, options, pod, source};

#[derive(Clone, Copy, Debug)]
enum Step {
    Record {
        object: u8,
        message: u8,
        valid: bool,
    },
    Pass {
        ms: u64,
    },
    /// One more sink, slow or not.
    Start {
        slow: bool,
    },
    /// The n-th sink modulo their number takes nothing more; before that, a flush or not.
    Stop {
        nth: usize,
        flush: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum End {
    Within { ms: u64 },
    AtOnce,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => (0_u8..3, 0_u8..12, prop::bool::weighted(0.9))
            .prop_map(|(object, message, valid)| Step::Record { object, message, valid }),
        4 => (0_u64..20_000).prop_map(|ms| Step::Pass { ms }),
        1 => any::<bool>().prop_map(|slow| Step::Start { slow }),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(nth, flush)| Step::Stop { nth, flush }),
    ]
}

fn answer(kind: u8) -> Answer {
    let status = |code| Answer::Error(SinkError::status(Status { code, ..Status::default() }));
    match kind {
        0..4 => Answer::Ok,
        4 => status(404),
        5 => status(409),
        6 => status(503),
        7 => Answer::Error(SinkError::RequestConstruction("no".into())),
        8 => Answer::Hang,
        _ => Answer::Error(SinkError::Other("EOF".into())),
    }
}

/// A sink, and what it has to account for.
struct Account {
    sink: MemorySink,
    running: Running,
    /// What was recorded before it was started.
    before: u64,
    /// What was recorded when it was stopped, and whether all of that had come to it.
    stopped: Option<(u64, bool)>,
}

impl Account {
    async fn open(broadcaster: &EventBroadcaster, sink: MemorySink) -> Self {
        let running = broadcaster.start_recording_to_sink(sink.clone()).await.unwrap();
        Self { sink, running, before: broadcaster.counts().recorded, stopped: None }
    }

    async fn stop(&mut self, broadcaster: &EventBroadcaster, flush: bool) {
        // A sink may hang, and any sink holds up a flush.
        let limit = Duration::from_secs(30);
        let flushed = flush && matches!(timeout(limit, broadcaster.flush()).await, Ok(Ok(())));
        if flushed {
            self.check(broadcaster.counts().recorded, true);
        }
        self.running.stop();
        self.stopped.get_or_insert((broadcaster.counts().recorded, flushed));
    }

    /// While it is at work, what has no fate yet is pending.
    fn check(&self, recorded: u64, at_end: bool) {
        let total = self.running.counts().total();
        match self.stopped {
            None if at_end => assert_eq!(total, recorded - self.before),
            None => assert!(total <= recorded - self.before),
            Some((recorded, true)) => assert_eq!(total, recorded - self.before),
            Some((recorded, false)) => assert!(total <= recorded - self.before),
        }
    }

    /// It has always taken what it was given, but for the one in hand at the end.
    fn check_calls(&self) {
        let (calls, counts) = (self.sink.calls().len() as u64, self.running.counts());
        assert!(counts.written <= calls && calls <= counts.written + 1 && counts.given_up == 0);
    }
}

async fn run(options: BroadcasterOptions, kinds: Vec<u8>, steps: Vec<Step>, end: End) {
    let broadcaster = EventBroadcaster::new(options);
    let recorder = broadcaster.new_recorder(source());
    let slow = || MemorySink::slow(Duration::from_secs(3));
    let scripted = MemorySink::new(kinds.into_iter().map(answer));
    let mut accounts = vec![
        Account::open(&broadcaster, scripted).await,
        Account::open(&broadcaster, slow()).await,
    ];
    let mut calls = 0;
    for step in steps {
        match step {
            Step::Record { object, message, valid } => {
                calls += 1;
                let event_type = if valid { EventType::Normal.as_str() } else { "Info" };
                let object = pod(&format!("web-{object}"));
                let message = message.to_string();
                recorder.event_of_type(&object, [].into(), event_type, "Tested", message);
            }
            Step::Pass { ms } => sleep(Duration::from_millis(ms)).await,
            Step::Start { slow: is_slow } => {
                let sink = if is_slow { slow() } else { MemorySink::new([]) };
                accounts.push(Account::open(&broadcaster, sink).await);
            }
            Step::Stop { nth, flush } => {
                let nth = nth % accounts.len();
                accounts[nth].stop(&broadcaster, flush).await;
            }
        }
        let recorded = broadcaster.counts().recorded;
        accounts
            .iter()
            .filter(|sink| sink.stopped.is_none())
            .for_each(|a| a.check(recorded, false));
    }
    let report = match end {
        End::Within { ms } => broadcaster.shutdown_within(Duration::from_millis(ms)).await,
        End::AtOnce => broadcaster.shutdown_at_once().await,
    };
    assert_eq!(report.recorders.recorded + report.recorders.dropped(), calls);
    for account in &accounts {
        account.running.ended().await;
        account.check(report.recorders.recorded, true);
    }
    accounts[1..].iter().for_each(Account::check_calls);
    // Those who had ended before may be left out.
    let mut all = accounts.iter().map(|account| account.running.counts());
    assert!(report.sinks.iter().all(|reported| all.any(|counts| counts == *reported)));
    let open = accounts.iter().filter(|account| account.stopped.is_none()).count();
    assert!(report.sinks.len() >= open);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn every_event_has_one_fate(
        steps in prop::collection::vec(step(), 1..80),
        // A sink that hangs ends only with a limit.
        (end, kinds) in prop_oneof![
            (0_u64..300_000, prop::collection::vec(0_u8..12, 0..40))
                .prop_map(|(ms, kinds)| (End::Within { ms }, kinds)),
            prop::collection::vec(prop_oneof![0_u8..8, 9_u8..12], 0..40)
                .prop_map(|kinds| (End::AtOnce, kinds)),
        ],
        (queue, watcher_queue, burst_size) in (1_usize..20, 1_usize..20, 1_i64..30),
        patient in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        let correlator = move || CorrelatorOptions { burst_size, ..CorrelatorOptions::default() };
        let retry = if patient { RetryPolicy::PATIENT } else { RetryPolicy::default() };
        let options = BroadcasterOptions {
            queue,
            watcher_queue,
            retry,
            correlator: Arc::new(correlator),
            ..options()
        };
        runtime.block_on(run(options, kinds, steps, end));
    }
}
