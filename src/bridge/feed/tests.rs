//! Whatever the channel holds, however the reader stalls, and wherever it starts again: every record
//! comes, in order, and none twice.

use proptest::prelude::*;
use tidings_log::{Directory, FrameBuilder, Log, LogOptions, Resume, Sync};
use tokio::time::timeout;

use super::*;
use crate::bridge::Watchdog;

fn pulse() -> Pulse {
    Watchdog::default().pulse("the feed")
}

#[derive(Clone, Debug)]
enum Step {
    /// A frame of so many records is appended and published.
    Append(u8),
    /// So many frames are taken, if as many are there.
    Take(u8),
    /// The loop of the broadcaster gets time to run.
    Settle,
    /// The feed ends and another one begins where it was.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0u8..5).prop_map(Step::Append),
        4 => (1u8..12).prop_map(Step::Take),
        2 => Just(Step::Settle),
        1 => Just(Step::Restart),
    ]
}

struct Rig {
    log: Log,
    broadcaster: Broadcaster<Published>,
    feed: Feed,
    position: Position,
    appended: u64,
    received: Vec<u64>,
}

impl Rig {
    fn new(directory: &Directory, live: FullChannel<Published>) -> Self {
        let options = LogOptions {
            retention_size: 1 << 20,
            retention_age: Duration::from_secs(3600),
            sync: Sync::Never,
        };
        let (log, _) = Log::open(directory, options, 0, 0).unwrap();
        let broadcaster = Broadcaster::new(4, live);
        let feed = Feed::new(log.handle(), broadcaster.clone(), Position::START, pulse());
        let position = Position::START;
        Self { log, broadcaster, feed, position, appended: 0, received: Vec::new() }
    }

    async fn append(&mut self, records: u8) {
        let mut builder = FrameBuilder::new("*".into(), Resume::default());
        builder.set_resume(Resume { epoch: 0, resource_version: self.appended });
        for _ in 0..records {
            self.appended += 1;
            let seq = self.appended;
            builder.record(|out| out.extend_from_slice(format!("record {seq}").as_bytes()));
        }
        let frame = self.log.append(&mut builder, 0).unwrap();
        self.broadcaster.publish(frame.into()).await.unwrap();
    }

    async fn take_one(&mut self) -> bool {
        let next = timeout(Duration::from_secs(20), self.feed.next()).await;
        let Some(fed) = next.expect("a frame that is there comes") else { return false };
        assert_eq!(fed.lost, 0);
        for record in fed.records() {
            assert_eq!(&record.envelope[..], format!("record {}", record.seq).as_bytes());
            self.received.push(record.seq);
        }
        self.position = fed.frame().end();
        true
    }

    async fn run(mut self, steps: Vec<Step>) -> (u64, Vec<u64>) {
        for step in steps {
            match step {
                Step::Append(records) => self.append(records).await,
                Step::Take(frames) => {
                    for _ in 0..frames {
                        if (self.received.len() as u64) < self.appended {
                            self.take_one().await;
                        }
                    }
                }
                Step::Settle => {
                    for _ in 0..8 {
                        tokio::task::yield_now().await;
                    }
                }
                Step::Restart => {
                    let (log, broadcaster) = (self.log.handle(), self.broadcaster.clone());
                    self.feed = Feed::new(log, broadcaster, self.position, pulse());
                }
            }
        }
        self.broadcaster.shutdown().await;
        while self.take_one().await {}
        (self.appended, self.received)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn live_or_from_the_log_nothing_is_missed_and_nothing_comes_twice(
        steps in prop::collection::vec(step(), 1..80),
        items in 1usize..6,
        bytes in prop::sample::select(vec![1usize, 200, 1 << 20]),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let directory = crate::journal::open(dir.path()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (appended, received) = runtime.block_on(async {
            let live = FullChannel::Spill { items, bytes, weigh: Published::bytes };
            Rig::new(&directory, live).run(steps).await
        });
        prop_assert_eq!(received, (1..=appended).collect::<Vec<_>>());
    }
}
