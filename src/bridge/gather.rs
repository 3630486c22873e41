//! The first half of a sink's watcher: from frames to batches.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    BatchOptions, Filter, SinkProgress,
    feed::{Fed, Feed},
};
use crate::{
    event::{Batch, Record},
    journal::{Position, Resume},
};

/// A batch and all that is settled with it.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// What is to be delivered; may be empty.
    pub(super) batch: Batch,
    /// Everything before it has a fate once the batch has.
    pub(super) position: Position,
    /// Records between that `match` did not want.
    pub(super) filtered: u64,
    /// Records between that were gone before they could be read.
    pub(super) lost: u64,
    /// Resume points that are covered with it.
    pub(super) resumes: Vec<(Arc<str>, Resume)>,
    /// The ingest time of its first record, in milliseconds since the epoch.
    pub(super) oldest_ms: u64,
}

/// See the [module](self).
pub(super) struct Gather {
    options: BatchOptions,
    filter: Option<Filter>,
    progress: Arc<SinkProgress>,
    out: mpsc::Sender<Work>,
    work: Work,
    bytes: usize,
    /// When the batch in hand leaves at the latest.
    due: Option<Instant>,
}

/// Delivery has ended.
struct Closed;

impl Gather {
    /// Gathers what comes after the sink's position.
    pub(super) fn new(
        options: BatchOptions,
        filter: Option<Filter>,
        progress: Arc<SinkProgress>,
        out: mpsc::Sender<Work>,
    ) -> Self {
        // A run in which nothing comes ends where it began.
        let work = Work { position: progress.snapshot().position, ..Work::default() };
        Self { options, filter, progress, out, work, bytes: 0, due: None }
    }

    /// Runs until the feed or the delivery ends.
    pub(super) async fn run(mut self, mut feed: Feed) {
        loop {
            let due = self.due.unwrap_or_else(|| Instant::now() + Duration::from_hours(1));
            let gone_on = tokio::select! {
                // A full batch is worth more than a punctual one.
                biased;
                fed = feed.next() => match fed {
                    Some(fed) => self.take(&fed).await,
                    None => {
                        // What is in hand goes out; whether it arrives before the end is delivery's matter.
                        let _ = self.flush().await;
                        return;
                    }
                },
                () = sleep_until(due), if self.due.is_some() => self.flush().await,
            };
            if gone_on.is_err() {
                return;
            }
        }
    }

    async fn take(&mut self, fed: &Fed) -> Result<(), Closed> {
        if fed.lost > 0 {
            let sink = self.progress.snapshot().name;
            tracing::error!(
                sink,
                lost = fed.lost,
                "records were lost: the journal dropped them before this sink had them"
            );
        }
        self.work.lost += fed.lost;
        for record in fed.records() {
            let position = Position { next: record.seq + 1, skipped: fed.frame.skipped };
            if !self.wants(&record) {
                self.work.filtered += 1;
                self.work.position = position;
                continue;
            }
            let size = record.envelope.len();
            if !self.work.batch.records.is_empty() && self.bytes + size > self.max_bytes() {
                self.flush().await?;
            }
            if self.work.batch.records.is_empty() {
                self.work.oldest_ms = fed.frame.time_ms;
                self.due = Some(Instant::now() + self.options.linger);
            }
            self.bytes += size;
            self.work.batch.records.push(record);
            self.work.position = position;
            if self.work.batch.records.len() >= self.options.events
                || self.bytes >= self.max_bytes()
            {
                self.flush().await?;
            }
        }
        self.work.position = Position { next: fed.frame.next(), skipped: fed.frame.skipped };
        self.work.resumes.push((Arc::clone(&fed.frame.source), fed.frame.resume));
        if self.work.batch.records.is_empty() || self.due.is_some_and(|due| due <= Instant::now()) {
            self.flush().await?;
        }
        Ok(())
    }

    fn max_bytes(&self) -> usize {
        usize::try_from(self.options.bytes).unwrap_or(usize::MAX)
    }

    fn wants(&self, record: &Record) -> bool {
        let Some(filter) = &self.filter else { return true };
        match filter.wants(record) {
            Ok(wanted) => wanted,
            Err(error) => {
                let mut before = 0;
                self.progress.update(|sink| {
                    before = sink.match_errors;
                    sink.match_errors += 1;
                });
                if before == 0 {
                    tracing::warn!(id = record.id(), %error, "match cannot be evaluated for this event: it is let through, and counted");
                }
                true
            }
        }
    }

    async fn flush(&mut self) -> Result<(), Closed> {
        self.due = None;
        self.bytes = 0;
        // The position stands; the next work starts from it.
        let next = Work { position: self.work.position, ..Work::default() };
        let work = std::mem::replace(&mut self.work, next);
        self.out.send(work).await.map_err(|_| Closed)
    }
}
