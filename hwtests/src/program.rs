//! Paths of the product's programs, for tests that start them.

use std::{env, io, path::PathBuf};

/// Returns `DRIVEBAY_AGENT`, else `drivebay-agent` in this program's directory or its parent. Errs with NotFound and the remedy if there is
/// none.
pub fn agent() -> io::Result<PathBuf> {
    built("DRIVEBAY_AGENT", "drivebay-agent", "drivebay-agent")
}

/// Returns `DRIVEBAY_CONTROLLER`, else `drivebay-controller` in the same directories.
pub fn controller() -> io::Result<PathBuf> {
    let name = "drivebay-controller";
    built("DRIVEBAY_CONTROLLER", name, name)
}

/// Returns `DRIVEBAY_PAGES`, else `drivebay-pages` in the same directories.
pub fn pages() -> io::Result<PathBuf> {
    let name = "drivebay-pages";
    built("DRIVEBAY_PAGES", name, name)
}

/// Returns `DRIVEBAY_FLEET`, else `drivebay-fleet` in the same directories.
pub fn fleet() -> io::Result<PathBuf> {
    built("DRIVEBAY_FLEET", "drivebay-fleet", "drivebay-hwtests")
}

fn built(variable: &str, name: &str, package: &str) -> io::Result<PathBuf> {
    let path = match env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => {
            let own = env::current_exe()?;
            let beside = own.ancestors().skip(1).take(2);
            let mut beside = beside.map(|dir| dir.join(name));
            beside.find(|file| file.is_file()).unwrap_or_default()
        }
    };
    if path.is_file() {
        return Ok(path);
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!(
            "no {name} {}: run `cargo build -p {package}` first, or set {variable}",
            if path.as_os_str().is_empty() {
                "beside this program".to_owned()
            } else {
                format!("at {}", path.display())
            }
        ),
    ))
}
