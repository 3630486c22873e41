//! Connections without end to the admin server, which anybody makes who reaches its port.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use crate::accounts::{number, sink_of};
use crate::frame::{Company, Drill, Page, Row, Run};
use crate::sampler::Sample;
use crate::scripted::{Sink, Stage};

pub(crate) const DRILLS: [Drill; 3] = [
    Drill {
        name: "admin-flood",
        what: "10 000 connections from 50 addresses to the admin server send heads that never end, and \
               are made anew when they are closed: memory stays, every probe is answered, delivery \
               goes on",
        full: "60 s at 1 000/s",
        short: Some("2 000 connections, 10 s at 300/s"),
        company: Company::Never,
        long: false,
        // A build without optimisation, on a slow machine, has enough to do with fewer.
        run: |run| Box::pin(flood(run, run.size(10_000, 2_000), FEW)),
    },
    Drill {
        name: "admin-addresses",
        what: "2 000 of them from 200 addresses, more than there are connections (64): memory stays, delivery \
               goes on; that every probe is answered is not promised there, so those that fail are \
               counted",
        full: "60 s at 1 000/s",
        short: None,
        company: Company::Never,
        long: false,
        run: |run| Box::pin(flood(run, 2_000, MANY)),
    },
    Drill {
        name: "admin-descriptors",
        what: "240 requests half sent to a bridge that may have 256 descriptors: journal and sinks keep \
               theirs, every probe is answered",
        full: "60 s at 1 000/s",
        short: Some("10 s at 300/s"),
        company: Company::Never,
        long: false,
        run: |run| Box::pin(descriptors(run)),
    },
];

/// The memory of the Pod in deploy/.
const POD_MIB: u64 = 256;
/// The most that a flood may add to it.
const ADDED_MIB: f64 = 4.0;
/// A probe that takes longer has failed: `timeoutSeconds` in deploy/.
const PROBE_WITHIN: Duration = Duration::from_secs(5);
/// How long a closed connection is away at most: a machine of two cores has to open them all, too.
const AWAY: Duration = Duration::from_secs(8);
/// Addresses of a flood that no probe fails in: docs/metrics.md promises that below 64.
const FEW: u64 = 50;
/// The same of one that has an address for each connection, and more.
const MANY: u64 = 200;
/// Descriptors that the drill itself needs.
const OWN_DESCRIPTORS: u64 = 500;

async fn flood(run: Run, heads: u64, addresses: u64) -> Page {
    if let Err(why) = may_open(heads) {
        return Page::Skipped(why);
    }
    let cgroup = Cgroup::make();
    let mut stage = Stage::set(vec![Sink::new("audit").await], run.seed, |_| {});
    if let Ok(cgroup) = &cgroup {
        cgroup.carries(&mut stage);
    }
    let fault = format!("heads without end from {addresses} addresses");
    let (row, grown) = under(&mut stage, run, heads, addresses, &fault).await;
    assert!(grown <= ADDED_MIB, "memory grew by {grown:.1} MiB");
    let note = match &cgroup {
        Ok(cgroup) => {
            assert_eq!(cgroup.killed(), 0, "the kernel ended processes for want of memory");
            format!("in a cgroup of {POD_MIB} MiB")
        }
        Err(why) => format!("NOT in a cgroup of {POD_MIB} MiB: {why}"),
    };
    Page::Rows(vec![row.note(&note)])
}

async fn descriptors(run: Run) -> Page {
    let mut stage = Stage::set(vec![Sink::new("audit").await], run.seed, |_| {});
    stage.bridge.start_by("prlimit", &["--nofile=256:256".to_owned()]);
    let (row, _) = under(&mut stage, run, 240, FEW, "heads without end at 256 descriptors").await;
    Page::Rows(vec![row])
}

/// A load, beside it for a while so many connections from so many addresses whose heads do not end, and
/// what became of it. The second is by how many MiB memory grew.
async fn under(stage: &mut Stage, run: Run, heads: u64, addresses: u64, fault: &str) -> (Row, f64) {
    let (rate, lasts) = run.size((1_000, Duration::from_secs(60)), (300, Duration::from_secs(10)));
    stage.open().await;
    // What a bridge under load has in memory in any case.
    drop(stage.writer().burst(5_000).await);
    let writing = stage.write(rate);
    stage.journalled().await;
    let process = stage.bridge.id();
    sleep(Duration::from_secs(5)).await;
    forget_peak(process);
    sleep(Duration::from_secs(5)).await;
    let before = peak(process);
    forget_peak(process);

    let target = stage.bridge.address().expect("it listens").parse().expect("an address");
    let flood = Flood::start(target, heads, addresses);
    let (probes, unanswered) = probe(target, lasts).await;
    assert!(addresses > FEW || unanswered.is_empty(), "{unanswered:#?}");
    let during = peak(process);
    let made = flood.stop().await;
    writing.stop().await;
    assert!(made >= heads, "only {made} connections were made");
    let failed = number(sink_of(&stage.bridge.status().await, "audit"), "failedAttempts");
    assert_eq!(failed, 0, "attempts failed");
    let (sink, verdict) = stage.finish().await.remove(0);
    assert_eq!((verdict.repeated, verdict.order_breaks), (0, 0), "{verdict}");
    let row = sink.has_all(&verdict, fault).note(&format!(
        "{heads} at once, {made} in all; RSS {before:.1} MiB before, {during:.1} MiB during it; {} \
         probes, {} failed, the slowest other after {:.0} ms",
        probes.len() + unanswered.len(),
        unanswered.len(),
        probes.iter().max().map_or(0.0, |slowest| slowest.as_secs_f64() * 1e3),
    ));
    (row, during - before)
}

