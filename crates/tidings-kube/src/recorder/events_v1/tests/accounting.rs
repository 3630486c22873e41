//! Whatever happens, every occurrence is announced, pending or lost.

use std::{num::NonZeroUsize, time::Duration};

use proptest::prelude::*;

use super::server::{Fault, Stage, settle};
use crate::recorder::{RetryPolicy, events_v1::RecordingOptions};

#[derive(Clone, Debug)]
enum Step {
    Happens(u8),
    Wait(u64),
    Answer(u64, Option<Fault>),
}

fn step() -> impl Strategy<Value = Step> {
    let fault = prop::sample::select(vec![
        Fault::Transport,
        Fault::Status(403, "Forbidden"),
        Fault::Status(404, "NotFound"),
        Fault::Status(500, "InternalError"),
        Fault::ComeAgainIn(60),
    ]);
    prop_oneof![
        6 => (0u8..4).prop_map(Step::Happens),
        3 => prop_oneof![0u64..20_000, 0u64..2_000_000].prop_map(Step::Wait),
        3 => (prop_oneof![Just(0u64), 0u64..30_000], prop::option::of(fault))
            .prop_map(|(takes, fault)| Step::Answer(takes, fault)),
    ]
}

fn run(steps: Vec<Step>, max: (usize, usize), retry: RetryPolicy, deadline: u64) {
    let (max_series, max_writes) = max;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let stage = Stage::with_names(RecordingOptions {
            max_series: NonZeroUsize::new(max_series).unwrap(),
            max_writes: NonZeroUsize::new(max_writes).unwrap(),
            retry,
            ..RecordingOptions::default()
        })
        .await;
        let mut recorded = 0;
        let check = |recorded: u64| {
            let tally = stage.recording.tally();
            assert_eq!(tally.observed, tally.announced + tally.pending + tally.lost);
            assert!(tally.observed <= recorded);
            let known: i32 = stage.server.state().counts.values().sum();
            (tally, u64::try_from(known).unwrap())
        };
        for step in steps {
            match step {
                Step::Happens(pod) => {
                    stage.happens(&format!("pod{pod}")).await;
                    recorded += 1;
                }
                Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                Step::Answer(ms, fault) => {
                    stage.server.state().next.push_back((Duration::from_millis(ms), fault));
                }
            }
            settle().await;
            let (tally, known) = check(recorded);
            assert_eq!(tally.announced, known, "announced is what the server knows");
        }
        let report = stage.broadcaster.shutdown_within(Duration::from_millis(deadline)).await;
        let (tally, known) = check(recorded);
        assert_eq!(report.tally, tally);
        assert_eq!(tally.announced, known);
        if deadline > 0 {
            assert_eq!(tally.observed, recorded, "what was queued was taken");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn observed_is_announced_and_pending_and_lost(
        steps in prop::collection::vec(step(), 1..60),
        max in (1usize..5, 1usize..5),
        retry in prop::sample::select(vec![RetryPolicy::default(), RetryPolicy::PATIENT]),
        deadline in prop_oneof![Just(0), Just(600_000u64)],
    ) {
        run(steps, max, retry, deadline);
    }
}
