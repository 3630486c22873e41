//! The frames of the journal in order, for one sink: live from the broadcaster while it keeps up,
//! from the log while it does not, with neither a gap nor a repeat where the two meet.
//!
//! Registered first, the log is read until nothing is left; by then it has given everything that
//! was published before the registration, and the channel holds what came after. What both gave
//! is dropped by its sequence.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use tidings_kube::broadcaster::{Broadcaster, FullChannel, Watcher};
use tidings_log::{Frame, LogHandle, Position, Reader};
use tokio::task::{JoinHandle, spawn_blocking};

use super::{correlation::Names, published::Published, tasks::answer_of, watchdog::Pulse};
use crate::event::Record;

/// What a sink's live channel holds before it is spilled.
pub(super) const LIVE: FullChannel<Published> =
    FullChannel::Spill { items: 1024, bytes: 4 << 20, weigh: Published::bytes };
/// How much of the log is read at once.
const READ_BYTES: usize = 1 << 20;
/// The pause after the log could not be read.
const READ_RETRY: Duration = Duration::from_secs(1);

/// A frame as far as the sink has not had it.
#[derive(Debug)]
pub(super) struct Fed {
    published: Published,
    /// Where the sink stood before.
    from: u64,
    /// Records between there and here that exist no longer: retention or damage took them.
    pub(super) lost: u64,
}

impl Fed {
    /// The frame.
    pub(super) fn frame(&self) -> &Frame {
        &self.published.frame
    }

    /// The sequence up to which the sink has been given everything before.
    pub(super) fn from(&self) -> u64 {
        self.from
    }

    /// The records that the sink has not had.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.frame().records().map(Record::from).filter(|record| record.seq >= self.from)
    }

    /// Under which keys one of them is correlated, where that is known already.
    pub(super) fn names(&self, seq: u64) -> Option<&Names> {
        self.published.names(seq)
    }
}

type ReadTask = JoinHandle<(Reader, io::Result<Vec<Arc<Frame>>>)>;

enum Mode {
    /// Reading the log; with a watcher, to join it.
    Reading {
        task: ReadTask,
        watcher: Option<Watcher<Published>>,
    },
    /// The log was read to its end without a watcher.
    Register {
        reader: Option<Reader>,
    },
    Live(Watcher<Published>),
    /// The broadcaster has stopped and the log was read to its end.
    Ended,
}

/// See the [module](self).
pub(super) struct Feed {
    log: LogHandle,
    broadcaster: Broadcaster<Published>,
    position: Position,
    mode: Mode,
    stopped: bool,
    fetched: VecDeque<Published>,
    /// Of reading the log.
    pulse: Pulse,
}

impl Feed {
    /// A feed that goes on at `position`. The broadcaster is one that spills.
    pub(super) fn new(
        log: LogHandle,
        broadcaster: Broadcaster<Published>,
        position: Position,
        pulse: Pulse,
    ) -> Self {
        let task = read(log.reader(position.next), &pulse);
        let mode = Mode::Reading { task, watcher: None };
        Self { log, broadcaster, position, mode, stopped: false, fetched: VecDeque::new(), pulse }
    }

    /// The next frame; `None` when the broadcaster has been shut down and nothing is left.
    /// Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Option<Fed> {
        loop {
            while let Some(published) = self.fetched.pop_front() {
                if let Some(fed) = self.take(published) {
                    return Some(fed);
                }
            }
            match &mut self.mode {
                Mode::Live(watcher) => match watcher.next().await {
                    Some(published) => self.fetched.push_back(published),
                    None => {
                        self.stopped = !watcher.spilled();
                        self.read_on(None);
                    }
                },
                Mode::Reading { task, .. } => {
                    let read = answer_of(task).await;
                    self.after_read(read).await;
                }
                Mode::Register { reader } => {
                    let watcher = self.broadcaster.watch().await.ok();
                    self.stopped |= watcher.is_none();
                    match reader.take() {
                        Some(reader) => {
                            let task = read(reader, &self.pulse);
                            self.mode = Mode::Reading { task, watcher };
                        }
                        None => self.read_on(watcher),
                    }
                }
                Mode::Ended => return None,
            }
        }
    }

    /// The sequence of the next record.
    pub(super) fn next_sequence(&self) -> u64 {
        self.position.next
    }

    /// Whether everything journalled so far has been given, or is about to be published.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.mode, Mode::Live(_)) && self.fetched.is_empty()
    }

    fn read_on(&mut self, watcher: Option<Watcher<Published>>) {
        let task = read(self.log.reader(self.position.next), &self.pulse);
        self.mode = Mode::Reading { task, watcher };
    }

    async fn after_read(&mut self, read_result: (Reader, io::Result<Vec<Arc<Frame>>>)) {
        let mode = std::mem::replace(&mut self.mode, Mode::Register { reader: None });
        let Mode::Reading { watcher, .. } = mode else { return };
        match read_result {
            (reader, Ok(frames)) if frames.is_empty() => {
                self.mode = match watcher {
                    Some(watcher) => Mode::Live(watcher),
                    None if self.stopped => Mode::Ended,
                    None => Mode::Register { reader: Some(reader) },
                };
            }
            (reader, Ok(frames)) => {
                self.fetched.extend(frames.into_iter().map(Published::from));
                self.mode = Mode::Reading { task: read(reader, &self.pulse), watcher };
            }
            (_, Err(error)) => {
                tracing::error!(%error, "the journal cannot be read: trying again");
                // In the mode of registering, a drop of this future costs the wait and no more.
                tokio::time::sleep(READ_RETRY).await;
                self.read_on(None);
            }
        }
    }

    /// Moves past a frame; `None` if it was had before.
    fn take(&mut self, published: Published) -> Option<Fed> {
        let frame = &published.frame;
        let before = self.position;
        let had = frame.next() <= before.next && frame.count() > 0
            || frame.first < before.next && frame.count() == 0;
        if had {
            return None;
        }
        let start = Position { next: frame.first, skipped: frame.skipped };
        let lost = start.ordinal().saturating_sub(before.ordinal());
        if lost > 0 && matches!(self.mode, Mode::Live(_)) {
            // Only the log can tell whether they are gone.
            self.fetched.clear();
            self.read_on(None);
            return None;
        }
        self.position = Position { next: frame.next(), skipped: frame.skipped };
        Some(Fed { published, from: before.next, lost })
    }
}

fn read(mut reader: Reader, pulse: &Pulse) -> ReadTask {
    let pulse = pulse.clone();
    spawn_blocking(move || {
        pulse.works("reading the journal");
        let frames = reader.read(READ_BYTES);
        pulse.rests();
        (reader, frames)
    })
}

#[cfg(test)]
mod tests;
