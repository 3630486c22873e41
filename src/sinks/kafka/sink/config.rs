//! librdkafka's configuration.

use rdkafka::{
    ClientConfig,
    config::RDKafkaLogLevel,
    producer::{BaseProducer, DefaultProducerContext},
};

use super::super::{
    KafkaOptions, SaslMechanism,
    keys::{broker, topic},
};
use crate::{
    bridge::Secrets,
    document::{Wrong, wrong},
    sinks::{Compression, SinkBuildError},
};

/// Messages held by librdkafka; the journal is the buffer, not this.
const QUEUE_MESSAGES: &str = "4096";
/// The same in KiB.
const QUEUE_KIB: &str = "8192";
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
    let bad = |key| move |wrong: Wrong| SinkBuildError::at(&[key], wrong.what);
    if options.brokers.is_empty() {
        return Err(bad("brokers")(wrong("expected brokers, found none")));
    }
    options.brokers.iter().try_for_each(|text| broker(text)).map_err(bad("brokers"))?;
    topic(&options.topic).map_err(bad("topic"))?;
    let mut config = ClientConfig::new();
    config
        .set("client.id", client_id(options.cluster.as_deref()))
        .set("acks", "all")
        .set("enable.idempotence", "true")
        // For ever: a message that timed out may still be in flight, and order would be lost. The
        // bridge's deadline is kept by the sink.
        .set("message.timeout.ms", "0")
        .set("queue.buffering.max.messages", QUEUE_MESSAGES)
        .set("queue.buffering.max.kbytes", QUEUE_KIB)
        .set("message.max.bytes", MESSAGE_BYTES)
        .set("batch.size", BATCH_BYTES)
        // What Java producers do, so that a key has one partition whoever writes it.
        .set("partitioner", "murmur2_random")
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
        if tls.server_name.is_some() {
            let reason = "librdkafka checks each broker's own name and knows no other; \
                leave it out, and give the brokers by the names in their certificates";
            return Err(SinkBuildError::at(&["tls", "serverName"], reason));
        }
        let text = |key, pem| {
            let none = |_| SinkBuildError::at(&["tls", key], "expected PEM, found no text");
            std::str::from_utf8(pem).map_err(none)
        };
        match &tls.ca {
            Some(ca) => config.set("ssl.ca.pem", text("ca", ca)?),
            // The OpenSSL inside has no roots of its own.
            None => config.set("ssl.ca.location", "probe"),
        };
        if let Some((cert, key)) = tls.identity()? {
            let pem = text("cert", cert)?;
            config.set("ssl.certificate.pem", pem).set("ssl.key.pem", key.expose());
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
    made.map(drop).map_err(|error| {
        let reason = secrets.reason(error);
        SinkBuildError::at(&[], format_args!("librdkafka refuses the configuration: {reason}"))
    })
}

/// The name by which brokers set quotas and write logs: of the letters that they take everywhere.
fn client_id(cluster: Option<&str>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let cluster = cluster.filter(|name| !name.is_empty());
    cluster.map_or("tidings".to_owned(), |name| {
        format!("tidings-{}", name.chars().take(200).map(plain).collect::<String>())
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
