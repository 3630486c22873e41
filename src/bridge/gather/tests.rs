//! What is held is announced in time when nothing else comes, and what is settled together goes
//! together.

use std::path::Path;

use tidings_kube::{broadcaster::Broadcaster, correlator::Keys};
use tidings_log::{FrameBuilder, Log, LogOptions, Resume, Sync};
use tokio::time::sleep;

use super::*;
use crate::{
    bridge::{
        CorrelateMode, Overflow, Watchdog, correlation::Correlator, feed::LIVE,
        published::Published,
    },
    journal::{Ranges, SinkState},
};

const BATCHES: BatchOptions =
    BatchOptions { events: 500, bytes: 1 << 20, linger: Duration::from_millis(20) };

/// Of the journal.
const SIZE: u64 = 1 << 20;

struct Rig {
    log: Log,
    broadcaster: Broadcaster<Published>,
    works: mpsc::Receiver<Work>,
    next: u64,
}

impl Rig {
    fn new(journal: &Path, events: usize) -> Self {
        let options = LogOptions {
            retention_size: SIZE,
            retention_age: Duration::from_secs(3600),
            sync: Sync::Never,
        };
        let (log, _) = Log::open(&crate::journal::open(journal).unwrap(), options, 0, 0).unwrap();
        Self::on(log, BatchOptions { events, ..BATCHES }, None, SIZE)
    }

    /// With the correlator of a run before, when the journal had a `size`.
    fn on(log: Log, batches: BatchOptions, filter: Option<Filter>, size: u64) -> Self {
        let broadcaster = Broadcaster::new(64, LIVE);
        let keys = Keys::random();
        let correlator = Correlator::new(CorrelateMode::Suppress, &keys, size);
        let state = SinkState::default();
        let progress = Arc::new(SinkProgress::new(
            "pager",
            "memory",
            Overflow::DropOldest,
            state,
            correlator.as_ref(),
            &Ranges::default(),
        ));
        let stage = Stage::new(correlator, None, &keys, log.handle(), &progress);
        let pulse = Watchdog::default().pulse("the feed");
        let feed = Feed::new(log.handle(), broadcaster.clone(), Position::START, pulse);
        let (out, works) = mpsc::channel(16);
        let next = log.handle().tail().next;
        let fits = (next, SIZE);
        tokio::spawn(Gather::new(batches, filter, stage, progress, out).fits(fits).run(feed));
        Self { log, broadcaster, works, next }
    }

    /// One frame with so many Events about one Pod, each for a reason of its own.
    async fn append(&mut self, count: u64, time_ms: u64) {
        self.append_saying("", count, time_ms).await;
    }

    async fn append_saying(&mut self, message: &str, count: u64, time_ms: u64) {
        let mut builder = FrameBuilder::new("*".into(), Resume::default());
        builder.set_resume(Resume { epoch: 0, resource_version: 100 + self.next });
        for seq in self.next..self.next + count {
            let envelope = format!(
                r#"{{"id":"e-{seq}","cluster":{{}},"change":"created","time":"","observedTime":"","occurrences":1,"delta":1,"replayed":false,"event":{{"reason":"R{seq}","message":"{message}"}}}}"#
            );
            builder.record(|out| out.extend_from_slice(envelope.as_bytes()));
        }
        self.next += count;
        let frame = self.log.append(&mut builder, time_ms).unwrap();
        self.broadcaster.publish(frame.into()).await.unwrap();
    }

