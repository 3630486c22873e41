//! From the model to the settings: references resolved, values checked, defaults applied.
//!
//! A value that cannot be had is `None` here and its problem is on the list; building goes on with
//! a stand-in, so that one run of `check` shows all problems. Settings to run by are given
//! out only when the list is empty and every reference was resolved.

mod files;
mod forwards;
mod metrics;
mod objects;
mod sink;

use std::{collections::BTreeMap, path::PathBuf};

use tidings_log::LogOptions;

use super::{
    load::Loaded,
    settings::{ServerSettings, Settings, SinkSettings, SourceSettings},
    show::shown,
    validate,
};
use crate::{
    bridge::{BatchOptions, JournalOptions, SourceOptions, TIMEOUT},
    document::{
        CheckSecrets, Checks, Error, Path, Problem, Size, Text, Variables, Wrong, secrets,
        shown_of, wrong,
    },
    event::Cluster,
    sinks::{BuildSink, Compression, OtlpOptions, Secret, keys::Shared},
};

/// A journal smaller than this could not hold a segment per sixteenth of it.
const MIN_RETENTION_BYTES: u64 = 1 << 20;

/// Less would leave little more of an Event than its identity.
const MIN_EVENT_BYTES: u64 = 4 << 10;

/// The most that the reflector takes in one piece, and a frame of the journal can hold.
const MAX_EVENT_BYTES: u64 = 32 << 20;

/// More of a cluster's name would leave no room for an Event in the smallest envelope.
const IN_EACH_ENVELOPE: usize = 253;

/// Likewise of all labels of a cluster, as JSON.
const LABELS_IN_EACH_ENVELOPE: usize = 512;

/// Checks a configuration and resolves it. The error has what loading found, too.
pub(super) fn build(
    loaded: &Loaded,
    variables: &Variables,
    secrets: CheckSecrets,
) -> Result<Settings, Error> {
    settings(Builder::new(loaded, variables, secrets))
}

fn settings(mut builder: Builder<'_>) -> Result<Settings, Error> {
    let settings = builder.settings();
    builder.checks.finish(settings)
}

/// Checks a configuration as far as it can be without asking anyone: the sinks are built as well, of
/// stand-ins where a secret is not here and need not be.
pub(super) fn check(
    loaded: &Loaded,
    variables: &Variables,
    secrets: CheckSecrets,
) -> Result<Settings, Error> {
    let mut builder = Builder::new(loaded, variables, secrets);
    builder.checks.shows_signing = true;
    let settings = settings(builder)?;
    let kubeconfig = match secrets {
        CheckSecrets::Required => unreadable_kubeconfig(loaded, &settings),
        CheckSecrets::Optional => None,
    };
    let sinks = settings
        .sinks
        .iter()
        .map(|settings| (&*settings.sink, Path::root("sinks").key(&settings.name), settings.kind));
    let telemetry = settings.telemetry.iter();
    let telemetry = telemetry.map(|otlp| (otlp as &dyn BuildSink, Path::root("telemetry"), "otlp"));
    let refusals =
        sinks.chain(telemetry).filter_map(|(of, path, kind)| refusal(loaded, of, path, kind));
    let problems: Vec<_> = kubeconfig.into_iter().chain(refusals).collect();
    if problems.is_empty() { Ok(settings) } else { Err(Error::new(problems)) }
}

pub(super) fn build_journal(
    loaded: &Loaded,
    variables: &Variables,
) -> Result<JournalOptions, Error> {
    let mut builder = Builder::new(loaded, variables, CheckSecrets::Required);
    let settings = builder.journal();
    builder.checks.finish(settings)
}

/// The problem of a kubeconfig that cannot be read.
fn unreadable_kubeconfig(loaded: &Loaded, settings: &Settings) -> Option<Problem> {
    let text = loaded.model.source.kubeconfig.as_ref()?;
    let file = settings.source.kubeconfig.as_deref()?;
    let wrong = secrets::unreadable(&std::fs::read(file).err()?);
    let what = shown_of(text, format!("the file `{}` {}", file.display(), wrong.what));
    let path = Path::root("source").key("kubeconfig");
    Some(loaded.file.problem(path.origin(&loaded.root), Wrong { what, ..wrong }.at(&path)))
}

/// The transport's own objection to a sink, for which it is built: where, and what.
fn refusal(loaded: &Loaded, sink: &dyn BuildSink, path: Path, kind: &str) -> Option<Problem> {
    let error = sink.build().err()?;
    let is_of_kind = error.path.first().is_none_or(|key| key != "proxy");
    let kind = if is_of_kind { path.key(kind) } else { path };
    let path = error.path.iter().fold(kind, |path, key| path.key(key));
    Some(loaded.file.problem(path.origin(&loaded.root), wrong(error.reason).at(&path)))
}

