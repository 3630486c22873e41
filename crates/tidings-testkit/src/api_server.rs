//! An in-process Kubernetes API server, over real HTTP: for tests, examples, the demo and benches.
//!
//! It serves the resources that every cluster has, and [more](Options::resources) if told of them:
//! get, list, watch, create, update, patch and delete, for all of them at one revision, as on etcd.
//! It behaves as a kube-apiserver 1.34 does; `tests/e2e/imitation.rs` asks both the same.
//!
//! - **Events** it keeps, as that does, no watch cache of: each list reads the store at one
//!   revision, a page's continue token names that revision, a version is resumable until
//!   compaction, a stale one shows as an ERROR in the stream, a future one on a list is 504 and on
//!   a watch is silence, and no bookmarks come.
//! - **Everything else** has a watch cache: a list of version 0 ignores its limit, a future version
//!   is 504 with `Retry-After`, bookmarks come to who takes them, and a list can be streamed
//!   (`sendInitialEvents`).
//! - Objects come without spec and status to who asks for `PartialObjectMetadata`. Label and field
//!   selectors, discovery and `/version` are there.
//!
//! It can be told to misbehave ([`Fault`], for one resource: [`On::of`]), to compact, to forget
//! ([`ApiServer::expire_ttl`]), to be restored from a snapshot and to go away and come back. It
//! counts what it is asked ([`ApiServer::request_counts`]) and can be filled with a large cluster
//! ([`ApiServer::populate`]).
//!
//! What it is not: it knows the members of Events and no others, so it fills in no defaults,
//! validates no spec and takes a strategic merge patch for a merge patch. Deletion is immediate: no
//! grace period, finalizers or garbage collection. There are no subresources, no protobuf, no
//! server-side apply and no deletion of collections; and nobody needs to log in. A version of the
//! future is refused at once, where the real server waits 3 s for it. The watch cache goes back as
//! far as the last compaction, where the real one's has a size of its own. Its memory grows with
//! each write until it is told to compact.
//!
//! HTTP is spoken by hand, because a stream must be cut in the middle of a character, a chunk or
//! a connection, which a library rightly prevents.

mod documents;
mod faults;
mod list;
mod object;
mod objects;
mod params;
mod population;
mod replay;
mod resource;
mod route;
mod selector;
mod serve;
mod shape;
mod shared;
mod state;
mod status;
mod stored;
mod table;
mod watch;

#[cfg(test)]
mod tests;

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::Value;
use tokio::{io::DuplexStream, net::TcpListener, sync::watch as signal, task::JoinHandle};

pub use self::{
    faults::{Fault, FaultId, On, Place, Scope, StreamFault},
    object::{
        EventObject, EventSeries, ObjectMeta, ObjectRef, Source, micros, recorder_name, seconds,
    },
    population::{Churned, Member, Population},
    replay::{Prepared, sent_at, stamp},
    resource::Resource,
    route::Verb,
    state::Written,
    status::ApiStatus,
};
use self::{
    resource::{Catalogue, EVENTS, PerResource},
    shared::{Feed, Shared, lock},
    state::State,
};
pub use crate::http::{Ending, Request};
use crate::http::{Stream, listen};

/// What a table keeps an object by: `namespace/name`, or the name of one of the whole cluster.
fn object_key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// How the server is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens; port 0 for any.
    pub address: SocketAddr,
    /// The revision it starts at: other resources were written before the first Event.
    pub revision: u64,
    /// The uid of the namespace kube-system, which identifies the cluster.
    pub cluster_uid: String,
    /// Who a 403 says the client is.
    pub user: String,
    /// Lists larger than this many bytes are compressed for clients that take gzip.
    pub gzip_above: usize,
    /// How often a watch that takes bookmarks gets one. Events have none.
    pub bookmark_every: Duration,
    /// What it serves beside the resources that every cluster has, for instance custom ones.
    pub resources: Vec<Resource>,
    /// Whether objects carry `managedFields`, as they do.
    pub managed_fields: bool,
    /// For uids and generated names.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            revision: 1000,
            cluster_uid: "c1d4b1b6-2f3e-4b6e-9d7b-5f0f2b3f8a10".to_owned(),
            user: "system:serviceaccount:tidings:tidings".to_owned(),
            gzip_above: 128 * 1024,
            bookmark_every: Duration::from_secs(60),
            resources: Vec::new(),
            managed_fields: true,
            seed: 1,
        }
    }
}

