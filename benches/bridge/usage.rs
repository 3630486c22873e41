//! The resources of a process, by the kernel's word.

use std::fs;

use crate::Result;

/// `/proc/PID/stat` counts in hundredths of a second on every machine that Linux runs on today,
/// and rounds what it has counted in nanoseconds.
const TICKS_A_SECOND: f64 = 100.0;

/// The resources that a process has used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// User and system time of all its threads since it was started, in seconds.
    pub(crate) cpu_s: f64,
    pub(crate) rss_mib: f64,
    pub(crate) peak_rss_mib: f64,
}

impl Usage {
    pub(crate) fn of(process: u32) -> Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        // The name in parentheses may hold anything. After it come the fields from the third on;
        // the fourteenth and fifteenth are wanted.
        let (_, fields) = stat.rsplit_once(')').ok_or("no name in /proc/PID/stat")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok());
        let cpu = ticks(11).zip(ticks(12)).ok_or("no times in /proc/PID/stat")?;
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        Ok(Self {
            cpu_s: (cpu.0 + cpu.1) / TICKS_A_SECOND,
            rss_mib: kib(&status, "VmRSS:")? / 1024.0,
            peak_rss_mib: kib(&status, "VmHWM:")? / 1024.0,
        })
    }
}

/// A value in KiB from a file of `/proc`.
pub(crate) fn kib(text: &str, name: &str) -> Result<f64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| format!("no {name} in /proc").into())
}
