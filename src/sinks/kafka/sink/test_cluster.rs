//! A mock cluster for the tests, and a consumer that reads back what arrived.

use std::{collections::BTreeMap, time::Duration};

use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    message::Headers as _,
    mocking::MockCluster,
    producer::DefaultProducerContext,
};

pub(super) const TOPIC: &str = "k8s-events";
const PARTITIONS: i32 = 4;

pub(super) type Cluster = MockCluster<'static, DefaultProducerContext>;

pub(super) fn cluster() -> Cluster {
    cluster_with(PARTITIONS)
}

pub(super) fn cluster_with(partitions: i32) -> Cluster {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, partitions, 1).unwrap();
    cluster
}

#[derive(Debug)]
pub(super) struct Consumed {
    pub(super) key: String,
    pub(super) id: String,
    pub(super) content_type: String,
    pub(super) timestamp: Option<i64>,
    pub(super) payload: Vec<u8>,
}

/// Everything in the topic, partition by partition.
pub(super) fn consume(cluster: &Cluster) -> Vec<Consumed> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("group.id", "test")
        .set("enable.partition.eof", "false")
        .create()
        .unwrap();
    let mut assignment = TopicPartitionList::new();
    let mut count = 0;
    for partition in 0..PARTITIONS {
        let Ok((low, high)) = consumer.fetch_watermarks(TOPIC, partition, Duration::from_secs(5))
        else {
            continue;
        };
        count += high - low;
        assignment.add_partition_offset(TOPIC, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&assignment).unwrap();
    let mut all = Vec::new();
    for _ in 0..count {
        let message = consumer.poll(Duration::from_secs(10)).unwrap().unwrap();
        let headers: BTreeMap<String, String> = message
            .headers()
            .unwrap()
            .iter()
            .map(|h| (h.key.into(), String::from_utf8_lossy(h.value.unwrap()).into_owned()))
            .collect();
        assert_eq!(headers.len(), 2);
        all.push(Consumed {
            key: String::from_utf8_lossy(message.key().unwrap()).into_owned(),
            id: headers["id"].clone(),
            content_type: headers["content-type"].clone(),
            timestamp: message.timestamp().to_millis(),
            payload: message.payload().unwrap().to_vec(),
        });
    }
    all
}

/// Which arrival of a repeated message counts.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Arrival {
    First,
    Last,
}

/// Every message arrived, and those of each key in order.
pub(super) fn assert_all_in_order(consumed: &[Consumed], last: u64, counts: Arrival) {
    let mut keys: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for message in consumed {
        let seq = message.id.split_once('-').unwrap().1.parse().unwrap();
        let seqs = keys.entry(&message.key).or_default();
        match (seqs.iter().position(|known| *known == seq), counts) {
            (Some(_), Arrival::First) => continue,
            (Some(earlier), Arrival::Last) => drop(seqs.remove(earlier)),
            (None, _) => {}
        }
        seqs.push(seq);
    }
    for (pod, key) in (0..3).zip(["prod//p0", "prod//p1", "prod//p2"]) {
        let expected: Vec<u64> = (1..=last).filter(|seq| seq % 3 == pod).collect();
        let found = &keys[key];
        let odd = expected.iter().zip(found).position(|(a, b)| a != b);
        assert_eq!((expected.len(), odd), (found.len(), None), "{key}");
    }
}
