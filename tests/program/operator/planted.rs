//! Secrets planted wherever a configuration takes one, for each kind of sink, with receivers that say
//! them again in every way and form that they have: none comes out anywhere.

mod forms;
mod places;
mod receivers;
mod sinks;

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tidings::sinks::KINDS;
use tidings_testkit::api_server::EventObject;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Child,
};

use self::{
    forms::forms,
    receivers::Receiver,
    sinks::{PLANTED, Planted},
};
use super::{
    commands::{self, command},
    support::{client, server},
};

/// Shows everything to its bearer.
const ADMIN_TOKEN: &str = "Pl4nted-admin-token-0123";

/// The program at work, with a configuration of all of them.
struct Stage {
    dir: tempfile::TempDir,
    config: String,
    receivers: Vec<(&'static str, Receiver)>,
    variables: Vec<(&'static str, String)>,
    run: Child,
}

impl Stage {
    fn config(&self) -> PathBuf {
        self.dir.path().join("tidings.yaml")
    }

    fn file(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.dir.path().join(name)).unwrap()).into_owned()
    }

    fn set(server: &tidings_testkit::api_server::ApiServer) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (mut sinks, mut receivers) = (String::new(), Vec::new());
        let own = rcgen::generate_simple_self_signed(["receiver".to_owned()]).unwrap();
        let source_proxy = format!("http://Pl4nted-source:Pl4nted-pr0xy@{}", receivers::tunnel());
        let mut variables = vec![
            ("ADMIN_TOKEN", ADMIN_TOKEN.to_owned()),
            ("SOURCE_PROXY", source_proxy),
            ("TELEMETRY_URL", "https://127.0.0.1:1/Pl4nted-telemetry".to_owned()),
            ("TELEMETRY_KEY", "Pl4nted-telemetry-key".to_owned()),
            ("TLS_CERT", own.cert.pem()),
            ("TLS_KEY", own.signing_key.serialize_pem()),
        ];
        for Planted { name, sink, secrets, said, receiver, .. } in PLANTED {
            let receiver = receiver(said);
            let here = |text: &str| text.replace("{ADDRESS}", &receiver.address);
            let common = "retry: {initial: 1ms, max: 5ms}, start: oldest, batch: {events: 1}";
            writeln!(sinks, "  {name}: {{{common}, {}", here(&sink[1..])).unwrap();
            variables.extend(secrets.iter().map(|(name, value)| (*name, here(value))));
            receivers.push((name, receiver));
        }
        std::fs::write(dir.path().join("kubeconfig"), server.kubeconfig()).unwrap();
        let config = format!(
            "source: {{kubeconfig: {0}/kubeconfig, proxy: {{env: SOURCE_PROXY}}}}\n\
             journal: {{path: {0}/journal}}\n\
             server: {{listen: \"127.0.0.1:0\", token: {{env: ADMIN_TOKEN}}}}\nlog: {{level: trace, format: json}}\n\
             telemetry: {{otlp: {{endpoint: {{env: TELEMETRY_URL}}, protocol: http, \
             headers: {{X-Key: {{env: TELEMETRY_KEY}}}}, tls: {{cert: {{env: TLS_CERT}}, key: {{env: TLS_KEY}}}}}}}}\n\
             sinks:\n{sinks}",
            dir.path().display()
        );
        let path = dir.path().join("tidings.yaml");
        std::fs::write(&path, &config).unwrap();
        let file = |name: &str| std::fs::File::create(dir.path().join(name)).unwrap();
        let run = command(&path, &["run"])
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .envs([("POD_NAME", "tidings-0"), ("POD_NAMESPACE", "tidings"), ("POD_UID", "u-1")])
            .stdout(file("stdout"))
            .stderr(file("log"))
            .spawn()
            .unwrap();
        Self { dir, config, receivers, variables, run }
    }

    /// Waits until something is so.
    async fn until(&mut self, what: &str, mut so: impl AsyncFnMut(&mut Self) -> bool) {
        let end = tokio::time::Instant::now() + Duration::from_mins(2);
        while !so(self).await {
            let ended = self.run.try_wait().unwrap();
            assert!(ended.is_none(), "{what}: {}", self.file("log"));
            assert!(tokio::time::Instant::now() < end, "not within two minutes: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What a command prints.
    async fn run(&self, arguments: &[&str]) -> String {
        let mut command = command(&self.config(), arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().await.unwrap();
        format!("{}{}", text(&output.stdout), text(&output.stderr))
    }

    fn variable(&self, name: &str) -> &str {
        &self.variables.iter().find(|(known, _)| *known == name).unwrap().1
    }

    /// The admin server's address, as the log has it.
    fn admin(&self) -> Option<String> {
        let log = self.file("log");
        let line = log.lines().find(|line| line.contains("the admin server listens"))?.to_owned();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        Some(line["address"].as_str().unwrap().to_owned())
    }
}

/// Whether the receiver of a sink never takes an event.
fn never_takes(sink: &str) -> bool {
    sink.starts_with("kafka")
        || sink == "file"
        || sink.ends_with("-tls")
        || sink.ends_with("oauth2")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a server answers to a GET.
async fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {ADMIN_TOKEN}\r\n\
         connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    text(&answer)
}

/// All files below a directory.
fn files(dir: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            all.extend(files(&path));
        } else if path.is_file() {
            all.push((path.display().to_string(), text(&std::fs::read(&path).unwrap())));
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planted_secret_comes_out_nowhere_whatever_receivers_say() {
    let kinds: BTreeSet<_> = PLANTED.iter().map(|planted| planted.kind).collect();
    let known: BTreeSet<_> = KINDS.iter().map(|kind| kind.name).collect();
    assert_eq!(kinds, known, "secrets are planted in each kind of sink");

    let server = server();
    let mut stage = Stage::set(&server);
    let places = places::without_secret(&stage.config);
    assert!(
        places.is_empty(),
        "nothing is planted in {places:?}: plant it, or list it as no secret"
    );
    for n in 0..150 {
        let event =
            EventObject::about_pod("shop", &format!("web-{}", n % 9), "BackOff", &format!("{n}"));
        server.create(event).unwrap();
    }
    stage
        .until("every receiver has said all", async |stage| {
            stage.receivers.iter().all(|(_, receiver)| receiver.has_said_all())
        })
        .await;
    stage.until("the admin server listens", async |stage| stage.admin().is_some()).await;
    let admin = stage.admin().unwrap();
    stage
        .until("all is delivered or refused, but for those who never take any", async |_| {
            let status = get(&admin, "/api/v1/status").await;
            let status: serde_json::Value =
                serde_json::from_str(&status[status.find('{').unwrap()..]).unwrap();
            let settled = |sink: &serde_json::Value| {
                sink["pending"] == 0 && sink["delivered"].as_u64() > Some(0)
                    || never_takes(sink["name"].as_str().unwrap())
            };
            let kafka = |sink: &serde_json::Value| {
                sink["lastError"].as_str().is_some_and(|error| error.contains("SASL"))
            };
            let sinks = status["sinks"].as_array().unwrap();
            sinks.iter().all(settled) && sinks.iter().any(kafka)
        })
        .await;
    let events = async || {
        let request = http::Request::get("/api/v1/events").body(Vec::new()).unwrap();
        client(&server).request_text(request).await.unwrap()
    };
    // Only the first of many are written: whose words they have is not known.
    stage.until("an Event tells of it", async |_| events().await.contains("no …")).await;
    let list = ["dead-letters", "list", "--output", "json"];
    let letters = commands::tidings(&stage.config(), &list).await.json();
    let letters = letters.as_array().unwrap();

    let mut shown = vec![("Events".to_owned(), events().await)];
    for path in ["/metrics", "/api/v1/status", "/livez", "/readyz"] {
        shown.push((path.to_owned(), get(&admin, path).await));
    }
    let mut asked: Vec<Vec<String>> = [
        "check",
        "check --without-secrets",
        "config show",
        "dead-letters list",
        "dead-letters list --limit 1000 --output json",
        "journal inspect",
        "journal inspect --output json",
        "journal verify",
        "status",
        "status --output json",
        "replay --sink webhook --since 1ms",
    ]
    .iter()
    .map(|line| line.split(' ').map(str::to_owned).collect())
    .collect();
    for letter in letters.iter().step_by(7) {
        for format in ["text", "json"] {
            let number = letter["number"].to_string();
            asked.push(
                ["dead-letters", "show", &number, "--output", format].map(str::to_owned).into(),
            );
        }
    }
    for arguments in asked {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        shown.push((arguments.join(" "), stage.run(&arguments).await));
    }
    let pid = stage.run.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    stage.run.wait().await.unwrap();
    shown.push(("log".to_owned(), stage.file("log")));
    shown.push(("stdout".to_owned(), stage.file("stdout")));
    shown.extend(files(&stage.dir.path().join("journal")));

    // They were heard, everywhere.
    for (place, words) in [
        ("log", "HTTP 403 Forbidden: no …"),
        ("log", "gRPC Unauthenticated: no Bearer …"),
        ("log", "SASL"),
        ("log", "metrics cannot be sent by OTLP"),
        ("stdout", "HTTP 400 Bad Request: no …"),
        ("dead-letters list --limit 1000 --output json", "HTTP 400 Bad Request: no …"),
        ("dead-letters list --limit 1000 --output json", "gRPC InvalidArgument: no Bearer …"),
        ("state.redb", "HTTP 400 Bad Request: no …"),
        ("/api/v1/status", "SASL"),
        ("Events", "no …"),
    ] {
        let said = |(at, text): &(String, String)| at.ends_with(place) && text.contains(words);
        assert!(shown.iter().any(said), "{words:?} in {place}");
    }
    let mut leaks = BTreeSet::new();
    let secrets = PLANTED.iter().flat_map(|planted| planted.said);
    let key = stage.variable("TLS_KEY").lines().filter(|line| !line.starts_with("-----"));
    let forms = secrets.flat_map(|secret| forms(secret)).chain(key.map(str::to_owned));
    for form in forms.chain(["Pl4nted".to_owned()]) {
        for (place, text) in &shown {
            if let Some(at) = text.find(&form) {
                let around = text.floor_char_boundary(at.saturating_sub(150))
                    ..text.ceil_char_boundary(at + form.len() + 60);
                leaks.insert(format!("{form:?} in {place}: {:?}", &text[around]));
            }
        }
    }
    assert!(
        leaks.is_empty(),
        "{} leaks: {:#?}",
        leaks.len(),
        leaks.iter().take(20).collect::<Vec<_>>()
    );
}

/// A configuration that cannot be started with is not quoted either.
#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_is_refused_is_not_told_with_its_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidings.yaml");
    for sink in [
        "webhook: {url: {TEXT:https://Pl4nted-user:Pl4nted-pass@receiver/}}",
        "webhook: {url: {TEXT:gopher://receiver/Pl4nted-key-1}}",
        "webhook: {url: {TEXT:http://receiver/?key=Pl4nted-key-1}}",
        "webhook: {url: https://receiver, headers: {Authorization: {TEXT:Pl4nted\\nkey}}}",
        "webhook: {url: https://receiver, signing: {secret: {TEXT:Pl4nted-signing-secret-0123}}}",
        "webhook: {url: https://receiver, signing: {secret: [{TEXT:whsec_Pl4nted}]}}",
        "webhook: {url: https://receiver, signing: {secret: {TEXT:whsk_Pl4nted}}}",
        "webhook: {url: https://receiver}, proxy: {TEXT:gopher://Pl4nted-user:Pl4nted-pass@proxy}",
        "webhook: {url: https://receiver}, proxy: {TEXT:http://Pl4nted-user:Pl4nted-pass@proxy}",
        "webhook: {url: https://receiver, tls: {cert: /nowhere, key: {TEXT:Pl4nted}}}",
        "otlp: {endpoint: {TEXT:https://Pl4nted-user:Pl4nted-pass@receiver}}",
        "otlp: {endpoint: {TEXT:https://receiver/?key=Pl4nted-key-1}}",
        "kafka: {brokers: [{TEXT:Pl4nted-user:Pl4nted-pass@broker:9092}], topic: t}",
        "kafka: {brokers: [\"b:1\"], topic: t, sasl: {mechanism: plain, username: {TEXT:Pl4nted}, \
         password: {TEXT:Pl4nted}}}",
    ] {
        let (mut plain, mut referred, mut variables) = (String::new(), String::new(), Vec::new());
        for (n, part) in sink.split("{TEXT:").enumerate() {
            let rest = match (n, part.split_once('}')) {
                (1.., Some((text, rest))) => {
                    write!(plain, "\"{text}\"").unwrap();
                    write!(referred, "{{env: TEXT_{n}}}").unwrap();
                    variables.push((format!("TEXT_{n}"), text.replace("\\n", "\n")));
                    rest
                }
                _ => part,
            };
            plain.push_str(rest);
            referred.push_str(rest);
        }
        for sink in [plain, referred] {
            std::fs::write(&file, format!("sinks: {{out: {{{sink}}}}}\n")).unwrap();
            for arguments in ["check", "check --without-secrets", "run"] {
                let arguments: Vec<&str> = arguments.split(' ').collect();
                let mut command = command(&file, &arguments);
                command.envs(variables.iter().map(|(name, value)| (name, value)));
                let output = command.output().await.unwrap();
                let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
                if arguments != ["check", "--without-secrets"] {
                    assert_eq!(output.status.code(), Some(2), "{sink}: {said}");
                }
                assert!(!said.contains("Pl4nted"), "{sink}: {arguments:?}: {said}");
            }
        }
    }
}
