//! How many files this process may have open: each agent's session is one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The kernel does not let the limit be raised.
#[derive(Debug, thiserror::Error)]
#[error("cannot raise the soft limit of open files to the hard one (ulimit -n, LimitNOFILE=)")]
pub struct LimitError(#[from] nix::Error);

/// Raises the soft limit of open files to the hard one, which it answers with. The soft one is 1024 by custom, for
/// programs that call select(2); with 1024 agents nothing else could be opened.
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
