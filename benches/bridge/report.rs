//! The row of a scene in the table.

use crate::{
    play::Measured,
    scenes::Scene,
    table::{Form, Table},
};

pub(crate) const FORM: Form = Form {
    name: "bench",
    columns: &[
        "scene",
        "events",
        "s",
        "events/s",
        "CPU µs an event",
        "peak RSS MiB",
        "RSS after MiB",
        "p50 ms",
        "p99 ms",
        "requests",
        "lost",
        "repeated",
    ],
};

impl Table {
    pub(crate) fn add(&mut self, scene: &Scene, measured: &Measured) {
        let Measured { events, seconds, requests, .. } = measured;
        let none = || "–".to_owned();
        let (p50, p99) = measured.latency_ms.map_or_else(
            || (none(), none()),
            |(p50, p99)| (format!("{p50:.2}"), format!("{p99:.2}")),
        );
        let (lost, repeated) = measured.faults.map_or_else(
            || (none(), none()),
            |(lost, again)| (lost.to_string(), again.to_string()),
        );
        self.push(format!(
            "| {} | {events} | {seconds:.2} | {:.0} | {:.2} | {:.1} | {:.1} | {p50} | {p99} | \
             {requests} | {lost} | {repeated} |",
            scene.what,
            measured.events_a_second,
            measured.cpu_us_an_event,
            measured.peak_rss_mib,
            measured.rss_after_mib,
        ));
    }
}
