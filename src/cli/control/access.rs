//! Dead letters, wherever they are: with a running bridge, or in the journal of a stopped one.

use form_urlencoded::Serializer;

use super::{Failure, client::Client, stopped::Stopped};
use crate::{
    admin::api::{Affected, DeadLetterPage, DeadLetterView, MAX_PAGE, PutAway, Selection},
    bridge::HeldUp,
    config::JournalOnly,
};

pub(super) enum DeadLetters<'a> {
    Running(Client<'a>),
    Stopped(Stopped<'a>),
}

impl<'a> DeadLetters<'a> {
    /// Those of the bridge whose journal it is.
    pub(super) async fn of(of: &'a JournalOnly) -> Result<Self, Failure> {
        Ok(match Client::find(&of.journal.path).await? {
            Some(client) => Self::Running(client),
            None => Self::Stopped(Stopped::open(of)?),
        })
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self, Self::Running(_))
    }

    pub(super) async fn list(
        &self,
        sink: Option<&str>,
        class: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<DeadLetterView>, bool), Failure> {
        let client = match self {
            Self::Running(client) => client,
            Self::Stopped(journal) => return journal.list(sink, class, limit),
        };
        // One more than is shown tells whether there are more.
        let wanted = limit.saturating_add(1);
        let (mut letters, mut before) = (Vec::new(), None);
        while letters.len() < wanted {
            let size = MAX_PAGE.min(wanted - letters.len());
            let path = page_path(sink, class, size, before);
            let page: DeadLetterPage = client.get(&path).await?;
            letters.extend(page.dead_letters);
            before = page.before;
            if before.is_none() {
                break;
            }
        }
        let more = letters.len() > limit;
        letters.truncate(limit);
        Ok((letters, more))
    }

    pub(super) async fn show(&self, number: u64) -> Result<DeadLetterView, Failure> {
        match self {
            Self::Running(client) => client.get(&format!("/api/v1/dead-letters/{number}")).await,
            Self::Stopped(journal) => journal.show(number),
        }
    }

    /// Has them sent again; answers how many they are.
    pub(super) async fn retry(&mut self, which: Selection) -> Result<u64, Failure> {
        match self {
            Self::Running(client) => {
                let done: Affected = client.post("/api/v1/dead-letters/retry", &which).await?;
                Ok(done.dead_letters)
            }
            Self::Stopped(journal) => journal.retry(which),
        }
    }

    /// Puts away what holds events up at a sink; answers what that was.
    pub(super) async fn put_away(&self, sink: String) -> Result<HeldUp, Failure> {
        match self {
            Self::Running(client) => {
                client.post("/api/v1/dead-letters/put-away", &PutAway { sink }).await
            }
            Self::Stopped(_) => Err(Failure::new(
                "the bridge is not running: nothing waits",
                "start it: events that fail are then held up again",
            )),
        }
    }

    /// Forgets them; answers how many they were.
    pub(super) async fn drop_letters(&mut self, which: Selection) -> Result<u64, Failure> {
        match self {
            Self::Running(client) => {
                let done: Affected = client.post("/api/v1/dead-letters/drop", &which).await?;
                Ok(done.dead_letters)
            }
            Self::Stopped(journal) => journal.drop_letters(which),
        }
    }
}

fn page_path(sink: Option<&str>, class: Option<&str>, limit: usize, before: Option<u64>) -> String {
    let path = "/api/v1/dead-letters?".to_owned();
    let end = path.len();
    let mut query = Serializer::for_suffix(path, end);
    query.append_pair("limit", &limit.to_string());
    for (key, value) in [("sink", sink), ("class", class)] {
        query.extend_pairs(value.map(|value| (key, value)));
    }
    query.extend_pairs(before.map(|before| ("before", before.to_string())));
    query.finish()
}
