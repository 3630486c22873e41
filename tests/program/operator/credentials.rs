//! Credentials of the API server that end, are replaced, or are no longer accepted, while a bridge runs.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tidings_testkit::api_server::{ApiServer, EventObject};
use tokio::time::sleep;

use super::{
    process::Process,
    support::{server, until},
    tls::{Answer, Authority, Pair, Request, TlsServer},
};

/// An API server that knows its clients by certificate or token, before one that does not.
struct Front {
    server: ApiServer,
    accepted: Mutex<BTreeSet<String>>,
    /// The clients of requests in turn, and whether they were answered.
    asked: Mutex<Vec<(String, bool)>>,
    client: reqwest::Client,
}

impl Front {
    async fn start(authority: &Authority) -> (Arc<Self>, Arc<TlsServer>) {
        let front = Arc::new(Self {
            server: server(),
            accepted: Mutex::default(),
            asked: Mutex::default(),
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
        });
        let this = Arc::clone(&front);
        let answer = move |certificate, request| Arc::clone(&this).answer(certificate, request);
        (front, TlsServer::start(authority, answer).await)
    }

    async fn answer(self: Arc<Self>, certificate: Option<String>, request: Request) -> Answer {
        let shown = request.headers().get("authorization");
        let shown = shown.map(|value| value.to_str().unwrap().to_owned());
        let who = shown.or(certificate).unwrap_or_default();
        let accepted = self.accepted.lock().unwrap().contains(&who);
        self.asked.lock().unwrap().push((who, accepted));
        if !accepted {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
            });
            let body = reqwest::Body::from(status.to_string());
            return http::Response::builder().status(401).body(body).unwrap();
        }
        let (parts, body) = request.into_parts();
        let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
        let address = format!("{}{}", self.server.url(), parts.uri);
        let request = self.client.request(parts.method, address).headers(parts.headers);
        request.body(body).send().await.unwrap().into()
    }

    fn accept(&self, identities: &[&str]) {
        *self.accepted.lock().unwrap() = identities.iter().map(ToString::to_string).collect();
    }

    fn refused(&self) -> usize {
        self.asked.lock().unwrap().iter().filter(|(_, accepted)| !accepted).count()
    }

    fn asked_last(&self) -> String {
        self.asked.lock().unwrap().last().unwrap().0.clone()
    }
}

/// A front, and the directory of a bridge that reads from it.
struct Stage {
    authority: Authority,
    front: Arc<Front>,
    tls: Arc<TlsServer>,
    dir: tempfile::TempDir,
}

