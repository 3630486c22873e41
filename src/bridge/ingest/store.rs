//! The store that a reflector of the bridge feeds: it sends everything to the ingest thread.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use bytes::Bytes;
use tidings_kube::reflector::{
    Applied, ReflectorStore, ReplaceReason, Replaced, StoreClosed, WatchEvent, resource_version_of,
};
use tokio::sync::{mpsc, oneshot};

use super::Message;
use crate::bridge::shared::{lock, now_ms};

/// Which list of a source ingest cannot keep, by its number, and why; clones are the same.
#[derive(Clone, Debug, Default)]
pub(in crate::bridge) struct NotKept(Arc<Mutex<Option<(u64, String)>>>);

impl NotKept {
    pub(super) fn set(&self, list: u64, reason: String) {
        *lock(&self.0) = Some((list, reason));
    }

    fn of(&self, list: u64) -> Option<String> {
        let not_kept = lock(&self.0);
        not_kept.as_ref().filter(|(number, _)| *number == list).map(|(_, reason)| reason.clone())
    }
}

/// The end of the channel that a reflector of one source holds.
pub(in crate::bridge) struct JournalStore {
    source: usize,
    messages: mpsc::Sender<Message>,
    /// How many lists have begun.
    lists: u64,
    not_kept: NotKept,
}

impl JournalStore {
    pub(in crate::bridge) fn new(
        source: usize,
        messages: mpsc::Sender<Message>,
        not_kept: NotKept,
    ) -> Self {
        Self { source, messages, lists: 0, not_kept }
    }

    async fn send(&self, message: Message) -> Result<(), StoreClosed> {
        self.messages.send(message).await.map_err(|_| StoreClosed)
    }
}

impl ReflectorStore for JournalStore {
    async fn begin_replace(&mut self, reason: ReplaceReason) -> Result<(), StoreClosed> {
        let asked_ms = now_ms();
        self.lists += 1;
        let (source, list) = (self.source, self.lists);
        self.send(Message::BeginReplace { source, list, reason, asked_ms }).await
    }

    async fn replace_page(&mut self, items: Vec<Bytes>) -> Result<(), StoreClosed> {
        // Before it may have to wait for ingest.
        let (came_ms, read) = (now_ms(), Instant::now());
        self.send(Message::Page { source: self.source, items, came_ms, read }).await
    }

    fn cannot_keep(&self) -> Option<String> {
        self.not_kept.of(self.lists)
    }

    async fn end_replace(&mut self, resource_version: &str) -> Result<Replaced, StoreClosed> {
        let resource_version = number(resource_version);
        let (kept, answer) = oneshot::channel();
        self.send(Message::EndReplace { source: self.source, resource_version, kept }).await?;
        answer.await.map_err(|_| StoreClosed)
    }

    async fn abort(&mut self) -> Result<(), StoreClosed> {
        self.send(Message::Abort { source: self.source }).await
    }

    async fn apply(&mut self, events: Vec<WatchEvent>) -> Result<Applied, StoreClosed> {
        let read = Instant::now();
        let last = events.iter().rev().find_map(|event| resource_version_of(&event.object));
        let applied = Applied {
            taken: events.len() as u64,
            resource_version: last.map(|version| version.to_string()),
        };
        self.send(Message::Apply { source: self.source, events, read }).await?;
        Ok(applied)
    }

    async fn caught_up(&mut self, at_ms: u64) -> Result<(), StoreClosed> {
        self.send(Message::CaughtUp { source: self.source, at_ms }).await
    }

    /// The journal holds nothing that could be told again.
    async fn resync(&mut self) -> Result<(), StoreClosed> {
        Ok(())
    }

    async fn start_at(&mut self, resource_version: &str) -> Result<(), StoreClosed> {
        let resource_version = number(resource_version);
        self.send(Message::StartAt { source: self.source, resource_version }).await
    }
}

/// A reflector that follows changes takes no list whose resourceVersion is no number.
fn number(resource_version: &str) -> u64 {
    resource_version.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Has a store send something while ingest has others in hand; answers what came of it, and
    /// when it waited already.
    async fn waiting<F: Future<Output = ()> + Send + 'static>(
        send: impl FnOnce(JournalStore) -> F,
    ) -> (Message, Instant, u64) {
        let (messages, mut received) = mpsc::channel(1);
        let store = JournalStore::new(0, messages.clone(), NotKept::default());
        messages.send(Message::Tick).await.unwrap();
        let sent = tokio::spawn(send(store));
        tokio::task::yield_now().await;
        let (waits, waits_ms) = (Instant::now(), now_ms());
        while now_ms() == waits_ms {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(matches!(received.recv().await, Some(Message::Tick)));
        let message = received.recv().await.unwrap();
        sent.await.unwrap();
        (message, waits, waits_ms)
    }

    #[tokio::test]
    async fn a_page_that_waits_for_ingest_is_of_when_it_came() {
        let send = |mut store: JournalStore| async move {
            store.replace_page(Vec::new()).await.unwrap();
        };
        let (message, waits, waits_ms) = waiting(send).await;
        let Message::Page { came_ms, read, .. } = message else { panic!("no page") };
        assert!(came_ms <= waits_ms && read <= waits);
    }

    #[tokio::test]
    async fn a_change_that_waits_for_ingest_is_of_when_it_was_read() {
        let send = |mut store: JournalStore| async move {
            store.apply(Vec::new()).await.unwrap();
        };
        let (message, waits, _) = waiting(send).await;
        let Message::Apply { read, .. } = message else { panic!("no change") };
        assert!(read <= waits);
    }
}
