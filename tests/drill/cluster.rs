//! The stage of the API server's drills: a real etcd and kube-apiserver, something in front of them
//! that does harm, and a bridge to one webhook. Who writes and who tells the truth pass it by.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

use crate::accounts::{add_up, settle};
use crate::bridge::Bridge;
use crate::frame::Row;
use crate::judge::{self, Arrival, Key, Produced, Verdict};
use crate::ledger::Ledger;
use crate::nasty::{Access, Authority, Front, Upstream};
use crate::parts::{ApiServerOptions, Part as _, token_of};
use crate::receivers::WebhookReceiver;
use crate::stage::{Cluster, only_a_webhook};
use crate::truth::{Truth, Version};
use crate::wait::{until, until_within};
use crate::writers::{Load, Writing};

/// How long it may take until a fault shows, and until everything has arrived once it is gone, on a
/// busy machine.
const PATIENCE: Duration = Duration::from_mins(10);

/// The name of the one sink.
const SINK: &str = "pager";

/// Events by which a bridge watches its own watch, and which it keeps for itself.
const HEARTBEAT: &str = ".heartbeat";

/// The user that the bridge is.
pub(crate) const BEARER: &str = "bearer";

/// Writes a second.
const RATE: usize = 40;

/// See the [module](self).
pub(crate) struct Stage {
    // First, so that it ends before what it is connected to.
    pub(crate) bridge: Bridge,
    pub(crate) truth: Truth,
    pub(crate) front: Front,
    pub(crate) authority: Authority,
    pub(crate) cluster: Cluster,
    pub(crate) admin: kube::Client,
    pub(crate) pager: WebhookReceiver,
    pub(crate) access: Access,
    /// The versions that earlier watches of the truth have shown.
    earlier: Vec<Version>,
}

impl Stage {
    /// Starts everything but the bridge, in whose configuration `change` has the last word.
    pub(crate) async fn set(
        mut options: ApiServerOptions,
        change: impl FnOnce(&mut Value),
    ) -> Self {
        options.users.push(BEARER.to_owned());
        let authority = Authority::new();
        let (cluster, pager) = tokio::join!(Cluster::start(options), WebhookReceiver::start());
        let server = &cluster.server;
        let front = Front::start(
            Upstream::over_tls(server.address(), &server.authority()),
            authority.valid(),
        )
        .await;
        let admin = cluster.admin().await;
        may_do_everything(&admin).await;
        let truth = Truth::start(admin.clone()).await;
        let access = Access::new();
        access.lead_to(&front, &authority);
        access.give_token(&token_of(BEARER));
        let bridge = Bridge::configured(&access.kubeconfig(), &only_a_webhook(&pager), change);
        Self { bridge, truth, front, authority, cluster, admin, pager, access, earlier: Vec::new() }
    }

