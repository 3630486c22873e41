//! The secrets of a sink, rotated under load as the kubelet and cert-manager do it.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;
use tidings_testkit::api_server::{ApiServer, EventObject};
use tokio::time::sleep;

use super::{
    process::Process,
    support::{server, until},
    tls::{Answer, Authority, Pair, Request, TlsServer},
};

/// All that a client shows, of one version.
struct Version {
    token: String,
    certificate: Pair,
    signing: Vec<u8>,
}

impl Version {
    fn new(name: &str, authority: &Authority) -> Arc<Self> {
        let signing = format!("{name}-{}", "s".repeat(32)).into_bytes();
        let (token, certificate) = (format!("Bearer {name}"), authority.sign(name));
        Arc::new(Self { token, certificate, signing })
    }

    /// Whether a request has all of it.
    fn is_shown_by(&self, certificate: Option<&str>, head: &http::HeaderMap, body: &[u8]) -> bool {
        let text = |name: &str| head.get(name).map_or("", |value| value.to_str().unwrap());
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.signing).unwrap();
        mac.update(format!("{}.{}.", text("webhook-id"), text("webhook-timestamp")).as_bytes());
        mac.update(body);
        let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        certificate == Some(&self.certificate.identity())
            && text("authorization") == self.token
            && text("webhook-signature") == signature
    }
}

/// A webhook's receiver.
#[derive(Default)]
struct Receiver {
    accepted: Mutex<Vec<Arc<Version>>>,
    /// The ids that were taken.
    taken: Mutex<BTreeSet<String>>,
    refused: AtomicU64,
}

impl Receiver {
    async fn answer(self: Arc<Self>, certificate: Option<String>, request: Request) -> Answer {
        let (parts, body) = request.into_parts();
        let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
        let certificate = certificate.as_deref();
        let shown =
            |version: &Arc<Version>| version.is_shown_by(certificate, &parts.headers, &body);
        let status = if self.accepted.lock().unwrap().iter().any(shown) {
            let events: Vec<Value> = serde_json::from_slice(&body).unwrap();
            let mut taken = self.taken.lock().unwrap();
            for event in events {
                taken.insert(event["id"].as_str().unwrap().to_owned());
            }
            200
        } else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            401
        };
        http::Response::builder().status(status).body(reqwest::Body::default()).unwrap()
    }

    fn accept(&self, versions: &[&Arc<Version>]) {
        *self.accepted.lock().unwrap() =
            versions.iter().map(|version| Arc::clone(version)).collect();
    }
}

/// A bridge with one sink, and its secrets.
struct Stage {
    server: ApiServer,
    receiver: Arc<Receiver>,
    tls: Arc<TlsServer>,
    dir: tempfile::TempDir,
}

impl Stage {
    async fn new(authority: &Authority) -> Self {
        let (server, dir) = (server(), tempfile::tempdir().unwrap());
        let receiver = Arc::<Receiver>::default();
        let answering = Arc::clone(&receiver);
        let answer =
            move |certificate, request| Arc::clone(&answering).answer(certificate, request);
        let tls = TlsServer::start(authority, answer).await;
        fs::write(dir.path().join("kubeconfig"), server.kubeconfig()).unwrap();
        let secrets = dir.path().join("secrets");
        let file = |name: &str| format!("{}/{name}", secrets.display());
        let config = format!(
            "source: {{kubeconfig: {0}/kubeconfig}}\njournal: {{path: {0}/journal}}\n\
             server: {{listen: \"127.0.0.1:0\"}}\nsinks:\n  out:\n    start: oldest\n    \
             batch: {{events: 20}}\n    retry: {{initial: 10ms, max: 1s}}\n    webhook:\n      \
             url: https://127.0.0.1:{1}/\n      headers: {{authorization: {{file: {2}}}}}\n      \
             tls: {{ca: {3}, cert: {4}, key: {5}}}\n      signing: {{secret: {{file: {6}}}}}\n",
            dir.path().display(),
            tls.port,
            file("token"),
            file("ca"),
            file("cert"),
            file("key"),
            file("signing")
        );
        fs::write(dir.path().join("tidings.yaml"), config).unwrap();
        fs::create_dir(&secrets).unwrap();
        for name in ["token", "ca", "cert", "key", "signing"] {
            symlink(format!("..data/{name}"), secrets.join(name)).unwrap();
        }
        Self { server, receiver, tls, dir }
    }

    /// Swaps the directory that the secrets are in, as the kubelet does.
    fn swap(&self, version: &Version, authorities: &[&Authority]) {
        let secrets = self.dir.path().join("secrets");
        let new = tempfile::tempdir_in(&secrets).unwrap().keep();
        let authorities: String = authorities.iter().map(|authority| &*authority.pem).collect();
        let signing = format!("whsec_{}", STANDARD.encode(&version.signing));
        for (name, text) in [
            ("token", &version.token),
            ("ca", &authorities),
            ("cert", &version.certificate.certificate),
            ("key", &version.certificate.key),
            ("signing", &signing),
        ] {
            fs::write(new.join(name), text).unwrap();
        }
        symlink(new.file_name().unwrap(), secrets.join("..data_tmp")).unwrap();
        fs::rename(secrets.join("..data_tmp"), secrets.join("..data")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_that_rotate_under_load_fail_no_attempt_or_come_back_by_themselves() {
    let [first, second, third] = [Authority::new(), Authority::new(), Authority::new()];
    let versions = ["one", "two", "three"].map(|name| Version::new(name, &first));
    let [one, two, three] = &versions;
    let stage = Stage::new(&first).await;
    stage.receiver.accept(&[one, two]);
    stage.swap(one, &[&first]);
    let bridge = Process::spawn(stage.dir.path(), &[]).await;
    let goes_on = AtomicBool::new(true);
    let load = async {
        let mut created = 0;
        while goes_on.load(Ordering::Relaxed) {
            let event = EventObject::about_pod("shop", &format!("web-{created}"), "BackOff", "try");
            stage.server.create(event).unwrap();
            created += 1;
            sleep(Duration::from_millis(5)).await;
        }
        created
    };
    let taken = || stage.receiver.taken.lock().unwrap().len();
    let rotating = async {
        until("events come", || taken() > 0).await;
        // The receiver takes both, and its next authority is there before its next certificate.
        stage.swap(two, &[&first, &second]);
        let said = "the configuration is in force";
        until("the second version is in force", || bridge.log().contains(said)).await;
        stage.receiver.accept(&[two]);
        stage.tls.move_to(&second).await;
        let before = taken();
        until("events go on", || taken() > before).await;
        let refused = stage.receiver.refused.load(Ordering::Relaxed);
        assert_eq!(refused, 0, "{}", bridge.log());

        // The old one is refused at once.
        stage.receiver.accept(&[three]);
        stage.tls.move_to(&third).await;
        stage.swap(three, &[&third]);
        let before = taken();
        until("events come again", || taken() > before).await;
        goes_on.store(false, Ordering::Relaxed);
    };
    let (created, ()) = tokio::join!(load, rotating);
    until("all is there", || taken() >= created).await;
    assert_eq!(taken(), created);
}
