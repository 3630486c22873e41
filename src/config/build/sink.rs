//! The settings of one sink, but for the keys of its kind.

use super::{Builder, MIN_EVENT_BYTES};
use crate::{
    bridge::{BatchOptions, Filter, RetryOptions, SinkOptions, TIMEOUT},
    config::{
        model::{CommonModel, DeadLettersModel, SinkModel},
        settings::SinkSettings,
    },
    document::{Path, Size, wrong},
    sinks::keys::Shared,
};

const MOST_CONCURRENCY: u32 = 128;
const MOST_DESTINATIONS: u32 = 10_000;
const MOST_EVENTS: u32 = 100_000;

impl Builder<'_> {
    pub(super) fn sink(
        &mut self,
        name: &str,
        model: &SinkModel,
        cluster: Option<&str>,
    ) -> SinkSettings {
        let path = Path::root("sinks").key(name);
        let SinkModel { kind, keys, common } = model;
        let timeout = self.checks.duration(&path.key("timeout"), common.timeout, TIMEOUT, "10s");
        let batch = self.batch(&path.key("batch"), common, keys.batch_events());
        let default = keys.concurrency(batch) as u32;
        let concurrency = path.key("concurrency");
        let concurrency =
            self.checks.within(&concurrency, common.concurrency, MOST_CONCURRENCY, default)
                as usize;
        let destinations = path.key("maxDestinations");
        let default = keys.max_destinations() as u32;
        let max_destinations =
            self.checks.within(&destinations, common.max_destinations, MOST_DESTINATIONS, default)
                as usize;
        let retry = self.retry(&path.key("retry"), common);
        let max_event =
            common.max_event.map(|size| self.sink_max_event(&path.key("maxEvent"), size));
        let shared = Shared {
            name,
            path: path.clone(),
            cluster: cluster.map(str::to_owned),
            timeout,
            batch,
            concurrency,
            max_event,
            format: common.format,
            compression: common.compression.unwrap_or_default(),
            allow_plaintext: common.allow_plaintext,
            proxy: common.proxy.as_ref(),
            connection: common.connection.as_ref(),
        };
        let sink = keys.options(&shared, &mut self.checks);
        SinkOptions {
            filter: self.filter(&path.key("match"), common),
            enrich: common.enrich.as_ref().map(|model| self.enrich(&path.key("enrich"), model)),
            correlate: common.correlate.mode,
            batch,
            retry,
            timeout: keys.attempt_within(timeout),
            concurrency,
            max_event: keys.max_event(max_event),
            max_destinations,
            start: common.start,
            overflow: common.overflow,
            forward_dead_letters: self.forward(&path, common.dead_letters.as_ref()),
            ..SinkOptions::new(name, kind, sink)
        }
    }

    fn forward(&mut self, sink: &Path, model: Option<&DeadLettersModel>) -> Option<String> {
        let path = sink.key("deadLetters").key("sink");
        self.checks
            .optional(&path, model.map(|letters| &letters.sink))
            .filter(|sink| !sink.is_empty())
    }

    /// How long an envelope may be that a sink is sent, in bytes.
    fn sink_max_event(&mut self, path: &Path, Size(most): Size) -> usize {
        let Size(journal) = self.loaded.model.journal.max_event;
        if most < MIN_EVENT_BYTES {
            let wrong = wrong("expected at least `4KiB`, found less");
            self.checks
                .wrong(path, wrong.hint("remove it to send events as they are in the journal"));
        } else if most > journal {
            let what =
                format!("expected at most `journal.maxEvent`, {journal} bytes, found {most}");
            self.checks.wrong(path, wrong(what).hint("lower it, or raise `journal.maxEvent`"));
        }
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    fn batch(&mut self, path: &Path, model: &CommonModel, events: usize) -> BatchOptions {
        let (defaults, model) = (BatchOptions::default(), &model.batch);
        let events =
            self.checks.within(&path.key("events"), model.events, MOST_EVENTS, events as u32);
        let bytes = self.checks.size(&path.key("size"), model.size, defaults.bytes, "1MiB");
        let linger = model.linger.map_or(defaults.linger, |span| span.0);
        BatchOptions { events: events as usize, bytes, linger }
    }

    fn retry(&mut self, path: &Path, model: &CommonModel) -> RetryOptions {
        let defaults = RetryOptions::default();
        let options = RetryOptions {
            initial: self.checks.duration(
                &path.key("initial"),
                model.retry.initial,
                defaults.initial,
                "100ms",
            ),
            max: model.retry.max.map_or(defaults.max, |span| span.0),
            max_attempts: model.retry.max_attempts,
        };
        if options.initial > options.max {
            let key = if model.retry.initial.is_some() { "initial" } else { "max" };
            let what = format!(
                "expected a first wait of at most {:?}, the longest, found {:?}",
                options.max, options.initial
            );
            self.checks.wrong(&path.key(key), wrong(what).hint("lower `initial` or raise `max`"));
        }
        if options.max_attempts == Some(0) {
            let wrong = wrong("expected at least 1, found 0").hint("remove it to retry for ever");
            self.checks.wrong(&path.key("maxAttempts"), wrong);
        }
        options
    }

    fn filter(&mut self, path: &Path, model: &CommonModel) -> Option<Filter> {
        let filter = self.checks.parsed(path, model.filter.as_ref()?, Filter::compile)?;
        if model.enrich.is_none() && filter.names_object() {
            let wrong =
                wrong("expected `enrich` on a sink whose `match` reads `object`, found none");
            let hint = "add `enrich`, for instance `enrich: {labels: [\"*\"]}`";
            self.checks.wrong(path, wrong.hint(hint));
        }
        Some(filter)
    }
}
