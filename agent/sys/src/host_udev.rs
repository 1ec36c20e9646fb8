//! State of the host's udev: whether udevd runs, and the rule that makes it ignore volumes.
//!
//! The host's root is that of pid 1 (`/proc/1/root`), also from a pod with the host's PID namespace. Paths are resolved within it: a
//! symbolic link of the host is never followed into the agent's own root.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2},
    sys::stat::Mode,
};

/// Text of the rule that this version installs.
pub const RULE: &str = include_str!("../../../systemd/09-drivebay.rules");
/// File name of the rule.
pub const RULE_FILE: &str = "09-drivebay.rules";
/// udevd's rule directories, in its order: of two files of one name it uses the first.
const DIRECTORIES: [&str; 5] = [
    "etc/udev/rules.d",
    "run/udev/rules.d",
    "usr/local/lib/udev/rules.d",
    "usr/lib/udev/rules.d",
    "lib/udev/rules.d",
];
/// Control socket of udevd, relative to the host's root.
const CONTROL: &str = "run/udev/control";
/// Bytes of a rule file that are read at most.
const MOST: u64 = 1 << 20;

/// State of the host's udev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostUdev {
    /// True if udevd's control socket exists, which is taken to mean that udevd runs.
    pub runs: bool,
    /// Text of the rule file that udevd uses; None if there is none.
    pub rule: Option<String>,
}

/// Reads the state below the host's root.
///
/// # Errors
/// A file exists and cannot be read: the state is unknown then.
pub fn read(root: &Path) -> io::Result<HostUdev> {
    let root = open(root, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty())?;
    let runs = within(&root, CONTROL, OFlag::O_PATH)?.is_some();
    for directory in DIRECTORIES {
        let path = format!("{directory}/{RULE_FILE}");
        // Anything but a file is a device at most (/dev/null, by which an administrator masks a rule): opening it must not block.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
        if let Some(file) = within(&root, &path, flags)? {
            let mut text = String::new();
            File::from(file).take(MOST).read_to_string(&mut text)?;
            let rule = Some(text);
            return Ok(HostUdev { runs, rule });
        }
    }
    Ok(HostUdev { runs, rule: None })
}

/// Opens a path of the host; None if it does not exist.
fn within(root: &OwnedFd, path: &str, flags: OFlag) -> io::Result<Option<OwnedFd>> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    match openat2(root.as_fd(), path, how) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn the_first_file_of_the_name_is_read_and_links_stay_within_the_hosts_root() {
        let host = tempfile::tempdir().unwrap();
        let root = host.path();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let expected = |runs, rule: Option<&str>| HostUdev {
            runs,
            rule: rule.map(str::to_owned),
        };
        assert_eq!(read(root).unwrap(), expected(false, None));
        put("run/udev/control", "");
        assert_eq!(read(root).unwrap(), expected(true, None));
        put("usr/lib/udev/rules.d/09-drivebay.rules", "packaged");
        assert_eq!(read(root).unwrap(), expected(true, Some("packaged")));
        // A host with symbolic links in /etc.
        put("store/rules/09-drivebay.rules", "linked");
        fs::create_dir_all(root.join("etc/udev")).unwrap();
        symlink("/store/rules", root.join("etc/udev/rules.d")).unwrap();
        assert_eq!(read(root).unwrap(), expected(true, Some("linked")));
        // A masked rule.
        put("store/rules/09-drivebay.rules", "");
        assert_eq!(read(root).unwrap(), expected(true, Some("")));
        // An unreadable file is an error.
        fs::remove_file(root.join("store/rules/09-drivebay.rules")).unwrap();
        symlink(
            "09-drivebay.rules",
            root.join("store/rules/09-drivebay.rules"),
        )
        .unwrap();
        assert!(read(root).is_err());
        assert!(read(&root.join("away")).is_err());
    }
}
