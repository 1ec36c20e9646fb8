//! Where the product's programs are, for tests that start them.

use std::{env, io, path::PathBuf};

/// `DRIVEBAY_AGENT`, else `drivebay-agent` in the directory above this test's own executable
/// (`target/debug`). NotFound, and what to do, when there is none.
pub fn agent() -> io::Result<PathBuf> {
    built("drivebay-agent")
}

/// A program of this workspace by its name: as the environment says (`DRIVEBAY_AGENT` for `drivebay-agent`), else
/// beside this executable, else in the directory above it.
///
/// # Errors
/// NotFound, and what to do, when there is none.
pub fn built(name: &str) -> io::Result<PathBuf> {
    let variable = name.to_uppercase().replace('-', "_");
    let places = match env::var_os(&variable) {
        Some(named) => vec![PathBuf::from(named)],
        None => {
            let own = env::current_exe()?;
            let above = own.ancestors().skip(1).take(2);
            above.map(|dir| dir.join(name)).collect()
        }
    };
    let found = places.iter().find(|path| path.is_file());
    found.cloned().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("none of {places:?} is there: run `cargo build --workspace` first, or name the program in {variable}"),
        )
    })
}
