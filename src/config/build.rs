//! From the model to the settings: references resolved, values checked, defaults applied.
//!
//! A value that cannot be had is `None` here and its problem is on the list; building goes on with
//! a [stand-in](stand_ins), so that one run of `check` shows all problems. Settings to run by are given
//! out only when the list is empty and every reference was resolved.

mod credentials;
mod forwards;
mod objects;
mod proxy;
mod sink;
mod stand_ins;

use std::path::PathBuf;

use super::{
    error::{Error, Problem},
    load::Loaded,
    model::{SourceStartModel, SyncModel},
    overlay::Variables,
    path::Path,
    secrets::{self, CheckSecrets},
    settings::{
        ClusterSettings, JournalSettings, LogSettings, ServerSettings, Settings, SinkSettings,
        SourceSettings, SourceStart, SyncPolicy,
    },
    validate::{self, Wrong},
};
use crate::{
    document::{Size, Span, Text},
    sinks::Secret,
};

/// A journal smaller than this could not hold a segment per sixteenth of it.
const MIN_RETENTION_BYTES: u64 = 1 << 20;

/// Less would leave little more of an Event than its identity.
const MIN_EVENT_BYTES: u64 = 4 << 10;

/// What the reflector takes in one piece, and a frame of the journal can hold.
const MAX_EVENT_BYTES: u64 = 32 << 20;

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
    if builder.problems.is_empty() { Ok(settings) } else { Err(Error::new(builder.problems)) }
}

/// Checks a configuration as far as it can be without asking anyone: the sinks are built as well, of
/// stand-ins where a secret is not here and need not be.
pub(super) fn check(
    loaded: &Loaded,
    variables: &Variables,
    secrets: CheckSecrets,
) -> Result<Settings, Error> {
    let builder = Builder { shows_signing: true, ..Builder::new(loaded, variables, secrets) };
    let settings = settings(builder)?;
    let refusals = settings.sinks.iter().filter_map(|sink| stand_ins::refusal(loaded, sink));
    let problems: Vec<_> = refusals.collect();
    if problems.is_empty() { Ok(settings) } else { Err(Error::new(problems)) }
}

/// Checks and resolves the section `journal` alone.
pub(super) fn build_journal(
    loaded: &Loaded,
    variables: &Variables,
) -> Result<JournalSettings, Error> {
    let mut builder = Builder::new(loaded, variables, CheckSecrets::Required);
    let settings = builder.journal();
    if builder.problems.is_empty() { Ok(settings) } else { Err(Error::new(builder.problems)) }
}

struct Builder<'a> {
    loaded: &'a Loaded,
    variables: &'a Variables,
    secrets: CheckSecrets,
    problems: Vec<Problem>,
    /// Where secrets stand in the file itself.
    plain_secrets: Vec<String>,
    /// Whether a signing secret without prefix is shown with it: to whoever asks at a terminal, and
    /// never at a start, whose words go into a log.
    shows_signing: bool,
}

impl<'a> Builder<'a> {
    fn new(loaded: &'a Loaded, variables: &'a Variables, secrets: CheckSecrets) -> Self {
        let problems = loaded.problems.clone();
        let plain_secrets = Vec::new();
        Self { loaded, variables, secrets, problems, plain_secrets, shows_signing: false }
    }

    fn settings(&mut self) -> Settings {
        let model = &self.loaded.model;
        if model.leader_election.enabled {
            self.wrong(
                &Path::root("leaderElection").key("enabled"),
                validate::wrong("leader election is not available in this version")
                    .hint("remove it or use `false`"),
            );
        }
        self.text(&Path::root("leaderElection").key("lease"), &model.leader_election.lease);
        let cluster = Path::root("cluster");
        Settings {
            cluster: ClusterSettings {
                name: self.optional(&cluster.key("name"), model.cluster.name.as_ref()),
                uid: self.optional(&cluster.key("uid"), model.cluster.uid.as_ref()),
            },
            source: self.source(),
            journal: self.journal(),
            sinks: self.sinks(),
            objects: self.objects(),
            plain_secrets: std::mem::take(&mut self.plain_secrets),
            server: self.server(),
            log: LogSettings { level: model.log.level, format: model.log.format },
        }
    }

