//! librdkafka's configuration.

use rdkafka::{
    ClientConfig,
    config::RDKafkaLogLevel,
    producer::{BaseProducer, DefaultProducerContext},
};

use super::{
    super::{Compression, KafkaOptions, SaslMechanism, SinkBuildError},
    shares::{MOST_BYTES, MOST_MESSAGES},
};
use crate::bridge::Secrets;

/// The bounds of the queue are those of [`Shares`](super::shares::Shares). librdkafka's own are beyond them, so
/// that it never says of one partition that there is no room for what another one has there.
const QUEUE_MESSAGES: usize = 2 * MOST_MESSAGES;
/// The same in KiB.
const QUEUE_KIB: usize = 2 * (MOST_BYTES >> 10);
/// Below the queue's size, or a message could neither be refused nor ever be queued. Far above
/// what brokers take by default, so that it is the broker that decides.
const MESSAGE_BYTES: &str = "8000000";
/// How many bytes of messages are sent as one record batch, which is what `max.message.bytes` of a
/// topic is held against. A batch that is too large is refused as a whole while those behind it are
/// taken, so an object's events could come out of order; no topic takes so little.
const BATCH_BYTES: &str = "65536";

/// Turns options into librdkafka's properties, and has librdkafka judge them.
pub(super) fn build(
    options: &KafkaOptions,
    secrets: &Secrets,
) -> Result<ClientConfig, SinkBuildError> {
    let bad = |key, reason: &str| SinkBuildError::Address { key, reason: reason.into() };
    if options.brokers.is_empty() {
        return Err(bad("brokers", "at least one host:port is needed"));
    }
    if let Some(broker) = options.brokers.iter().find(|broker| !is_host_port(broker)) {
        return Err(bad("brokers", &format!("{broker:?} is not host:port")));
    }
    if options.topic.is_empty() || options.topic.len() > 249 {
        return Err(bad("topic", "must have 1 to 249 characters"));
    }
    if !options.topic.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
        return Err(bad("topic", "may hold letters, digits, dot, underscore and hyphen"));
    }
    let mut config = ClientConfig::new();
    config
        .set("client.id", client_id(options.cluster.as_deref()))
        .set("acks", "all")
        .set("enable.idempotence", "true")
        // For ever: a message that timed out may still be in flight, and order would be lost. The
        // bridge's deadline is kept by the sink.
        .set("message.timeout.ms", "0")
        .set("queue.buffering.max.messages", QUEUE_MESSAGES.to_string())
        .set("queue.buffering.max.kbytes", QUEUE_KIB.to_string())
        .set("message.max.bytes", MESSAGE_BYTES)
        .set("batch.size", BATCH_BYTES)
        .set("compression.codec", codec(options.compression))
        // The bridge batches already; this only lets a batch gather in the local queue.
        .set("linger.ms", "1")
        .set("socket.keepalive.enable", "true")
        // A broker that is back is noticed within 2 s, one that hangs within 20 s.
        .set("reconnect.backoff.max.ms", "2000")
        .set("request.timeout.ms", "10000")
        .set("socket.timeout.ms", "20000")
        // Long enough for a topic that the broker creates at first use, shorter than an attempt.
        .set("topic.metadata.propagation.max.ms", "5000")
        .set("log.connection.close", "false");
    if let Some(tls) = &options.tls {
        let bad = |key, reason: &str| SinkBuildError::Tls { key, reason: reason.into() };
        if tls.server_name.is_some() {
            return Err(bad(
                "serverName",
                "librdkafka checks each broker's own name and knows no other; \
                leave it out, and give the brokers by the names in their certificates",
            ));
        }
        match &tls.ca {
            Some(ca) => {
                let pem =
                    std::str::from_utf8(ca).map_err(|_| bad("ca", "not certificates in PEM"))?;
                config.set("ssl.ca.pem", pem)
            }
            // The OpenSSL inside has no roots of its own.
            None => config.set("ssl.ca.location", "probe"),
        };
        match (&tls.cert, &tls.key) {
            (Some(cert), Some(key)) => {
                let pem = std::str::from_utf8(cert)
                    .map_err(|_| bad("cert", "not certificates in PEM"))?;
                config.set("ssl.certificate.pem", pem).set("ssl.key.pem", key.expose());
            }
            (None, None) => {}
            (Some(_), None) => return Err(bad("key", "is missing; cert and key go together")),
            (None, Some(_)) => return Err(bad("cert", "is missing; cert and key go together")),
        }
    }
    if let Some(sasl) = &options.sasl {
        config
            .set("sasl.mechanism", mechanism(sasl.mechanism))
            .set("sasl.username", sasl.username.expose())
            .set("sasl.password", sasl.password.expose());
    }
    config.set(
        "security.protocol",
        match (&options.tls, &options.sasl) {
            (None, None) => "plaintext",
            (Some(_), None) => "ssl",
            (None, Some(_)) => "sasl_plaintext",
            (Some(_), Some(_)) => "sasl_ssl",
        },
    );
    judge(&config, secrets)?;
    config.set("bootstrap.servers", options.brokers.join(","));
    Ok(config)
}

/// A producer without a broker reads certificates and checks every property, and has nobody to
/// connect to.
fn judge(config: &ClientConfig, secrets: &Secrets) -> Result<(), SinkBuildError> {
    let mut config = config.clone();
    config.set_log_level(RDKafkaLogLevel::Emerg);
    let made: Result<BaseProducer<DefaultProducerContext>, _> = config.create();
    made.map(drop).map_err(|error| SinkBuildError::Kafka(secrets.reason(error)))
}

/// The name by which brokers set quotas and write logs: of the letters that they take everywhere.
fn client_id(cluster: Option<&str>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let cluster = cluster.filter(|name| !name.is_empty());
    cluster.map_or("tidings".to_owned(), |name| {
        format!("tidings-{}", name.chars().take(200).map(plain).collect::<String>())
    })
}

fn is_host_port(broker: &str) -> bool {
    broker.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains([',', '/', ' ']) && port.parse::<u16>().is_ok()
    })
}

fn codec(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "none",
        Compression::Gzip => "gzip",
        Compression::Zstd => "zstd",
    }
}

fn mechanism(mechanism: SaslMechanism) -> &'static str {
    match mechanism {
        SaslMechanism::Plain => "PLAIN",
        SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
        SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
    }
}

#[cfg(test)]
mod tests {
    use super::client_id;

    #[test]
    fn a_client_is_called_after_its_cluster() {
        assert_eq!(client_id(Some("prod-eu-1")), "tidings-prod-eu-1");
        assert_eq!(client_id(Some("Größe /1")), "tidings-Gr--e--1");
        assert_eq!((client_id(None), client_id(Some(""))), ("tidings".into(), "tidings".into()));
    }
}
