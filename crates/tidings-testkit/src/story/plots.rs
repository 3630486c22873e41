//! The stories themselves, as the beats that the components write. The messages are those of
//! Kubernetes 1.34.

use super::{
    Beat,
    cast::{Cast, Kind, Pod, controller, kubelet, node_ref, scheduler},
};
use crate::api_server::EventObject;

use Kind::{Normal, Warning};

type Plot = (String, Vec<Beat>);

/// A story: what ordinary clusters have much of is likelier.
pub(super) fn any(cast: &mut Cast) -> Plot {
    match cast.below(100) {
        0..26 => rollout(cast),
        26..50 => crash_loop(cast),
        50..66 => unhealthy(cast),
        66..77 => no_image(cast),
        77..87 => no_room(cast),
        87..93 => node_pressure(cast),
        _ => cron_job(cast),
    }
}

fn first(event: EventObject) -> Beat {
    Beat::First(Box::new(event))
}

fn image_pulled(cast: &mut Cast, image: &str) -> String {
    let (ms, size) = (cast.between(180, 9_400), cast.between(18_000_000, 240_000_000));
    let took = format!("{}.{:03}s", ms / 1000, ms % 1000);
    format!(
        "Successfully pulled image \"{image}\" in {took} ({took} including waiting). Image size: {size} bytes."
    )
}

fn scheduled(cast: &mut Cast, pod: &Pod) -> Beat {
    let message = format!("Successfully assigned {}/{} to {}", pod.namespace, pod.name, pod.node);
    first(scheduler(cast.pod_ref(pod), Normal, "Scheduled", "Binding", message))
}

fn of_container(
    cast: &mut Cast,
    pod: &Pod,
    kind: Kind,
    reason: &str,
    message: impl Into<String>,
) -> Beat {
    let object = cast.container_ref(pod);
    first(kubelet(pod.node, object, kind, reason, message))
}

/// From the scheduler's choice to a container that runs.
fn pod_starts(cast: &mut Cast, pod: &Pod, image: &str, beats: &mut Vec<Beat>) {
    beats.push(scheduled(cast, pod));
    let pulling = format!("Pulling image \"{image}\"");
    beats.push(of_container(cast, pod, Normal, "Pulling", pulling));
    let pulled = image_pulled(cast, image);
    beats.push(of_container(cast, pod, Normal, "Pulled", pulled));
    container_starts(cast, pod, beats);
}

fn container_starts(cast: &mut Cast, pod: &Pod, beats: &mut Vec<Beat>) {
    let name = pod.container;
    beats.push(of_container(cast, pod, Normal, "Created", format!("Created container: {name}")));
    beats.push(of_container(cast, pod, Normal, "Started", format!("Started container {name}")));
}

fn stopping(cast: &mut Cast, pod: &Pod) -> Beat {
    let message = format!("Stopping container {}", pod.container);
    of_container(cast, pod, Normal, "Killing", message)
}

fn scaled(cast: &mut Cast, which: usize, message: String) -> Beat {
    let object = cast.deployment_ref(which);
    first(controller("deployment-controller", object, "ScalingReplicaSet", message))
}

/// A new version, a pod at a time.
fn rollout(cast: &mut Cast) -> Plot {
    let which = cast.any_workload();
    let (old_set, old_ref, old_pods) = cast.next_version(which);
    let workload = cast.workload(which);
    let (image, new_set) = (workload.image(), workload.replica_set.clone());
    let caption = format!("{}/{} rolls out {image}", workload.namespace, workload.name);
    let mut beats = Vec::new();
    for (n, gone) in old_pods.iter().enumerate() {
        let up = format!("Scaled up replica set {new_set} from {n} to {}", n + 1);
        beats.push(scaled(cast, which, up));
        let pod = cast.pod_of(which);
        let object = cast.replica_set_ref(which);
        let created = format!("Created pod: {}", pod.name);
        beats.push(first(controller("replicaset-controller", object, "SuccessfulCreate", created)));
        pod_starts(cast, &pod, &image, &mut beats);
        cast.keep(which, pod);
        let left = old_pods.len() - n;
        let down = format!("Scaled down replica set {old_set} from {left} to {}", left - 1);
        beats.push(scaled(cast, which, down));
        let deleted = format!("Deleted pod: {}", gone.name);
        let object = old_ref.clone();
        beats.push(first(controller("replicaset-controller", object, "SuccessfulDelete", deleted)));
        beats.push(stopping(cast, gone));
    }
    (caption, beats)
}