    fn source(&mut self) -> SourceSettings {
        let (model, path) = (&self.loaded.model.source, Path::root("source"));
        let mut namespaces: Vec<String> = Vec::new();
        for (i, namespace) in model.namespaces.iter().enumerate() {
            let path = path.key("namespaces").index(i);
            let Some(namespace) = self.checked(&path, namespace, validate::namespace) else {
                continue;
            };
            if namespaces.contains(&namespace) {
                let wrong = validate::wrong(format!("namespace `{namespace}` is listed twice"));
                self.wrong(&path, wrong.hint("remove one of the two"));
            }
            namespaces.push(namespace);
        }
        if (1..1000).contains(&model.heartbeat.0.as_millis()) {
            self.wrong(
                &path.key("heartbeat"),
                validate::wrong("a heartbeat cannot come more than once a second")
                    .hint("the default is `60s`; `0s` is none"),
            );
        }
        SourceSettings {
            kubeconfig: self
                .optional(&path.key("kubeconfig"), model.kubeconfig.as_ref())
                .map(PathBuf::from),
            proxy: self.source_proxy(&path.key("proxy"), model),
            namespaces,
            field_selector: model
                .field_selector
                .as_ref()
                .and_then(|selector| {
                    let path = path.key("fieldSelector");
                    self.checked(&path, selector, validate::field_selector)
                })
                .unwrap_or_default(),
            start: match model.start {
                SourceStartModel::All => SourceStart::All,
                SourceStartModel::Now => SourceStart::Now,
                SourceStartModel::Since(Span(time)) => SourceStart::Since(time),
            },
            heartbeat: (!model.heartbeat.0.is_zero()).then_some(model.heartbeat.0),
        }
    }

    fn journal(&mut self) -> JournalSettings {
        let (model, path) = (&self.loaded.model.journal, Path::root("journal"));
        let retention = path.key("retention");
        if model.retention.size.0 < MIN_RETENTION_BYTES {
            self.wrong(
                &retention.key("size"),
                validate::wrong("the journal needs at least 1MiB").hint("the default is `1GiB`"),
            );
        }
        if model.retention.age.0.is_zero() {
            self.wrong(
                &retention.key("age"),
                validate::wrong("with an age of zero the journal keeps nothing")
                    .hint("the default is `24h`"),
            );
        }
        let dead_letters = self.dead_letters(&path);
        let max_event = self.max_event(&path);
        let directory = |path: &str| {
            if path.is_empty() {
                return Err(validate::wrong("the path is empty").hint("name a directory"));
            }
            Ok(PathBuf::from(path))
        };
        JournalSettings {
            path: self.parsed(&path.key("path"), &model.path, directory).unwrap_or_default(),
            retention_size: model.retention.size.0,
            retention_age: model.retention.age.0,
            sync: match model.sync {
                SyncModel::Always => SyncPolicy::Always,
                SyncModel::Never => SyncPolicy::Never,
                SyncModel::Every(Span(interval)) => SyncPolicy::Every(interval),
            },
            dead_letters,
            max_event,
        }
    }

    /// How long an envelope may be, in bytes.
    fn max_event(&mut self, journal: &Path) -> usize {
        let Size(most) = self.loaded.model.journal.max_event;
        let wrong = |what: &str| validate::wrong(what).hint("the default is `256KiB`");
        let path = journal.key("maxEvent");
        if most < MIN_EVENT_BYTES {
            self.wrong(&path, wrong("an event needs at least 4KiB to be told from another"));
        } else if most > MAX_EVENT_BYTES {
            self.wrong(&path, wrong("an event of more than 32MiB is not read from the API server"));
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
            let wrong = validate::wrong("with no room for dead letters, what is refused is gone");
            self.wrong(&path, wrong.hint("the default is `64MiB`"));
        } else if room > size / 2 {
            let wrong =
                validate::wrong("dead letters would take more than half of the journal's size");
            self.wrong(&path, wrong.hint("write less, or raise `journal.retention.size`"));
        }
        room
    }