/// A request that came, for assertions.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// When.
    pub at: Instant,
    /// What.
    pub request: Request,
}

/// The state at one revision, to restore later.
#[derive(Clone, Debug)]
pub struct Snapshot(State);

/// The server. It serves until it is dropped.
#[derive(Debug)]
pub struct ApiServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl ApiServer {
    /// Starts listening. Needs a tokio runtime.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn start(options: Options) -> io::Result<Self> {
        let listener = listen(options.address)?;
        let address = listener.local_addr()?;
        let catalogue = Catalogue::with(&options.resources);
        let (revision, seed) = (options.revision, options.seed);
        let state = State::new(revision, seed, options.managed_fields, &catalogue);
        let shared = Arc::new(Shared {
            options,
            state: Mutex::new(state),
            faults: Mutex::default(),
            requests: Mutex::default(),
            feeds: PerResource::new(&catalogue, |_| Feed::default()),
            catalogue,
            cut: signal::Sender::new(()),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { shared, address, accepting: Mutex::new(Some(accepting)) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://address`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Connects to it in memory, whether or not it listens: without a network, paused time is
    /// exact. A reset looks like an end. Needs a tokio runtime.
    pub fn connect(&self) -> DuplexStream {
        let (client, server) = tokio::io::duplex(64 * 1024);
        serve_connection(server, &self.shared);
        client
    }

    /// A kubeconfig with this server as its only cluster.
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: demo\n\
             clusters:\n- name: demo\n  cluster:\n    server: {}\n\
             users:\n- name: demo\n  user: {{}}\n\
             contexts:\n- name: demo\n  context: {{cluster: demo, user: demo}}\n",
            self.url()
        )
    }

    /// Creates an Event as a client's POST does, but that a uid and creation time it has are kept.
    ///
    /// # Errors
    /// One of that name exists.
    pub fn create(&self, event: EventObject) -> Result<Written, ApiStatus> {
        self.shared.create_event(event)
    }

    /// Sets the count of an Event, and the time it last occurred, as a recorder's patch does: on
    /// `series` where the Event has one or was made by the events.k8s.io recorder.
    ///
    /// # Errors
    /// There is no such Event.
    pub fn patch_count(
        &self,
        namespace: &str,
        name: &str,
        count: i32,
        at: Timestamp,
    ) -> Result<Written, ApiStatus> {
        self.shared.write(EVENTS, |state| {
            state.update(EVENTS, object_key(namespace, name), |mut event: EventObject| {
                if event.series.is_some() || event.event_time.is_some() {
                    event.series =
                        Some(EventSeries { count, last_observed_time: Some(micros(at)) });
                } else {
                    event.count = count;
                    event.last_timestamp = Some(seconds(at));
                }
                Ok(event)
            })
        })
    }

    /// Applies a merge patch.
    ///
    /// # Errors
    /// There is no such Event, or it would be none any more.
    pub fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<Written, ApiStatus> {
        self.shared.merge(EVENTS, namespace, name, patch)
    }

    /// Deletes an Event.
    ///
    /// # Errors
    /// There is no such Event.
    pub fn delete(&self, namespace: &str, name: &str) -> Result<Written, ApiStatus> {
        self.shared.delete(EVENTS, namespace, name)
    }

    /// Deletes every Event that was last written `ttl` ago or before, all at one revision, as etcd
    /// does when a lease ends. Answers how many.
    pub fn expire_ttl(&self, ttl: Duration) -> usize {
        self.shared.write(EVENTS, |state| state.expire(ttl))
    }

    /// Compacts the history: what was replaced at or before `revision` is forgotten.
    pub fn compact(&self, revision: u64) {
        self.shared.rewrite(|state| state.compact(revision));
    }

    /// The current revision.
    pub fn revision(&self) -> u64 {
        self.shared.state().revision()
    }

    /// Uses up revisions, as writes to other resources do.
    pub fn skip_revisions(&self, count: u64) {
        self.shared.state().skip(count);
    }

    /// How many Events exist.
    pub fn live_events(&self) -> usize {
        self.shared.state().table(EVENTS).live()
    }

    /// The state as it is now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.shared.state().clone())
    }

