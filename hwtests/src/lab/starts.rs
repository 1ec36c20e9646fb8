//! Counts the `lvm` commands that the agent of a guest runs, by tracing it and its descendants with strace.
//! [`Starts`](crate::starts::Starts) does the same on this machine.

use std::{collections::BTreeMap, path::Path, time::Duration};

use super::{Guest, guest::Lines};

/// Longest time of attaching, which takes a second or two in an emulated machine.
const LIMIT: Duration = Duration::from_secs(60);
const RECORD: &str = "/run/starts.strace";
/// File with strace's process id.
const TRACER: &str = "/run/starts.pid";

/// Count of the `lvm` commands that a process of a guest and its descendants run, from `watch` until `finish`.
#[derive(Debug)]
pub struct LvmStarts {
    guest: Guest,
    // Held as long as the count.
    _lines: Lines,
}

impl LvmStarts {
    /// Starts counting commands of a process and all its present and future descendants.
    ///
    /// # Panics
    /// When strace does not attach.
    pub fn watch(guest: &Guest, pid: u32) -> Self {
        let script = format!(
            "rm -f {RECORD}; below() {{ for c in $(cat /proc/$1/task/*/children); do echo $c; below $c; done; }}; \
             pids=$(echo {pid}; below {pid}); echo tracing $(echo $pids | wc -w); echo $$ >{TRACER}; \
             exec strace -f -e trace=execve,execveat -e signal=none -o {RECORD} $(printf -- ' -p %s' $pids)"
        );
        let lines = guest.stream(&script).unwrap();
        let first = lines.wait_for("tracing ", LIMIT);
        let mut open: u32 = first.trim_start_matches("tracing ").parse().unwrap_or(1);
        while open > 0 {
            let line = lines.next(LIMIT).expect("strace attaches");
            // A worker that ended in between cannot start anything any more.
            if line.contains(" attached") || line.contains("No such process") {
                open -= 1;
            }
        }
        Self {
            guest: guest.clone(),
            _lines: lines,
        }
    }

    /// Returns the `lvm` commands started so far, in order, e.g. `["lvcreate"]`.
    ///
    /// # Panics
    /// When the record cannot be read.
    pub fn so_far(&self) -> Vec<String> {
        let record = self.guest.read(Path::new(RECORD));
        commands(&String::from_utf8_lossy(&record))
    }

    /// Ends the count; returns all commands.
    ///
    /// # Panics
    /// When strace does not end.
    pub fn finish(self) -> Vec<String> {
        self.guest.run(&format!(
            "kill -INT $(cat {TRACER}); while kill -0 $(cat {TRACER}) 2>/dev/null; do sleep 0.1; done"
        ));
        self.so_far()
    }
}

/// Returns the subcommands of the `lvm` programs started in a strace record.
fn commands(record: &str) -> Vec<String> {
    // Lines of other processes may come between a call and its result.
    let mut open: BTreeMap<&str, Option<String>> = BTreeMap::new();
    let mut subcommands = Vec::new();
    for line in record.lines() {
        let (pid, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim_start();
        if rest.starts_with("execve") {
            open.insert(pid, command(rest));
        } else if !rest.starts_with("<... execve") {
            continue;
        }
        if rest.contains("<unfinished ...>") {
            continue;
        }
        let started = open.remove(pid).flatten();
        if rest.ends_with("= 0") {
            subcommands.extend(started);
        }
    }
    // Unfinished calls count too, so that the count is not too small.
    subcommands.extend(open.into_values().flatten());
    subcommands
}

/// Returns "lvcreate" for `execve("/sbin/lvm", ["lvm", "lvcreate", ...`.
fn command(call: &str) -> Option<String> {
    let mut words = call.split('"').skip(1).step_by(2);
    words.next()?.ends_with("/lvm").then_some(())?;
    words.next()?;
    Some(words.next().unwrap_or("lvm").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_started_is_counted_once_and_what_was_only_tried_is_not() {
        let record = r#"71 execve("/usr/local/sbin/lvm", ["lvm", "lvcreate", "--yes"], 0x7 /* 9 vars */) = -1 ENOENT (No such file or directory)
71 execve("/usr/sbin/lvm", ["lvm", "lvcreate", "--yes"], 0x7 /* 9 vars */) = 0
72 execve("/usr/sbin/mkfs.ext4", ["mkfs.ext4"], 0x7 /* 9 vars */) = 0
73 execve("/usr/sbin/lvm", ["lvm", "lvchange", "--addtag"], 0x7 <unfinished ...>
71 +++ exited with 0 +++
73 <... execve resumed>) = 0
74 execve("/usr/sbin/lvm", ["lvm", "lvremove"], 0x7 <unfinished ...>
"#;
        assert_eq!(commands(record), ["lvcreate", "lvchange", "lvremove"]);
    }
}
