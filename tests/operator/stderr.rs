//! A standard error that takes nothing: the bridge goes on, and lines that are missing are counted.

use std::{
    fs::{File, read_to_string},
    io::{BufRead as _, BufReader, ErrorKind, PipeReader, PipeWriter, Write as _},
    path::Path,
    process::Stdio,
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags, mkfifoat, open},
    io::ioctl_fionbio,
};
use tidings::demo::api_server::ApiServer;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use crate::{
    commands,
    process::configured,
    support::{create, server, until},
};

/// A pipe that has no room left, whose reader does not read.
fn full_pipe(nonblocking: bool) -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    ioctl_fionbio(&writer, true).unwrap();
    for piece in [4096, 1] {
        let full = loop {
            if let Err(full) = writer.write(&vec![b'\n'; piece]) {
                break full;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
    }
    ioctl_fionbio(&writer, nonblocking).unwrap();
    (reader, writer)
}

/// Starts the program with this stderr; its stdout is the file `out`.
fn run(server: &ApiServer, dir: &Path, stderr: impl Into<Stdio>) -> Child {
    configured(server, dir);
    let mut run = commands::command(&dir.join("tidings.yaml"), &["run"]);
    run.stdout(File::create(dir.join("out")).unwrap()).stderr(stderr).spawn().unwrap()
}

async fn send(child: &Child, signal: &str) {
    let id = child.id().expect("a program that runs").to_string();
    let sent = Command::new("kill").args(["-s", signal, &id]).status().await.unwrap();
    assert!(sent.success());
}

async fn ends_within_10_s(child: &mut Child) -> Option<i32> {
    let ended = timeout(Duration::from_secs(10), child.wait()).await;
    ended.expect("an end within 10 s").unwrap().code()
}

/// Waits until an event is delivered.
async fn delivered(server: &ApiServer, dir: &Path, pod: &str) {
    create(server, pod);
    until(pod, || read_to_string(dir.join("out")).unwrap().contains(pod)).await;
}

async fn delivers_and_ends(stderr: impl Into<Stdio>) {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let mut child = run(&server, dir.path(), stderr);
    delivered(&server, dir.path(), "web-0").await;
    for _ in 0..3 {
        // A warning each, of the task that listens to signals.
        send(&child, "USR1").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    delivered(&server, dir.path(), "web-1").await;
    send(&child, "TERM").await;
    assert_eq!(ends_within_10_s(&mut child).await, Some(0));
}

fn no_room() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stderr_that_cannot_be_written_hinders_nothing() {
    delivers_and_ends(no_room()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stderr_whose_reader_is_gone_hinders_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    delivers_and_ends(writer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stderr_that_nobody_reads_hinders_nothing() {
    for nonblocking in [false, true] {
        let (_reader, writer) = full_pipe(nonblocking);
        delivers_and_ends(writer).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_ends_with_its_code_on_any_stderr() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    // It is the address of somebody else.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = ("TIDINGS_SERVER__LISTEN", taken.local_addr().unwrap().to_string());
    let wrong = ("TIDINGS_SERVER__LISTEN", "nowhere".to_owned());
    configured(&server, dir.path());
    let (_reader, full) = full_pipe(false);
    for ((variable, value), stderr, code) in [
        (&listen, Stdio::from(no_room()), 1),
        (&listen, Stdio::from(full), 1),
        (&wrong, Stdio::from(no_room()), 2),
    ] {
        let mut run = commands::command(&dir.path().join("tidings.yaml"), &["run"]);
        let run = run.env(variable, value).stdout(Stdio::null()).stderr(stderr);
        let ended = ends_within_10_s(&mut run.spawn().unwrap()).await;
        assert_eq!(ended, Some(code), "{value}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_stderr_did_not_take_are_counted_once_it_does() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let fifo = dir.path().join("fifo");
    mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
    let reader = || open(&fifo, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
    let gone = reader();
    let writer = File::options().write(true).open(&fifo).unwrap();
    drop(gone);
    let mut child = run(&server, dir.path(), writer);
    delivered(&server, dir.path(), "web-0").await;
    let back = reader();
    ioctl_fionbio(&back, false).unwrap();
    send(&child, "TERM").await;
    assert_eq!(ends_within_10_s(&mut child).await, Some(0));
    let log: Vec<_> = BufReader::new(File::from(back)).lines().map(Result::unwrap).collect();
    let told = log.iter().find(|line| line.contains("lines of this log are missing"));
    let told = told.unwrap_or_else(|| panic!("{log:#?}"));
    let (_, count) = told.rsplit_once("lines=").unwrap();
    assert!(count.parse::<u64>().unwrap() > 1, "{told}");
    assert!(log.iter().any(|line| line.contains("stopped")), "{log:#?}");
}
