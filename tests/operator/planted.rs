//! Secrets planted wherever a configuration takes one, for each kind of sink, with receivers that say
//! them again in every way and form that they have: none comes out anywhere.

mod forms;
mod receivers;

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tidings::{config::model::SinkModel, demo::api_server::EventObject};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Child,
};

use self::{forms::forms, receivers::Receiver};
use crate::{
    commands::{self, command},
    support::{client, server},
};

/// A sink of a kind: its configuration, in which `{ADDRESS}` is its receiver's, and the secrets in it, as
/// variables of the environment.
struct Planted {
    kind: &'static str,
    name: &'static str,
    sink: &'static str,
    secrets: &'static [(&'static str, &'static str)],
    /// What of these texts a receiver may say.
    said: &'static [&'static str],
    receiver: fn(&[&str]) -> Receiver,
}

const PLANTED: [Planted; 5] = [
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
               {env: HOOK_SECRET}}}, deadLetters: {sink: out}}",
        secrets: &[
            ("HOOK_URL", "http://{ADDRESS}/services/Pl4nted-T0/x?key=Pl4nted%2Fquery%20value&v=2"),
            ("HOOK_TOKEN", "Pl4nted hook\\tok\"en/+%41"),
            ("HOOK_SECRET", "whsec_UGw0bnRlZC1zaWduaW5nLXNlY3JldC0wMTIz"),
        ],
        said: &[
            "/services/Pl4nted-T0/x?key=Pl4nted%2Fquery%20value&v=2",
            "Pl4nted-T0",
            "Pl4nted/query value",
            "Pl4nted hook\\tok\"en/+%41",
            "whsec_UGw0bnRlZC1zaWduaW5nLXNlY3JldC0wMTIz",
            "Pl4nted-signing-secret-0123",
        ],
        receiver: receivers::http,
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
];

/// The program at work, with a configuration of all of them.
struct Stage {
    dir: tempfile::TempDir,
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

    fn set(server: &tidings::demo::api_server::ApiServer) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (mut sinks, mut receivers, mut variables) = (String::new(), Vec::new(), Vec::new());
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
            "source: {{kubeconfig: {0}/kubeconfig}}\njournal: {{path: {0}/journal}}\n\
             server: {{listen: \"127.0.0.1:0\"}}\nlog: {{level: trace, format: json}}\nsinks:\n{sinks}",
            dir.path().display()
        );
        let path = dir.path().join("tidings.yaml");
        std::fs::write(&path, config).unwrap();
        let file = |name: &str| std::fs::File::create(dir.path().join(name)).unwrap();
        let run = command(&path, &["run"])
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .envs([("POD_NAME", "tidings-0"), ("POD_NAMESPACE", "tidings"), ("POD_UID", "u-1")])
            .stdout(file("stdout"))
            .stderr(file("log"))
            .spawn()
            .unwrap();
        Self { dir, receivers, variables, run }
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

    /// The admin server's address, as the log has it.
    fn admin(&self) -> Option<String> {
        let log = self.file("log");
        let line = log.lines().find(|line| line.contains("the admin server listens"))?.to_owned();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        Some(line["address"].as_str().unwrap().to_owned())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a server answers to a GET.
async fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
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
    let known: BTreeSet<_> = SinkModel::KINDS.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, known, "secrets are planted in each kind of sink");

    let server = server();
    let mut stage = Stage::set(&server);
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
        .until("all but Kafka's is delivered or refused", async |_| {
            let status = get(&admin, "/api/v1/status").await;
            let status: serde_json::Value =
                serde_json::from_str(&status[status.find('{').unwrap()..]).unwrap();
            let settled = |sink: &serde_json::Value| {
                sink["pending"] == 0 && sink["delivered"].as_u64() > Some(0)
                    || sink["name"] == "kafka"
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
    stage
        .until("an Event tells of it", async |_| events().await.contains("SinkMisconfigured"))
        .await;
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
        "dead-letters list",
        "dead-letters list --output json",
        "journal inspect",
        "journal inspect --output json",
        "journal verify",
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
        ("stdout", "HTTP 400 Bad Request: no …"),
        ("dead-letters list --output json", "HTTP 400 Bad Request: no …"),
        ("dead-letters list --output json", "gRPC InvalidArgument: no Bearer …"),
        ("state.redb", "HTTP 400 Bad Request: no …"),
        ("/api/v1/status", "SASL"),
        ("Events", "SASL"),
    ] {
        let said = |(at, text): &(String, String)| at.ends_with(place) && text.contains(words);
        assert!(shown.iter().any(said), "{words:?} in {place}");
    }
    let mut leaks = BTreeSet::new();
    let secrets = PLANTED.iter().flat_map(|planted| planted.said);
    for form in secrets.flat_map(|secret| forms(secret)).chain(["Pl4nted".to_owned()]) {
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
