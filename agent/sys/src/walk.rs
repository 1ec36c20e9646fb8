//! Finds the paths of inodes in a mounted filesystem without leaving it: symbolic links are not followed and mounts not crossed, also while
//! users rename files.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::{CString, OsStr},
    io,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::Path,
    time::Instant,
};

use nix::{
    dir::{Dir, Type},
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2},
    sys::stat::fstat,
};

use super::path::Directory;

/// Directories that may be queued for reading.
const WAITING: usize = 100_000;

/// Limits of a walk.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub until: Instant,
    /// Directory entries that are read at most.
    pub entries: usize,
}

/// Result of a walk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// A path from the root for each inode, with a leading slash, and a trailing one for a directory.
    pub paths: BTreeMap<u64, Vec<u8>>,
    /// True if the walk was incomplete.
    pub cut: bool,
}

/// Searches for inodes by the numbers in directory entries, breadth first. Calls `go_on` for every directory, and ends if it returns false.
pub fn find(
    root: &Directory,
    wanted: &BTreeSet<u64>,
    bounds: Bounds,
    mut go_on: impl FnMut() -> bool,
) -> io::Result<Walked> {
    let mut walked = Walked::default();
    if wanted.contains(&fstat(root.as_fd())?.st_ino) {
        walked
            .paths
            .insert(fstat(root.as_fd())?.st_ino, b"/".to_vec());
    }
    let mut waiting: VecDeque<Vec<u8>> = [b".".to_vec()].into();
    let mut count = 0;
    while let Some(directory) = waiting.pop_front() {
        if walked.paths.len() == wanted.len() {
            return Ok(walked);
        }
        if Instant::now() >= bounds.until || !go_on() {
            walked.cut = true;
            return Ok(walked);
        }
        let Some(mut dir) = open(root, &directory)? else {
            // Removed meanwhile, or not readable: paths below it are not found.
            walked.cut = true;
            continue;
        };
        for entry in dir.iter() {
            let Ok(entry) = entry else {
                walked.cut = true;
                break;
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            count += 1;
            if count > bounds.entries
                || (count.is_multiple_of(1024) && Instant::now() >= bounds.until)
            {
                walked.cut = true;
                return Ok(walked);
            }
            let mut path = directory.clone();
            path.push(b'/');
            path.extend_from_slice(name);
            let is_directory = matches!(entry.file_type(), Some(Type::Directory) | None);
            if wanted.contains(&entry.ino()) && !walked.paths.contains_key(&entry.ino()) {
                let mut shown = path.get(1..).unwrap_or_default().to_vec();
                if is_directory {
                    shown.push(b'/');
                }
                walked.paths.insert(entry.ino(), shown);
            }
            if is_directory {
                if waiting.len() >= WAITING {
                    walked.cut = true;
                } else {
                    waiting.push_back(path);
                }
            }
        }
    }
    Ok(walked)
}

/// Opens a directory below the root; None if it is not readable or no directory.
fn open(root: &Directory, path: &[u8]) -> io::Result<Option<Dir>> {
    let how = OpenHow::new()
        .flags(
            OFlag::O_RDONLY
                | OFlag::O_DIRECTORY
                | OFlag::O_CLOEXEC
                | OFlag::O_NOATIME
                | OFlag::O_NONBLOCK,
        )
        .resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_MAGICLINKS
                | ResolveFlag::RESOLVE_NO_XDEV,
        );
    let Ok(path) = CString::new(path) else {
        return Ok(None);
    };
    let path = Path::new(OsStr::from_bytes(path.as_bytes()));
    match openat2(root.as_fd(), path, how) {
        Ok(fd) => Ok(Some(Dir::from_fd(fd)?)),
        Err(nix::errno::Errno::ENOSYS) => Err(io::Error::from(io::ErrorKind::Unsupported)),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt, symlink},
        time::Duration,
    };

    use super::*;

    fn far() -> Bounds {
        Bounds {
            until: Instant::now() + Duration::from_secs(60),
            entries: 1000,
        }
    }

    #[test]
    fn inodes_are_found_below_the_root_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(root.join("a/b/file"), "x").unwrap();
        fs::write(outside.join("secret"), "x").unwrap();
        symlink(&outside, root.join("link")).unwrap();
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let (file, secret) = (
            inode(&root.join("a/b/file")),
            inode(&outside.join("secret")),
        );
        let directory = inode(&root.join("a"));
        let opened = Directory::open(&root).unwrap();
        let wanted = BTreeSet::from([file, secret, directory, inode(&root)]);
        let walked = find(&opened, &wanted, far(), || true).unwrap();
        let expected = [
            (file, b"/a/b/file".to_vec()),
            (directory, b"/a/".to_vec()),
            (inode(&root), b"/".to_vec()),
        ];
        assert_eq!(walked.paths, BTreeMap::from(expected));
        assert!(!walked.cut);
    }

    #[test]
    fn a_walk_ends_at_its_bounds_and_reports_it() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..50 {
            fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        let opened = Directory::open(dir.path()).unwrap();
        let wanted = BTreeSet::from([u64::MAX]);
        let bounds = Bounds {
            entries: 49,
            ..far()
        };
        assert!(find(&opened, &wanted, bounds, || true).unwrap().cut);
        assert!(!find(&opened, &wanted, far(), || true).unwrap().cut);
        assert!(find(&opened, &wanted, far(), || false).unwrap().cut);
        let over = Bounds {
            until: Instant::now(),
            ..far()
        };
        assert!(find(&opened, &wanted, over, || true).unwrap().cut);
    }
}
