//! Whatever happens, every event has exactly one fate at every sink.

use std::time::Duration;

use kube::core::Status;
use proptest::prelude::*;
use tidings::{
    correlate::CorrelatorOptions,
    record::{BroadcasterOptions, EventType, RetryPolicy, SinkError},
};
use tokio::time::sleep;

use crate::support::{Answer, MemorySink, options, pod, start};

#[derive(Clone, Copy, Debug)]
enum Step {
    Record { object: u8, message: u8, valid: bool },
    Pass { ms: u64 },
}

#[derive(Clone, Copy, Debug)]
enum End {
    Within { ms: u64 },
    AtOnce,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_u8..3, 0_u8..12, prop::bool::weighted(0.9))
            .prop_map(|(object, message, valid)| Step::Record { object, message, valid }),
        2 => (0_u64..20_000).prop_map(|ms| Step::Pass { ms }),
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

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
        runtime.block_on(async {
            let scripted = MemorySink::new(kinds.into_iter().map(answer));
            let slow = MemorySink::slow(Duration::from_secs(3));
            let retry = if patient { RetryPolicy::PATIENT } else { RetryPolicy::default() };
            let (broadcaster, recorder, first) = start(BroadcasterOptions {
                queue,
                watcher_queue,
                retry,
                correlator: std::sync::Arc::new(move || CorrelatorOptions {
                    burst_size,
                    ..CorrelatorOptions::default()
                }),
                ..options()
            }, &scripted).await;
            let second = broadcaster.start_recording_to_sink(slow.clone()).await.unwrap();
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
                }
            }
            let report = match end {
                End::Within { ms } => broadcaster.shutdown_within(Duration::from_millis(ms)).await,
                End::AtOnce => broadcaster.shutdown_at_once().await,
            };
            prop_assert_eq!(report.recorders.recorded + report.recorders.dropped(), calls);
            for (sink, running) in report.sinks.iter().zip([first, second]) {
                prop_assert_eq!(sink.total(), report.recorders.recorded);
                prop_assert_eq!(*sink, running.counts());
            }
            // The slow one always takes what it is given.
            let slow_calls = slow.calls().len() as u64;
            let (written, given_up) = (report.sinks[1].written, report.sinks[1].given_up);
            prop_assert!(written <= slow_calls && slow_calls <= written + 1 && given_up == 0);
            Ok(())
        })?;
    }
}
