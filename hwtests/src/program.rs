//! Where the agent's program is, for tests that start it or its workers.

use std::{env, io, path::PathBuf};

/// `DRIVEBAY_AGENT`, else `drivebay-agent` in the directory above this test's own executable
/// (`target/debug`). NotFound, and what to do, when there is none.
pub fn agent() -> io::Result<PathBuf> {
    let path = match env::var_os("DRIVEBAY_AGENT") {
        Some(path) => PathBuf::from(path),
        None => {
            let own = env::current_exe()?;
            let dir = own.parent().and_then(|deps| deps.parent());
            dir.map(|dir| dir.join("drivebay-agent"))
                .unwrap_or_default()
        }
    };
    if path.is_file() {
        return Ok(path);
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!(
            "no agent at {}: run `cargo build -p drivebay-agent` first, or set DRIVEBAY_AGENT",
            path.display()
        ),
    ))
}
