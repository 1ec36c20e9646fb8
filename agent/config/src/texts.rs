//! Checks of names and paths. Pure.
//!
//! A refused value is used all the same, so that the checks that depend on it still run.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

use drivebay_common::local::MAX_SOCKET_PATH;

use super::report::{At, Given, Problem, Report, value};

/// The CSI specification's limit for a driver name.
pub(super) const MAX_DRIVER_NAME: usize = 63;

/// True if CSI allows it as a driver name.
pub(super) fn is_driver_name(name: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_lowercase);
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let part = |part: &str| !part.is_empty() && part.trim_matches('-') == part;
    name.len() <= MAX_DRIVER_NAME
        && edge(name.as_bytes().first())
        && edge(name.as_bytes().last())
        && name
            .split('.')
            .all(|it| part(it) && it.bytes().all(allowed))
}

/// Reads an absolute path without `..`, and reports any other one.
pub(super) fn path(given: &Given<String>, default: PathBuf, report: &mut Report) -> PathBuf {
    let at = given.as_ref();
    let absolute = |text: &str| text.starts_with('/');
    let plain = |text: &str| {
        let mut parts = Path::new(text).components();
        !parts.any(|part| part == Component::ParentDir) && !text.chars().any(char::is_control)
    };
    report.require(at, absolute, "must be an absolute path");
    let text = report.require(
        at,
        |text| !absolute(text) || plain(text),
        "must not hold '..' or control characters",
    );
    text.map_or(default, PathBuf::from)
}

/// Reads the path of a unix socket.
pub(super) fn socket(
    given: &Given<String>,
    key: &str,
    default: PathBuf,
    report: &mut Report,
) -> PathBuf {
    if let Some(at) = given
        && let Some(rest) = value(given).and_then(|text| text.strip_prefix("unix://"))
    {
        report.error(
            at,
            format!("write the path alone, without unix://: {rest:?}"),
        );
        return rest.into();
    }
    let path = path(given, default, report);
    if is_too_long(&path) {
        let message = format!(
            "{} has {} bytes; the kernel takes at most {MAX_SOCKET_PATH} for a socket",
            path.display(),
            path.as_os_str().len()
        );
        report
            .problems
            .push(Problem::new(given.as_ref().map(|at| at.line), key, message));
    }
    path
}

/// True if the path is too long for a unix socket.
pub(super) fn is_too_long(path: &Path) -> bool {
    path.as_os_str().len() > MAX_SOCKET_PATH
}

/// Reports names that occur more than once: `message` gets the name and the line of its first occurrence.
pub(super) fn unique<'a>(
    names: impl Iterator<Item = &'a At<String>>,
    message: impl Fn(&str, usize) -> String,
    report: &mut Report,
) {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    for at in names {
        let Some(name) = at.value.as_deref() else {
            continue;
        };
        match first.get(name) {
            Some(line) => report.error(at, message(name, *line)),
            None => _ = first.insert(name, at.line),
        }
    }
}