struct Builder<'a> {
    loaded: &'a Loaded,
    checks: Checks<'a>,
}

impl<'a> Builder<'a> {
    fn new(loaded: &'a Loaded, variables: &'a Variables, secrets: CheckSecrets) -> Self {
        let problems = loaded.problems.clone();
        let checks = Checks::new(&loaded.file, &loaded.root, variables, secrets, problems);
        Self { loaded, checks }
    }

    fn settings(&mut self) -> Settings {
        let model = &self.loaded.model;
        if model.leader_election.enabled {
            self.checks.wrong(
                &Path::root("leaderElection").key("enabled"),
                wrong("expected `false`, found `true`: this version has no leader election")
                    .hint("remove it or use `false`"),
            );
        }
        self.checks.text(&Path::root("leaderElection").key("lease"), &model.leader_election.lease);
        let cluster = Path::root("cluster");
        let cluster = Cluster {
            name: self.of_cluster(&cluster.key("name"), model.cluster.name.as_ref()),
            uid: self.of_cluster(&cluster.key("uid"), model.cluster.uid.as_ref()),
            labels: self.cluster_labels(&cluster.key("labels")),
        };
        let (source, journal) = (self.source(), self.journal());
        let sinks = self.sinks(cluster.name.as_deref());
        self.check_forwards(&sinks);
        self.check_files(&sinks, &journal.path);
        let telemetry = self.telemetry();
        Settings {
            source,
            journal,
            sinks,
            cluster,
            counters: self.metrics(),
            objects: self.objects(),
            plain_secrets: std::mem::take(&mut self.checks.plain_secrets),
            server: self.server(),
            telemetry,
            log: model.log,
            shown: shown(&self.loaded.root).into(),
        }
    }

    fn source(&mut self) -> SourceSettings {
        let (model, path) = (&self.loaded.model.source, Path::root("source"));
        let mut namespaces: Vec<String> = Vec::new();
        for (i, namespace) in model.namespaces.iter().enumerate() {
            let path = path.key("namespaces").index(i);
            let Some(namespace) = self.checks.checked(&path, namespace, validate::namespace) else {
                continue;
            };
            if namespaces.contains(&namespace) {
                let wrong =
                    wrong(format!("expected each namespace once, found `{namespace}` twice"));
                self.checks.wrong(&path, wrong.hint("remove one of the two"));
            }
            namespaces.push(namespace);
        }
        if (1..1000).contains(&model.heartbeat.0.as_millis()) {
            self.checks.wrong(
                &path.key("heartbeat"),
                wrong("expected `0s` or at least `1s`, found less")
                    .hint("the default is `60s`; `0s` is none"),
            );
        }
        SourceSettings {
            kubeconfig: self
                .checks
                .optional(&path.key("kubeconfig"), model.kubeconfig.as_ref())
                .map(PathBuf::from),
            proxy: self.checks.source_proxy(
                &path.key("proxy"),
                model.proxy.as_ref(),
                model.allow_plaintext,
            ),
            heartbeat: (!model.heartbeat.0.is_zero()).then_some(model.heartbeat.0),
            events: SourceOptions {
                namespaces,
                field_selector: model
                    .field_selector
                    .as_ref()
                    .and_then(|selector| {
                        let path = path.key("fieldSelector");
                        self.checks.checked(&path, selector, validate::field_selector)
                    })
                    .unwrap_or_default(),
                start: model.start,
            },
        }
    }

    fn journal(&mut self) -> JournalOptions {
        let (model, path) = (&self.loaded.model.journal, Path::root("journal"));
        let retention = path.key("retention");
        if model.retention.size.0 < MIN_RETENTION_BYTES {
            self.checks.wrong(
                &retention.key("size"),
                wrong("expected at least `1MiB`, found less").hint("the default is `1GiB`"),
            );
        }
        if model.retention.age.0.is_zero() {
            self.checks.wrong(
                &retention.key("age"),
                wrong("expected an age above zero, found `0s`").hint("the default is `24h`"),
            );
        }
        let dead_letters = self.dead_letters(&path);
        let max_event = self.max_event(&path);
        let directory = |path: &str| {
            if path.is_empty() {
                return Err(wrong("expected a directory, found an empty text").hint("name one"));
            }
            Ok(PathBuf::from(path))
        };
        JournalOptions {
            path: self.checks.parsed(&path.key("path"), &model.path, directory).unwrap_or_default(),
            log: LogOptions {
                retention_size: model.retention.size.0,
                retention_age: model.retention.age.0,
                sync: model.sync.0,
            },
            dead_letters,
            max_event,
        }
    }