    /// A file of the stage that is not there yet.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.access.file(name)
    }

    /// Starts the bridge, and waits until its watch is open.
    pub(crate) async fn open(&mut self) {
        self.bridge.launch().await;
        self.watches().await;
    }

    /// Waits until a watch is open.
    pub(crate) async fn watches(&self) {
        until_within(PATIENCE, "a watch is open", async || {
            self.source().await["streamOpen"] == true
        })
        .await;
    }

    /// The status of the one source; null before it is known.
    pub(crate) async fn source(&self) -> Value {
        self.bridge.status().await["sources"][0].clone()
    }

    /// Waits until the status gives a reason with these words, and answers all of it.
    pub(crate) async fn says(&self, words: &str) -> String {
        let mut said = String::new();
        until_within(PATIENCE, &format!("the status says {words:?}"), async || {
            let source = self.source().await;
            source["lastError"].as_str().unwrap_or_default().clone_into(&mut said);
            said.contains(words)
        })
        .await;
        said
    }

    /// Waits until `/readyz` says no, with these words, and answers all of them.
    pub(crate) async fn is_not_ready(&self, words: &str) -> String {
        let mut said = String::new();
        until_within(PATIENCE, &format!("/readyz says {words:?}"), async || {
            let (ready, why) = self.bridge.readiness().await;
            said = why;
            !ready && said.contains(words)
        })
        .await;
        said.trim().to_owned()
    }

    /// Starts to write Events of this name, for so long.
    pub(crate) async fn write(&self, prefix: &'static str, lasts: Duration) -> Writing {
        // Of 8 writes 5 create an Event and 3 patch one.
        let events = RATE * lasts.as_secs() as usize * 5 / 8;
        let load = Load { prefix, events, repeated: events / 5, rate: RATE, ..Load::default() };
        load.start(&self.admin).await
    }

    /// Writes Events of this name, none of them twice: a list shows each.
    pub(crate) async fn write_once(&self, prefix: &'static str, lasts: Duration) {
        let events = RATE * lasts.as_secs() as usize;
        let load = Load { prefix, events, repeated: 0, rate: RATE, ..Load::default() };
        load.write(&self.admin, &self.truth).await;
    }

    /// Begins a truth of its own: an etcd was restored, and the watch of before is blind.
    pub(crate) async fn begin_truth_anew(&mut self) {
        let before = std::mem::replace(&mut self.truth, Truth::start(self.admin.clone()).await);
        self.earlier.extend(before.versions());
    }

    /// All that was shown before the truth was begun anew.
    pub(crate) fn earlier(&self) -> &[Version] {
        &self.earlier
    }

    /// All that the sink is to have, in its order: also what a gap may hide.
    pub(crate) fn produced(&self) -> Vec<Version> {
        let mut versions = self.truth.versions();
        versions.retain(|version| !version.deleted && !version.name.ends_with(HEARTBEAT));
        versions
    }

    /// Waits until all of it has arrived.
    pub(crate) async fn all_has_arrived(&self) {
        let produced = self.produced();
        self.has_arrived(&produced).await;
    }

    /// Waits until these have arrived.
    pub(crate) async fn has_arrived(&self, versions: &[Version]) {
        let ids: Vec<String> = versions.iter().map(Version::id).collect();
        until_within(PATIENCE, "everything has arrived", async || {
            let ledger = self.pager.ledger.lock();
            ids.iter().all(|id| ledger.ids.contains(id))
        })
        .await;
    }

    /// Stops the bridge in order, and answers its last status. Every event has one fate, no
    /// increment is told twice otherwise, and the receiver has nothing to complain of.
    pub(crate) async fn end(&mut self) -> (Value, Verdict) {
        settle(&self.bridge, 0).await;
        let status = self.bridge.status().await;
        self.bridge.stop_in_order().await;
        let known = || {
            let produced: HashSet<_> =
                self.produced().iter().chain(&self.earlier).map(Version::id).collect();
            self.pager.ledger.lock().ids.iter().all(|id| produced.contains(id))
        };
        until("what arrived was produced", async || known()).await;
        let verdict = self.judge(&self.produced());
        {
            let ledger = self.pager.ledger.lock();
            assert!(ledger.complaints.is_empty(), "{:?}", ledger.complaints);
            let mut told = HashMap::<&str, &str>::new();
            for delivery in &ledger.deliveries {
                let first = *told.entry(&delivery.id).or_insert(&delivery.body);
                let again = self.earlier.iter().any(|version| version.id() == delivery.id);
                assert!(first == delivery.body || again, "a repeat is the same: {delivery:?}");
            }
        }
        if self.earlier.is_empty() {
            verdict.is_honest(SINK);
            add_up(&status["sinks"][0], &verdict, verdict.delivered..=verdict.produced);
        } else {
            let both = self.over_both_epochs(&verdict);
            add_up(&status["sinks"][0], &both, both.delivered..=both.delivered);
        }
        assert_eq!(status["sinks"][0]["lost"], 0, "{status}");
        (status, verdict)
    }

    /// The expectation over an epoch that ended and the one that followed, of which this is the
    /// verdict. All of the first was delivered, and cannot be had any more; what a restored etcd
    /// shows of it again is news of the second, and comes once more under the same id.
    fn over_both_epochs(&self, verdict: &Verdict) -> Verdict {
        let mut arrivals = HashMap::<Key, u64>::new();
        for delivery in &self.pager.ledger.lock().deliveries {
            *arrivals.entry(Key::of(&delivery.id)).or_default() += 1;
        }
        let ended = self.earlier.iter().filter(|version| !version.deleted);
        let ended: HashSet<Key> = ended.map(|version| Key::of(&version.id())).collect();
        let now = self.produced();
        let now: HashSet<Key> = now.iter().map(|version| Key::of(&version.id())).collect();
        for id in ended.union(&now) {
            let due = u64::from(ended.contains(id)) + u64::from(now.contains(id));
            let came = arrivals.get(id).copied().unwrap_or(0);
            assert!(came >= due, "{id:?} came {came} times, in {due} epochs");
        }
        let delivered = (ended.len() + now.len()) as u64;
        Verdict { delivered, ..verdict.clone() }
    }

    /// The newest resourceVersion of all Events.
    pub(crate) async fn newest(&self) -> u64 {
        let list = Api::<Event>::all(self.admin.clone()).list(&ListParams::default()).await;
        let version = list.expect("a list of all Events").metadata.resource_version;
        version.and_then(|version| version.parse().ok()).expect("every list has one")
    }

    /// Judges what arrived of these, and of no others.
    pub(crate) fn judge(&self, versions: &[Version]) -> Verdict {
        let produced: Vec<Produced> = versions.iter().map(produced).collect();
        let ids: HashSet<Key> = produced.iter().map(|one| one.id).collect();
        let whole = versions.len() == self.produced().len();
        let mut arrivals = arrivals(&self.pager.ledger.lock());
        // Of the whole, strangers are to be found.
        arrivals.retain(|arrival| whole || ids.contains(&arrival.id));
        judge::judge(&produced, &arrivals)
    }

    /// The row of what was written under this name; nothing of it may be missing. `over` is when
    /// its fault was.
    pub(crate) fn row(&self, prefix: &str, fault: &str, over: Instant) -> Row {
        let mut versions = self.produced();
        versions
            .retain(|one| one.name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('-')));
        let verdict = self.judge(&versions);
        verdict.is_honest(SINK);
        verdict.lost_nothing(SINK);
        let first = self.first_arrivals();
        let until = versions.iter().filter(|one| one.at <= over);
        let last = until.filter_map(|one| first.get(&one.id()).copied()).max();
        let caught_up = last.map(|last| last.saturating_duration_since(over));
        Row { caught_up, ..verdict.row(fault, SINK) }
    }

    /// When each id arrived first.
    pub(crate) fn first_arrivals(&self) -> HashMap<String, Instant> {
        let mut first = HashMap::new();
        for delivery in &self.pager.ledger.lock().deliveries {
            first.entry(delivery.id.clone()).or_insert(delivery.at);
        }
        first
    }
}

/// Lets the bridge do everything: what it may not do is no fault of these drills.
async fn may_do_everything(admin: &kube::Client) {
    let binding = json!({
        "metadata": {"name": BEARER},
        "subjects": [{"kind": "User", "name": BEARER, "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"},
    });
    let binding: ClusterRoleBinding = serde_json::from_value(binding).expect("a binding");
    let made = Api::all(admin.clone()).create(&PostParams::default(), &binding).await;
    made.expect("a binding that was not there");
}

/// When that was, by the clock of the wall.
pub(crate) fn wall(at: Instant) -> Timestamp {
    Timestamp::now() - jiff::SignedDuration::try_from(at.elapsed()).expect("a short time")
}

fn produced(version: &Version) -> Produced {
    Produced {
        id: Key::of(&version.id()),
        event: Key::of(&version.uid),
        object: Key::of(&version.object),
        version: version.resource_version,
        occurrences: version.occurrences,
        at: version.at,
    }
}

fn arrivals(ledger: &Ledger) -> Vec<Arrival> {
    ledger.deliveries.iter().map(Arrival::from).collect()
}
