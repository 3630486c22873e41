//! Records that are read because they are not in memory: to be sent, copied, put into a dead letter, or named.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::{Content, Dispatcher, Source, hand::Fate};
use crate::{
    bridge::{
        SinkProgress,
        sink::delivery::{GivenUp, Number},
        tasks::answer_of,
    },
    event::Record,
};

/// A copy is on its way to the disk for so long.
const SAVED_WITHIN: Duration = Duration::from_secs(5);
/// The pause after the journal could not be read.
pub(super) const READ_RETRY: Duration = Duration::from_secs(1);

/// So many reads are under way at once,
const UNDER_WAY: usize = 16;
/// and none begins that is to be saved while envelopes of so many bytes are: a namespace may have thousands of
/// records set aside at once.
const MOST_UNSAVED: usize = 16 << 20;

/// The reads of one sink, under way and waiting. See the [module](self).
#[derive(Default)]
pub(super) struct Reads {
    under_way: FuturesUnordered<BoxFuture<'static, Read>>,
    /// Those that begin when others have ended.
    waiting: VecDeque<(Number, Purpose)>,
}

impl Reads {
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// The next that has ended.
    pub(super) async fn next(&mut self) -> Option<Read> {
        self.under_way.next().await
    }

    /// Drops those that wait to bring records back: the program ends.
    pub(super) fn drop_returns(&mut self) {
        self.waiting.retain(|(_, purpose)| !matches!(purpose, Purpose::Back));
    }

    /// Begins as many of those that wait as may be under way; nothing stands for one that is not needed any more.
    fn begin(
        &mut self,
        mut begin: impl FnMut(Number, Purpose) -> Option<BoxFuture<'static, Read>>,
    ) {
        while self.under_way.len() < UNDER_WAY
            && let Some((number, purpose)) = self.waiting.pop_front()
        {
            self.under_way.extend(begin(number, purpose));
        }
    }
}

/// The use that a record is read for.
pub(super) enum Purpose {
    /// To be saved as a copy.
    Copy,
    /// To be a dead letter.
    DeadLetter(GivenUp),
    /// To be named, as others wait behind it.
    Name,
    /// To be brought back, as there is room for it.
    Back,
}

/// A record that has been read.
pub(super) struct Read {
    number: Number,
    purpose: Purpose,
    /// Nothing if it is not there any more.
    record: Option<Record>,
}

impl Dispatcher {
    /// Has a record read.
    pub(super) fn read(&mut self, number: Number, purpose: Purpose) {
        match purpose {
            Purpose::Name => self.reads.waiting.push_front((number, purpose)),
            Purpose::Copy | Purpose::DeadLetter(_) | Purpose::Back => {
                self.reads.waiting.push_back((number, purpose));
            }
        }
        self.begin_reads();
    }

    fn begin_reads(&mut self) {
        let Self { reads, hand, source, parts, .. } = self;
        reads.begin(|number, purpose| {
            let content = hand.content(number)?;
            let (source, progress) = (source.clone(), parts.progress.clone());
            Some(read(number, purpose, content, source, progress).boxed())
        });
    }

    /// Takes a record that has been read.
    pub(super) fn has_read(&mut self, Read { number, purpose, record }: Read) {
        match (purpose, record) {
            (Purpose::Copy, Some(record)) => self.set_aside(number, record),
            // It is found to be gone when it is sent.
            (Purpose::Copy, None) => {}
            (Purpose::DeadLetter(letter), Some(record)) => {
                let letter = self.letter_of(number, &record, &letter);
                self.hand.fate(number, Fate::DeadLettered(Some(Box::new(letter))));
            }
            (Purpose::DeadLetter(_), None) => self.hand.fate(number, Fate::Lost),
            (Purpose::Name, record) => self.has_read_head(number, record.as_ref()),
            (Purpose::Back, record) => {
                let ticket = record.map(|record| self.tickets.ticket(&record, true));
                self.delivery.bring_back(number, ticket);
                if ticket.is_none() {
                    self.lose(number..number + 1);
                }
            }
        }
        self.settle(false);
        self.begin_reads();
    }
}

