//! The recorder for the bridge's own Events.

use std::{env, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{EventSource, ObjectReference};
use kube::Client;
use tidings_kube::{
    broadcaster::Stopped,
    correlator::CorrelatorOptions,
    recorder::{ApiServerSink, BroadcasterOptions, EventBroadcaster, RetryPolicy},
};

use crate::bridge::{COMPONENT, OwnEvents, OwnWrites};

/// How long the end of the program waits for what is still to be recorded.
const WITHIN: Duration = Duration::from_secs(2);

/// What records them. Without a Pod of its own to speak about there is none, and the log is all.
pub(super) struct Recording {
    broadcaster: EventBroadcaster,
}

impl Recording {
    /// Starts to record about the Pod that `POD_NAME`, `POD_NAMESPACE` and `POD_UID` name, as
    /// the manifests in `deploy/` do; nothing without the first two.
    pub(super) async fn start(client: &Client) -> Result<Option<(Self, OwnEvents)>, Stopped> {
        let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let (Some(name), Some(namespace)) = (variable("POD_NAME"), variable("POD_NAMESPACE"))
        else {
            tracing::debug!("POD_NAME and POD_NAMESPACE are not set: no Events of our own");
            return Ok(None);
        };
        let correlator = || CorrelatorOptions {
            separated_keys: true,
            saturating_counts: true,
            create_unwritten: true,
            ..CorrelatorOptions::default()
        };
        let broadcaster = EventBroadcaster::new(BroadcasterOptions {
            correlator: Arc::new(correlator),
            retry: RetryPolicy::PATIENT,
            ..BroadcasterOptions::default()
        });
        let writes = OwnWrites::in_namespace(&*namespace);
        let sink = writes.through(ApiServerSink::for_namespace(client.clone(), &*namespace));
        broadcaster.start_recording_to_sink(sink).await?;
        let source =
            EventSource { component: Some(COMPONENT.to_owned()), host: variable("NODE_NAME") };
        let own_events = OwnEvents {
            recorder: broadcaster.new_recorder(source),
            about: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(name),
                namespace: Some(namespace),
                uid: variable("POD_UID"),
                ..ObjectReference::default()
            },
            writes,
        };
        Ok(Some((Self { broadcaster }, own_events)))
    }

    /// Records what is queued, and ends; within two seconds or so, whatever the API server does.
    pub(super) async fn stop(self) {
        let report = self.broadcaster.shutdown_within(WITHIN).await;
        if !report.is_complete() {
            tracing::warn!(?report, "some Events about the bridge itself were not recorded");
        }
    }
}