/// Asks as a kubelet does, but more often, and answers how long each took, and what came of those that
/// failed.
async fn probe(target: SocketAddr, lasts: Duration) -> (Vec<Duration>, Vec<String>) {
    let (started, mut took, mut failed) = (Instant::now(), Vec::new(), Vec::new());
    let mut ticks = interval(Duration::from_millis(100));
    while started.elapsed() < lasts {
        ticks.tick().await;
        let path = if took.len() % 2 == 0 { "/livez" } else { "/readyz" };
        let asked = Instant::now();
        let answer = async {
            let mut stream = TcpStream::connect(target).await?;
            let request = format!("GET {path} HTTP/1.1\r\nHost: {target}\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        match timeout(PROBE_WITHIN, answer).await {
            Ok(Ok(answer)) if answer.starts_with("HTTP/1.1 200") => took.push(asked.elapsed()),
            other => failed.push(format!("{path}: {other:?}")),
        }
    }
    (took, failed)
}

/// The most memory that a process has had since that was forgotten, in MiB.
fn peak(process: u32) -> f64 {
    Sample::of(process).expect("it runs").peak_rss_mib
}

fn forget_peak(process: u32) {
    fs::write(format!("/proc/{process}/clear_refs"), "5").expect("the peak is forgotten");
}

/// Connections that are made again and again.
struct Flood {
    over: Arc<AtomicBool>,
    made: Arc<AtomicU64>,
    attackers: JoinSet<()>,
}

impl Flood {
    fn start(target: SocketAddr, heads: u64, addresses: u64) -> Self {
        let (over, made) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut attackers = JoinSet::new();
        for n in 0..heads {
            let (over, made) = (Arc::clone(&over), Arc::clone(&made));
            // One address has not ports enough.
            let from = Ipv4Addr::new(127, 0, 0, 2 + (n % addresses) as u8);
            attackers.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    if head_without_end(from, target, &over, &made).await.is_err() {
                        sleep(AWAY.mul_f64(fastrand::f64())).await;
                    }
                }
            });
        }
        Self { over, made, attackers }
    }

    /// Ends it, and answers how many connections were made in all.
    async fn stop(mut self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.attackers.shutdown().await;
        self.made.load(Ordering::Relaxed)
    }
}

/// Sends lines of a head until the other end closes, which comes as an error.
async fn head_without_end(
    from: Ipv4Addr,
    target: SocketAddr,
    over: &AtomicBool,
    made: &AtomicU64,
) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let mut stream = socket.connect(target).await?;
    stream.write_all(b"GET /livez HTTP/1.1\r\n").await?;
    made.fetch_add(1, Ordering::Relaxed);
    while !over.load(Ordering::Relaxed) {
        stream.write_all(b"x-more: is to come\r\n").await?;
        // A close is noticed at once.
        if let Ok(read) = timeout(Duration::from_millis(500), stream.read(&mut [0; 1])).await {
            read?;
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
    }
    Ok(())
}

/// Whether this process may have so many connections; it takes what it can get.
fn may_open(connections: u64) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let (needed, has) = (connections + OWN_DESCRIPTORS, getrlimit(Resource::Nofile).current);
    match has {
        Some(has) if has < needed => {
            Err(format!("expected {needed} descriptors (ulimit -Hn), found {has}"))
        }
        _ => Ok(()),
    }
}

/// A group of processes with the memory of the Pod, below the one that this process is in.
struct Cgroup {
    directory: PathBuf,
}

impl Cgroup {
    /// Or why there is none.
    fn make() -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        // Version 1 has a tree for each controller, version 2 one for all.
        let below = |tree: &str, marker: &str| {
            let path = own.lines().find_map(|line| line.split_once(marker))?.1;
            Some(Path::new(tree).join(path.trim_start_matches('/')))
        };
        let version_1 = below("/sys/fs/cgroup/memory", ":memory:");
        let parent = version_1.or_else(|| below("/sys/fs/cgroup", "0::"));
        let parent = parent.ok_or("/proc/self/cgroup names none")?;
        let directory = parent.join(format!("tidings-drill-{}", process::id()));
        let why = |error: std::io::Error| format!("{}: {error}", directory.display());
        fs::create_dir(&directory).map_err(why)?;
        let made = Self { directory: directory.clone() };
        let v1 = directory.join("memory.limit_in_bytes");
        let limit = if v1.exists() { v1 } else { directory.join("memory.max") };
        fs::write(&limit, (POD_MIB << 20).to_string()).map_err(why)?;
        Ok(made)
    }

    /// Has a bridge run in it.
    fn carries(&self, stage: &mut Stage) {
        let enter = "echo $$ > \"$0\" && exec \"$@\"".to_owned();
        let processes = self.directory.join("cgroup.procs").display().to_string();
        stage.bridge.start_by("sh", &["-c".to_owned(), enter, processes]);
    }

    /// How many processes the kernel has ended in it.
    fn killed(&self) -> u64 {
        let said = ["memory.oom_control", "memory.events"]
            .iter()
            .find_map(|file| fs::read_to_string(self.directory.join(file)).ok());
        let said = said.expect("the kernel counts them");
        let count = said.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.parse().ok()).expect("a line oom_kill")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Empty once the bridge has ended, which the stage sees to when it goes.
        let _ = fs::remove_dir(&self.directory);
    }
}