    /// Works up to one that settles, and the sequences in each.
    async fn settled(&mut self) -> (Vec<Vec<u64>>, Work) {
        let mut sequences = Vec::new();
        loop {
            let work = self.works.recv().await.unwrap();
            sequences.push(work.batch.records.iter().map(|record| record.seq).collect());
            if work.settles {
                return (sequences, work);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_another_record_a_summary_is_sent_when_its_time_has_passed() {
    let journal = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(journal.path(), 500);
    let start = Instant::now();
    rig.append(26, now_ms()).await;
    let (sequences, work) = rig.settled().await;
    assert_eq!(sequences, [(1..=25).collect::<Vec<_>>()]);
    assert_eq!((work.settled.standing.held.versions, work.settled.standing.position.next), (1, 27));
    // The resume point covers a version that is held.
    assert!(work.settled.resumes.is_empty());

    let (sequences, work) = rig.settled().await;
    assert_eq!(sequences, [[26]]);
    let waited = start.elapsed().as_secs();
    assert!(waited >= 599, "{waited}");
    assert_eq!((work.settled.standing.held.versions, work.settled.standing.position.next), (0, 27));
    assert_eq!(work.settled.resumes.len(), 1);
    // The position does not tell that it is announced: the state has to.
    assert_eq!(work.settled.correlator.unwrap().position.next, 27);
}

#[tokio::test(start_paused = true)]
async fn a_summary_is_settled_with_the_record_that_brought_it_about() {
    let journal = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(journal.path(), 1);
    rig.append(27, now_ms()).await;
    for seq in 1..=25 {
        assert_eq!(rig.settled().await.0, [[seq]]);
    }
    let (sequences, work) = rig.settled().await;
    assert_eq!((sequences, work.settled.standing.held.versions), (vec![vec![]], 2));
    rig.append(1, now_ms() + 601_000).await;
    let (sequences, work) = rig.settled().await;
    assert_eq!(sequences, [[26], [27], [28]]);
    assert_eq!(
        (
            work.settled.standing.held.versions,
            work.settled.standing.position.next,
            work.settled.totals.correlated_away
        ),
        (0, 29, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn at_the_end_what_is_held_comes_out_once_that_is_decided_on_the_disk() {
    let journal = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(journal.path(), 500);
    rig.append(28, now_ms()).await;
    rig.settled().await;
    rig.broadcaster.shutdown().await;
    let (sequences, work) = rig.settled().await;
    assert_eq!(sequences, [[0; 0]]);
    let saved = work.settled.correlator.unwrap();
    assert!(Correlator::load(&saved.bytes).unwrap().lets_go());
    sleep(Duration::from_millis(500)).await;
    assert!(rig.works.try_recv().is_err(), "before it is on the disk nothing comes out");
    work.settled.waiting.into_iter().for_each(|saved| saved.send(()).unwrap());
    let (sequences, work) = rig.settled().await;
    assert_eq!(sequences, [[26, 27, 28]]);
    assert_eq!((work.settled.standing.held.versions, rig.works.recv().await.is_none()), (0, true));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_takes_nothing_leaves_what_is_held_for_the_next_run() {
    let journal = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(journal.path(), 500);
    rig.append(28, now_ms()).await;
    rig.settled().await;
    rig.broadcaster.shutdown().await;
    let (_, work) = rig.settled().await;
    assert_eq!(work.settled.standing.held.versions, 3);
    assert!(rig.works.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_back_does_not_hold_a_summary_back_for_longer() {
    let journal = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(journal.path(), 500);
    let start = Instant::now();
    rig.append(26, now_ms() + 86_400_000).await;
    rig.settled().await;
    assert_eq!(rig.settled().await.0, [[26]]);
    let waited = start.elapsed().as_secs();
    assert!((599..86_400).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn what_the_sink_does_not_want_brings_out_what_the_journal_has_no_room_for() {
    let journal = tempfile::tempdir().unwrap();
    let rig = Rig::new(journal.path(), 500);
    let quiet = Filter::compile("event.message == ''").unwrap();
    let mut rig = Rig::on(rig.log, BATCHES, Some(quiet), SIZE);
    rig.append(27, now_ms()).await;
    let (_, work) = rig.settled().await;
    assert_eq!((work.settled.standing.held.versions, work.settled.resumes.len()), (2, 0));
    // A sixteenth of what is the most that comes behind it.
    let message = "x".repeat(8 << 10);
    let mut behind = 0;
    let (sequences, work) = loop {
        rig.append_saying(&message, 1, now_ms()).await;
        behind += 1;
        let (sequences, work) = rig.settled().await;
        assert_eq!(
            (work.settled.totals.filtered, work.settled.standing.position.next),
            (1, 28 + behind)
        );
        if !work.batch.records.is_empty() {
            break (sequences, work);
        }
    };
    assert_eq!((behind, sequences), (16, vec![vec![26, 27]]));
    assert_eq!(work.settled.standing.held.versions, 0);
    assert!(
        !work.settled.resumes.is_empty() && work.settled.correlator.is_none(),
        "the log says it all"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_lost_is_settled_with_the_position_behind_it() {
    let journal = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(journal.path(), 500);
    for _ in 0..3 {
        rig.append(2, now_ms()).await;
    }
    let mut files = journal.path().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(|path| path.extension().is_some_and(|e| e == "log")).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let at = memchr::memmem::find(&bytes, b"e-3").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).unwrap();

    // There is room for two in a batch: the first one behind the gap sends those before it.
    let mut rig = Rig::on(rig.log, BatchOptions { bytes: 500, ..BATCHES }, None, SIZE);
    let (mut fates, mut position) = (0, Position::START);
    while position.next < 7 {
        let work = rig.works.recv().await.unwrap();
        fates += work.batch.records.len() as u64 + work.settled.totals.lost;
        position = work.settled.standing.position;
        assert!(work.settles);
        assert_eq!(position.ordinal(), fates);
    }
    assert_eq!(fates, 6);
}

#[tokio::test(start_paused = true)]
async fn another_size_of_the_journal_counts_once_that_is_saved_or_was_waited_for() {
    let journal = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(journal.path(), 500);
    rig.append(2, now_ms()).await;
    let mut rig = Rig::on(rig.log, BATCHES, None, 2 * SIZE);
    let (sequences, work) = rig.settled().await;
    assert_eq!((work.settled.correlator.unwrap().position.next, sequences), (3, vec![vec![1, 2]]));
    rig.append(1, now_ms()).await;
    assert!(timeout(Duration::from_secs(2), rig.settled()).await.is_err());
    work.settled.waiting.into_iter().for_each(|saved| saved.send(()).unwrap());
    assert_eq!(rig.settled().await.0, [[3]]);
    // A disk that does not answer holds nobody up.
    rig.append(2, now_ms()).await;
    let mut rig = Rig::on(rig.log, BATCHES, None, 4 * SIZE);
    let (_, work) = rig.settled().await;
    assert!(!work.settled.waiting.is_empty());
    rig.append(1, now_ms()).await;
    assert_eq!(rig.settled().await.0, [[6]]);
}
