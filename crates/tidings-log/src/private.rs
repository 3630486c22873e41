//! Files and directories that are for the user of the process alone, whatever the umask.

use std::{
    fs::{DirBuilder, File, Metadata, OpenOptions, Permissions},
    io,
    os::unix::fs::{
        DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    },
    path::Path,
};

/// To open a file that is made so if it is made.
pub fn file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// To make a directory, and those above it that are not there.
pub fn directory() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
}

/// Reads a whole file. Something else under its name is invalid data: to open a FIFO would be to wait
/// for a writer.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no file"));
    }
    std::fs::read(path)
}

/// Whether an open file is the one of this name.
pub fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use io::ErrorKind::{NotADirectory, NotFound};
    let named = match std::fs::metadata(path) {
        Ok(named) => named,
        Err(e) if matches!(e.kind(), NotFound | NotADirectory) => return Ok(false),
        Err(e) => return Err(e),
    };
    let open = file.metadata()?;
    Ok((named.dev(), named.ino()) == (open.dev(), open.ino()))
}

/// Whether the user of the process is the owner.
pub(crate) fn is_ours(metadata: &Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw()
}

/// Takes from others what they may do with a file or a directory, and with all that is in it. What is
/// not ours is left as it is, and a link is not followed.
pub(crate) fn put_right(path: &Path) -> io::Result<()> {
    let metadata = match path.symlink_metadata() {
        Ok(metadata) if is_ours(&metadata) && !metadata.is_symlink() => metadata,
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(_) | Err(_) => return Ok(()),
    };
    if metadata.mode() & 0o077 != 0 {
        let mode = if metadata.is_dir() { 0o700 } else { 0o600 };
        std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    if metadata.is_dir() {
        for entry in path.read_dir()? {
            put_right(&entry?.path())?;
        }
    }
    Ok(())
}
