//! A bridge with a sink that refuses poison, its control socket, and a configuration by which the
//! commands find it.

use std::{path::PathBuf, time::Duration};

use tidings::{
    admin::{ControlSocket, status},
    bridge::Bridge,
    demo::api_server::{ApiServer, EventObject},
};

use crate::{
    commands::{self, Said},
    support::{
        MemorySink, Setup, Tuning, create_until, invalid, server, settled, sink_status, stop, until,
    },
};

/// The words of a receiver about poison.
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
        let socket = ControlSocket::start(&journal, bridge.view(), bridge.control()).unwrap();
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

    /// Creates events about pods web-0 and so on, and waits until each has a fate: one that is refused
    /// gets it, before the next is created, among others that are taken. Answers how many of these there were.
    pub(crate) async fn events(&self, messages: impl IntoIterator<Item = &str>) -> u64 {
        let view = self.bridge().view();
        let (mut all, mut others) = (sink_status(&view, "pager").seen, 0);
        for (n, message) in messages.into_iter().enumerate() {
            let event = EventObject::about_pod("shop", &format!("web-{n}"), "BackOff", message);
            self.server.create(event).unwrap();
            all += 1;
            if message.contains("poison") {
                let has_fates = || {
                    let sink = sink_status(&view, "pager");
                    sink.seen >= all + others && sink.pending == 0
                };
                others += create_until(&self.server, "each has a fate", has_fates).await;
            }
        }
        let sink = settled(&view, "pager", all + others).await;
        // What was refused is kept with the next commit.
        self.until_listed(|numbers| numbers.len() as u64 == sink.dead_lettered).await;
        others
    }

    /// So many events that are refused.
    pub(crate) async fn poison(&self, count: usize) {
        self.events(std::iter::repeat_n("poison", count)).await;
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

    /// The output of a command, without what differs from run to run.
    pub(crate) fn steady(&self, text: &str) -> String {
        // How often it is tried, and how many others come meanwhile, until one is judged is left to chance.
        let cell = regex::Regex::new(r"(invalid|blocked)  \d+ +").unwrap();
        let text = cell.replace_all(text, "$1  N         ");
        let line =
            regex::Regex::new(r#"((?:attempts|position): +|"resourceVersion": ")\d+"#).unwrap();
        let text = commands::steady(&line.replace_all(&text, "${1}N"), self.dir.path());
        regex::Regex::new(r"UID-\d+").unwrap().replace_all(&text, "UID-N").into_owned()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.journal().join("admin.sock")
    }
}