/// A container that exits soon after each start, and the kubelet that waits ever longer.
fn crash_loop(cast: &mut Cast) -> Plot {
    let (which, pod) = cast.any_pod();
    let image = cast.workload(which).image();
    let caption = format!("{}/{} is in a crash loop", pod.namespace, pod.name);
    let present = format!("Container image \"{image}\" already present on machine");
    let mut beats = vec![of_container(cast, &pod, Normal, "Pulled", present)];
    container_starts(cast, &pod, &mut beats);
    let back_off = format!(
        "Back-off restarting failed container {} in pod {}_{}({})",
        pod.container, pod.name, pod.namespace, pod.uid
    );
    beats.push(of_container(cast, &pod, Warning, "BackOff", back_off));
    for _ in 0..cast.between(3, 9) {
        for _ in 0..cast.between(1, 4) {
            beats.push(Beat::Again(3, 1));
        }
        beats.extend((0..3).map(|started| Beat::Again(started, 1)));
    }
    (caption, beats)
}

/// Probes that fail for a while; a container that fails too long is restarted.
fn unhealthy(cast: &mut Cast) -> Plot {
    let (which, pod) = cast.any_pod();
    let caption = format!("{}/{} fails its probes", pod.namespace, pod.name);
    let readiness = "Readiness probe failed: HTTP probe failed with statuscode: 503";
    let mut beats = vec![of_container(cast, &pod, Warning, "Unhealthy", readiness)];
    for _ in 0..cast.between(2, 12) {
        beats.push(Beat::Again(0, 1));
    }
    if cast.below(3) == 0 {
        let liveness = format!(
            "Liveness probe failed: Get \"http://10.244.{}.{}:8080/healthz\": context deadline \
             exceeded (Client.Timeout exceeded while awaiting headers)",
            cast.between(1, 5),
            cast.between(2, 250)
        );
        beats.push(of_container(cast, &pod, Warning, "Unhealthy", liveness));
        beats.extend([Beat::Again(1, 1), Beat::Again(1, 1)]);
        let message =
            format!("Container {} failed liveness probe, will be restarted", pod.container);
        beats.push(of_container(cast, &pod, Normal, "Killing", message));
        let image = cast.workload(which).image();
        let present = format!("Container image \"{image}\" already present on machine");
        beats.push(of_container(cast, &pod, Normal, "Pulled", present));
        container_starts(cast, &pod, &mut beats);
    }
    (caption, beats)
}

/// An image that does not exist.
fn no_image(cast: &mut Cast) -> Plot {
    let which = cast.any_workload();
    let pod = cast.pod_of(which);
    let image = format!("{}:1.x-typo", cast.workload(which).image);
    let caption = format!("{}/{} asks for an image that is not there", pod.namespace, pod.name);
    let not_found = format!(
        "Failed to pull image \"{image}\": rpc error: code = NotFound desc = failed to pull and \
         unpack image \"{image}\": failed to resolve reference \"{image}\": {image}: not found"
    );
    let mut beats = vec![scheduled(cast, &pod)];
    for (kind, reason, message) in [
        (Normal, "Pulling", format!("Pulling image \"{image}\"")),
        (Warning, "Failed", not_found),
        (Warning, "Failed", "Error: ErrImagePull".to_owned()),
        (Normal, "BackOff", format!("Back-off pulling image \"{image}\"")),
        (Warning, "Failed", "Error: ImagePullBackOff".to_owned()),
    ] {
        beats.push(of_container(cast, &pod, kind, reason, message));
    }
    for round in 0..cast.between(3, 8) {
        let tried = round % 3 == 2;
        let again = if tried { [1, 2, 3].as_slice() } else { &[4, 5] };
        beats.extend(again.iter().map(|which| Beat::Again(*which, 1)));
    }
    (caption, beats)
}

