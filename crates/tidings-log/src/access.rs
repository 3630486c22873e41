//! Permissions of the journal directory.
//!
//! A user who can read the directory has every record, and one who can write there decides what the log says.
//! So it is for the user of the process alone. One that somebody else has set up, as a volume of Kubernetes, is
//! taken as it is, and one that everybody may write to is not taken at all.

use std::{
    fs::{self, Metadata, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use super::{OpenError, private};

/// Makes the directory if it is not there, and otherwise sees to who may use it. Answers what is to be
/// said of that, if anything.
pub(super) fn prepare(path: &Path) -> Result<Option<String>, OpenError> {
    let found = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
            return Err(OpenError::Dangling {
                path: path.to_owned(),
                target: fs::read_link(path).unwrap_or_default(),
            });
        }
        Ok(_) | Err(_) => {
            let made = private::directory().create(path);
            made.map_err(|source| OpenError::Create { path: path.to_owned(), source })?;
            return Ok(None);
        }
    };
    let ours = private::is_ours(&found);
    let mode = found.mode() & 0o7777;
    let others = mode & 0o077;
    if others == 0 && ours {
        return Ok(None);
    }
    if is_mount_point(path, &found).map_err(OpenError::access(path))? {
        return Ok(Some(format!(
            "it is a mount point, so its mode {mode:04o} and owner {}:{} stay; what is made in it is \
             for this user alone",
            found.uid(),
            found.gid()
        )));
    }
    if mode & 0o002 != 0 {
        return Err(OpenError::WritableByAll { path: path.to_owned(), mode, ours });
    }
    if !ours {
        return Ok(Some(format!(
            "it belongs to {}:{}, so its mode {mode:04o} stays; what is made in it is for this user \
             alone",
            found.uid(),
            found.gid()
        )));
    }
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(OpenError::access(path))?;
    Ok(Some(format!("its mode was {mode:04o} and is 0700 now: it is for this user alone")))
}

/// Whether something is mounted there: another file system, or a part of the same one.
fn is_mount_point(path: &Path, metadata: &Metadata) -> io::Result<bool> {
    let parent = fs::metadata(path.join(".."))?;
    if metadata.dev() != parent.dev() || metadata.ino() == parent.ino() {
        return Ok(true);
    }
    // Where there is no such file nothing of the kind is known.
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let path = path.canonicalize()?.display().to_string().replace(' ', "\\040");
    Ok(mounts.lines().any(|mount| mount.split(' ').nth(4) == Some(&path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_mode(mode: u32) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
        dir
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_directory_of_ours_is_put_right_and_that_is_said_once() {
        for before in [0o755, 0o750, 0o770, 0o2770] {
            let dir = with_mode(before);
            let said = prepare(dir.path()).unwrap().unwrap();
            assert!(said.contains(&format!("{before:04o}")), "{said}");
            assert_eq!(mode(dir.path()) & 0o777, 0o700);
            assert_eq!(prepare(dir.path()).unwrap(), None);
        }
    }

    #[test]
    fn a_directory_that_everybody_may_write_to_is_refused() {
        for before in [0o777, 0o1777] {
            let dir = with_mode(before);
            let error = prepare(dir.path()).unwrap_err();
            let OpenError::WritableByAll { mode: found, ours, .. } = error else {
                panic!("{error}")
            };
            assert_eq!((found, ours, mode(dir.path())), (before, true, before));
        }
    }

    #[test]
    fn the_directory_of_somebody_else_is_taken_as_it_is() {
        let dir = with_mode(0o2770);
        if std::os::unix::fs::chown(dir.path(), Some(65_532), None).is_err() {
            // Only root may give a directory away.
            return;
        }
        let said = prepare(dir.path()).unwrap().unwrap();
        assert!(said.contains("belongs to 65532"), "{said}");
        assert_eq!(mode(dir.path()), 0o2770);
    }

    /// As an `emptyDir` of Kubernetes is one.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_mount_point_that_everybody_may_write_to_is_taken_as_it_is() {
        let shared = Path::new("/dev/shm");
        if !fs::metadata(shared).is_ok_and(|found| is_mount_point(shared, &found).unwrap()) {
            return;
        }
        let before = mode(shared);
        assert!(before & 0o002 != 0, "it is for everybody: {before:04o}");
        let said = prepare(shared).unwrap().unwrap();
        assert!(
            said.starts_with(&format!("it is a mount point, so its mode {before:04o}")),
            "{said}"
        );
        assert_eq!(mode(shared), before);
    }

    #[test]
    fn a_mount_point_is_known_and_a_directory_is_none() {
        let is_one = |path: &Path| is_mount_point(path, &fs::metadata(path).unwrap()).unwrap();
        assert!(is_one(Path::new("/")));
        #[cfg(target_os = "linux")]
        assert!(is_one(Path::new("/proc")));
        assert!(!is_one(tempfile::tempdir().unwrap().path()));
    }
}
