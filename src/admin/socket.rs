//! The Unix socket in the journal's directory.
//!
//! Whoever may connect to it may read every dead letter and have events sent, so from the first
//! moment it is for the user of the process alone: it is bound inside a directory of mode 0700, gets
//! mode 0600 there, and only then its name. That the caller holds the journal's lock proves that
//! whatever has the name already was left by a process that is gone.

use std::{
    fs::{DirBuilder, File, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use tokio::net::{UnixListener, UnixStream};

/// Its name in the directory of the journal.
pub(crate) const NAME: &str = "admin.sock";
/// Where it is made.
const MADE_IN: &str = "admin.sock.tmp";
/// The longest path that the address of a socket can hold (`sun_path`, less its end) on Linux;
/// elsewhere it is 103.
const LONGEST: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// A socket that has its name; dropping it takes the name away.
#[derive(Debug)]
pub(super) struct Bound {
    path: PathBuf,
}

impl Drop for Bound {
    fn drop(&mut self) {
        // What cannot be removed is replaced by the next start.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Makes the socket of a directory whose lock the caller holds.
pub(super) fn bind(directory: &Path) -> io::Result<(UnixListener, Bound)> {
    let (made_in, path) = (directory.join(MADE_IN), directory.join(NAME));
    let made = made_in.join(NAME);
    // What a killed run left half made.
    let _ = std::fs::remove_file(&made);
    let _ = std::fs::remove_dir(&made_in);
    DirBuilder::new().mode(0o700).create(&made_in)?;
    let bound = Address::of(&made_in)
        .and_then(|address| UnixListener::bind(&address.path))
        .and_then(|listener| {
            std::fs::set_permissions(&made, Permissions::from_mode(0o600))?;
            std::fs::rename(&made, &path)?;
            Ok((listener, Bound { path }))
        });
    let _ = std::fs::remove_file(&made);
    let _ = std::fs::remove_dir(&made_in);
    bound
}

pub(crate) async fn connect(directory: &Path) -> io::Result<UnixStream> {
    let address = Address::of(directory)?;
    UnixStream::connect(&address.path).await
}

/// The path of the socket in a directory, in a form that is short enough for an address.
struct Address {
    path: PathBuf,
    /// Open for as long as the path is used, which names it.
    _directory: Option<File>,
}

impl Address {
    fn of(directory: &Path) -> io::Result<Self> {
        let path = directory.join(NAME);
        if path.as_os_str().as_bytes().len() <= LONGEST {
            return Ok(Self { path, _directory: None });
        }
        if !cfg!(target_os = "linux") {
            let what =
                format!("{} is longer than the {LONGEST} bytes of an address", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let directory = File::open(directory)?;
        let number = std::os::fd::AsRawFd::as_raw_fd(&directory);
        let path = Path::new("/proc/self/fd").join(number.to_string()).join(NAME);
        Ok(Self { path, _directory: Some(directory) })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[tokio::test]
    async fn socket_is_for_the_user_alone_and_goes_with_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let (listener, bound) = bind(dir.path()).unwrap();
        let mode = std::fs::metadata(dir.path().join(NAME)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{mode:o}");
        assert_eq!(names(dir.path()), [NAME]);
        let (accepted, connected) = tokio::join!(listener.accept(), connect(dir.path()));
        accepted.unwrap();
        connected.unwrap();
        drop(bound);
        assert!(names(dir.path()).is_empty());
    }

    #[tokio::test]
    async fn a_socket_that_a_killed_run_left_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (listener, bound) = bind(dir.path()).unwrap();
        std::mem::forget(bound);
        drop(listener);
        assert_eq!(connect(dir.path()).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        // And one that was killed while it made it.
        std::fs::create_dir(dir.path().join(MADE_IN)).unwrap();
        std::fs::write(dir.path().join(MADE_IN).join(NAME), "").unwrap();
        let (listener, _bound) = bind(dir.path()).unwrap();
        let (accepted, connected) = tokio::join!(listener.accept(), connect(dir.path()));
        accepted.unwrap();
        connected.unwrap();
        assert_eq!(names(dir.path()), [NAME]);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_path_that_is_longer_than_an_address_is_no_hindrance() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        let (listener, bound) = bind(&deep).unwrap();
        let (accepted, connected) = tokio::join!(listener.accept(), connect(&deep));
        accepted.unwrap();
        connected.unwrap();
        drop(bound);
        assert!(names(&deep).is_empty());
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_written_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let error = bind(&dir.path().join("none")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(
            connect(&dir.path().join("none")).await.unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