/// Reads a record, however often that has to be tried.
async fn read(
    number: Number,
    purpose: Purpose,
    content: Content,
    source: Source,
    progress: Arc<SinkProgress>,
) -> Read {
    let is_saved = matches!(purpose, Purpose::Copy | Purpose::DeadLetter(_));
    if is_saved && progress.unsaved_bytes() > MOST_UNSAVED {
        // Nobody saves any more where the program ends.
        let _ = progress.when_saved().await;
    }
    loop {
        match all(vec![content.clone()], &source, &progress).await {
            Ok(mut records) => return Read { number, purpose, record: records.pop().flatten() },
            Err(error) => {
                let sink = &source.sink;
                tracing::error!(sink, error, "the journal cannot be read: trying again");
            }
        }
        sleep(READ_RETRY).await;
    }
}

/// Reads records, those that are not in memory on a thread that may block. Nothing stands for one that is
/// not there any more.
///
/// # Errors
///
/// The journal cannot be read now, in words.
pub(super) async fn all(
    contents: Vec<Content>,
    source: &Source,
    progress: &SinkProgress,
) -> Result<Vec<Option<Record>>, String> {
    if contents.iter().all(|content| matches!(content, Content::Record(_))) {
        let record = |content| match content {
            Content::Record(record) => Some(record),
            Content::Saved(_) | Content::Logged(..) => None,
        };
        return Ok(contents.into_iter().map(record).collect());
    }
    let read = |contents: Vec<Content>| {
        let source = source.clone();
        spawn_blocking(move || contents.into_iter().map(|content| content.read(&source)).collect())
    };
    let records: Vec<_> = answer_of::<Result<_, _>>(read(contents.clone())).await?;
    let is_missing = |(content, record): (&Content, &Option<_>)| {
        record.is_none() && matches!(content, Content::Saved(_))
    };
    // What the log does not have is gone.
    if !contents.iter().zip(&records).any(is_missing) {
        return Ok(records);
    }
    // A copy may still be on its way to the state: until it is there, it is not gone.
    match timeout(SAVED_WITHIN, progress.when_saved()).await {
        Ok(Ok(())) => answer_of(read(contents)).await,
        _ => Err("a copy is not on the disk yet".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bridge::Overflow,
        journal::{Directory, Log, LogOptions, SinkState, State, Sync},
    };

    #[tokio::test]
    async fn few_of_many_reads_are_under_way_at_once() {
        let mut reads = Reads::default();
        reads.waiting.extend((0..100).map(|number| (number, Purpose::Copy)));
        let mut ended = Vec::new();
        loop {
            // One in two is not needed any more.
            reads.begin(|number, purpose| {
                let read = async move { Read { number, purpose, record: None } };
                (number % 2 == 0).then(|| read.boxed())
            });
            assert!(reads.under_way.len() <= 16);
            let Some(read) = reads.next().await else { break };
            ended.push(read.number);
        }
        ended.sort_unstable();
        assert_eq!(ended, (0..100).step_by(2).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_is_read_back_where_the_program_ends() {
        let mut reads = Reads::default();
        reads.waiting.extend([(1, Purpose::Back), (2, Purpose::Copy), (3, Purpose::Back)]);
        reads.drop_returns();
        assert!(reads.waiting.iter().map(|(number, _)| *number).eq([2]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_that_is_not_saved_yet_is_waited_for_and_not_gone() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let (state, _) = State::open(&directory, 0, 0).unwrap();
        let options = LogOptions {
            retention_size: 1 << 20,
            retention_age: Duration::from_secs(60),
            sync: Sync::Never,
        };
        let (log, _) = Log::open(&directory, options, 0, 0).unwrap();
        let source = Source { sink: "a".into(), log: log.handle(), set_aside: state.set_aside() };
        let progress =
            SinkProgress::new("a", "webhook", Overflow::Block, SinkState::default(), None);
        let unsaved = Err("a copy is not on the disk yet".to_owned());
        for (content, answer) in
            [(Content::Logged(1, None), Ok(vec![None])), (Content::Saved(1), unsaved)]
        {
            let waits = answer.is_err();
            assert_eq!(all(vec![content], &source, &progress).await, answer);
            let waited = progress.take_changes().is_some_and(|c| !c.unsaved.waiting.is_empty());
            assert_eq!(waited, waits);
        }
    }
}
