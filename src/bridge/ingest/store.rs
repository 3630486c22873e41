//! The store that a reflector of the bridge feeds: it sends everything to the ingest thread.

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::Message;
use crate::cache::{ReplaceReason, Store, StoreClosed, WatchEvent};

/// The end of the channel that a reflector of one source holds.
#[derive(Clone)]
pub(in crate::bridge) struct JournalStore {
    pub(in crate::bridge) source: usize,
    pub(in crate::bridge) messages: mpsc::Sender<Message>,
}

impl JournalStore {
    async fn send(&self, message: Message) -> Result<(), StoreClosed> {
        self.messages.send(message).await.map_err(|_| StoreClosed)
    }
}

impl Store for JournalStore {
    async fn begin_replace(&mut self, reason: ReplaceReason) -> Result<(), StoreClosed> {
        self.send(Message::BeginReplace { source: self.source, reason }).await
    }

    async fn replace_page(&mut self, items: Vec<Bytes>) -> Result<(), StoreClosed> {
        self.send(Message::Page { source: self.source, items }).await
    }

    async fn end_replace(&mut self, resource_version: u64) -> Result<bool, StoreClosed> {
        let (kept, answer) = oneshot::channel();
        self.send(Message::EndReplace { source: self.source, resource_version, kept }).await?;
        answer.await.map_err(|_| StoreClosed)
    }

    async fn abort(&mut self) -> Result<(), StoreClosed> {
        self.send(Message::Abort { source: self.source }).await
    }

    async fn apply(&mut self, events: Vec<WatchEvent>) -> Result<(), StoreClosed> {
        self.send(Message::Apply { source: self.source, events }).await
    }

    async fn start_at(&mut self, resource_version: u64) -> Result<(), StoreClosed> {
        self.send(Message::StartAt { source: self.source, resource_version }).await
    }
}
