//! Small files of the agent itself, on the system's drive: read whole and bounded, written so that a
//! crash leaves the old or the new text and never a mixture.

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The bytes of a file of at most `max` bytes.
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = fs::File::open(path)?;
    let mut bytes = Vec::new();
    // One more than allowed, to tell "just fits" from "cut off".
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("more than {max} bytes"),
        ));
    }
    Ok(bytes)
}

/// The text of a file of at most `max` bytes.
pub fn read_text(path: &Path, max: u64) -> io::Result<String> {
    String::from_utf8(read(path, max)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Replaces a file's contents durably: temporary file, fsync, rename, fsync of the directory.
/// Mode 0600. The directory is made (0700) when it is missing.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "a path with a directory is needed",
            )
        })?;
    make_dir(dir)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = dir.join(name);
    let written = (|| {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        // The old text is still whole; the half-written one is of no use to anybody.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    fs::File::open(dir)?.sync_all()
}

/// Renames a file that cannot be used to `<name>.bad-<n>`, where nothing overwrites it, and says where it is.
pub fn move_aside(path: &Path) -> io::Result<PathBuf> {
    for n in 1..1000_u32 {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".bad-{n}"));
        let aside = PathBuf::from(name);
        if aside.symlink_metadata().is_err() {
            fs::rename(path, &aside)?;
            return Ok(aside);
        }
    }
    Err(io::Error::other(
        "there are 999 damaged files beside it already",
    ))
}

/// Makes a directory and its parents, 0700, unless it is there.
pub fn make_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// Makes a directory of our own that nobody had before, 0700, under the system's temporary directory.
pub fn make_private_dir(prefix: &str) -> io::Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("{prefix}{}", uuid::Uuid::new_v4().simple()));
    fs::DirBuilder::new().mode(0o700).create(&path)?;
    Ok(path)
}

/// Removes a directory made by `make_private_dir`, with what is in it.
pub fn remove_private_dir(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path)
}

/// Whether there is a directory.
pub fn is_dir(path: &Path) -> bool {
    path.is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_text_and_no_litter() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("sub/known.json");
        write_atomic(&path, b"one")?;
        write_atomic(&path, b"two")?;
        assert_eq!(read(&path, 3)?, b"two");
        // A directory in the temporary file's place makes the next write fail.
        fs::create_dir(dir.path().join("sub/known.json.new"))?;
        assert!(write_atomic(&path, b"three").is_err());
        assert_eq!(read(&path, 3)?, b"two");
        Ok(())
    }

    #[test]
    fn a_file_too_large_is_refused_not_cut() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("f");
        write_atomic(&path, b"1234")?;
        assert_eq!(read(&path, 4)?.len(), 4);
        assert_eq!(
            read(&path, 3).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        Ok(())
    }

    #[test]
    fn damaged_files_are_kept_apart() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("f");
        for n in 1..=2 {
            write_atomic(&path, b"x")?;
            assert_eq!(move_aside(&path)?, dir.path().join(format!("f.bad-{n}")));
        }
        Ok(())
    }
}
