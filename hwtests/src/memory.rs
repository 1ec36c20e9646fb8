//! Memory of an agent and its descendants, as counted by the kernel.

use std::{fs, io, ops::AddAssign, path::Path};

use crate::agent::descendants;

/// Memory of one process, or the sum of several, in KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Number of processes in the sum; 1 for the result of `of`.
    pub processes: u64,
    /// Proportional set size: private pages, and the share of shared pages.
    pub pss: u64,
    /// Private pages, clean and dirty.
    pub private: u64,
}

impl AddAssign for Memory {
    fn add_assign(&mut self, other: Self) {
        self.processes += other.processes;
        self.pss += other.pss;
        self.private += other.private;
    }
}

impl Memory {
    /// Reads the memory of one process.
    ///
    /// # Errors
    /// It has ended, or may not be read.
    pub fn of(pid: u32) -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string(format!(
            "/proc/{pid}/smaps_rollup"
        ))?))
    }

    fn parse(rollup: &str) -> Self {
        let field = |name: &str| -> u64 {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            number.unwrap_or(0)
        };
        Self {
            processes: 1,
            pss: field("Pss:"),
            private: field("Private_Clean:") + field("Private_Dirty:"),
        }
    }
}

/// Memory of an agent, its workers, and the tools that these run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tree {
    /// Memory of the agent's own process; zero if it could not be read.
    pub agent: Memory,
    /// The process that workers are forked from, if there is one.
    pub server: Memory,
    /// Workers of the agent.
    pub workers: Memory,
    /// Other programs below it.
    pub tools: Memory,
}

impl Tree {
    /// Reads the memory of a running agent and its descendants. Processes that end meanwhile do not count.
    pub fn of(agent: u32) -> Self {
        let exe = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
        let program = exe(agent);
        let mut tree = Self {
            agent: Memory::of(agent).unwrap_or_default(),
            ..Self::default()
        };
        for pid in descendants(agent) {
            let Ok(memory) = Memory::of(pid) else {
                continue;
            };
            if is_server(pid) {
                tree.server += memory;
            } else if exe(pid) == program {
                tree.workers += memory;
            } else {
                tree.tools += memory;
            }
        }
        tree
    }

    /// Returns the sum over the agent, the server, the workers and the tools.
    pub fn all(&self) -> Memory {
        let mut all = self.agent;
        for part in [self.server, self.workers, self.tools] {
            all += part;
        }
        all
    }
}

/// True if a process is the one that workers are forked from.
pub fn is_server(pid: u32) -> bool {
    let line = fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline"));
    line.is_ok_and(|line| line.split(|byte| *byte == 0).nth(1) == Some(b"worker-server"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_summary_is_read() {
        let rollup = "\
55d0-7ffc ---p 00000000 00:00 0                          [rollup]
Rss:                3924 kB
Pss:                1311 kB
Pss_Dirty:           300 kB
Shared_Clean:       3500 kB
Private_Clean:        24 kB
Private_Dirty:       276 kB
";
        let memory = Memory::parse(rollup);
        assert_eq!((memory.pss, memory.private), (1311, 300));
        assert!(Memory::of(std::process::id()).unwrap().pss > 0);
    }
}
