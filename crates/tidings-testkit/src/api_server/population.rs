//! A made-up cluster, written fast: Deployments, each with a ReplicaSet and its Pods, as large and
//! as detailed as real ones (a Pod has about 5 KB of JSON, two thirds of it metadata).
//!
//! What an object is called follows from its number alone, so a test knows it without asking.

mod template;

use std::time::Duration;

use serde_json::json;

use self::template::Template;
use super::object_key;
use super::{ApiServer, ApiStatus, replay::paced};

/// How many objects are written under one hold of the lock: requests are answered between holds.
const SLICE: usize = 1024;

/// How large the cluster is. Names and uids are those of every population of the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Population {
    /// How many Deployments; each has one ReplicaSet.
    pub deployments: usize,
    /// How many Pods each ReplicaSet has.
    pub replicas: usize,
    /// How many namespaces the Deployments are spread over.
    pub namespaces: usize,
    /// How many nodes the Pods are spread over. They are only named.
    pub nodes: usize,
}

/// What names one object of a [`Population`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Member {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// What [`ApiServer::churn`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Churned {
    /// Pods that got another label.
    pub changed: u64,
    /// Pods that were deleted.
    pub deleted: u64,
    /// Pods of the same name as a deleted one, with another uid.
    pub created: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Deployment,
    ReplicaSet,
    Pod,
}

impl Population {
    /// Ten Pods to a Deployment, twenty namespaces, fifty Pods to a node.
    pub fn of_pods(pods: usize) -> Self {
        let nodes = pods.div_ceil(50).max(1);
        Self { deployments: pods.div_ceil(10), replicas: 10, namespaces: 20, nodes }
    }

    /// How many Pods it has.
    pub fn pods(&self) -> usize {
        self.deployments * self.replicas
    }

    /// The Deployment of a number.
    pub fn deployment(&self, number: usize) -> Member {
        self.member(number, format!("app-{number:05}"), uid(Kind::Deployment, number, 0))
    }

    /// The ReplicaSet of the Deployment of that number.
    pub fn replica_set(&self, number: usize) -> Member {
        let name = format!("app-{number:05}-{}", hash(number));
        self.member(number, name, uid(Kind::ReplicaSet, number, 0))
    }

    /// The Pod of a number; its owners have the number divided by `replicas`.
    pub fn pod(&self, number: usize) -> Member {
        let owner = self.replica_set(self.owner(number));
        let name = format!("{}-{}", owner.name, letters(number as u64, 5));
        Member { name, uid: uid(Kind::Pod, number, 0), ..owner }
    }

    /// The node that the Pod of a number is on.
    pub fn node(&self, pod: usize) -> String {
        format!("node-{:04}", pod % self.nodes.max(1))
    }

    fn owner(&self, pod: usize) -> usize {
        pod / self.replicas.max(1)
    }

    fn member(&self, number: usize, name: String, uid: String) -> Member {
        Member { namespace: format!("team-{:02}", number % self.namespaces.max(1)), name, uid }
    }

    /// What goes into a template about the Deployment of a number and what it owns.
    fn render(&self, template: &Template, owner: usize, more: &[(&str, &str)]) -> String {
        let Member { namespace, name: replica_set, .. } = self.replica_set(owner);
        let values = [
            ("app", &*format!("app-{owner:05}")),
            ("team", &*namespace),
            ("namespace", &*namespace),
            ("replicaset", &*replica_set),
            ("hash", &*hash(owner)),
            ("replicas", &*self.replicas.to_string()),
        ];
        template.render(|slot| {
            let mut pairs = more.iter().chain(&values);
            pairs.find(|(name, _)| *name == slot).map_or("", |(_, value)| *value)
        })
    }
}

/// The parts of a Pod's name that are not those of its ReplicaSet: in the alphabet that the API
/// server makes names of, and different for each number.
fn letters(mut number: u64, length: usize) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut letters = String::new();
    for _ in 0..length {
        letters.push(char::from(ALPHABET[(number % 27) as usize]));
        number /= 27;
    }
    letters
}

fn hash(owner: usize) -> String {
    letters((owner as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15), 10)
}

