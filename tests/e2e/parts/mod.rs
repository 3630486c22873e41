//! The real parts, each a process of its own with its state in a temporary folder.
//!
//! A part is started on free loopback ports and keeps them, with its data, over [`Part::restart`],
//! so that what is connected to it sees an outage and no new address. Dropping a part kills it.
//!
//! A failure here is a failure of the machine or of the test, never of what is tested, so these
//! functions panic instead of returning errors.

mod apiserver;
mod collector;
mod controllers;
mod etcd;
mod kafka;
mod process;
mod siem;
mod webhooks;

use std::env;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

pub(crate) use apiserver::{ApiServer, ApiServerOptions, token_of};
pub(crate) use collector::{Collector, otlp_items};
pub(crate) use controllers::Component;
pub(crate) use etcd::Etcd;
pub(crate) use kafka::{ACCOUNT, Kafka, delete_topic, make_topic};
pub(crate) use process::{Part, Process, Scratch, run};
pub(crate) use siem::Siem;
pub(crate) use webhooks::{Signed, WebhookLibrary};

/// The parts and versions that `tests/parts/install` installs.
const VERSIONS: &str = include_str!("../../parts/versions");

/// A command of kubectl that talks to the server of `kubeconfig`.
pub(crate) fn kubectl(kubeconfig: &Path) -> Command {
    // The same choice as the install script's: the machine's own, if there is one.
    let path = env::var_os("PATH").unwrap_or_default();
    let program = env::split_paths(&path)
        .map(|folder| folder.join("kubectl"))
        .find(|file| file.is_file())
        .unwrap_or_else(|| installed("kubectl", "bin/kubectl"));
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(kubeconfig);
    command
}

/// The version of a part.
pub(crate) fn version(part: &str) -> &'static str {
    VERSIONS
        .lines()
        .find_map(|line| line.strip_prefix(part)?.strip_prefix(' '))
        .unwrap_or_else(|| panic!("tests/parts/versions has no line for {part}"))
}

/// `file` of the installed part `part`.
fn installed(part: &str, file: &str) -> PathBuf {
    let version = version(part);
    let path = parts_folder().join(format!("{part}-{version}")).join(file);
    assert!(
        path.exists(),
        "{part} {version} is not installed: there is no {}\n  \
         hint: run `make e2e`, which installs the parts",
        path.display(),
    );
    path
}

/// The folder that `tests/parts/install --where` prints.
fn parts_folder() -> PathBuf {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("TIDINGS_PARTS").unwrap_or_else(|| {
        variable("XDG_CACHE_HOME")
            .or_else(|| Some(variable("HOME")?.join(".cache")))
            .expect("one of TIDINGS_PARTS, XDG_CACHE_HOME and HOME is set")
            .join("tidings/parts")
    })
}

/// A loopback port on which nothing listens, and which no other call in this process returns.
///
/// Ports that the system hands out itself (32768 and up) are avoided: while a part is down, one of
/// them could become the local end of some outgoing connection, and the part could not come back.
pub(crate) fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    // A random start keeps two test runs on one machine apart.
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(fastrand::u16(..COUNT)));
    loop {
        let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// The HTTP client that asks parts whether they are ready.
pub(crate) fn http_client() -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        // The API server makes its own certificate as it starts. Clients that are given its
        // kubeconfig verify it; this one only asks for its health.
        .danger_accept_invalid_certs(true)
        .timeout(Duration::from_secs(2))
        .build()
        .expect("an HTTP client")
}
