//! The transports: each is one [`Sink`](crate::bridge::Sink), a folder or file of its own, and
//! behind a feature of its own where it brings dependencies.

mod options;

pub use options::{
    Compression, KafkaOptions, OtlpOptions, OtlpProtocol, SaslMechanism, SaslOptions, Secret,
    TlsOptions, WebhookOptions,
};
