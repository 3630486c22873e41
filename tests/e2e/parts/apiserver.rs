//! kube-apiserver.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use super::process::{Part, Process, Scratch};
use super::{Etcd, free_port, http_client, installed};

/// The user who may do everything.
const ADMIN: &str = "admin";

/// A kube-apiserver on an [`Etcd`], with RBAC. Nothing else of a cluster runs, unless a scenario starts
/// a [`Component`](super::Component), so Events come only from the test. It does not compact etcd;
/// the test does.
pub(crate) struct ApiServer {
    process: Process,
    http: reqwest::Client,
    url: String,
    users: Vec<String>,
    // Last, so that it goes after the process that writes to it.
    scratch: Scratch,
}

/// What a test can choose about an [`ApiServer`].
#[derive(Default)]
pub(crate) struct ApiServerOptions {
    /// Users beside `admin`, who may do what RBAC objects grant them and nothing else.
    pub(crate) users: Vec<String>,
    /// How long an Event is kept; an hour if absent.
    pub(crate) event_ttl: Option<Duration>,
    /// Further flags, for instance `--min-request-timeout=5` for watches that end soon.
    pub(crate) flags: Vec<String>,
}

impl ApiServer {
    pub(crate) async fn start(etcd: &Etcd, options: ApiServerOptions) -> Self {
        let scratch = Scratch::new("apiserver");
        let port = free_port();
        let url = format!("https://127.0.0.1:{port}");
        let mut users = options.users;
        users.push(ADMIN.to_owned());
        fs::write(scratch.path().join("tokens.csv"), tokens(&users)).expect("the token file");

        // The server makes a serving certificate, with its key, in the certificate folder. That
        // happens before it reads the key of the service accounts, so the same one serves for both.
        let key = scratch.file("certificates/apiserver.key");
        let mut arguments = vec![
            format!("--etcd-servers={}", etcd.url()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", scratch.file("certificates")),
            format!("--service-account-issuer={url}"),
            format!("--service-account-key-file={key}"),
            format!("--service-account-signing-key-file={key}"),
            format!("--token-auth-file={}", scratch.file("tokens.csv")),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            // Without the controller that makes service accounts, no Pod could be created.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--etcd-compaction-interval=0".to_owned(),
            // Nothing to reconcile, poll or profile: it would only take time from the tests.
            "--endpoint-reconciler-type=none".to_owned(),
            "--etcd-count-metric-poll-period=0".to_owned(),
            "--etcd-db-metric-poll-interval=0".to_owned(),
            "--profiling=false".to_owned(),
        ];
        if let Some(ttl) = options.event_ttl {
            arguments.push(format!("--event-ttl={}s", ttl.as_secs()));
        }
        arguments.extend(options.flags);

        let program = installed("apiserver", "bin/kube-apiserver");
        let process = Process::new("apiserver", program, arguments, scratch.path());
        let mut server = Self { process, http: http_client(), url, users, scratch };
        server.launch().await;
        server
    }

    /// Where it serves: a loopback address and a port.
    #[allow(dead_code, reason = "the drills ask for it")]
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("https://")
    }

    /// The file of who signed its certificate.
    #[allow(dead_code, reason = "the drills ask for it")]
    pub(crate) fn authority(&self) -> PathBuf {
        // The self-signed authority stands in the same file as the certificate that it signed.
        self.scratch.path().join("certificates/apiserver.crt")
    }

    /// From the next start on a user has another token, and is not known by the one of before.
    #[allow(dead_code, reason = "the drills ask for it")]
    pub(crate) fn change_token(&self, user: &str, token: &str) {
        let all = tokens(&self.users).replace(&token_of(user), token);
        fs::write(self.scratch.path().join("tokens.csv"), all).expect("the token file");
    }

    /// Writes a kubeconfig for `user` and returns its path.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        assert!(self.users.iter().any(|known| known == user), "the server was not told of {user}");
        self.kubeconfig_with_token(user, &token_of(user))
    }

    /// Writes a kubeconfig for whoever has this token, under a name, and returns its path.
    pub(crate) fn kubeconfig_with_token(&self, user: &str, token: &str) -> PathBuf {
        let authority = self.authority();
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "e2e",
                "cluster": {"server": self.url, "certificate-authority": authority},
            }],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
            "current-context": "e2e",
        });
        let path = self.scratch.path().join(format!("{user}.kubeconfig"));
        // JSON is YAML.
        fs::write(&path, config.to_string()).expect("the kubeconfig");
        path
    }

    /// A client that acts as `user`.
    pub(crate) async fn client(&self, user: &str) -> kube::Client {
        client(&self.kubeconfig(user)).await
    }
}

async fn client(kubeconfig: &Path) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the kubeconfig just written");
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .expect("a client configuration");
    // The machine may have one, and it is not for loopback addresses.
    config.proxy_url = None;
    // Tests want to see what the server answers; repeated, some answers take minutes to come.
    config.default_retry = false;
    kube::Client::try_from(config).expect("a client")
}

/// The file of `--token-auth-file`: token, name, uid and groups of each user.
fn tokens(users: &[String]) -> String {
    let line = |user: &String| {
        let groups = if user == ADMIN { "system:masters" } else { "" };
        format!("{},{user},{user},\"{groups}\"\n", token_of(user))
    };
    users.iter().map(line).collect()
}

/// The token that a user has at first.
pub(crate) fn token_of(user: &str) -> String {
    format!("token-of-{user}")
}

impl Part for ApiServer {
    fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Ready, and with the namespaces in which tests create Events: they come a little later.
    async fn is_ready(&self) -> bool {
        for path in ["/readyz", "/api/v1/namespaces/kube-system", "/api/v1/namespaces/default"] {
            let request = self.http.get(format!("{}{path}", self.url)).bearer_auth(token_of(ADMIN));
            if !request.send().await.is_ok_and(|response| response.status().is_success()) {
                return false;
            }
        }
        true
    }
}
