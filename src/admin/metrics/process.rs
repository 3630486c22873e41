//! CPU, memory and files of the process, by the names that every Prometheus client has.

use std::fmt;

use procfs::{ProcResult, WithCurrentSystemInfo as _, process::Process};
use prometheus_client::{
    collector::Collector,
    encoding::DescriptorEncoder,
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};

use super::single;

#[derive(Debug)]
pub(super) struct ProcessCollector;

struct Usage {
    cpu_seconds: f64,
    resident_bytes: u64,
    open_files: u64,
    started: f64,
}

impl Usage {
    fn now() -> ProcResult<Self> {
        let process = Process::myself()?;
        let stat = process.stat()?;
        let ticks = procfs::ticks_per_second() as f64;
        let booted = procfs::boot_time_secs()? as f64;
        Ok(Self {
            cpu_seconds: (stat.utime + stat.stime) as f64 / ticks,
            resident_bytes: stat.rss_bytes().get(),
            open_files: process.fd_count()? as u64,
            started: booted + stat.starttime as f64 / ticks,
        })
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // Where there is no /proc there is nothing to say.
        let Ok(Usage { cpu_seconds, resident_bytes, open_files, started }) = Usage::now() else {
            return Ok(());
        };
        let encoder = &mut encoder;
        let (seconds, bytes) = (Some(&Unit::Seconds), Some(&Unit::Bytes));
        let cpu = ConstCounter::new(cpu_seconds);
        single(encoder, "process_cpu", "User and system time", seconds, &cpu)?;
        let resident = ConstGauge::new(resident_bytes);
        single(encoder, "process_resident_memory", "Resident memory", bytes, &resident)?;
        let open = ConstGauge::new(open_files);
        single(encoder, "process_open_fds", "Open file descriptors", None, &open)?;
        let help = "When the process started, in seconds since the epoch";
        single(encoder, "process_start_time", help, seconds, &ConstGauge::new(started))
    }
}
