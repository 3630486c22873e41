//! The keys that cannot change while a bridge runs.

use tidings_log::LogOptions;

use super::{LogSettings, ServerSettings, Settings, SourceSettings};
use crate::{
    bridge::{JournalOptions, SourceOptions},
    event::Cluster,
};

impl Settings {
    /// The keys that have another value in `next`, and need a restart to take it. `enrich` of a sink
    /// is judged by [`SinkControl::may_be_put`](crate::bridge::SinkControl::may_be_put).
    pub fn fixed_keys_changed(&self, next: &Self) -> Vec<&'static str> {
        // Taken apart whole, so that a new key has to be decided upon.
        let Self {
            cluster: Cluster { name, uid, labels },
            source:
                SourceSettings {
                    kubeconfig,
                    proxy: _,
                    heartbeat,
                    events: SourceOptions { namespaces, field_selector, start },
                },
            journal:
                JournalOptions {
                    path,
                    log: LogOptions { retention_size, retention_age, sync },
                    dead_letters,
                    max_event,
                },
            sinks: _,
            plain_secrets: _,
            counters: _,
            objects,
            server: ServerSettings { listen, detail, token: _ },
            telemetry: _,
            log: LogSettings { level: _, format },
            shown: _,
        } = self;
        let Self { cluster, source, journal, server, log, .. } = next;
        let same_size = *retention_size == journal.log.retention_size;
        let same = [
            ("cluster.name", *name == cluster.name),
            ("cluster.uid", *uid == cluster.uid),
            ("cluster.labels", *labels == cluster.labels),
            ("source.kubeconfig", *kubeconfig == source.kubeconfig),
            ("source.heartbeat", *heartbeat == source.heartbeat),
            ("source.namespaces", *namespaces == source.events.namespaces),
            ("source.fieldSelector", *field_selector == source.events.field_selector),
            ("source.start", *start == source.events.start),
            ("journal.path", *path == journal.path),
            ("journal.retention.size", same_size),
            ("journal.retention.age", *retention_age == journal.log.retention_age),
            ("journal.sync", *sync == journal.log.sync),
            // Without a value of its own it follows the size.
            ("journal.deadLetters", *dead_letters == journal.dead_letters || !same_size),
            ("journal.maxEvent", *max_event == journal.max_event),
            ("objects", *objects == next.objects),
            ("server.listen", *listen == server.listen),
            ("server.detail", *detail == server.detail),
            ("log.format", *format == log.format),
        ];
        same.into_iter().filter(|(_, same)| !same).map(|(key, _)| key).collect()
    }
}
