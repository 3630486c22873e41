//! Whether receivers can verify what is signed, with the libraries that others have made for them.

use std::io::Read as _;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

use crate::bridge::Bridge;
use crate::parts::{ApiServerOptions, Part as _, Signed, WebhookLibrary};
use crate::stage::{Cluster, sinks_of};
use crate::truth::Truth;
use crate::wait::until;
use crate::writers::Load;

/// The old key and the new one, while receivers change from one to the other.
const SECRETS: [&str; 2] = [
    "whsec_dGlkaW5ncyBlbmQtdG8tZW5kIHRlc3Rz",
    "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
];
/// Of a kind that neither library verifies, and that must not keep it from verifying the others.
const PRIVATE: &str = "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const SOMEBODY_ELSES: &str = "whsec_c29tZWJvZHkgZWxzZSdzIHNpZ25pbmcga2V5";
const EVENTS: usize = 24;

/// A request to a sink's address.
#[derive(Clone, Debug)]
struct Request {
    sink: String,
    headers: HeaderMap,
    sent: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    /// The body that a framework hands on, which has undone the compression.
    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        match self.header("content-encoding") {
            None => body.clone_from(&self.sent),
            Some("gzip") => {
                let mut unpacking = flate2::read::GzDecoder::new(&*self.sent);
                unpacking.read_to_end(&mut body).expect("gzip");
            }
            Some("zstd") => body = zstd::stream::decode_all(&*self.sent).expect("zstd"),
            Some(other) => panic!("content-encoding: {other}"),
        }
        body
    }

    /// The request for a receiver that has this secret to verify, with a body of it.
    fn signed(&self, secret: &'static str, body: Vec<u8>) -> Signed {
        let headers: Map<_, _> = ["webhook-id", "webhook-timestamp", "webhook-signature"]
            .into_iter()
            .map(|name| (name.to_owned(), self.header(name).expect(name).into()))
            .collect();
        Signed { secret, headers: headers.into(), body }
    }
}

type Requests = Arc<Mutex<Vec<Request>>>;

async fn take(
    State(requests): State<Requests>,
    Path(sink): Path<String>,
    headers: HeaderMap,
    sent: Bytes,
) -> StatusCode {
    requests.lock().expect("no panic").push(Request { sink, headers, sent: sent.into() });
    StatusCode::NO_CONTENT
}

/// A sink for each compression, with events one by one and many at once.
fn sinks(address: &str) -> Value {
    let mut sinks = Map::new();
    for compression in ["none", "gzip", "zstd"] {
        for (batch, events) in [("single", 1), ("array", EVENTS)] {
            let name = format!("{compression}-{batch}");
            let sink = json!({
                "webhook": {
                    "url": format!("http://{address}/{name}"),
                    "signing": {"secret": [SECRETS[0], SECRETS[1], PRIVATE]},
                },
                "compression": compression,
                "batch": {"events": events},
            });
            sinks.insert(name, sink);
        }
    }
    sinks.into()
}

/// All that the sinks send of a load.
async fn requests() -> Vec<Request> {
    let cluster = Cluster::start(ApiServerOptions::default()).await;
    let admin = cluster.admin().await;
    let truth = Truth::start(admin.clone()).await;
    // All there before the bridge, so that they come as one list.
    let load = Load { events: EVENTS, repeated: 0, ..Load::default() };
    load.write(&admin, &truth).await;

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("the port").to_string();
    let requests = Requests::default();
    let routes = Router::new().route("/{sink}", post(take)).with_state(Arc::clone(&requests));
    // Ends with the runtime of the test.
    tokio::spawn(async move { axum::serve(listener, routes).await });

    let sinks = sinks(&address);
    let mut bridge = Bridge::new(&cluster.server.kubeconfig("admin"), &sinks);
    bridge.launch().await;
    until("everything is delivered", async || {
        let status = bridge.status().await;
        let all = |sink: &Value| {
            sink["pending"] == 0 && sink["delivered"].as_u64() >= Some(EVENTS as u64)
        };
        sinks_of(&status).len() == 6 && sinks_of(&status).iter().all(all)
    })
    .await;
    bridge.stop_in_order().await;
    let requests = requests.lock().expect("no panic").clone();
    for (name, _) in sinks.as_object().expect("sinks") {
        let of_sink: Vec<_> = requests.iter().filter(|request| request.sink == *name).collect();
        let encoding = name.split('-').next().filter(|compression| *compression != "none");
        let as_configured = |request: &&Request| request.header("content-encoding") == encoding;
        assert!(!of_sink.is_empty() && of_sink.iter().all(as_configured), "{name}");
    }
    requests
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn the_reference_libraries_accept_what_is_signed_while_keys_are_exchanged() {
    let (mut go, mut python) = (Vec::new(), Vec::new());
    let (mut forged_for_go, mut forged_for_python) = (Vec::new(), Vec::new());
    for request in requests().await {
        let body = request.body();
        for secret in SECRETS {
            go.push(request.signed(secret, request.sent.clone()));
            go.push(request.signed(secret, body.clone()));
            python.push(request.signed(secret, body.clone()));
        }
        let changed = [&body[..], b" "].concat();
        for forged in
            [request.signed(SOMEBODY_ELSES, body.clone()), request.signed(SECRETS[0], changed)]
        {
            forged_for_go.push(forged.clone());
            forged_for_python.push(forged);
        }
        forged_for_go.push(request.signed(SOMEBODY_ELSES, request.sent.clone()));
    }
    for (library, requests, forged) in [
        (WebhookLibrary::Go, go, forged_for_go),
        (WebhookLibrary::Python, python, forged_for_python),
    ] {
        let verdicts = library.verify(&requests);
        assert_eq!(verdicts, vec![None; requests.len()], "{library:?}");
        eprintln!("  {library:?}: {} accepted", requests.len());
        for verdict in library.verify(&forged) {
            let verdict = verdict.unwrap_or_default().to_ascii_lowercase();
            assert!(verdict.contains("no matching signature"), "{library:?}: {verdict:?}");
        }
    }
}
