//! One agent per machine: two would write to the same drives.

use std::{
    io,
    path::{Path, PathBuf},
};

use drivebay_sys::{
    lockfile::{self, Held, Outcome},
    statefile,
};

/// Proof that this is the only agent of the machine. Released with the value, or with the process.
#[derive(Debug)]
pub struct AgentLock {
    _held: Held,
}

/// Acquiring the lock failed.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another agent holds the lock.
    #[error(
        "another drivebay-agent{} runs on this machine and holds {path}; stop it first, or query it with `drivebay-agent drives`",
        pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    Taken {
        path: PathBuf,
        /// Pid of the holder, if known.
        pid: Option<u32>,
    },
    /// The lock file cannot be used.
    #[error(
        "cannot lock {path}; the agent runs as root and needs [agent] runtime-dir to be writable"
    )]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Locks `<runtime_dir>`, which is created (0700) when it is missing, and writes the pid to `agent.lock` in it, if
/// there is room. Must be called before anything else of the agent starts.
pub fn acquire(runtime_dir: &Path) -> Result<AgentLock, LockError> {
    let path = runtime_dir.join("agent.lock");
    let locked =
        statefile::make_dir(runtime_dir).and_then(|()| lockfile::acquire(runtime_dir, &path));
    match locked {
        Ok(Outcome::Held { lock, unwritten }) => {
            if let Some(error) = unwritten {
                tracing::warn!(path = %path.display(), %error, "cannot write the agent's pid; make room in the runtime directory");
            }
            Ok(AgentLock { _held: lock })
        }
        Ok(Outcome::Taken(text)) => Err(LockError::Taken {
            path,
            pid: text.parse().ok(),
        }),
        Err(source) => Err(LockError::Io { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_agent_is_refused_with_the_first_ones_pid()
    -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let runtime = dir.path().join("run/drivebay");
        let first = acquire(&runtime)?;
        let error = acquire(&runtime).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(&format!("(pid {})", std::process::id())),
            "{text}"
        );
        assert!(text.contains("agent.lock"), "{text}");
        drop(first);
        acquire(&runtime)?;
        Ok(())
    }

    #[test]
    fn a_pid_that_cannot_be_written_neither_ends_the_agent_nor_lets_a_second_one_run()
    -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        // A directory in its place cannot be written, also by root.
        std::fs::create_dir(dir.path().join("agent.lock"))?;
        let _first = acquire(dir.path())?;
        let second = acquire(dir.path());
        assert!(
            matches!(second, Err(LockError::Taken { pid: None, .. })),
            "{second:?}"
        );
        Ok(())
    }

    #[test]
    fn a_lock_file_left_by_a_dead_agent_does_not_lock() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("agent.lock"), "4194304999\n")?;
        let _lock = acquire(dir.path())?;
        let text = std::fs::read_to_string(dir.path().join("agent.lock"))?;
        assert_eq!(text.trim(), std::process::id().to_string());
        Ok(())
    }
}
