//! A file system of our own that can be filled or turned read-only: a tmpfs in a mount namespace of its own, so that
//! nothing of it is left behind however a drill ends, and no other program sees it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tempfile::TempDir;

use crate::bridge::Bridge;

/// How to get a mount namespace, and how to enter it: as root, and as anybody where the kernel
/// permits it.
const WAYS: [(&[&str], &[&str]); 2] = [
    (&["--mount"], &["--mount"]),
    (&["--mount", "--map-root-user"], &["--mount", "--user", "--preserve-credentials"]),
];
/// The room that the bridge frees is taken at once, as by the program that filled the disk.
const FILLS_EVERY: Duration = Duration::from_millis(50);

/// See the [module](self).
pub(crate) struct SmallDisk {
    /// Keeps the namespace until its standard input ends.
    keeper: Child,
    enter: &'static [&'static str],
    /// Where it is mounted, within the namespace.
    folder: TempDir,
}

impl SmallDisk {
    /// Mounts one of so many bytes, as `mount` writes them; or says why it cannot.
    pub(crate) fn mount(size: &str) -> Result<Self, String> {
        let mut why = String::new();
        for (leave, enter) in WAYS {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let script = r#"mount -t tmpfs -o "size=$0" tidings-drill "$1" && echo mounted && cat"#;
            let mut keeper = Command::new("unshare")
                .args(leave)
                .args(["sh", "-c", script, size])
                .arg(folder.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .map_err(|error| format!("unshare: {error}"))?;
            let mut said = String::new();
            let output = keeper.stdout.take().expect("it is piped");
            BufReader::new(output).read_line(&mut said).expect("a pipe can be read");
            if said.trim() == "mounted" {
                return Ok(Self { keeper, enter, folder });
            }
            let output = keeper.wait_with_output().expect("it has ended");
            String::from_utf8_lossy(&output.stderr).trim().clone_into(&mut why);
        }
        Err(format!("a file system of our own cannot be mounted here: {why}"))
    }

    /// Has a bridge run where the disk is seen.
    pub(crate) fn carries(&self, bridge: &mut Bridge) {
        let target = self.keeper.id().to_string();
        let own = ["--target", &target].into_iter().chain(self.enter.iter().copied()).chain(["--"]);
        bridge.start_by("nsenter", &own.map(str::to_owned).collect::<Vec<_>>());
    }

    /// A folder on it, as a bridge on it sees it.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    /// Has the kernel refuse whatever is opened for writing in the folder from now on, as on a file
    /// system that is read-only (`EROFS`). A bridge keeps files open, so the real one could only be
    /// turned by an error; what is open already goes on being written.
    pub(crate) fn turn_read_only(&self) {
        // Beside it first: a mount that somebody has a file open for writing in would not be turned.
        self.run(
            r#"mkdir -p "$0.beside" && mount --bind "$0" "$0.beside" &&
            mount -o remount,bind,ro "$0.beside" && mount --move "$0.beside" "$0""#,
        );
    }

    /// Ends that.
    pub(crate) fn turn_writable(&self) {
        // Not unmounted: what reads the journal has files open there.
        self.run(r#"mount -o remount,bind,rw "$0""#);
    }

    /// Runs a script in the namespace, on the folder.
    fn run(&self, script: &str) {
        let target = self.keeper.id().to_string();
        let ran = Command::new("nsenter")
            .args(["--target", &target])
            .args(self.enter)
            .args(["--", "sh", "-c", script])
            .arg(self.folder())
            .output()
            .expect("nsenter runs");
        assert!(ran.status.success(), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
    }

    /// Fills it, and keeps it full until the answer is dropped.
    pub(crate) fn fill(&self) -> Full {
        // The namespace's view, as the kernel lends it to others.
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        let inside = self.folder.path().strip_prefix("/").expect("an absolute path");
        let file = root.join(inside).join("filler");
        let freed = Arc::<AtomicBool>::default();
        let filling = thread::spawn({
            let (file, freed) = (file.clone(), Arc::clone(&freed));
            move || {
                let mut filler = File::create(&file).expect("a file on the small disk");
                while !freed.load(Ordering::Relaxed) {
                    while filler.write(&[0; 4096]).is_ok() {}
                    thread::sleep(FILLS_EVERY);
                }
            }
        });
        Full { file, freed, filling: Some(filling) }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// A disk that is full. Dropping this frees it.
pub(crate) struct Full {
    file: PathBuf,
    freed: Arc<AtomicBool>,
    filling: Option<JoinHandle<()>>,
}

impl Drop for Full {
    fn drop(&mut self) {
        self.freed.store(true, Ordering::Relaxed);
        let filled = self.filling.take().map(JoinHandle::join);
        remove(&self.file);
        assert!(filled.is_none_or(|filled| filled.is_ok()) || thread::panicking());
    }
}

fn remove(file: &Path) {
    // Gone with its disk is as good.
    let _ = fs::remove_file(file);
}
