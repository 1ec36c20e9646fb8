//! Names of processes that hold a directory or a device, read from /proc only, which accesses no drive.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use super::mountinfo;

/// Processes that are checked at most.
const MOST_PROCESSES: usize = 20_000;
/// Processes that are returned at most.
const MOST_NAMED: usize = 3;

/// Returns up to three processes with a working directory, a root or an open file below a path.
pub fn of_path(path: &Path) -> Vec<String> {
    let below = |link: &Path| fs::read_link(link).is_ok_and(|to| to.starts_with(path));
    let holds =
        |of: &Path| below(&of.join("cwd")) || below(&of.join("root")) || has_open(of, below);
    processes()
        .filter(|pid| holds(&dir(*pid)))
        .take(MOST_NAMED)
        .map(name)
        .collect()
}

/// Returns up to three holders of the device of this kernel name and number: processes that have it open, and processes in whose mount
/// namespace (other than the caller's) a filesystem of it is mounted.
pub fn of_device(kernel_name: &str, dev: Option<(u32, u32)>) -> Vec<String> {
    let node = Path::new("/dev").join(kernel_name);
    let is_node = |link: &Path| fs::read_link(link).is_ok_and(|to| to == node);
    let namespace = |pid: u32| fs::read_link(dir(pid).join("ns/mnt")).ok();
    let own = std::process::id();
    let mut namespaces: HashSet<Option<PathBuf>> = [namespace(own), None].into();
    let mounts_it = |pid: u32| {
        let table = fs::read(dir(pid).join("mountinfo")).unwrap_or_default();
        let entries = mountinfo::parse(&table).unwrap_or_default();
        entries
            .iter()
            .any(|entry| Some(entry.dev) == dev || entry.source == node)
    };
    processes()
        .filter(|pid| *pid != own)
        .filter_map(|pid| {
            if has_open(&dir(pid), is_node) {
                Some(name(pid))
            } else if namespaces.insert(namespace(pid)) && mounts_it(pid) {
                Some(format!(
                    "{}, which has it mounted in a mount namespace of its own",
                    name(pid)
                ))
            } else {
                None
            }
        })
        .take(MOST_NAMED)
        .collect()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.take(MOST_PROCESSES)
}

fn dir(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

fn has_open(process: &Path, is_it: impl Fn(&Path) -> bool) -> bool {
    let mut open = fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    open.any(|fd| is_it(&fd.path()))
}

fn name(pid: u32) -> String {
    let name = fs::read_to_string(dir(pid).join("comm")).unwrap_or_default();
    format!("{} (pid {pid})", name.trim())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_that_has_a_device_open_is_named() {
        let mut cat = Command::new("sleep")
            .arg("30")
            .stdin(fs::File::open("/dev/zero").unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let named = of_device("zero", None);
        cat.kill().unwrap();
        cat.wait().unwrap();
        let expected = format!("sleep (pid {})", cat.id());
        assert!(named.contains(&expected), "{named:?}");
        assert!(!of_device("zero", None).contains(&expected));
    }
}