impl Stage {
    async fn new() -> Self {
        let authority = Authority::new();
        let (front, tls) = Front::start(&authority).await;
        let dir = tempfile::tempdir().unwrap();
        let stage = Self { authority, front, tls, dir };
        fs::write(stage.path("ca.pem"), &stage.authority.pem).unwrap();
        let config = format!(
            "source: {{kubeconfig: {0}/kubeconfig, heartbeat: 0s}}\njournal: {{path: {0}/journal}}\n\
             server: {{listen: \"127.0.0.1:0\"}}\nsinks: {{out: {{file: {{path: {0}/out}}}}}}\n",
            stage.dir.path().display()
        );
        fs::write(stage.path("tidings.yaml"), config).unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes the kubeconfig of a user.
    fn kubeconfig(&self, user: &Value) {
        let server = format!("https://127.0.0.1:{}", self.tls.port);
        let cluster = json!({"server": server, "certificate-authority": "ca.pem"});
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "alice", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "alice"}}],
            "current-context": "c",
        });
        put(&self.path("kubeconfig"), &config.to_string());
    }

    /// Writes the kubeconfig of a user with a plugin that prints the file `answer`, and notes each run in `runs`.
    fn plugin(&self) {
        let script = "#!/bin/sh\ncd DIR\necho run >> runs\n. ./before\ncat answer\n";
        let script = script.replace("DIR", &self.dir.path().display().to_string());
        // Another process writes it: the forks of other tests would hold it open for a moment.
        fs::write(self.path("script"), script).unwrap();
        let [from, to] = ["script", "plugin"].map(|name| self.path(name));
        let install = Command::new("install").args(["-m", "755"]).args([from, to]).status();
        assert!(install.unwrap().success());
        fs::write(self.path("before"), "").unwrap();
        self.kubeconfig(&json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": self.path("plugin"),
            "interactiveMode": "Never",
        }}));
    }

    /// The status of the credentials that the plugin answers from now on.
    fn answer(&self, status: &Value) {
        let answer = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": status,
        });
        put(&self.path("answer"), &answer.to_string());
    }

    fn answer_pair(&self, pair: &Pair, lives: SignedDuration) {
        let ends = (Timestamp::now() + lives).to_string();
        self.answer(&json!({
            "clientCertificateData": pair.certificate,
            "clientKeyData": pair.key,
            "expirationTimestamp": ends,
        }));
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.path("runs")).unwrap_or_default().lines().count()
    }

    async fn run(&self) -> Process {
        Process::spawn(self.dir.path(), &[]).await
    }

    /// Creates an event, and waits until the sink has it.
    async fn delivers(&self, bridge: &Process, name: &str) {
        self.front.server.create(EventObject::about_pod("shop", name, "Started", "")).unwrap();
        let has = || fs::read_to_string(self.path("out")).is_ok_and(|out| out.contains(name));
        until(&format!("{name} is delivered: {}", bridge.log()), has).await;
    }
}

