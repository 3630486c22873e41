//! The rest of a cluster: kube-controller-manager, kube-scheduler, and nodes that kwok plays.

use super::process::{Part, Process, Scratch};
use super::{ApiServer, free_port, http_client, installed};

/// One of them, as a user who may do everything.
pub(crate) struct Component {
    process: Process,
    http: reqwest::Client,
    health: String,
    // Last, so that it goes after the process that writes to it.
    _scratch: Scratch,
}

impl Component {
    /// With an account for each controller, as in a real cluster.
    pub(crate) async fn controller_manager(server: &ApiServer) -> Self {
        let authority = server.authority();
        let key = authority.with_extension("key");
        let flags = [
            "--use-service-account-credentials".to_owned(),
            format!("--service-account-private-key-file={}", key.display()),
            format!("--root-ca-file={}", authority.display()),
            // Tests do not wait for the default of 50 s.
            "--node-monitor-grace-period=20s".to_owned(),
        ];
        Self::of_kubernetes("kube-controller-manager", server, flags.into()).await
    }

    pub(crate) async fn scheduler(server: &ApiServer) -> Self {
        Self::of_kubernetes("kube-scheduler", server, Vec::new()).await
    }

    /// The kubelet of one node, whose Pods run, and Jobs' complete, by being said to.
    pub(crate) async fn kwok(server: &ApiServer, node: &str) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let health = format!("http://{address}/healthz");
        let stages = installed("kwok", "stages").read_dir().expect("the stages");
        let stages =
            stages.map(|stage| format!("--config={}", stage.expect("a file").path().display()));
        let mut flags: Vec<_> = stages.collect();
        flags.extend([
            format!("--manage-single-node={node}"),
            format!("--server-address={address}"),
            // As a kubelet; without it, a node becomes NotReady every 20 s.
            "--node-lease-duration-seconds=40".to_owned(),
        ]);
        Self::start("kwok", "kwok", server, flags, health, Scratch::new("kwok")).await
    }

    async fn of_kubernetes(name: &'static str, server: &ApiServer, mut flags: Vec<String>) -> Self {
        let scratch = Scratch::new(name);
        let port = free_port();
        flags.extend([
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", scratch.file("certificates")),
            "--leader-elect=false".to_owned(),
            "--profiling=false".to_owned(),
        ]);
        let health = format!("https://127.0.0.1:{port}/healthz");
        Self::start(name, "controllers", server, flags, health, scratch).await
    }

    async fn start(
        name: &'static str,
        part: &str,
        server: &ApiServer,
        mut flags: Vec<String>,
        health: String,
        scratch: Scratch,
    ) -> Self {
        flags.push(format!("--kubeconfig={}", server.kubeconfig("admin").display()));
        let program = installed(part, &format!("bin/{name}"));
        let process = Process::new(name, program, flags, scratch.path());
        let mut component = Self { process, http: http_client(), health, _scratch: scratch };
        component.launch().await;
        component
    }
}

impl Part for Component {
    fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    async fn is_ready(&self) -> bool {
        let health = self.http.get(&self.health).send().await;
        health.is_ok_and(|response| response.status().is_success())
    }
}
