//! OTLP/gRPC.
//!
//! The request is encoded already, so the generated client, which wants messages, is not used:
//! the same call is made with a codec that sends bytes.

use std::time::Duration;

use ::http::uri::{PathAndQuery, Scheme};
use bytes::{Buf as _, BufMut as _, Bytes};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use prost::Message as _;
use tokio::time::timeout;
use tonic::{
    Extensions, Request, Status,
    client::Grpc,
    codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder},
    metadata::MetadataMap,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use super::{
    super::{
        Compression, OtlpOptions, SinkBuildError,
        http::{self, Address, USER_AGENT},
        own_deadline, tls,
    },
    grpc_status,
};
use crate::bridge::{Outcome, RetryClass, Secrets};

/// The method.
const EXPORT: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
/// Larger answers are no answers to an export.
const RESPONSE_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct GrpcExporter {
    endpoint: Endpoint,
    peer: String,
    /// Opened by the first call; connects, and connects again, by itself.
    channel: Option<Channel>,
    metadata: MetadataMap,
    compression: Compression,
    secrets: Secrets,
    attempt: Duration,
    deadline: Duration,
}

impl GrpcExporter {
    pub(super) fn new(options: &OtlpOptions, secrets: Secrets) -> Result<Self, SinkBuildError> {
        let address = Address::parse("endpoint", &options.endpoint)?;
        if !matches!(address.uri.path(), "" | "/") {
            return Err(SinkBuildError::Address {
                key: "endpoint",
                reason: "gRPC takes no path; is protocol: http meant?".into(),
            });
        }
        let ours = ["content-type", "grpc-encoding", "grpc-timeout", "grpc-accept-encoding"];
        let headers = http::headers(&options.headers, &ours)?;
        if let Some(name) = headers.keys().find(|name| name.as_str().ends_with("-bin")) {
            return Err(SinkBuildError::Header {
                name: name.to_string(),
                reason: "binary metadata is not supported".into(),
            });
        }
        let deadline = own_deadline(options.timeout);
        let client = |e: tonic::transport::Error| {
            SinkBuildError::Client(secrets.reason(http::innermost(&e)))
        };
        let mut endpoint = Endpoint::from_shared(address.uri.to_string())
            .map_err(client)?
            .user_agent(USER_AGENT)
            .map_err(client)?
            .tcp_nodelay(true)
            .tcp_keepalive(Some(Duration::from_secs(30)))
            // A call that waits is what is worth a ping; receivers punish pings without one.
            .http2_keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(false)
            .connect_timeout((deadline / 2).max(Duration::from_millis(1)));
        let tls_options = options.tls.clone().unwrap_or_default();
        tls::check(&tls_options, address.uri.scheme())?;
        if address.uri.scheme() == Some(&Scheme::HTTPS) {
            let mut tls = ClientTlsConfig::new();
            tls = match &tls_options.ca {
                Some(pem) => tls.ca_certificate(Certificate::from_pem(pem)),
                None => tls.with_native_roots(),
            };
            if let (Some(cert), Some(key)) = (&tls_options.cert, &tls_options.key) {
                tls = tls.identity(Identity::from_pem(cert, key.expose()));
            }
            if let Some(name) = &tls_options.server_name {
                tls = tls.domain_name(name);
            }
            endpoint = endpoint.tls_config(tls).map_err(client)?;
        }
        Ok(Self {
            endpoint,
            peer: address.peer,
            channel: None,
            metadata: MetadataMap::from_headers(headers),
            compression: options.compression,
            secrets,
            attempt: options.timeout,
            deadline,
        })
    }

    pub(super) async fn export(
        &mut self,
        request: Bytes,
    ) -> Result<ExportLogsServiceResponse, Outcome> {
        let channel = self.channel.get_or_insert_with(|| self.endpoint.connect_lazy()).clone();
        let mut client = Grpc::new(channel)
            .max_decoding_message_size(RESPONSE_BYTES)
            .accept_compressed(CompressionEncoding::Gzip);
        client = match self.compression {
            Compression::None => client,
            Compression::Gzip => client.send_compressed(CompressionEncoding::Gzip),
            Compression::Zstd => client.send_compressed(CompressionEncoding::Zstd),
        };
        let mut request =
            Request::from_parts(self.metadata.clone(), Extensions::default(), request);
        // Told to the receiver; a little more than ours, so that it is ours that ends the call.
        request.set_timeout(self.attempt);
        let call = async {
            client.ready().await.map_err(|e| Status::from_error(e.into()))?;
            client.unary(request, PathAndQuery::from_static(EXPORT), RawCodec).await
        };
        match timeout(self.deadline, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(grpc_status::to_outcome(&status, &self.peer, &self.secrets)),
            Err(_) => {
                // A connection whose other end is gone looks like this until TCP gives up, after
                // minutes. A new one costs little.
                self.channel = None;
                Err(Outcome::Retry {
                    after: None,
                    class: RetryClass::Timeout,
                    reason: self.secrets.reason(format_args!(
                        "no answer from {} within {:?}",
                        self.peer, self.deadline
                    )),
                })
            }
        }
    }
}

/// Sends bytes that are a request already.
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = ExportLogsServiceResponse;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.reserve(item.len());
        out.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = ExportLogsServiceResponse;
    type Error = Status;
    fn decode(&mut self, input: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        // An answer that cannot be read takes nothing back: the status says what became of it.
        let bytes = input.copy_to_bytes(input.remaining());
        Ok(Some(ExportLogsServiceResponse::decode(bytes).unwrap_or_default()))
    }
}
