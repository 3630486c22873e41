//! Apache Kafka, one node that is broker and controller.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use tidings_testkit::ledger::SharedLedger;
use tidings_testkit::receiver::{KafkaReceiver, PARTITIONS};

use super::process::{Part, Process, Scratch, run};
use super::{free_port, installed};

/// Any will do, but it must have this form: 16 bytes in base64 without padding.
const CLUSTER_ID: &str = "dGlkaW5ncy1lMmUtdGVzdA";

/// The account of [`Kafka::with_account`].
pub(crate) const ACCOUNT: (&str, &str) = ("tidings", "a-secret-of-tests");

/// Logs what happens, but not the values of several hundred settings: a failure shows the end of
/// the log, and they would fill it.
const LOGGING: &str = "\
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{ISO8601} %p %c: %m%n
rootLogger.level=info
rootLogger.appenderRef.console.ref=console
logger.config.name=org.apache.kafka.common.config
logger.config.level=warn
";

/// A Kafka of one node. Topics are made when first used, with one partition.
pub(crate) struct Kafka {
    process: Process,
    bootstrap: String,
    account: Option<String>,
    logging: PathBuf,
    // Last, so that it goes after the process that writes to it.
    _scratch: Scratch,
}

impl Kafka {
    /// `settings` of `server.properties` are added to, and win over, those of the tests.
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        Self::start_with(None, settings).await
    }

    /// One that has a second address, for those who log in with [`ACCOUNT`], and lets them do what
    /// they have been [granted](Self::grant) and nothing else. At the first address everybody may
    /// do everything.
    pub(crate) async fn with_account(settings: &[(&str, &str)]) -> Self {
        Self::start_with(Some(format!("127.0.0.1:{}", free_port())), settings).await
    }

    async fn start_with(account: Option<String>, settings: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new("kafka");
        let bootstrap = format!("127.0.0.1:{}", free_port());
        let controller = format!("127.0.0.1:{}", free_port());
        let properties = scratch.file("server.properties");
        let mut text = server_properties(&bootstrap, &controller, &scratch.file("data"));
        if let Some(account) = &account {
            text += &account_properties(&bootstrap, &controller, account);
        }
        for (name, value) in settings {
            writeln!(text, "{name}={value}").expect("writing to a string");
        }
        fs::write(&properties, text).expect("server.properties");
        let logging = scratch.path().join("log4j2.properties");
        fs::write(&logging, LOGGING).expect("log4j2.properties");

        let java = |main: &str| java(&logging, main);
        let format = ["format", "--cluster-id", CLUSTER_ID, "--config", &properties];
        run(Command::new("java").args(java("kafka.tools.StorageTool")).args(format));

        let mut arguments = java("kafka.Kafka");
        arguments.push(properties);
        let process = Process::new("kafka", Path::new("java").into(), arguments, scratch.path());
        let mut kafka = Self { process, bootstrap, account, logging, _scratch: scratch };
        kafka.launch().await;
        kafka
    }

    /// Makes a topic and starts to read it.
    pub(crate) async fn read(&self, topic: &'static str) -> KafkaReceiver {
        make_topic(&self.bootstrap, topic, &[]).await;
        KafkaReceiver::read(&self.bootstrap, topic, SharedLedger::default()).expect("a consumer")
    }

    /// The broker's address, for `bootstrap.servers`.
    pub(crate) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Its address for those who have an account.
    pub(crate) fn account_bootstrap(&self) -> &str {
        self.account.as_deref().expect("a broker with an account")
    }

    /// Lets [`ACCOUNT`] write to a topic.
    pub(crate) async fn grant(&self, topic: &str) {
        self.acls(&["--add"], topic).await;
    }

    /// Takes that back.
    pub(crate) async fn revoke(&self, topic: &str) {
        self.acls(&["--remove", "--force"], topic).await;
    }

    async fn acls(&self, action: &[&str], topic: &str) {
        let mut command = Command::new("java");
        command
            .args(java(&self.logging, "org.apache.kafka.tools.AclCommand"))
            .args(["--bootstrap-server", &self.bootstrap, "--topic", topic, "--producer"])
            .args(["--allow-principal", &format!("User:{}", ACCOUNT.0)])
            .args(action);
        let ran = tokio::task::spawn_blocking(move || run(&mut command));
        ran.await.expect("a task that does not panic");
    }
}

/// The arguments of `java` that run the class `main` of Kafka.
fn java(logging: &Path, main: &str) -> Vec<String> {
    let jars = installed("kafka", "lib").join("*");
    vec![
        "-Xms64m".to_owned(),
        "-Xmx384m".to_owned(),
        // A short life on few cores: start fast rather than run fast.
        "-XX:+UseSerialGC".to_owned(),
        "-XX:TieredStopAtLevel=1".to_owned(),
        format!("-Dlog4j2.configurationFile={}", logging.display()),
        "-cp".to_owned(),
        jars.into_os_string().into_string().expect("a path in UTF-8"),
        main.to_owned(),
    ]
}

fn server_properties(bootstrap: &str, controller: &str, data: &str) -> String {
    // The internal topics default to three replicas and 50 partitions, and a group waits 3 s for
    // further members: one node and one consumer need none of it. A broker that was killed is not
    // let in again before its session has ended, 9 s by default.
    format!(
        "\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{bootstrap},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{bootstrap}
log.dirs={data}
auto.create.topics.enable=true
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
"
    )
}

/// A second listener, with passwords, and an authorizer that lets the first one's clients, who are
/// nobody, do everything.
fn account_properties(bootstrap: &str, controller: &str, account: &str) -> String {
    let (user, password) = ACCOUNT;
    format!(
        "\
listeners=PLAINTEXT://{bootstrap},CONTROLLER://{controller},ACCOUNT://{account}
advertised.listeners=PLAINTEXT://{bootstrap},ACCOUNT://{account}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,ACCOUNT:SASL_PLAINTEXT
listener.name.account.sasl.enabled.mechanisms=PLAIN
listener.name.account.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}=\"{password}\";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"
    )
}

impl Part for Kafka {
    fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The port opens well before the broker serves, so it is asked for its metadata.
    async fn is_ready(&self) -> bool {
        let mut config = ClientConfig::new();
        // librdkafka logs each refused connection; while the broker starts they are expected.
        config.set("bootstrap.servers", &self.bootstrap).set("log_level", "0");
        let answer = tokio::task::spawn_blocking(move || {
            let client: BaseConsumer = config.create().expect("a Kafka client");
            client.fetch_metadata(None, Duration::from_secs(1))
        });
        let metadata = answer.await.expect("a task that does not panic");
        metadata.is_ok_and(|metadata| !metadata.brokers().is_empty())
    }
}

fn admin(bootstrap: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", bootstrap).create().expect("an admin client")
}

/// Makes a topic of [`PARTITIONS`], with these settings of its own.
pub(crate) async fn make_topic(bootstrap: &str, topic: &str, settings: &[(&str, &str)]) {
    let mut new = NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(1));
    for (name, value) in settings {
        new = new.set(name, value);
    }
    let made = admin(bootstrap).create_topics([&new], &AdminOptions::new()).await;
    made.expect("an answer of the broker").remove(0).expect("a new topic");
}

/// Deletes a topic with all that is in it.
pub(crate) async fn delete_topic(bootstrap: &str, topic: &str) {
    let gone = admin(bootstrap).delete_topics(&[topic], &AdminOptions::new()).await;
    gone.expect("an answer of the broker").remove(0).expect("a topic that was there");
}