/// A pod that fits nowhere. The recorder of events.k8s.io writes the second occurrence at once
/// and then only every half hour, with what has come together.
fn no_room(cast: &mut Cast) -> Plot {
    let which = cast.any_workload();
    let pod = cast.pod_of(which);
    let caption = format!("{}/{} fits on no node", pod.namespace, pod.name);
    let nodes = Cast::nodes();
    let cpu = cast.between(1, 4) as usize;
    let rest = nodes - cpu;
    let message = format!(
        "0/{nodes} nodes are available: {cpu} Insufficient cpu, {rest} node(s) had untolerated \
         taint {{node.kubernetes.io/disk-pressure: }}. preemption: 0/{nodes} nodes are available: \
         {cpu} No preemption victims found for incoming pod, {rest} Preemption is not helpful for \
         scheduling."
    );
    let object = cast.pod_ref(&pod);
    let mut beats =
        vec![first(scheduler(object, Warning, "FailedScheduling", "Scheduling", message))];
    beats.push(Beat::Again(0, 1));
    for _ in 0..cast.between(1, 4) {
        let by = cast.between(2, 30);
        beats.push(Beat::Again(0, by.cast_signed()));
    }
    if cast.below(2) == 0 {
        let image = cast.workload(which).image();
        pod_starts(cast, &pod, &image, &mut beats);
        beats.push(stopping(cast, &pod));
    }
    (caption, beats)
}

/// A node whose disk runs full, and the pods that pay for it.
fn node_pressure(cast: &mut Cast) -> Plot {
    let node = cast.node();
    let caption = format!("node {node} runs out of disk");
    let of_node = |kind, reason: &str, message: String| {
        first(kubelet(node, node_ref(node), kind, reason, message))
    };
    let status = |reason: &str| format!("Node {node} status is now: {reason}");
    let reclaim = "Attempting to reclaim ephemeral-storage".to_owned();
    let mut beats = vec![
        of_node(Warning, "EvictionThresholdMet", reclaim),
        of_node(Normal, "NodeHasDiskPressure", status("NodeHasDiskPressure")),
    ];
    for _ in 0..cast.between(2, 4) {
        let (which, pod) = cast.any_pod();
        let pod = Pod { node, ..pod };
        let evicted = format!(
            "The node was low on resource: ephemeral-storage. Threshold quantity: 8589934592, \
             available: {}Ki. Container {} was using {}Ki, request is 0, has larger consumption of \
             ephemeral-storage. ",
            cast.between(2_000_000, 8_000_000),
            pod.container,
            cast.between(300_000, 4_000_000)
        );
        let object = cast.pod_ref(&pod);
        beats.push(first(kubelet(node, object, Warning, "Evicted", evicted)));
        beats.push(stopping(cast, &pod));
        beats.push(Beat::Again(0, 1));
        let new = cast.pod_of(which);
        let object = cast.replica_set_ref(which);
        let created = format!("Created pod: {}", new.name);
        beats.push(first(controller("replicaset-controller", object, "SuccessfulCreate", created)));
        let image = cast.workload(which).image();
        pod_starts(cast, &new, &image, &mut beats);
        cast.replace(which, &pod.name, new);
    }
    beats.push(of_node(Normal, "NodeHasNoDiskPressure", status("NodeHasNoDiskPressure")));
    (caption, beats)
}

/// A job by the clock.
fn cron_job(cast: &mut Cast) -> Plot {
    let job = format!("nightly-report-{}", cast.between(29_000_000, 29_999_999));
    let caption = format!("batch/{job} runs");
    let (cron_uid, job_uid) = ("0f0c2f5e-6a55-4c2e-9a3f-2b9d2a3c7e11", cast.uid());
    let pod = Pod {
        namespace: "batch".to_owned(),
        name: format!("{job}-{}", cast.letters(5)),
        uid: cast.uid(),
        node: cast.node(),
        container: "report",
    };
    let cron = cast.batch_ref("CronJob", "nightly-report", cron_uid);
    let of_job = cast.batch_ref("Job", &job, &job_uid);
    let (created_job, created_pod) =
        (format!("Created job {job}"), format!("Created pod: {}", pod.name));
    let mut beats = vec![
        first(controller("cronjob-controller", cron.clone(), "SuccessfulCreate", created_job)),
        first(controller("job-controller", of_job.clone(), "SuccessfulCreate", created_pod)),
    ];
    pod_starts(cast, &pod, "registry.example.com/batch/report:2.0.1", &mut beats);
    beats.push(first(controller("job-controller", of_job, "Completed", "Job completed")));
    let saw = format!("Saw completed job: {job}, condition: Complete");
    beats.push(first(controller("cronjob-controller", cron, "SawCompletedJob", saw)));
    (caption, beats)
}
