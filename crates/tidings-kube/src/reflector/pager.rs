//! Fetching a list in pages, into the store.

use bytes::Bytes;
use tokio::task::coop::consume_budget;

use super::{
    Follow, ListError, ListOptions, ListWatchError, Reflector, ReflectorStore, ReplaceReason,
    StepError, StoreClosed,
    list_items::{ListItems, ListMeta},
};

/// Items of a list are asked for in pages of this size, where nothing else is wished.
pub(super) const PAGE_SIZE: u32 = 500;
/// A list does not go on after so many pages in a row with nothing in them.
const EMPTY_PAGES: u32 = 100;
/// Items of a list go to the store in groups of this size.
const GROUP_BYTES: usize = 256 << 10;

/// A list that is whole.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// When it was taken, which is what its first page says.
    pub(super) resource_version: String,
    /// Whether it came in more than one answer.
    pub(super) in_pages: bool,
}

/// One answer.
struct Fetched {
    meta: ListMeta,
    items: usize,
}

/// Notices a continue token that comes again: it would lead round and round. Not all of them are
/// kept; one of a circle is remembered in the end, and comes again (Brent).
#[derive(Debug, Default)]
struct Tokens {
    remembered: String,
    since: u64,
    most: u64,
}

impl Tokens {
    fn comes_again(&mut self, token: &str) -> bool {
        if self.remembered == token {
            return true;
        }
        self.since += 1;
        if self.since > self.most {
            token.clone_into(&mut self.remembered);
            (self.since, self.most) = (0, 2 * self.since);
        }
        false
    }
}

impl<S: ReflectorStore> Reflector<S> {
    /// Feeds a list to the store, beginning with a page (client-go's `tools/pager`).
    ///
    /// A continue token lives as long as etcd's history. Where one has expired the whole list is
    /// asked for again, in one answer, which needs none. Where a cache is fed, that is said by the
    /// reason Expired only, as in client-go.
    pub(super) async fn pages(
        &mut self,
        reason: ReplaceReason,
        first: &ListOptions,
    ) -> Result<Listed, StepError> {
        let mut page = first.clone();
        let mut listed: Option<Listed> = None;
        let (mut tokens, mut empty) = (Tokens::default(), 0);
        let changes = matches!(self.options.follow, Follow::Changes { .. });
        loop {
            let Fetched { meta, items } = match self.page(&page).await {
                Err(StepError::Failed(error))
                    if !page.continue_token.is_empty()
                        && (error.has_reason("Expired") || (changes && error.is_expired())) =>
                {
                    tracing::info!(
                        source = self.options.name,
                        "the list outlived its continue token: listing without pages"
                    );
                    self.begin_again(reason).await?;
                    let whole =
                        self.page(&ListOptions { limit: None, ..first.clone() }).await?.meta;
                    // client-go takes what has come of it for all.
                    if changes && !whole.continue_token.is_empty() {
                        return Err(ListWatchError::from(ListError::Cut).into());
                    }
                    let resource_version = whole.resource_version;
                    return Ok(Listed { resource_version, in_pages: true });
                }
                listed => listed?,
            };
            empty = if items > 0 { 0 } else { empty + 1 };
            let in_pages = listed.is_some();
            let first = listed.take().map(|listed| listed.resource_version);
            let resource_version = first.unwrap_or(meta.resource_version);
            if meta.continue_token.is_empty() {
                return Ok(Listed { resource_version, in_pages });
            }
            if tokens.comes_again(&meta.continue_token) {
                return Err(ListWatchError::from(ListError::Endless).into());
            }
            if empty == EMPTY_PAGES {
                return Err(ListWatchError::from(ListError::Empty(empty)).into());
            }
            listed = Some(Listed { resource_version, in_pages: true });
            page = ListOptions {
                limit: page.limit,
                continue_token: meta.continue_token,
                ..ListOptions::default()
            };
        }
    }

    /// What has come of the list so far is forgotten.
    pub(super) async fn begin_again(&mut self, reason: ReplaceReason) -> Result<(), StoreClosed> {
        self.store.abort().await?;
        self.store.begin_replace(reason).await
    }

    async fn page(&mut self, page: &ListOptions) -> Result<Fetched, StepError> {
        self.locked(|health| health.lists += 1);
        let mut answer = self.source.list(page).await?;
        let (mut splitter, mut items, mut bytes) = (ListItems::new(), Vec::new(), 0);
        let mut kept = 0;
        while let Some(chunk) = answer.list_chunk().await? {
            consume_budget().await;
            splitter.push(&chunk, &mut items).map_err(ListWatchError::from)?;
            bytes += chunk.len();
            if bytes >= GROUP_BYTES {
                bytes = 0;
                kept += items.len();
                self.keep(std::mem::take(&mut items)).await?;
            }
            self.alive();
        }
        let meta = splitter.finish(&self.source.list_kind()).map_err(ListWatchError::from)?;
        kept += items.len();
        self.keep(items).await?;
        Ok(Fetched { meta, items: kept })
    }

    /// Gives the store some items, as long as it can keep the list.
    async fn keep(&mut self, items: Vec<Bytes>) -> Result<(), StepError> {
        self.store.replace_page(items).await?;
        match self.store.cannot_keep() {
            None => Ok(()),
            Some(reason) => {
                let call = self.source.call("list");
                Err(ListWatchError::NotKept { call, reason }.into())
            }
        }
    }
}
