//! The step that lists.

use super::{
    Backoff, BackoffManager, Follow, ListOptions, ListWatchError, Reflector, ReflectorStore,
    ReplaceReason, Replaced, State, StepError, StoreClosed, Turn,
    catch_up::{Moment, ServerAt},
    pager::{Listed, PAGE_SIZE},
};

impl<S: ReflectorStore> Reflector<S> {
    pub(super) async fn list(&mut self, reason: ReplaceReason) -> Result<Turn, StoreClosed> {
        // A list is of when it was asked for, however long it takes.
        let asked = Moment::now();
        self.store.begin_replace(reason).await?;
        let page = self.first_page();
        let mut listed = self.pages(reason, &page).await;
        if let Err(StepError::Failed(error)) = &listed
            && self.may_ask_for_less(error)
        {
            // As old as it may be, or newer than the API server is: whatever is newest will do.
            self.last_unavailable = true;
            self.begin_again(reason).await?;
            let newest = ListOptions { resource_version: String::new(), ..page.clone() };
            listed = self.pages(reason, &newest).await;
        }
        let listed = match listed {
            Ok(listed) => self.checked(listed),
            Err(StepError::Failed(error)) => Err(error),
            Err(StepError::Closed) => return Err(StoreClosed),
        };
        let Listed { resource_version, in_pages } = match listed {
            Ok(listed) => listed,
            Err(error) => {
                self.store.abort().await?;
                let again = self.list_again(reason);
                return Ok(self.failed(&error, again));
            }
        };
        if let Some(epoch) = self.new_epoch(&resource_version, reason) {
            self.store.abort().await?;
            return Ok(Turn::at_once(epoch));
        }
        if page.resource_version == "0" && in_pages {
            self.paginated = true;
        }
        self.last_unavailable = false;
        match self.store.end_replace(&resource_version).await? {
            Replaced::Kept => {}
            Replaced::NotKept => {
                let again = self.list_again(reason);
                return Ok(self.not_kept(again));
            }
            Replaced::Partly => {
                // A pass that brought something is no failure: the waits begin anew.
                self.backoff = BackoffManager::new(Backoff::REFLECTOR);
                let again = self.list_again(reason);
                return Ok(self.backed_off(again));
            }
            Replaced::OtherHistory => {
                return Ok(Turn::at_once(State::List(ReplaceReason::NewEpoch)));
            }
        }
        self.seen(resource_version);
        self.caught_up_at(asked.ms);
        if let Follow::Changes { .. } = self.options.follow {
            self.server = Some(ServerAt { version: self.last_number(), asked });
        }
        Ok(Turn::at_once(self.first_watch(None)))
    }

    /// How a list is to be asked for.
    ///
    /// Of client-go: the first may be as old as the API server's cache, the next not older than what
    /// was seen last, and after that was refused it is to be the newest. What has to be read from
    /// etcd anyway, or might have to, is read in pages; the API server answers the rest out of its
    /// cache, if no pages are asked for.
    ///
    /// A log needs consistent lists, and those are read from etcd.
    fn first_page(&self) -> ListOptions {
        if matches!(self.options.follow, Follow::Changes { .. }) {
            let limit = Some(self.options.page_size.unwrap_or(PAGE_SIZE));
            return ListOptions { limit, ..ListOptions::default() };
        }
        let resource_version = match &*self.last {
            _ if self.last_unavailable => String::new(),
            "" => "0".to_owned(),
            last => last.to_owned(),
        };
        let from_etcd = self.paginated || matches!(&*resource_version, "" | "0");
        let limit = match self.options.page_size {
            Some(size) if size > 0 => Some(size),
            _ => from_etcd.then_some(PAGE_SIZE),
        };
        ListOptions { limit, resource_version, ..ListOptions::default() }
    }

    fn may_ask_for_less(&self, error: &ListWatchError) -> bool {
        self.options.follow == Follow::State
            && (error.is_expired() || error.is_too_large_resource_version())
    }

    /// `next`, after the pause that follows a list that the store did not take.
    pub(super) fn not_kept(&mut self, next: State) -> Turn {
        match self.store.cannot_keep() {
            None => self.backed_off(next),
            Some(reason) => {
                self.not_kept = true;
                let call = self.source.call("list");
                self.failed(&ListWatchError::NotKept { call, reason }, next)
            }
        }
    }

    /// The step to take again after a list that failed.
    fn list_again(&self, reason: ReplaceReason) -> State {
        match self.options.follow {
            Follow::State => self.round(),
            Follow::Changes { .. } => State::List(reason),
        }
    }

    /// Refuses a list whose resourceVersion is no number, where it has to be one.
    fn checked(&self, listed: Listed) -> Result<Listed, ListWatchError> {
        if let Follow::Changes { .. } = self.options.follow {
            super::probe::number(&listed.resource_version)?;
        }
        Ok(listed)
    }
}
