//! A cluster written fast, and changed while it is watched.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use kube::{Api, Resource as _, ResourceExt as _, api::ListParams};

use super::*;

#[tokio::test]
async fn a_population_is_a_cluster_of_owners_and_pods() {
    let server = server();
    let population = Population { deployments: 30, replicas: 4, namespaces: 3, nodes: 7 };
    server.populate(&population);
    assert_eq!((server.live("pods"), server.revision()), (120, 1000 + 180));
    let client = Client::of(&server).0;
    // Typed, so that what does not fit the kind would be found.
    let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    let sets = Api::<ReplicaSet>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    let deployments = Api::<Deployment>::all(client).list(&ListParams::default()).await.unwrap();
    assert_eq!((pods.items.len(), sets.items.len(), deployments.items.len()), (120, 30, 30));
    let sets: BTreeMap<_, _> = sets.items.iter().map(|set| (set.uid().unwrap(), set)).collect();
    for number in 0..population.pods() {
        let member = population.pod(number);
        let is_it = |pod: &&Pod| pod.name_any() == member.name;
        let pod = pods.items.iter().find(is_it).unwrap();
        assert_eq!((pod.namespace(), pod.uid()), (Some(member.namespace), Some(member.uid)));
        let owner = &pod.owner_references()[0];
        let set = sets[&owner.uid];
        assert_eq!((set.name_any(), set.namespace()), (owner.name.clone(), pod.namespace()));
        let deployment = population.deployment(number / 4);
        assert_eq!(set.meta().owner_references.as_ref().unwrap()[0].uid, deployment.uid);
        let node = pod.spec.as_ref().unwrap().node_name.clone();
        assert_eq!(node, Some(population.node(number)));
        assert!(pod.managed_fields().len() == 2 && pod.labels().len() == 5);
    }
}

#[tokio::test]
async fn a_watch_sees_all_that_churn_does() {
    let server = server();
    let population = Population::of_pods(50);
    server.populate(&population);
    let path = format!("/api/v1/pods?watch=1&resourceVersion={}", server.revision());
    let mut watch = Client::of(&server).watch(&path).await;
    let before = server.revision();
    let done = server.churn(&population, 2000.0, Duration::from_millis(100)).await.unwrap();
    let writes = done.changed + done.deleted + done.created;
    assert_eq!(server.revision() - before, writes);
    assert!(done.changed > 0 && done.deleted > 0 && done.created > 0, "{done:?}");
    let seen = watch.take(usize::try_from(writes).unwrap()).await;
    let count = |kind: &str| seen.iter().filter(|line| line.starts_with(kind)).count() as u64;
    let seen = Churned {
        changed: count("MODIFIED "),
        deleted: count("DELETED "),
        created: count("ADDED "),
    };
    assert_eq!(seen, done);
    assert_eq!(server.live("pods") as u64, 50 + done.created - done.deleted);
}

#[test]
fn pods_of_a_hundred_thousand_have_names_of_their_own() {
    let population = Population::of_pods(100_000);
    let names: std::collections::HashSet<_> = (0..population.pods())
        .step_by(7)
        .map(|number| population.pod(number))
        .map(|pod| (pod.name, pod.uid))
        .collect();
    assert_eq!(names.len(), 100_000usize.div_ceil(7));
}
