//! The recorders against the real API server: what `kubectl get events` shows of what was recorded,
//! and what the report says of what it does not show.
//!
//! They write as an account that may `create` and `patch` events and nothing else, which is what
//! the documentation asks for. The correlator is client-go's as it stands unless a test says why not.

mod correlation;
mod outage;
mod refusals;
mod series;
mod speed;

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tidings_kube::recorder::{
    ApiServerSink, BroadcasterOptions, EventBroadcaster, EventRecorder, Running,
};

use crate::parts::{ApiServerOptions, kubectl, run};
use crate::stage::Cluster;
use crate::wait::until;

/// The account that writes events, and the component that they are of.
const RECORDER: &str = "recorder";
/// An account that may do nothing.
const NOBODY: &str = "nobody";

/// An API server, and what kubectl sees there.
struct Stand {
    cluster: Cluster,
    admin: PathBuf,
}

impl Stand {
    async fn set() -> Self {
        let users = vec![RECORDER.to_owned(), NOBODY.to_owned()];
        let cluster = Cluster::start(ApiServerOptions { users, ..Default::default() }).await;
        let admin = cluster.server.kubeconfig("admin");
        let stand = Self { cluster, admin };
        stand.grant(RECORDER, "create,patch").await;
        stand
    }

    /// Lets a user do these things to events, of both APIs, and waits until the API server knows.
    async fn grant(&self, user: &str, verbs: &str) {
        let rule = [&format!("--verb={verbs}"), "--resource=events,events.events.k8s.io"];
        self.kubectl(&[&["create", "clusterrole", user], &rule[..]].concat());
        let to = [&format!("--clusterrole={user}"), &format!("--user={user}")];
        self.kubectl(&["create", "clusterrolebinding", user, to[0], to[1]]);
        let ask = ["auth", "can-i", "create", "events", "--all-namespaces", "--as", user];
        until("the right is known", async || {
            kubectl(&self.admin).args(ask).output().is_ok_and(|answer| answer.status.success())
        })
        .await;
    }

    /// What kubectl prints, as one who may do everything.
    fn kubectl(&self, arguments: &[&str]) -> String {
        run(kubectl(&self.admin).args(arguments))
    }

    /// The events of the recorder, as `kubectl get events` has them.
    fn events(&self) -> Vec<Event> {
        // The API server itself reports something now and then.
        let ours = format!("--field-selector=source={RECORDER}");
        self.listed(&["get", "events", "--all-namespaces", &ours])
    }

    /// What kubectl lists.
    fn listed<T: DeserializeOwned>(&self, get: &[&str]) -> Vec<T> {
        let list = self.kubectl(&[get, &["--output=json"]].concat());
        let mut list: Value = serde_json::from_str(&list).expect("JSON of kubectl");
        serde_json::from_value(list["items"].take()).expect("items of one kind")
    }

    async fn sink(&self, user: &str) -> ApiServerSink {
        ApiServerSink::new(self.cluster.server.client(user).await)
    }

    /// A recorder of which all goes to this API server.
    async fn recording(&self, options: BroadcasterOptions) -> Recording {
        self.recording_as(RECORDER, options).await
    }

    async fn recording_as(&self, user: &str, options: BroadcasterOptions) -> Recording {
        let broadcaster = EventBroadcaster::new(options);
        let running = broadcaster.start_recording_to_sink(self.sink(user).await).await;
        let source = EventSource { component: Some(RECORDER.to_owned()), host: None };
        let recorder = broadcaster.new_recorder(source);
        Recording { running: running.expect("it is not shut down"), recorder, broadcaster }
    }
}

struct Recording {
    broadcaster: EventBroadcaster,
    recorder: EventRecorder,
    running: Running,
}

/// A Pod of the namespace `default`. It does not have to exist.
fn pod(name: &str) -> ObjectReference {
    pod_in("default", name)
}

fn pod_in(namespace: &str, name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

fn message(event: &Event) -> &str {
    event.message.as_deref().unwrap_or_default()
}