    fn server(&mut self) -> ServerSettings {
        let (model, path) = (&self.loaded.model.server, Path::root("server"));
        let listen = self.parsed(&path.key("listen"), &model.listen, validate::listen);
        let token = model.token.as_ref().and_then(|token| {
            let path = path.key("token");
            if let Text::Plain(_) = token {
                let wrong = validate::wrong("the token itself does not belong into this file");
                self.wrong(&path, wrong.hint("write `{file: PATH}` or `{env: NAME}`"));
                return None;
            }
            self.checked(&path, token, validate::token).map(Secret::new)
        });
        ServerSettings {
            listen: listen.unwrap_or_else(|| ([127, 0, 0, 1], 0).into()),
            detail: model.detail,
            token,
        }
    }

    fn sinks(&mut self) -> Vec<SinkSettings> {
        let sinks = &self.loaded.model.sinks;
        let sinks: Vec<_> = sinks.iter().map(|(name, model)| self.sink(name, model)).collect();
        self.check_forwards(&sinks);
        sinks
    }

    /// Reports a problem with the value at a path.
    fn wrong(&mut self, path: &Path, wrong: Wrong) {
        let origin = path.origin(&self.loaded.root).clone();
        let what = format!("`{path}`: {}", wrong.what);
        let problem = self.loaded.file.problem(&origin, what).maybe_hint(wrong.hint);
        self.problems.push(problem);
    }

    /// Reports a problem with a key rather than with its value.
    fn wrong_key(&mut self, path: &Path, wrong: Wrong) {
        let origin = path.key_origin(&self.loaded.root).clone();
        let what = format!("`{path}`: {}", wrong.what);
        let problem = self.loaded.file.problem(&origin, what).maybe_hint(wrong.hint);
        self.problems.push(problem);
    }

    /// The value of a text.
    fn text(&mut self, path: &Path, text: &Text) -> Option<String> {
        match secrets::resolve(text, self.variables, self.secrets) {
            Ok(resolved) => resolved,
            Err(unresolved) => {
                let wrong = validate::wrong(unresolved.what).hint(unresolved.hint);
                self.wrong(path, wrong);
                None
            }
        }
    }

    fn optional(&mut self, path: &Path, text: Option<&Text>) -> Option<String> {
        let value = self.text(path, text?)?;
        if value.is_empty() {
            let wrong = validate::wrong("the value is empty");
            self.wrong(path, wrong.hint("write one, or remove the key"));
        }
        Some(value)
    }

    /// The value of a text that a check is about.
    fn checked(
        &mut self,
        path: &Path,
        text: &Text,
        check: impl FnOnce(&str) -> Result<(), Wrong>,
    ) -> Option<String> {
        self.parsed(path, text, |value| check(value).map(|()| value.to_owned()))
    }

    /// What a text says.
    fn parsed<T>(
        &mut self,
        path: &Path,
        text: &Text,
        parse: impl FnOnce(&str) -> Result<T, Wrong>,
    ) -> Option<T> {
        let value = self.text(path, text)?;
        match parse(&value) {
            Ok(parsed) => Some(parsed),
            Err(wrong) => {
                let what = match text {
                    Text::Plain(_) => wrong.what,
                    // What comes by reference may be a secret wherever it stands.
                    Text::Env(_) | Text::File(_) => without_quotations(&wrong.what),
                };
                self.wrong(path, Wrong { what, ..wrong });
                None
            }
        }
    }
}

/// A message without what it quotes in backticks.
fn without_quotations(message: &str) -> String {
    let mut outside = true;
    let mut pieces = Vec::new();
    for piece in message.split('`') {
        pieces.push(if outside { piece } else { "…" });
        outside = !outside;
    }
    pieces.join("`")
}
