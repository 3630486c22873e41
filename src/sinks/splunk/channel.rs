//! A channel of the event collector: acknowledgements are counted in it, and a load balancer in front finds the same
//! indexer for it again by its cookies.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use http::{
    HeaderName,
    header::{COOKIE, SET_COOKIE},
};

use crate::sinks::http::{Reply, Request};

const CHANNEL: HeaderName = HeaderName::from_static("x-splunk-request-channel");
/// More cookies than these bytes are not kept.
const MOST_COOKIES: usize = 4096;

/// One channel, of one request at a time.
pub(super) struct Channel {
    id: String,
    cookies: BTreeMap<String, String>,
}

/// Channels that no request uses.
#[derive(Default)]
pub(super) struct Channels(Mutex<Vec<Channel>>);

impl Channels {
    /// A channel that was used before, or a new one.
    pub(super) fn take(&self) -> Channel {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_else(Channel::new)
    }

    pub(super) fn give_back(&self, channel: Channel) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
    }
}

impl Channel {
    fn new() -> Self {
        let id = uuid::Builder::from_random_bytes(fastrand::u128(..).to_le_bytes()).into_uuid();
        Self { id: id.to_string(), cookies: BTreeMap::new() }
    }

    /// Sends a request in this channel.
    pub(super) fn put_on(&self, request: &mut Request) {
        request.header(CHANNEL, self.id.as_str());
        if !self.cookies.is_empty() {
            let cookies = self.cookies.iter().map(|(name, value)| format!("{name}={value}"));
            request.header(COOKIE, cookies.collect::<Vec<_>>().join("; "));
        }
    }

    /// Keeps the cookies that an answer sets.
    pub(super) fn keep_cookies(&mut self, reply: &Reply) {
        for cookie in reply.header_values(&SET_COOKIE) {
            let pair = cookie.split(';').next().unwrap_or_default();
            if let Some((name, value)) = pair.split_once('=') {
                self.cookies.insert(name.trim().to_owned(), value.trim().to_owned());
            }
        }
        let bytes = self.cookies.iter().map(|(name, value)| name.len() + value.len() + 3);
        if bytes.sum::<usize>() > MOST_COOKIES {
            self.cookies.clear();
        }
    }
}
