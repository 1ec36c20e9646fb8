//! Limit of open files of this process: each agent's session needs one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The kernel refused to raise the limit.
#[derive(Debug, thiserror::Error)]
#[error("cannot raise the soft limit of open files to the hard one (ulimit -n, LimitNOFILE=)")]
pub struct LimitError(#[from] nix::Error);

/// Raises the soft limit of open files to the hard limit, and returns that. The default soft limit is 1024, for programs that use
/// select(2), which is too low for a controller with 1024 agents.
///
/// # Errors
/// [`LimitError`]; the limit is as it was.
pub fn raise_open_files() -> Result<u64, LimitError> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_the_hard_one_afterwards() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard - 1, hard).unwrap();
        assert_eq!(raise_open_files().unwrap(), hard);
        let limits = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(limits, (hard, hard));
    }
}
