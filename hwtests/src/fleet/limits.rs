//! As many open files as this process may have: each session is one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::Trouble;

/// Raises the limit to the highest allowed one, which it answers with.
///
/// # Errors
/// The kernel refuses.
pub fn raise_open_files() -> Result<u64, Trouble> {
    let failed = |errno: nix::Error| Trouble::doing("raising the limit of open files", &errno);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(failed)?;
    }
    Ok(hard)
}