    /// How long an envelope may be, in bytes.
    fn max_event(&mut self, journal: &Path) -> usize {
        let Size(most) = self.loaded.model.journal.max_event;
        let wrong = |what: &str| wrong(what).hint("the default is `256KiB`");
        let path = journal.key("maxEvent");
        if most < MIN_EVENT_BYTES {
            self.checks.wrong(&path, wrong("expected at least `4KiB`, found less"));
        } else if most > MAX_EVENT_BYTES {
            self.checks.wrong(&path, wrong("expected at most `32MiB`, found more"));
        }
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// The room for dead letters, in bytes. It is part of what the journal may take, and the log gets
    /// what is left: the rest of a small one must not go to them.
    fn dead_letters(&mut self, journal: &Path) -> u64 {
        let model = &self.loaded.model.journal;
        let (room, size) = (model.dead_letters.0, model.retention.size.0);
        let section = self.loaded.root.get("journal");
        let given = section.and_then(|section| section.node.get("deadLetters")).is_some();
        if !given {
            return room.min(size / 4);
        }
        let path = journal.key("deadLetters");
        if room == 0 {
            let wrong = wrong("expected a size above zero, found 0");
            self.checks.wrong(&path, wrong.hint("the default is `64MiB`"));
        } else if room > size / 2 {
            let wrong = wrong("expected at most half of `journal.retention.size`, found more");
            self.checks.wrong(&path, wrong.hint("write less, or raise `journal.retention.size`"));
        }
        room
    }

    fn server(&mut self) -> ServerSettings {
        let (model, path) = (&self.loaded.model.server, Path::root("server"));
        let listen = self.checks.parsed(&path.key("listen"), &model.listen, validate::listen);
        let token = model.token.as_ref().and_then(|token| {
            let path = path.key("token");
            if let Text::Plain(_) = token {
                let wrong = wrong("expected a reference to the token, found the token itself");
                self.checks.wrong(&path, wrong.hint("write `{file: PATH}` or `{env: NAME}`"));
                return None;
            }
            self.checks.checked(&path, token, validate::token).map(Secret::new)
        });
        ServerSettings {
            listen: listen.unwrap_or_else(|| ([127, 0, 0, 1], 0).into()),
            detail: model.detail,
            token,
        }
    }

    fn telemetry(&mut self) -> Option<OtlpOptions> {
        let model = &self.loaded.model.telemetry;
        let shared = Shared {
            name: "telemetry",
            path: Path::root("telemetry"),
            cluster: None,
            timeout: TIMEOUT,
            batch: BatchOptions::default(),
            concurrency: 1,
            max_event: None,
            format: None,
            compression: Compression::None,
            allow_plaintext: model.allow_plaintext,
            proxy: None,
            connection: None,
        };
        model.otlp.as_ref().map(|otlp| otlp.resolve(&shared, &mut self.checks))
    }

    fn sinks(&mut self, cluster: Option<&str>) -> Vec<SinkSettings> {
        let sinks = &self.loaded.model.sinks;
        sinks.iter().map(|(name, model)| self.sink(name, model, cluster)).collect()
    }

    /// The labels of the cluster, which stand in each envelope together.
    fn cluster_labels(&mut self, path: &Path) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        for (key, text) in &self.loaded.model.cluster.labels {
            let path = path.key(key);
            if let Err(wrong) = validate::label_key(key) {
                self.checks.wrong_key(&path, wrong);
            }
            labels.extend(self.checks.text(&path, text).map(|value| (key.clone(), value)));
        }
        let bytes = serde_json::to_string(&labels).map_or(0, |json| json.len());
        if bytes > LABELS_IN_EACH_ENVELOPE {
            let what = format!("expected {LABELS_IN_EACH_ENVELOPE} bytes at most, found {bytes}");
            self.checks.wrong(path, wrong(what).hint("they stand in every envelope: write less"));
        }
        labels
    }

    /// The value of a text that stands in each envelope: one that is cut to 2 KiB has to have room for it.
    fn of_cluster(&mut self, path: &Path, text: Option<&Text>) -> Option<String> {
        let value = self.checks.optional(path, text)?;
        if value.len() > IN_EACH_ENVELOPE {
            let wrong =
                wrong(format!("expected {IN_EACH_ENVELOPE} bytes at most, found {}", value.len()));
            self.checks.wrong(path, wrong.hint("it stands in every envelope: write a shorter one"));
        }
        Some(value)
    }
}
