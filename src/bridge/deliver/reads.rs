//! Records that are read because they are not in memory: to be sent, copied, or put into a dead letter.

use std::time::Duration;

use futures_util::{FutureExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::{Content, Deliver, Source, hand::Fate};
use crate::{
    bridge::{
        SinkProgress,
        delivery::{Letter, Number},
        tasks::answer_of,
    },
    event::Record,
};

/// A copy is on its way to the disk for so long.
const SAVED_WITHIN: Duration = Duration::from_secs(5);
/// The pause after the journal could not be read.
const READ_RETRY: Duration = Duration::from_secs(1);

/// See the [module](self).
pub(super) type Reads = FuturesUnordered<BoxFuture<'static, Read>>;

/// What a record is read for.
pub(super) enum Purpose {
    /// To be saved as a copy.
    Copy,
    /// To be a dead letter.
    Letter(Letter),
}

/// A record that has been read.
pub(super) struct Read {
    number: Number,
    purpose: Purpose,
    /// Nothing if it is not there any more.
    record: Option<Record>,
}

impl Deliver {
    /// Has a record read.
    pub(super) fn read(&self, number: Number, purpose: Purpose) {
        let Some(content) = self.hand.content(number) else { return };
        let (source, progress) = (self.source.clone(), self.parts.progress.clone());
        let reading = async move {
            loop {
                match all(vec![content.clone()], &source, &progress).await {
                    Ok(mut records) => {
                        return Read { number, purpose, record: records.pop().flatten() };
                    }
                    Err(error) => {
                        let sink = &source.sink;
                        tracing::error!(sink, error, "the journal cannot be read: trying again");
                    }
                }
                sleep(READ_RETRY).await;
            }
        };
        self.reads.push(reading.boxed());
    }

    /// Takes a record that has been read.
    pub(super) fn has_read(&mut self, Read { number, purpose, record }: Read) {
        match (purpose, record) {
            (Purpose::Copy, Some(record)) => self.set_aside(number, record),
            // It is found to be gone when it is sent.
            (Purpose::Copy, None) => {}
            (Purpose::Letter(letter), Some(record)) => {
                let letter = self.letter_of(number, &record, &letter);
                self.hand.fate(number, Fate::DeadLettered(Some(Box::new(letter))));
            }
            (Purpose::Letter(_), None) => self.hand.fate(number, Fate::Lost),
        }
        self.settle(false);
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
    if records.iter().all(Option::is_some) {
        return Ok(records);
    }
    // A copy may still be on its way to the state.
    let _ = timeout(SAVED_WITHIN, progress.when_saved()).await;
    answer_of(read(contents)).await
}