/// A UUID that follows from what it is for.
fn uid(kind: Kind, number: usize, life: u64) -> String {
    let seed = (number as u64) << 2 | kind as u64;
    let mut random = fastrand::Rng::with_seed(seed ^ life.rotate_left(40));
    let high = random.u64(..) & !(0xf << 12) | 4 << 12;
    let low = random.u64(..) >> 2 | 2 << 62;
    let (high, low) = (format!("{high:016x}"), format!("{low:016x}"));
    format!("{}-{}-{}-{}-{}", &high[..8], &high[8..12], &high[12..], &low[..4], &low[4..])
}

impl ApiServer {
    /// Writes all objects of a population, each at its own revision: Deployments, then
    /// ReplicaSets, then Pods. One that exists is replaced.
    pub fn populate(&self, population: &Population) {
        let deployment = Template::new(include_str!("population/deployment.json"));
        let replica_set = Template::new(include_str!("population/replicaset.json"));
        let pod = Template::new(include_str!("population/pod.json"));
        self.fill("deployments.apps", population.deployments, |number, version| {
            let member = population.deployment(number);
            let more = [("uid", &*member.uid), ("version", version)];
            (
                object_key(&member.namespace, &member.name),
                population.render(&deployment, number, &more),
            )
        });
        self.fill("replicasets.apps", population.deployments, |number, version| {
            let (member, owner) = (population.replica_set(number), population.deployment(number));
            let more = [("uid", &*member.uid), ("owner", &*owner.uid), ("version", version)];
            let json = population.render(&replica_set, number, &more);
            (object_key(&member.namespace, &member.name), json)
        });
        self.fill("pods", population.pods(), |number, version| {
            pod_json(population, &pod, number, &population.pod(number).uid, version)
        });
    }

    fn fill(&self, resource: &str, count: usize, make: impl Fn(usize, &str) -> (String, String)) {
        let Some(id) = self.shared.catalogue.named(resource) else { return };
        for from in (0..count).step_by(SLICE) {
            self.shared.write(id, |state| {
                for number in from..count.min(from + SLICE) {
                    let (key, json) = make(number, &(state.revision() + 1).to_string());
                    state.put_ready(id, key.into(), json.into());
                }
            });
        }
    }

    /// Changes the Pods of a population at `rate` writes a second for `duration`: of ten writes
    /// eight change a label of a Pod, one deletes a Pod, and one creates a deleted one anew, with
    /// another uid. Which ones follows from the server's seed.
    ///
    /// # Errors
    /// Pods of the population were deleted by somebody else.
    pub async fn churn(
        &self,
        population: &Population,
        rate: f64,
        duration: Duration,
    ) -> Result<Churned, ApiStatus> {
        let template = Template::new(include_str!("population/pod.json"));
        let mut random = fastrand::Rng::with_seed(self.shared.options.seed);
        let mut done = Churned::default();
        let mut gone: Vec<usize> = Vec::new();
        let mut failed = None;
        paced(rate, duration, |turn| {
            let number = random.usize(..population.pods().max(1));
            let Member { namespace, name, .. } = population.pod(number);
            let written = match turn % 10 {
                9 => {
                    let Some(number) = gone.pop() else { return };
                    done.created += 1;
                    self.fill("pods", 1, |_, version| {
                        let uid = uid(Kind::Pod, number, turn);
                        pod_json(population, &template, number, &uid, version)
                    });
                    return;
                }
                _ if gone.contains(&number) => return,
                8 => {
                    gone.push(number);
                    done.deleted += 1;
                    self.delete_object("pods", &namespace, &name)
                }
                _ => {
                    done.changed += 1;
                    let label = json!({"metadata": {"labels": {"turn": turn.to_string()}}});
                    self.patch_object("pods", &namespace, &name, &label)
                }
            };
            failed = failed.take().or(written.err());
        })
        .await;
        failed.map_or(Ok(done), Err)
    }
}

/// The key and the JSON of a Pod.
fn pod_json(
    population: &Population,
    template: &Template,
    number: usize,
    uid: &str,
    version: &str,
) -> (String, String) {
    let owner = population.owner(number);
    let Member { namespace, name, .. } = population.pod(number);
    let [_, _, c, d] = (number as u32).to_be_bytes();
    let address = format!("10.{}.{c}.{d}", 64 + (number >> 16) % 64);
    let more = [
        ("pod", &*name),
        ("uid", uid),
        ("version", version),
        ("owner", &*population.replica_set(owner).uid),
        ("node", &*population.node(number)),
        ("address", &*address),
    ];
    (object_key(&namespace, &name), population.render(template, owner, &more))
}
