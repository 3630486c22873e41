//! Events as the kubelets of a busy cluster make them: about a kilobyte each, a quarter of them
//! earlier ones that occurred again.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde_json::{Value, json};
use tidings_testkit::api_server::{EventObject, recorder_name, seconds};

const NAMESPACES: usize = 40;
const NODES: usize = 60;
const PODS: usize = 3000;
/// Of how many Events one is chosen to occur again.
const RECENT: usize = 4096;

/// Reason, message and whether it is a Warning; `{pod}` and `{node}` are filled in.
const STORIES: [(&str, &str, bool); 8] = [
    ("Scheduled", "Successfully assigned {ns}/{pod} to {node}", false),
    (
        "Pulling",
        "Pulling image \"registry.example.com/platform/{ns}/api-server:v2026.11.3\"",
        false,
    ),
    (
        "Pulled",
        "Successfully pulled image \"registry.example.com/platform/{ns}/api-server:v2026.11.3\" \
         in 2.418s (2.418s including waiting). Image size: 148217344 bytes.",
        false,
    ),
    ("Created", "Created container: api-server", false),
    ("Started", "Started container api-server", false),
    (
        "BackOff",
        "Back-off restarting failed container api-server in pod {pod}_{ns}\
         (7c9be1a2-5d0f-4a51-9d0e-2f6b8c1f4e77)",
        true,
    ),
    (
        "Unhealthy",
        "Readiness probe failed: Get \"http://10.42.17.31:8080/readyz\": context deadline exceeded \
         (Client.Timeout exceeded while awaiting headers)",
        true,
    ),
    ("Killing", "Stopping container api-server", false),
];

/// Makes Events, the same ones for the same calls but for their times.
pub(crate) struct Kubelets {
    random: fastrand::Rng,
    recent: VecDeque<EventObject>,
    made: i64,
    start: Timestamp,
    repeats: bool,
}

impl Kubelets {
    /// With `repeats`, every fourth Event is an earlier one with its count raised.
    pub(crate) fn new(repeats: bool) -> Self {
        let random = fastrand::Rng::with_seed(20_261_121);
        Self { random, recent: VecDeque::new(), made: 0, start: Timestamp::now(), repeats }
    }

    pub(crate) fn next(&mut self) -> EventObject {
        self.made += 1;
        if self.repeats && self.made % 4 == 0 {
            let again = self.random.usize(..self.recent.len());
            let event = &mut self.recent[again];
            event.count += 1;
            event.last_timestamp = Some(seconds(Timestamp::now()));
            return event.clone();
        }
        let event = self.first();
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(event.clone());
        event
    }

    fn first(&mut self) -> EventObject {
        let number = self.random.usize(..PODS);
        let (namespace, pod) = (namespace_of(number), pod_of(number));
        let node = format!("ip-10-42-{}-17.eu-central-1.compute.internal", number % NODES);
        let (reason, message, warning) = STORIES[self.random.usize(..STORIES.len())];
        let message =
            message.replace("{ns}", &namespace).replace("{pod}", &pod).replace("{node}", &node);
        let mut event = EventObject::about_pod(&namespace, &pod, reason, &message);
        if warning {
            event = event.warning();
        }
        let unique = Timestamp::from_nanosecond(self.start.as_nanosecond() + i128::from(self.made));
        event.metadata.name = recorder_name(&pod, unique.unwrap_or(self.start));
        event.metadata.uid = uuid(self.random.u128(..));
        event.metadata.creation_timestamp.clone_from(&event.first_timestamp);
        event.involved_object.uid = uid_of(number);
        event.involved_object.resource_version = (400_000 + number).to_string();
        "spec.containers{api-server}".clone_into(&mut event.involved_object.field_path);
        event.reporting_instance.clone_from(&node);
        event.source.host = node;
        event
    }
}

/// The Pods that the Events are about, ten of a ReplicaSet, and the Deployments of these: the names
/// of their resources and the objects.
pub(crate) fn objects() -> impl Iterator<Item = (&'static str, Value)> {
    let owner = |kind: &str, name: &str, uid: String| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true}]);
    let group_of = |number: usize| {
        // Of the Pods of one namespace.
        number % NAMESPACES + number / (NAMESPACES * 10) * NAMESPACES
    };
    let groups = (0..PODS).map(group_of).max().unwrap_or(0) + 1;
    let apps = (0..groups).flat_map(move |group| {
        let (namespace, name) = (namespace_of(group), format!("api-server-{group}"));
        let deployment =
            json!({"namespace": namespace, "name": name, "uid": uid_of(10_000 + group)});
        let set = json!({
            "namespace": namespace, "name": format!("{name}-5d8f"), "uid": uid_of(20_000 + group),
            "ownerReferences": owner("Deployment", &name, uid_of(10_000 + group)),
        });
        [("deployments.apps", deployment), ("replicasets.apps", set)]
    });
    let pods = (0..PODS).map(move |number| {
        let group = group_of(number);
        let set = format!("api-server-{group}-5d8f");
        let metadata = json!({
            "namespace": namespace_of(number), "name": pod_of(number), "uid": uid_of(number),
            "labels": {
                "app.kubernetes.io/name": "api-server", "app.kubernetes.io/version": "v2026.11.3",
                "app.kubernetes.io/part-of": "platform", "team": namespace_of(number),
                "pod-template-hash": "5d8f", "tier": "backend",
            },
            "ownerReferences": owner("ReplicaSet", &set, uid_of(20_000 + group)),
        });
        ("pods", metadata)
    });
    apps.chain(pods)
        .map(|(resource, metadata)| (resource, json!({"metadata": metadata, "spec": {}})))
}

fn namespace_of(number: usize) -> String {
    format!("team-{:02}", number % NAMESPACES)
}

fn pod_of(number: usize) -> String {
    format!("api-server-{:08x}-{number:05}", number * 2_654_435_761 % (1 << 32))
}

fn uid_of(number: usize) -> String {
    uuid((number as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn uuid(bits: u128) -> String {
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
