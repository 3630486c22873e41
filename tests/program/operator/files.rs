//! Who may use the files of a journal.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Stdio,
};

use tidings_testkit::api_server::{ApiServer, EventObject};
use tokio::process::{Child, Command};

use super::{
    process::configured,
    support::{server, until},
};

/// Starts `tidings run` under a umask.
fn run_under(umask: &str, dir: &Path) -> Child {
    let log = fs::File::create(dir.join("log")).unwrap();
    let mut run = Command::new("sh");
    run.args(["-c", r#"umask "$0" && exec "$@""#, umask, env!("CARGO_BIN_EXE_tidings")]);
    run.args(["run", "--config"]).arg(dir.join("tidings.yaml"));
    run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
    run.spawn().unwrap()
}

fn log(dir: &Path) -> String {
    fs::read_to_string(dir.join("log")).unwrap()
}

/// Everything below a directory, and itself.
fn all_of(path: &Path, into: &mut Vec<PathBuf>) {
    into.push(path.to_owned());
    for entry in fs::read_dir(path).into_iter().flatten().map(Result::unwrap) {
        all_of(&entry.path(), into);
    }
}

/// Runs a bridge until its files are there, and ends it; while it runs and afterwards it looks at
/// what others may do with each file of its journal.
async fn runs_for_itself_alone(umask: &str, server: &ApiServer, dir: &Path) {
    let journal = dir.join("journal");
    let mut child = run_under(umask, dir);
    server.create(EventObject::about_pod("shop", "web-0", "Started", "")).unwrap();
    let expected = ["admin.sock", "lock", "state.redb", "delivered/out"];
    let has_all = || {
        let mut files = Vec::new();
        all_of(&journal, &mut files);
        has_a_segment(&files) && expected.iter().all(|name| journal.join(name).exists())
    };
    until("its files are there", || {
        assert!(child.try_wait().unwrap().is_none(), "{}", log(dir));
        has_all()
    })
    .await;
    are_for_us_alone(&journal, umask);
    let asked = Command::new("kill").arg(child.id().unwrap().to_string()).status().await.unwrap();
    assert!(asked.success() && child.wait().await.unwrap().success(), "{}", log(dir));
    assert!(journal.join("positions.json").exists());
    are_for_us_alone(&journal, umask);
}

fn has_a_segment(files: &[PathBuf]) -> bool {
    files.iter().any(|path| path.extension().is_some_and(|e| e == "log"))
}

fn are_for_us_alone(journal: &Path, umask: &str) {
    let mut files = Vec::new();
    all_of(journal, &mut files);
    assert!(has_a_segment(&files), "{files:?}");
    for path in files {
        // What was there for a moment is gone.
        let Ok(found) = path.symlink_metadata() else { continue };
        let mode = found.mode() & 0o777;
        let expected = if found.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{} under {umask}: {mode:o}", path.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_is_for_its_user_alone_whatever_the_umask_and_is_put_right_at_the_start() {
    for umask in ["000", "022"] {
        let (server, dir) = (server(), tempfile::tempdir().unwrap());
        configured(&server, dir.path());
        runs_for_itself_alone(umask, &server, dir.path()).await;
        // As an earlier version left it, with something that it had set aside.
        let journal = dir.path().join("journal");
        fs::write(journal.join("positions.json"), "no positions").unwrap();
        runs_for_itself_alone(umask, &server, dir.path()).await;
        let mut files = Vec::new();
        all_of(&journal, &mut files);
        assert!(files.iter().any(|path| path.to_string_lossy().contains("/damaged-")), "{files:?}");
        for path in files {
            let mode = if path.is_dir() { 0o755 } else { 0o644 };
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
        runs_for_itself_alone(umask, &server, dir.path()).await;
        assert!(
            log(dir.path()).contains("its mode was 0755 and is 0700 now"),
            "{}",
            log(dir.path())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_everybody_may_write_to_is_refused() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    configured(&server, dir.path());
    let journal = dir.path().join("journal");
    fs::create_dir(&journal).unwrap();
    fs::set_permissions(&journal, Permissions::from_mode(0o777)).unwrap();
    let ended = run_under("022", dir.path()).wait().await.unwrap();
    assert_eq!(ended.code(), Some(1));
    let mends = format!("hint: chmod 0700 '{}'", journal.display());
    assert!(log(dir.path()).contains(&mends), "{}", log(dir.path()));
    assert_eq!(fs::read_dir(&journal).unwrap().count(), 0);
}