    /// Goes back to a snapshot as a restored etcd does: revisions after it are given out a second
    /// time, and the API server, started anew, has dropped its connections.
    pub fn restore(&self, snapshot: &Snapshot) {
        self.rewind(snapshot);
        self.cut_connections();
    }

    /// The same under an API server that goes on: watches stay open, and say nothing.
    pub fn rewind(&self, snapshot: &Snapshot) {
        self.shared.state().restore(&snapshot.0);
    }

    /// Closes every connection.
    pub fn cut_connections(&self) {
        self.shared.cut.send_replace(());
    }

    /// Goes away: connections are closed and new ones refused.
    pub async fn stop_listening(&self) {
        let accepting = lock(&self.accepting).take();
        if let Some(accepting) = accepting {
            accepting.abort();
            // The listener is closed when the task has ended, and not before.
            let _ = accepting.await;
        }
        self.cut_connections();
    }

    /// Comes back at the same address.
    ///
    /// # Errors
    /// The port was taken meanwhile.
    pub fn listen_again(&self) -> io::Result<()> {
        let mut accepting = lock(&self.accepting);
        if accepting.is_none() {
            let listener = listen(self.address)?;
            *accepting = Some(tokio::spawn(accept(listener, Arc::clone(&self.shared))));
        }
        Ok(())
    }

    /// Sets a fault for the next `times` requests that fit (none: until it is cleared).
    pub fn set_fault(&self, on: impl Into<Scope>, times: Option<u32>, fault: Fault) -> FaultId {
        self.shared.faults().set(on.into(), times, fault)
    }

    /// Sets a fault for the next request that fits.
    pub fn fail_once(&self, on: impl Into<Scope>, fault: Fault) -> FaultId {
        self.set_fault(on, Some(1), fault)
    }

    /// How often a fault applied.
    pub fn fault_hits(&self, id: FaultId) -> u64 {
        self.shared.faults().hits(id)
    }

    /// Ends a fault.
    pub fn clear_fault(&self, id: FaultId) {
        self.shared.faults().clear(id);
    }

    /// Ends all faults.
    pub fn clear_faults(&self) {
        self.shared.faults().clear_all();
    }

    /// The last requests, oldest first; at most 10 000.
    pub fn requests(&self) -> Vec<Recorded> {
        lock(&self.shared.requests).iter().cloned().collect()
    }

    /// Forgets the requests so far.
    pub fn forget_requests(&self) {
        lock(&self.shared.requests).clear();
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Some(accepting) = lock(&self.accepting).take() {
            accepting.abort();
        }
        self.cut_connections();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "API server: accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        serve_connection(stream, &shared);
    }
}

/// Serves a connection as a task of its own, until either side ends it.
fn serve_connection(stream: impl Stream + 'static, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    let mut cut = shared.cut.subscribe();
    tokio::spawn(async move {
        tokio::select! {
            served = serve::connection(stream, &shared) => {
                if let Err(error) = served {
                    tracing::debug!(%error, "API server: connection");
                }
            }
            _ = cut.changed() => {}
        }
    });
}