/// Writes a file in one step.
fn put(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

const LONG: SignedDuration = SignedDuration::from_hours(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_of_a_plugin_is_replaced_when_it_ends() {
    let stage = Stage::new().await;
    let pairs = ["one", "two"].map(|name| stage.authority.sign(name));
    let identities = pairs.each_ref().map(Pair::identity);
    stage.plugin();
    stage.front.accept(&identities.each_ref().map(String::as_str));
    stage.answer_pair(&pairs[0], SignedDuration::from_secs(2));
    let bridge = stage.run().await;
    stage.delivers(&bridge, "first").await;
    stage.answer_pair(&pairs[1], LONG);
    // Beyond its end, and beyond the pause after an attempt.
    sleep(Duration::from_secs(7)).await;
    // The watch goes on; the next request shows the new one.
    stage.front.accept(&[&identities[1]]);
    stage.delivers(&bridge, "second").await;
    stage.tls.cut().await;
    stage.delivers(&bridge, "third").await;
    assert_eq!(stage.front.asked_last(), identities[1]);
    assert_eq!(stage.front.refused(), 0, "{}", bridge.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_of_a_plugin_is_replaced_after_a_401() {
    let stage = Stage::new().await;
    let pairs = ["one", "two"].map(|name| stage.authority.sign(name));
    let identities = pairs.each_ref().map(Pair::identity);
    stage.plugin();
    stage.front.accept(&[&identities[0]]);
    stage.answer_pair(&pairs[0], LONG);
    let bridge = stage.run().await;
    stage.delivers(&bridge, "first").await;
    stage.answer_pair(&pairs[1], LONG);
    stage.front.accept(&[&identities[1]]);
    stage.tls.cut().await;
    stage.delivers(&bridge, "second").await;
    assert_eq!((stage.front.refused(), stage.runs()), (1, 2), "{}", bridge.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_without_an_end_is_replaced_after_a_401() {
    let stage = Stage::new().await;
    stage.plugin();
    stage.answer(&json!({"token": "one"}));
    stage.front.accept(&["Bearer one"]);
    let bridge = stage.run().await;
    stage.delivers(&bridge, "first").await;
    stage.answer(&json!({"token": "two"}));
    // The plugin is known all the same.
    fs::remove_file(stage.path("kubeconfig")).unwrap();
    stage.front.accept(&["Bearer two"]);
    stage.tls.cut().await;
    stage.delivers(&bridge, "second").await;
    assert_eq!((stage.front.refused(), stage.runs()), (1, 2), "{}", bridge.log());
    assert!(bridge.log().contains("the client to the API server was made anew"));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_replaced_are_read_again() {
    let stage = Stage::new().await;
    let pairs = ["one", "two", "three"].map(|name| stage.authority.sign(name));
    let identities = pairs.each_ref().map(Pair::identity);
    let write = |pair: &Pair| {
        put(&stage.path("cc.pem"), &pair.certificate);
        put(&stage.path("cc.key"), &pair.key);
    };
    write(&pairs[0]);
    stage.kubeconfig(&json!({"client-certificate": "cc.pem", "client-key": "cc.key"}));
    stage.front.accept(&[&identities[0]]);
    let bridge = stage.run().await;
    stage.delivers(&bridge, "first").await;

    // The old certificate is refused at once.
    write(&pairs[1]);
    stage.front.accept(&[&identities[1]]);
    stage.tls.cut().await;
    stage.delivers(&bridge, "second").await;

    // The API server has a certificate of another authority.
    let other = Authority::new();
    put(&stage.path("ca.pem"), &other.pem);
    stage.tls.move_to(&other).await;
    stage.delivers(&bridge, "third").await;

    // The kubeconfig itself has other credentials, and another context is current in it.
    let config = fs::read_to_string(stage.path("kubeconfig")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["users"][0]["user"] = json!({"token": "two"});
    config["current-context"] = json!("none");
    put(&stage.path("kubeconfig"), &config.to_string());
    stage.front.accept(&["Bearer two"]);
    stage.tls.cut().await;
    stage.delivers(&bridge, "fourth").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_that_names_another_api_server_is_not_followed() {
    let stage = Stage::new().await;
    let user = json!({"token": "one"});
    stage.kubeconfig(&user);
    stage.front.accept(&["Bearer one"]);
    let bridge = stage.run().await;
    stage.delivers(&bridge, "first").await;
    let config = fs::read_to_string(stage.path("kubeconfig")).unwrap();
    put(&stage.path("kubeconfig"), &config.replace("127.0.0.1", "127.0.0.2"));
    let said = "hint=\"restart Tidings to follow another API server\"";
    while !bridge.log().contains(said) {
        stage.tls.cut().await;
        sleep(Duration::from_millis(100)).await;
    }
    assert!(
        bridge.log().contains("expected the API server https://127.0.0.1:"),
        "{}",
        bridge.log()
    );
    stage.delivers(&bridge, "second").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_401_that_lasts_is_said_with_the_user_the_plugin_and_its_answer() {
    let stage = Stage::new().await;
    stage.plugin();
    stage.answer(&json!({"token": "one"}));
    stage.front.accept(&["Bearer one"]);
    let bridge = stage.run().await;
    stage.delivers(&bridge, "first").await;
    stage.front.accept(&["Bearer two"]);
    stage.tls.cut().await;
    let plugin = format!("exec plugin {:?}", stage.path("plugin"));
    let log = || bridge.log().replace('\\', "");
    let answered = format!(
        "user \"alice\" of the kubeconfig {}/kubeconfig, {plugin}, which answered a token",
        stage.dir.path().display()
    );
    until(&format!("{answered} is said: {}", log()), || log().contains(&answered)).await;

    put(&stage.path("before"), "echo 'log in first' >&2; exit 3\n");
    let failed = format!(
        "now the {plugin} of user \"alice\" of the kubeconfig {}/kubeconfig cannot be used: expected \
         success, found exit status: 3: log in first",
        stage.dir.path().display()
    );
    until(&format!("{failed} is said"), || log().contains(&failed)).await;

    put(&stage.path("before"), "");
    stage.answer(&json!({"token": "two"}));
    stage.delivers(&bridge, "second").await;
}
