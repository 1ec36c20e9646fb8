//! An isolated host for commands of documents, which run unchanged: files that they write to `/etc`, `/opt`, `/srv`, `/usr/local`,
//! `/var/lib` and `/run/drivebay` are removed at the end. Processes that they leave end with it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use crate::{Trouble, children::Process, tools, wait};

/// Directories that can be written, each overlaid on this machine's.
const OVER: [&str; 5] = ["etc", "opt", "srv", "usr/local", "var/lib"];
/// Longest time to create the namespaces, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Directory of the repository, in which documents' commands are run.
pub const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// An isolated host. Mounts of this machine propagate to it, and none of its mounts propagates back.
#[derive(Debug)]
pub struct Stage {
    dir: PathBuf,
    first: u32,
    _process: Process,
}

impl Stage {
    /// Creates it, with its files below `dir`.
    ///
    /// # Errors
    /// Its namespaces or its mounts cannot be created.
    pub fn new(dir: &Path) -> Result<Self, Trouble> {
        let dir = dir.join("stage");
        fs::create_dir_all(&dir)?;
        let at = dir.display();
        let over = OVER.join(" ");
        // Processes without a parent are reaped by the first one.
        let script = format!(
            "for name in {over}; do mkdir -p {at}/$name/up {at}/$name/work; \
             mount -t overlay overlay -o lowerdir=/$name,upperdir={at}/$name/up,workdir={at}/$name/work /$name; done; \
             mkdir -p /run/drivebay; mount -t tmpfs tmpfs /run/drivebay; mkdir -p /usr/local/bin; \
             touch {at}/ready; while :; do sleep 1000 & wait $!; done"
        );
        let words = [
            "--fork",
            "--kill-child",
            "--pid",
            "--mount",
            "--mount-proc",
            "--propagation",
            "slave",
            "bash",
            "-euc",
            &script,
        ];
        let log = dir.join("stage.log");
        let mut process = Process::start("unshare", &words, &log)?;
        let is_up = || (dir.join("ready").exists() || process.ended().is_some()).then_some(());
        wait::poll(LIMIT, is_up);
        if !dir.join("ready").exists() {
            let output = fs::read_to_string(&log).unwrap_or_default();
            return Err(Trouble::new(format!("the stage is not up: {output}")));
        }
        let parent = process.pid().to_string();
        let first = tools::run("pgrep", &["--parent", &parent])?;
        let first = first.trim().parse().map_err(|_| {
            Trouble::new(format!("the stage's first process is not found: {first}"))
        })?;
        Ok(Self {
            dir,
            first,
            _process: process,
        })
    }

    /// Installs a program of this machine under this name in /usr/local/bin.
    ///
    /// # Errors
    /// It cannot be installed.
    pub fn program(&self, name: &str, program: &Path) -> Result<(), Trouble> {
        let program = program.canonicalize()?;
        let at = program.display();
        self.run(&format!("install -m 755 '{at}' /usr/local/bin/{name}"))
            .map(drop)
    }

    /// Installs a script in place of a program that is missing, such as systemctl.
    ///
    /// # Errors
    /// It cannot be installed.
    pub fn stand_in(&self, name: &str, script: &str) -> Result<(), Trouble> {
        let file = self.dir.join(name);
        fs::write(&file, format!("#!/bin/sh\nset -eu\n{script}\n"))?;
        let script = format!("install -m 755 '{}' /usr/local/bin/{name}", file.display());
        self.run(&script).map(drop)
    }

    /// Runs a script in the repository, as a user would type it, to its end.
    ///
    /// # Errors
    /// The shell cannot be started.
    pub fn run_unchecked(&self, script: &str) -> Result<Output, Trouble> {
        let target = self.first.to_string();
        let output = Command::new("nsenter")
            .args([
                "--target", &target, "--mount", "--pid", "--", "bash", "-euo", "pipefail", "-c",
            ])
            .arg(format!("cd '{REPOSITORY}'\n{script}"))
            .env(
                "PATH",
                "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .stdin(Stdio::null())
            .output()?;
        Ok(output)
    }

    /// Like [`Stage::run_unchecked`]; returns the output.
    ///
    /// # Errors
    /// It failed; the error has its output.
    pub fn run(&self, script: &str) -> Result<String, Trouble> {
        let output = self.run_unchecked(script)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(Trouble::new(format!(
            "{script}\nended with {}: {}{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        )))
    }
}

/// Returns the commands of a section of the README: its indented lines.
///
/// # Panics
/// There is no such section.
pub fn lines_of(readme: &str, section: &str) -> Vec<String> {
    let start = format!("\n## {section}\n");
    let (_, text) = readme
        .split_once(&start)
        .unwrap_or_else(|| panic!("no section {section}"));
    let text = text.split("\n## ").next().unwrap_or(text);
    let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
    lines.map(str::to_owned).collect()
}
