//! The settings of one sink.

use std::{collections::BTreeMap, time::Duration};

use super::{Builder, MIN_EVENT_BYTES, credentials::Plaintext, stand_ins};
use crate::{
    bridge::{BatchOptions, Filter, Overflow, RetryOptions, SinkStart},
    config::{
        locate::locate,
        model::{
            CompressionModel, KafkaKeyModel, KafkaModel, OtlpModel, OverflowModel, ProtocolModel,
            SaslMechanismModel, SaslModel, SinkModel, SinkStartModel, TlsModel, WebhookModel,
        },
        path::Path,
        secrets,
        settings::{SinkKind, SinkSettings},
        validate::{self, Pem, wrong},
        yaml::Origin,
    },
    document::{Size, Text},
    sinks::{
        Compression, KafkaKey, KafkaOptions, OtlpOptions, OtlpProtocol, Proxy, SaslMechanism,
        SaslOptions, Secret, TlsOptions, WebhookOptions, prefixed_signing_key,
    },
};

/// How long an attempt may take unless the sink says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// No sink has more attempts under way at once.
const MOST_CONCURRENCY: u32 = 128;
/// For how long a connection is used unless the sink says otherwise.
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(600);

impl Builder<'_> {
    pub(super) fn sink(&mut self, name: &str, model: &SinkModel) -> SinkSettings {
        let path = Path::root("sinks").key(name);
        let timeout = model.timeout.map_or(DEFAULT_TIMEOUT, |span| span.0);
        if timeout.is_zero() {
            let wrong =
                wrong("expected a time greater than 0, found 0s").hint("the default is `10s`");
            self.wrong(&path.key("timeout"), wrong);
        }
        let batch = self.batch(&path.key("batch"), model);
        let concurrency = self.concurrency(&path.key("concurrency"), model, batch);
        let compression = match model.compression.unwrap_or_default() {
            CompressionModel::None => Compression::None,
            CompressionModel::Gzip => Compression::Gzip,
            CompressionModel::Zstd => Compression::Zstd,
        };
        let plain = model.allow_plaintext;
        let plaintext = match (plain, &model.proxy) {
            (true, _) => Plaintext::Anywhere,
            (false, None) => Plaintext::ThisHost,
            (false, Some(_)) => Plaintext::Nowhere,
        };
        let mut kind = if let Some(kafka) = &model.kafka {
            let mut options = self.kafka(name, &path.key("kafka"), kafka, plain, timeout);
            options.compression = compression;
            SinkKind::Kafka(options)
        } else if let Some(otlp) = &model.otlp {
            let mut options = self.otlp(&path.key("otlp"), otlp, plaintext, timeout);
            options.compression = compression;
            SinkKind::Otlp(options)
        } else if let Some(webhook) = &model.webhook {
            let mut options = self.webhook(&path.key("webhook"), webhook, plaintext, timeout);
            options.compression = compression;
            options.single = batch.events == 1;
            SinkKind::Webhook(options)
        } else {
            if compression != Compression::None {
                let wrong =
                    wrong("a `stdout` sink cannot compress").hint("remove it or use `none`");
                self.wrong(&path.key("compression"), wrong);
            }
            if plain {
                self.nothing_to_allow(&path);
            }
            SinkKind::Stdout
        };
        self.proxy(&path, model, &mut kind);
        self.connection(&path.key("connection"), model, &mut kind);
        let filter = self.filter(&path.key("match"), model.filter.as_ref());
        if model.enrich.is_none() && filter.as_ref().is_some_and(Filter::names_object) {
            let wrong = wrong("`object` is known only to a sink that has `enrich`");
            let hint = "add `enrich`, for instance `enrich: {labels: [\"*\"]}`";
            self.wrong(&path.key("match"), wrong.hint(hint));
        }
        let forward = model.dead_letters.as_ref().and_then(|letters| {
            let sink = self.optional(&path.key("deadLetters").key("sink"), Some(&letters.sink));
            sink.filter(|sink| !sink.is_empty())
        });
        SinkSettings {
            name: name.to_owned(),
            kind,
            filter,
            enrich: model.enrich.as_ref().map(|model| self.enrich(&path.key("enrich"), model)),
            correlate: model.correlate.mode.0,
            batch,
            retry: self.retry(&path.key("retry"), model),
            timeout,
            concurrency,
            max_event: model.max_event.map(|size| self.sink_max_event(&path.key("maxEvent"), size)),
            start: match model.start {
                SinkStartModel::Now => SinkStart::Now,
                SinkStartModel::Oldest => SinkStart::Oldest,
            },
            overflow: match model.overflow {
                OverflowModel::DropOldest => Overflow::DropOldest,
                OverflowModel::Block => Overflow::Block,
            },
            forward_dead_letters: forward,
        }
    }

    fn connection(&mut self, path: &Path, model: &SinkModel, kind: &mut SinkKind) {
        let Some(connection) = &model.connection else { return };
        let into = match kind {
            SinkKind::Webhook(options) => &mut options.connection_max_age,
            SinkKind::Otlp(options) => &mut options.connection_max_age,
            SinkKind::Kafka(_) => {
                let wrong = wrong("a `kafka` sink learns from its brokers where to connect to");
                return self.wrong_key(path, wrong.hint("remove it"));
            }
            SinkKind::Stdout => {
                let wrong = wrong("a `stdout` sink has no connection");
                return self.wrong_key(path, wrong.hint("remove it"));
            }
        };
        let Some(age) = connection.max_age else { return };
        *into = age.0;
        if age.0.is_zero() {
            let wrong = wrong("a connection that is used for no time carries nothing");
            self.wrong(&path.key("maxAge"), wrong.hint("the default is `10m`"));
        }
    }

    /// How long an envelope may be that a sink is sent, in bytes.
    fn sink_max_event(&mut self, path: &Path, Size(most): Size) -> usize {
        let Size(journal) = self.loaded.model.journal.max_event;
        if most < MIN_EVENT_BYTES {
            let wrong = wrong("an event needs at least 4KiB to be told from another");
            self.wrong(path, wrong.hint("remove it to send events as they are in the journal"));
        } else if most > journal {
            let what = format!(
                "an event of {most} bytes is not in the journal, where `journal.maxEvent` is {journal}"
            );
            self.wrong(path, wrong(what).hint("lower it, or raise `journal.maxEvent`"));
        }
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    fn batch(&mut self, path: &Path, model: &SinkModel) -> BatchOptions {
        let defaults = BatchOptions::default();
        let default_events = if model.webhook.is_some() { 1 } else { defaults.events };
        let events = model.batch.events.map_or(default_events, |events| events as usize);
        if !(1..=100_000).contains(&events) {
            let wrong = wrong(format!("a batch of {events} events cannot be"));
            self.wrong(&path.key("events"), wrong.hint("write 1 to 100000"));
        }
        let bytes = model.batch.size.map_or(defaults.bytes, |size| size.0);
        if bytes == 0 {
            let wrong = wrong("a batch of no bytes cannot be").hint("the default is `1MiB`");
            self.wrong(&path.key("size"), wrong);
        }
        let linger = model.batch.linger.map_or(defaults.linger, |span| span.0);
        BatchOptions { events, bytes, linger }
    }

    /// How many attempts are under way at once: as many as a receiver of one event a request needs to keep
    /// up. A request that carries a whole batch keeps up alone, and each one more takes the memory of a batch.
    fn concurrency(&mut self, path: &Path, model: &SinkModel, batch: BatchOptions) -> usize {
        let default = match model {
            SinkModel { webhook: Some(_), .. } if batch.events == 1 => 8,
            _ => 1,
        };
        let stdout = matches!(model, SinkModel { kafka: None, otlp: None, webhook: None, .. });
        let Some(concurrency) = model.concurrency else { return default };
        if stdout && concurrency > 1 {
            let wrong = wrong("a `stdout` sink writes one batch after the other");
            self.wrong(path, wrong.hint("remove it"));
        } else if !(1..=MOST_CONCURRENCY).contains(&concurrency) {
            let wrong = wrong(format!("{concurrency} attempts at once cannot be"));
            self.wrong(path, wrong.hint(format!("write 1 to {MOST_CONCURRENCY}")));
        }
        concurrency as usize
    }

    fn retry(&mut self, path: &Path, model: &SinkModel) -> RetryOptions {
        let defaults = RetryOptions::default();
        let options = RetryOptions {
            initial: model.retry.initial.map_or(defaults.initial, |span| span.0),
            max: model.retry.max.map_or(defaults.max, |span| span.0),
            max_attempts: model.retry.max_attempts,
        };
        if options.initial.is_zero() {
            let wrong = wrong("a wait of zero doubles to zero").hint("the default is `100ms`");
            self.wrong(&path.key("initial"), wrong);
        } else if options.initial > options.max {
            let key = if model.retry.initial.is_some() { "initial" } else { "max" };
            let what = format!(
                "the first wait of {:?} is longer than the longest of {:?}",
                options.initial, options.max
            );
            self.wrong(&path.key(key), wrong(what).hint("lower `initial` or raise `max`"));
        }
        if options.max_attempts == Some(0) {
            let wrong = wrong("no attempt delivers nothing").hint("remove it to retry for ever");
            self.wrong(&path.key("maxAttempts"), wrong);
        }
        options
    }

    fn filter(&mut self, path: &Path, text: Option<&Text>) -> Option<Filter> {
        let text = text?;
        let source = self.text(path, text)?;
        let error = match Filter::compile(&source) {
            Ok(filter) => return Some(filter),
            Err(error) => error,
        };
        let origin = path.origin(&self.loaded.root);
        let file = &self.loaded.file;
        let problem = if let (Text::Plain(_), Origin::File(span)) = (text, origin) {
            let at = locate(file.text(), span, &source, error.offset);
            file.problem_at(at, format!("`{path}`: {}", error.what))
        } else {
            let before = &source[..error.offset];
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
            let place = format!("line {line}, column {column} of the expression");
            file.problem(origin, format!("`{path}`: {} ({place})", error.what))
        };
        self.problems.push(problem.maybe_hint(error.hint));
        None
    }

    fn kafka(
        &mut self,
        name: &str,
        path: &Path,
        model: &KafkaModel,
        plain: bool,
        timeout: Duration,
    ) -> KafkaOptions {
        if model.brokers.is_empty() {
            let wrong =
                wrong("there are no brokers").hint("write at least one: `[\"kafka:9092\"]`");
            self.wrong(&path.key("brokers"), wrong);
        }
        let mut brokers = Vec::new();
        for (i, text) in model.brokers.iter().enumerate() {
            // A variable may hold several, as clients of Kafka write them elsewhere.
            let check =
                |value: &str| value.split(',').map(str::trim).try_for_each(validate::broker);
            if let Some(value) = self.checked(&path.key("brokers").index(i), text, check) {
                brokers.extend(value.split(',').map(|broker| broker.trim().to_owned()));
            }
        }
        if model.sasl.is_some() && model.tls.is_none() && !plain {
            self.no_plain_sasl(path);
        }
        if brokers.is_empty() {
            brokers.push(stand_ins::BROKER.to_owned());
        }
        let topic = self.checked(&path.key("topic"), &model.topic, validate::topic);
        let tls = model.tls.as_ref().map(|tls| self.tls(&path.key("tls"), tls));
        let sasl = model.sasl.as_ref().map(|sasl| self.sasl(&path.key("sasl"), sasl));
        let topic = topic.unwrap_or_else(|| stand_ins::TEXT.to_owned());
        // What is wrong with it is reported where it stands.
        let cluster = self.loaded.model.cluster.name.as_ref();
        let cluster = cluster
            .and_then(|name| secrets::resolve(name, self.variables, self.secrets).ok().flatten());
        KafkaOptions {
            name: name.to_owned(),
            brokers,
            topic,
            key: match model.key {
                KafkaKeyModel::Qualified => KafkaKey::Qualified,
                KafkaKeyModel::Object => KafkaKey::Object,
            },
            cluster,
            tls,
            sasl,
            compression: Compression::None,
            timeout,
        }
    }

    fn sasl(&mut self, path: &Path, model: &SaslModel) -> SaslOptions {
        self.note_plain(&path.key("password"), &model.password);
        SaslOptions {
            mechanism: match model.mechanism {
                SaslMechanismModel::Plain => SaslMechanism::Plain,
                SaslMechanismModel::ScramSha256 => SaslMechanism::ScramSha256,
                SaslMechanismModel::ScramSha512 => SaslMechanism::ScramSha512,
            },
            username: self.secret(&path.key("username"), &model.username),
            password: self.secret(&path.key("password"), &model.password),
        }
    }

    fn otlp(
        &mut self,
        path: &Path,
        model: &OtlpModel,
        plaintext: Plaintext,
        timeout: Duration,
    ) -> OtlpOptions {
        let check = |value: &str| {
            let uri = validate::url(value)?;
            if uri.query().is_some() {
                return Err(wrong("an endpoint has no query").hint("remove what follows `?`"));
            }
            Ok(())
        };
        let endpoint = self.checked(&path.key("endpoint"), &model.endpoint, check);
        self.tls_needs_https(path, endpoint.as_deref(), model.tls.as_ref(), "endpoint");
        self.note_plain_address(&path.key("endpoint"), &model.endpoint);
        self.no_plain_http(path, "endpoint", endpoint.as_deref(), &model.headers, plaintext);
        let grpc = matches!(model.protocol, ProtocolModel::Grpc);
        OtlpOptions {
            endpoint: Secret::new(endpoint.unwrap_or_else(|| stand_ins::url(model.tls.is_some()))),
            protocol: if grpc { OtlpProtocol::Grpc } else { OtlpProtocol::Http },
            headers: self.headers(&path.key("headers"), &model.headers, grpc),
            tls: model.tls.as_ref().map(|tls| self.tls(&path.key("tls"), tls)),
            proxy: Proxy::None,
            compression: Compression::None,
            connection_max_age: DEFAULT_MAX_AGE,
            timeout,
        }
    }

    fn webhook(
        &mut self,
        path: &Path,
        model: &WebhookModel,
        plaintext: Plaintext,
        timeout: Duration,
    ) -> WebhookOptions {
        let check = |value: &str| validate::url(value).map(drop);
        let url = self.checked(&path.key("url"), &model.url, check);
        self.tls_needs_https(path, url.as_deref(), model.tls.as_ref(), "url");
        self.note_plain_address(&path.key("url"), &model.url);
        self.no_plain_http(path, "url", url.as_deref(), &model.headers, plaintext);
        let signing = path.key("signing").key("secret");
        let mut signing_secrets = Vec::new();
        for (i, text) in model.signing.iter().flat_map(|s| s.secret.texts.iter().enumerate()) {
            let listed = model.signing.as_ref().is_some_and(|signing| signing.secret.listed);
            let path = if listed { signing.index(i) } else { signing.clone() };
            self.note_plain(&path, text);
            let shows = self.shows_signing;
            let secret = self.checked(&path, text, |secret| {
                let shown = prefixed_signing_key(secret).filter(|_| shows);
                validate::signing_secret(secret).map_err(|wrong| match shown {
                    Some(shown) => wrong.hint(format!(
                        "receivers decode every secret: for the same bytes write, and give the \
                         receiver, {shown}"
                    )),
                    None => wrong,
                })
            });
            let secret = secret.unwrap_or_else(|| stand_ins::SIGNING_SECRET.to_owned());
            signing_secrets.push(Secret::new(secret));
        }
        WebhookOptions {
            url: Secret::new(url.unwrap_or_else(|| stand_ins::url(model.tls.is_some()))),
            headers: self.headers(&path.key("headers"), &model.headers, false),
            tls: model.tls.as_ref().map(|tls| self.tls(&path.key("tls"), tls)),
            proxy: Proxy::None,
            signing_secrets,
            compression: Compression::None,
            connection_max_age: DEFAULT_MAX_AGE,
            single: true,
            timeout,
        }
    }

    /// TLS settings beside a plain address would be a false sense of safety.
    fn tls_needs_https(
        &mut self,
        path: &Path,
        url: Option<&str>,
        tls: Option<&TlsModel>,
        key: &str,
    ) {
        if tls.is_some() && url.is_some_and(|url| url.starts_with("http://")) {
            let wrong = wrong(format!("there is TLS to set up, but `{key}` starts with `http://`"));
            let hint = "use `https://`, or remove `tls`";
            self.wrong_key(&path.key("tls"), wrong.hint(hint));
        }
    }

    fn headers(
        &mut self,
        path: &Path,
        headers: &BTreeMap<String, Text>,
        grpc: bool,
    ) -> Vec<(String, Secret)> {
        self.note_plain_headers(path, headers);
        let mut all: Vec<(String, Secret)> = Vec::with_capacity(headers.len());
        for (name, value) in headers {
            let path = path.key(name);
            if let Err(wrong) = validate::header_name(name, grpc) {
                self.wrong_key(&path, wrong);
            }
            if all.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
                let wrong = wrong("the header stands twice, in different letter cases");
                self.wrong_key(&path, wrong.hint("remove one of the two"));
            }
            let value = self.checked(&path, value, validate::header_value);
            let value = value.unwrap_or_else(|| stand_ins::TEXT.to_owned());
            all.push((name.clone(), Secret::new(value)));
        }
        all
    }

    fn secret(&mut self, path: &Path, text: &Text) -> Secret {
        let value = self.optional(path, Some(text));
        Secret::new(value.unwrap_or_else(|| stand_ins::TEXT.to_owned()))
    }

    fn tls(&mut self, path: &Path, model: &TlsModel) -> TlsOptions {
        let alone = match (&model.cert, &model.key) {
            (Some(_), None) => Some(("cert", "key")),
            (None, Some(_)) => Some(("key", "cert")),
            _ => None,
        };
        if let Some((there, missing)) = alone {
            let wrong = wrong(format!("there is a `{there}` but no `{missing}`"));
            let hint = "a client certificate needs both, or neither";
            self.wrong_key(&path.key(there), wrong.hint(hint));
        }
        let ca = self.pem(&path.key("ca"), model.ca.as_ref(), Pem::Certificate);
        let cert = self.pem(&path.key("cert"), model.cert.as_ref(), Pem::Certificate);
        let key = self.pem(&path.key("key"), model.key.as_ref(), Pem::PrivateKey);
        let name = self.optional(&path.key("serverName"), model.server_name.as_ref());
        let ca = ca.or_else(|| model.ca.as_ref().map(|_| stand_ins::AUTHORITY.to_owned()));
        // They are of no use to anybody without each other, and no stand-in fits the one of them.
        let (cert, key) = cert.zip(key).unzip();
        TlsOptions {
            ca: ca.map(String::into_bytes),
            cert: cert.map(String::into_bytes),
            key: key.map(Secret::new),
            server_name: name
                .or_else(|| model.server_name.as_ref().map(|_| stand_ins::HOST.to_owned())),
        }
    }

    /// A PEM text. A plain value is the path of a file, for that is what everyone writes there.
    fn pem(&mut self, path: &Path, text: Option<&Text>, kind: Pem) -> Option<String> {
        let as_reference = match text? {
            Text::Plain(pem) if pem.contains("-----BEGIN") => {
                let wrong = wrong("a PEM text is not taken here, but the path of a file with it");
                self.wrong(path, wrong.hint("write the path, or `{env: NAME}` for a variable"));
                return None;
            }
            // A key pasted without its frame is no path, and must not be shown as one.
            Text::Plain(key)
                if kind == Pem::PrivateKey && !key.contains('.') && !key.starts_with('/') =>
            {
                let wrong = wrong("this is not the path of a file");
                self.wrong(path, wrong.hint("write the path of a PEM file"));
                return None;
            }
            Text::Plain(file) => Text::File(file.clone()),
            reference => reference.clone(),
        };
        self.checked(path, &as_reference, |pem| validate::pem(pem, kind))
    }
}
