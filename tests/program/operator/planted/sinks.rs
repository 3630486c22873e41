//! The sinks, and the secrets in them.

use super::receivers::{self, Receiver};

/// A sink of a kind: its configuration, in which `{ADDRESS}` is its receiver's, and the secrets in it, as
/// variables of the environment. All of them can have `TLS_CERT` and `TLS_KEY`.
pub(super) struct Planted {
    pub(super) kind: &'static str,
    pub(super) name: &'static str,
    pub(super) sink: &'static str,
    pub(super) secrets: &'static [(&'static str, &'static str)],
    /// The texts of these that a receiver may say.
    pub(super) said: &'static [&'static str],
    pub(super) receiver: fn(&[&str]) -> Receiver,
}

pub(super) const PLANTED: [Planted; 26] = [
    Planted {
        kind: "kafka",
        name: "kafka",
        sink: "{kafka: {brokers: [\"{ADDRESS}\"], topic: t, sasl: {mechanism: plain, username: {env: \
               KAFKA_USER}, password: {env: KAFKA_PASSWORD}}}, timeout: 2s, allowPlaintext: true}",
        secrets: &[
            ("KAFKA_USER", "Pl4nted-user"),
            ("KAFKA_PASSWORD", "Pl4nted:pass \"w\\ord/+%41é"),
        ],
        said: &[
            "Pl4nted-user",
            "Pl4nted:pass \"w\\ord/+%41é",
            "Pl4nted-user:Pl4nted:pass \"w\\ord/+%41é",
        ],
        receiver: receivers::kafka,
    },
    Planted {
        kind: "otlp",
        name: "grpc",
        sink: "{otlp: {endpoint: \"http://{ADDRESS}\", headers: {authorization: {env: GRPC_BEARER}, \
               x-key: {env: GRPC_KEY}}}}",
        secrets: &[
            ("GRPC_BEARER", "Bearer Pl4nted.grpc\"b\\e/+%41"),
            ("GRPC_KEY", "Pl4nted&key=<1> 'x'"),
        ],
        said: &["Bearer Pl4nted.grpc\"b\\e/+%41", "Pl4nted.grpc\"b\\e/+%41", "Pl4nted&key=<1> 'x'"],
        receiver: receivers::grpc,
    },
    Planted {
        kind: "otlp",
        name: "http",
        sink: "{otlp: {protocol: http, endpoint: {env: HTTP_URL}, headers: {Authorization: {env: \
               HTTP_BASIC}, Api-Key: {env: HTTP_KEY}}}}",
        // `{user: Pl4nted-basic, password: Pl4nted:basic/p}` in base64.
        secrets: &[
            ("HTTP_URL", "http://{ADDRESS}/tenants/Pl4nted-tenant-1"),
            ("HTTP_BASIC", "Basic UGw0bnRlZC1iYXNpYzpQbDRudGVkOmJhc2ljL3A="),
            ("HTTP_KEY", "Pl4nted;http=\"k\\ey/+%41\""),
        ],
        said: &[
            "/tenants/Pl4nted-tenant-1/v1/logs",
            "Pl4nted-tenant-1",
            "UGw0bnRlZC1iYXNpYzpQbDRudGVkOmJhc2ljL3A=",
            "Pl4nted-basic:Pl4nted:basic/p",
            "Pl4nted:basic/p",
            "Pl4nted;http=\"k\\ey/+%41\"",
        ],
        receiver: receivers::http,
    },
    Planted {
        kind: "webhook",
        name: "webhook",
        sink: "{webhook: {url: {env: HOOK_URL}, headers: {X-Token: {env: HOOK_TOKEN}}, signing: {secret: \
               [{env: HOOK_SECRET}, {env: HOOK_PRIVATE}]}}, deadLetters: {sink: out}}",
        secrets: &[
            ("HOOK_URL", "http://{ADDRESS}/services/Pl4nted-T0/x?key=Pl4nted%2Fquery%20value&v=2"),
            ("HOOK_TOKEN", "Pl4nted hook\\tok\"en/+%41"),
            ("HOOK_SECRET", "whsec_UGw0bnRlZC1zaWduaW5nLXNlY3JldC0wMTIz"),
            ("HOOK_PRIVATE", "whsk_UGw0bnRlZC1wcml2YXRlLWtleS1vZi1lZDI1NTE5LTA="),
        ],
        said: &[
            "/services/Pl4nted-T0/x?key=Pl4nted%2Fquery%20value&v=2",
            "Pl4nted-T0",
            "Pl4nted/query value",
            "Pl4nted hook\\tok\"en/+%41",
            "whsec_UGw0bnRlZC1zaWduaW5nLXNlY3JldC0wMTIz",
            "Pl4nted-signing-secret-0123",
            "whsk_UGw0bnRlZC1wcml2YXRlLWtleS1vZi1lZDI1NTE5LTA=",
            "Pl4nted-private-key-of-ed25519-0",
        ],
        receiver: receivers::http,
    },
    // Its receiver is the proxy; the scheme of its credentials is nobody's.
    Planted {
        kind: "webhook",
        name: "proxied",
        sink: "{webhook: {url: {env: PROXIED_URL}, headers: {Authorization: {env: \
               PROXIED_HEADER}, X-Auth: {env: PROXIED_WORD}}, signing: {secret: {env: PROXIED_SECRET}}}, proxy: {env: PROXIED_BY}, \
               allowPlaintext: true}",
        secrets: &[
            ("PROXIED_URL", "http://receiver.invalid/services/Pl4nted-T0"),
            ("PROXIED_HEADER", "Unheard-Of Pl4nted.scheme\"0/+%41"),
            ("PROXIED_WORD", "Unheard-Of Plantedword"),
            ("PROXIED_SECRET", "whsec_UGw0bnRlZC1zaW5nbGUtc2lnbmluZy1r"),
            ("PROXIED_BY", "http://Pl4nted-dialer:Pl4nted-pr0xy@{ADDRESS}"),
        ],
        said: &[
            "/services/Pl4nted-T0",
            "Pl4nted-T0",
            "Unheard-Of Pl4nted.scheme\"0/+%41",
            "Pl4nted.scheme\"0/+%41",
            "Plantedword",
            "whsec_UGw0bnRlZC1zaW5nbGUtc2lnbmluZy1r",
            "Pl4nted-single-signing-k",
            "Pl4nted-dialer:Pl4nted-pr0xy",
            "Pl4nted-pr0xy",
        ],
        receiver: receivers::http,
    },
    Planted {
        kind: "webhook",
        name: "bearer",
        sink: "{webhook: {url: {env: BEARER_URL}, auth: {bearer: {env: BEARER_TOKEN}}}}",
        secrets: &[
            ("BEARER_URL", "http://{ADDRESS}/services/Pl4nted-T0"),
            ("BEARER_TOKEN", "Pl4nted.bearer\"b\\e/+%41"),
        ],
        said: &["Pl4nted-T0", "Pl4nted.bearer\"b\\e/+%41"],
        receiver: receivers::http,
    },
    Planted {
        kind: "webhook",
        name: "basic",
        sink: "{webhook: {url: {env: BASIC_URL}, auth: {basic: {username: {env: BASIC_USER}, \
               password: {env: BASIC_PASSWORD}}}}}",
        secrets: &[
            ("BASIC_URL", "http://{ADDRESS}/services/Pl4nted-T0"),
            ("BASIC_USER", "Pl4nted-user-1"),
            ("BASIC_PASSWORD", "Pl4nted:word \"w\\ord/+%41"),
        ],
        said: &[
            "Pl4nted-user-1",
            "Pl4nted:word \"w\\ord/+%41",
            "UGw0bnRlZC11c2VyLTE6UGw0bnRlZDp3b3JkICJ3XFxvcmQvKyU0MQ==",
        ],
        receiver: receivers::http,
    },
    Planted {
        kind: "webhook",
        name: "templated",
        sink: "{webhook: {url: {env: TEMPLATED_URL}, headers: {X-Token: {env: TEMPLATED_TOKEN}}, body: {env: \
               TEMPLATED_BODY}}}",
        secrets: &[
            (
                "TEMPLATED_URL",
                "http://{ADDRESS}/Pl4nted-T0/{{ id }}?n={{ id }}&key=Pl4nted%2Fquery",
            ),
            ("TEMPLATED_TOKEN", "Unheard-Of Pl4nted.scheme\"0/+%41 {{ id }}"),
            ("TEMPLATED_BODY", "{\"key\": \"Pl4nted-0123456789\", \"text\": {{ event.message }}}"),
        ],
        said: &["Pl4nted-T0", "Pl4nted/query", "Pl4nted.scheme\"0/+%41", "Pl4nted-0123456789"],
        receiver: receivers::http,
    },
    // Its receiver is asked for a token, and gives none.
    Planted {
        kind: "webhook",
        name: "oauth2",
        sink: "{webhook: {url: \"http://{ADDRESS}\", auth: {oauth2: {tokenUrl: {env: OAUTH_URL}, \
               clientId: {env: OAUTH_ID}, clientSecret: {env: OAUTH_SECRET}, scope: all}}}}",
        secrets: &[
            ("OAUTH_URL", "http://{ADDRESS}/Pl4nted-T0/token"),
            ("OAUTH_ID", "Pl4nted client"),
            ("OAUTH_SECRET", "Pl4nted&client=<2> 'x'"),
        ],
        said: &["Pl4nted-T0", "Pl4nted client", "Pl4nted&client=<2> 'x'"],
        receiver: receivers::http,
    },
    Planted {
        kind: "splunk",
        name: "hec",
        sink: "{splunk: {url: {env: HEC_URL}, token: {env: HEC_TOKEN}}}",
        secrets: &[
            ("HEC_URL", "http://{ADDRESS}/tenants/Pl4nted-T0"),
            ("HEC_TOKEN", "Pl4nted.hec\"b\\e/+%41"),
        ],
        said: &["Pl4nted-T0", "Pl4nted.hec\"b\\e/+%41"],
        receiver: receivers::splunk,
    },
    Planted {
        kind: "splunk",
        name: "hec-ack",
        sink: "{splunk: {url: \"http://{ADDRESS}/Pl4nted-T0\", token: {env: HEC_TOKEN_2}, acknowledge: true}}",
        secrets: &[("HEC_TOKEN_2", "Pl4nted-hec-token-2")],
        said: &["Pl4nted-T0", "Pl4nted-hec-token-2"],
        receiver: receivers::splunk,
    },
    Planted {
        kind: "loki",
        name: "loki",
        sink: "{loki: {url: {env: LOKI_URL}, auth: {basic: {username: {env: LOKI_USER}, password: {env: \
               LOKI_PASSWORD}}}}}",
        secrets: &[
            ("LOKI_URL", "http://{ADDRESS}/Pl4nted-T0"),
            ("LOKI_USER", "Pl4nted loki"),
            ("LOKI_PASSWORD", "Pl4nted&loki=<2> 'x'"),
        ],
        said: &["Pl4nted-T0", "Pl4nted loki", "Pl4nted&loki=<2> 'x'"],
        receiver: receivers::http,
    },
    Planted {
        kind: "loki",
        name: "loki-bearer",
        sink: "{loki: {url: \"http://{ADDRESS}/Pl4nted-T0\", tenant: \"{{ event.metadata.namespace }}\", \
               auth: {bearer: {env: LOKI_TOKEN}}}}",
        secrets: &[("LOKI_TOKEN", "Pl4nted-loki-token")],
        said: &["Pl4nted-T0", "Pl4nted-loki-token"],
        receiver: receivers::http,
    },
    Planted {
        kind: "loki",
        name: "loki-oauth2",
        sink: "{loki: {url: \"http://{ADDRESS}\", auth: {oauth2: {tokenUrl: {env: LOKI_OAUTH_URL}, clientId: {env: \
               LOKI_OAUTH_ID}, clientSecret: {env: LOKI_OAUTH_SECRET}}}}}",
        secrets: &[
            ("LOKI_OAUTH_URL", "http://{ADDRESS}/Pl4nted-T0/token"),
            ("LOKI_OAUTH_ID", "Pl4nted loki client"),
            ("LOKI_OAUTH_SECRET", "Pl4nted&loki=<3> 'x'"),
        ],
        said: &["Pl4nted-T0", "Pl4nted loki client", "Pl4nted&loki=<3> 'x'"],
        receiver: receivers::http,
    },
    // Those whose receivers never say a word.
    Planted {
        kind: "kafka",
        name: "kafka-tls",
        sink: "{kafka: {brokers: [\"{ADDRESS}\"], topic: t, tls: {cert: {env: TLS_CERT}, key: {env: \
               TLS_KEY}}}, timeout: 1s}",
        secrets: &[],
        said: &[],
        receiver: receivers::none,
    },
    Planted {
        kind: "otlp",
        name: "grpc-tls",
        sink: "{otlp: {endpoint: \"https://{ADDRESS}\", tls: {cert: {env: TLS_CERT}, key: {env: \
               TLS_KEY}}}, timeout: 1s}",
        secrets: &[],
        said: &[],
        receiver: receivers::none,
    },
    Planted {
        kind: "webhook",
        name: "webhook-tls",
        sink: "{webhook: {url: \"https://{ADDRESS}\", tls: {cert: {env: TLS_CERT}, key: {env: \
               TLS_KEY}}}, timeout: 1s}",
        secrets: &[],
        said: &[],
        receiver: receivers::none,
    },
    Planted {
        kind: "elasticsearch",
        name: "es-tls",
        sink: "{elasticsearch: {urls: [\"https://{ADDRESS}\"], index: k8s, tls: {cert: {env: TLS_CERT}, key: {env: \
               TLS_KEY}}}, timeout: 1s}",
        secrets: &[],
        said: &[],
        receiver: receivers::none,
    },
    Planted {
        kind: "splunk",
        name: "splunk-hec-tls",
        sink: "{splunk: {url: \"https://{ADDRESS}\", token: t, tls: {cert: {env: TLS_CERT}, key: {env: \
               TLS_KEY}}}, timeout: 1s}",
        secrets: &[],
        said: &[],
        receiver: receivers::none,
    },
    Planted {
        kind: "loki",
        name: "loki-tls",
        sink: "{loki: {url: \"https://{ADDRESS}\", tls: {cert: {env: TLS_CERT}, key: {env: TLS_KEY}}}, timeout: 1s}",
        secrets: &[],
        said: &[],
        receiver: receivers::none,
    },
    Planted {
        kind: "syslog",
        name: "syslog-tls",
        sink: "{syslog: {address: \"{ADDRESS}\", transport: tls, tls: {cert: {env: TLS_CERT}, key: {env: TLS_KEY}}}, \
               timeout: 1s}",
        secrets: &[],
        said: &[],
        receiver: receivers::none,
    },
    Planted {
        kind: "file",
        name: "file",
        sink: "{file: {path: /dev/null/events.ndjson}}",
        secrets: &[],
        said: &[],
        receiver: receivers::none,
    },
    // It has none, and is forwarded the dead letters of another.
    Planted {
        kind: "stdout",
        name: "out",
        sink: "{stdout: {}}",
        secrets: &[],
        said: &[],
        receiver: receivers::none,
    },
    // `Pl4nted-id:Pl4nted-api-key` in base64.
    Planted {
        kind: "elasticsearch",
        name: "es-key",
        sink: "{elasticsearch: {urls: [{env: ES_URL}], index: k8s, auth: {apiKey: {env: ES_KEY}}}}",
        secrets: &[
            ("ES_URL", "http://{ADDRESS}/tenants/Pl4nted-tenant-2"),
            ("ES_KEY", "UGw0bnRlZC1pZDpQbDRudGVkLWFwaS1rZXk="),
        ],
        said: &[
            "Pl4nted-tenant-2",
            "UGw0bnRlZC1pZDpQbDRudGVkLWFwaS1rZXk=",
            "Pl4nted-id:Pl4nted-api-key",
            "Pl4nted-api-key",
        ],
        receiver: receivers::elasticsearch,
    },
    Planted {
        kind: "elasticsearch",
        name: "es-basic",
        sink: "{elasticsearch: {urls: [\"http://{ADDRESS}\"], index: k8s, auth: {basic: {username: {env: ES_USER}, \
               password: {env: ES_PASSWORD}}}}}",
        secrets: &[("ES_USER", "Pl4nted-user-3"), ("ES_PASSWORD", "Pl4nted:es \"w\\ord/+%41")],
        said: &[
            "Pl4nted-user-3",
            "Pl4nted:es \"w\\ord/+%41",
            "Pl4nted-user-3:Pl4nted:es \"w\\ord/+%41",
        ],
        receiver: receivers::elasticsearch,
    },
    Planted {
        kind: "elasticsearch",
        name: "es-bearer",
        sink: "{elasticsearch: {urls: [\"http://{ADDRESS}\"], dataStream: k8s, auth: {bearer: {env: ES_BEARER}}}}",
        secrets: &[("ES_BEARER", "Pl4nted.es-bearer\"b\\e/+%41")],
        said: &["Pl4nted.es-bearer\"b\\e/+%41"],
        receiver: receivers::elasticsearch,
    },
];
