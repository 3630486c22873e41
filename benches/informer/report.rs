//! The row of an informer in the table.

use crate::{
    Measured, Side,
    table::{Form, Table},
};

const MIB: f64 = 1024.0 * 1024.0;

pub(crate) const FORM: Form = Form {
    name: "bench-informer",
    columns: &[
        "informer",
        "objects",
        "s",
        "CPU s",
        "peak RSS MiB",
        "RSS MiB",
        "least RSS MiB",
        "bytes an object",
    ],
};

impl Table {
    pub(crate) fn add(&mut self, side: &Side, empty: &Measured, full: &Measured) {
        let objects = full.objects;
        let each = (full.least_rss_mib - empty.least_rss_mib) * MIB / objects as f64;
        self.push(format!(
            "| {} | {objects} | {:.2} | {:.2} | {:.1} | {:.1} | {:.1} | {each:.0} |",
            side.what,
            full.seconds,
            full.usage.cpu_s,
            full.usage.peak_rss_mib,
            full.usage.rss_mib,
            full.least_rss_mib,
        ));
    }

    pub(crate) fn add_missing(&mut self, side: &Side, why: &str) {
        self.push(format!("| {} | {why} | – | – | – | – | – | – |", side.what));
    }
}
