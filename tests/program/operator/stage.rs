//! A bridge with a sink that refuses poison, its control socket, and a configuration by which the
//! commands find it.

use std::{path::PathBuf, time::Duration};

use tidings::{
    admin::{ControlSocket, ReloadHandle, status},
    bridge::Bridge,
};
use tidings_testkit::api_server::{ApiServer, EventObject};

use super::{
    commands::{self, Said},
    support::{MemorySink, Setup, Tuning, invalid, server, settled, stop, until},
};

/// What a receiver says to poison.
pub(crate) const REFUSAL: &str =
    "HTTP 400 Bad Request: {\"error\":\"the field message must not be poison\"}";

pub(crate) struct Stage {
    pub(crate) server: ApiServer,
    pub(crate) sink: MemorySink,
    /// Its journal is below it.
    pub(crate) dir: tempfile::TempDir,
    running: Option<(Bridge, ControlSocket)>,
}

impl Stage {
    /// With a bridge that runs.
    pub(crate) async fn set() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Of a sink that is not here the command must not want to know anything.
        let config = format!(
            "journal: {{path: {}}}\nsinks: {{pager: {{webhook: {{url: {{env: NOT_HERE}}}}}}}}\n",
            dir.path().join("journal").display()
        );
        std::fs::write(dir.path().join("tidings.yaml"), config).unwrap();
        let mut stage = Self { server: server(), sink: MemorySink::default(), dir, running: None };
        stage.poisonous();
        stage.start().await;
        stage
    }

    /// From now on the receiver refuses poison.
    pub(crate) fn poisonous(&self) {
        self.sink.refuse(|event| event.envelope.contains("poison").then(|| invalid(REFUSAL)));
    }

    pub(crate) async fn start(&mut self) {
        let journal = self.journal();
        let bridge = Setup::new(&self.server, &journal)
            .tuned("pager", &self.sink, Tuning::default())
            .start()
            .await;
        // What is listed lacks `kind`, so what is shown of it would differ from run to run.
        let watches = || status(&bridge.view()).sources.first().is_some_and(|s| s.stream_open);
        until("a watch is open", watches).await;
        let socket =
            ControlSocket::start(&journal, bridge.view(), bridge.control(), ReloadHandle::new().0)
                .unwrap();
        self.running = Some((bridge, socket));
    }

    pub(crate) async fn stop(&mut self) {
        let (bridge, socket) = self.running.take().unwrap();
        drop(socket);
        stop(bridge).await;
    }

    pub(crate) fn bridge(&self) -> &Bridge {
        &self.running.as_ref().unwrap().0
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("tidings.yaml")
    }

    /// Creates events about pods web-0 and so on, and waits until each has a fate.
    pub(crate) async fn events(&self, messages: impl IntoIterator<Item = &str>) {
        let before = super::support::sink_status(&self.bridge().view(), "pager").seen;
        let mut count = 0;
        for message in messages {
            let event = EventObject::about_pod("shop", &format!("web-{count}"), "BackOff", message);
            self.server.create(event).unwrap();
            count += 1;
        }
        let sink = settled(&self.bridge().view(), "pager", before + count).await;
        // What was refused is kept with the next commit.
        self.until_listed(|numbers| numbers.len() as u64 == sink.dead_lettered).await;
    }

    /// So many events that are refused, and as few others as it takes to show that not all are.
    pub(crate) async fn poison(&self, count: usize) {
        let tens =
            (0..count).map(|n| if n % 10 == 9 { vec!["poison", "fine"] } else { vec!["poison"] });
        self.events(tens.flatten()).await;
    }

    /// Runs a command on it.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Said {
        commands::tidings(&self.config(), arguments).await
    }

    /// The numbers of the letters that there are, the newest first.
    pub(crate) async fn numbers(&self) -> Vec<u64> {
        let list = self.run(&["dead-letters", "list", "--output", "json"]).await.json();
        list.as_array().unwrap().iter().map(|letter| letter["number"].as_u64().unwrap()).collect()
    }

    /// Waits until these are the letters that there are.
    pub(crate) async fn until_kept(&self, numbers: &[u64]) {
        self.until_listed(|listed| listed == numbers).await;
    }

    async fn until_listed(&self, wanted: impl Fn(&[u64]) -> bool) {
        let listed = async { while !wanted(&self.numbers().await) {} };
        let waited = tokio::time::timeout(Duration::from_mins(1), listed).await;
        waited.expect("the letters are as wanted within a minute");
    }

    /// What a command said, without what differs from run to run.
    pub(crate) fn steady(&self, text: &str) -> String {
        commands::steady(text, self.dir.path())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.journal().join("admin.sock")
    }
}
