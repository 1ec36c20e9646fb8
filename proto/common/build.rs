//! Version for `--version`: the workspace's version, and the commit in a release build.

use std::{env, process::Command};

/// If set, the commit (for builds without git, as in a container); if set and empty, none.
const GIVEN: &str = "DRIVEBAY_COMMIT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={GIVEN}");
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    // Not from git in a debug build: every crate depends on this one, and each commit would rebuild all of them.
    let commit = env::var(GIVEN)
        .ok()
        .or_else(|| is_release.then(from_git).flatten());
    let version = env!("CARGO_PKG_VERSION");
    let text = match commit.filter(|commit| !commit.is_empty()) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    };
    println!("cargo::rustc-env=DRIVEBAY_VERSION={text}");
}

/// Returns the commit of this checkout; None without git, or if these sources are part of another repository.
fn from_git() -> Option<String> {
    let output = git(&["rev-parse", "--show-prefix", "--short=12", "HEAD"])?;
    let (prefix, commit) = output.split_once('\n')?;
    if prefix != "proto/common/" {
        return None;
    }
    // This file changes with each commit and checkout. A path that does not exist would rerun this in every build.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if std::path::Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    Some(commit.to_owned())
}

#[allow(clippy::disallowed_methods, reason = "a build script is no agent")]
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let stdout = String::from_utf8(output.stdout).ok()?;
    output
        .status
        .success()
        .then(|| stdout.trim_end().to_owned())
}
