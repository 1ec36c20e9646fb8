//! Runs test programs of this workspace inside a guest, on loop shelves or on the guest's drives.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use super::{
    Guest, agent,
    guest::quote,
    image::{in_guest, target_dir},
    progress::print_progress,
};
use crate::Trouble;

/// Longest time without a line of output.
const SILENCE_LIMIT: Duration = Duration::from_secs(900);
const END_LIMIT: Duration = Duration::from_secs(60);

/// Result of a test program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Passed tests, including skipped ones.
    pub passed: u32,
    /// Number of failed tests, from the test runner's result line; 0 before it.
    pub failed: u32,
    /// Number of ignored tests, from the test runner's result line; 0 before it.
    pub ignored: u32,
    /// Skips, with their reasons.
    pub skipped: Vec<String>,
    /// All lines of standard output and standard error so far, in the order in which they were received.
    pub output: String,
}

impl Guest {
    /// Returns a script that runs a program of the target directory in the guest, with the agent that is installed there.
    ///
    /// # Errors
    /// One of the two is not built, or the agent cannot be copied.
    pub fn script(
        &self,
        program: &Path,
        words: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<String, Trouble> {
        agent::install(self)?;
        let mut script = format!("cd /; exec env DRIVEBAY_AGENT={}", agent::PROGRAM);
        for (key, value) in variables {
            script.push_str(&format!(" {key}={}", quote(value)));
        }
        script.push_str(&format!(" {}", quoted(&in_guest(program)?)));
        for word in words {
            script.push_str(&format!(" {}", quote(word)));
        }
        Ok(script)
    }

    /// Runs a test program (e.g. "one_node") in the guest, one test at a time, with these arguments of the test runner (filters, options)
    /// and environment variables. Shows its lines as they come.
    ///
    /// # Errors
    /// It is not built, exceeds a time limit, or ends without a result.
    pub fn run_test_binary(
        &self,
        name: &str,
        words: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Tally, Trouble> {
        self.run_test_program(name, &built(name)?, words, variables)
    }

    /// Like [`Guest::run_test_binary`], with the path of the test program on this machine.
    ///
    /// # Errors
    /// It exceeds a time limit, or ends without a result.
    pub fn run_test_program(
        &self,
        name: &str,
        program: &Path,
        words: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Tally, Trouble> {
        let sanity = target_dir()?.join("tools/csi-sanity");
        let mut all = variables.to_vec();
        let there = in_guest(&sanity).map(|path| path.display().to_string());
        if let Ok(there) = &there {
            all.push(("CSI_SANITY", there));
        }
        let words = [&["--test-threads=1"], words].concat();
        let script = self.script(program, &words, &all)?;
        print_progress(format!("running {name} in the guest"));
        let mut lines = self.stream(&script)?;
        let mut tally = Tally::default();
        let mut ended = false;
        while let Some(line) = lines.next(SILENCE_LIMIT) {
            let _ = writeln!(std::io::stderr(), "  | {line}");
            ended |= tally.read(&line);
        }
        let code = lines.code(END_LIMIT).map_err(|_| {
            Trouble::new(format!(
                "{name} hangs in the guest: no line for {} s after\n{}",
                SILENCE_LIMIT.as_secs(),
                tally.output
            ))
        })?;
        if !ended || (code != 0) != (tally.failed > 0) {
            return Err(Trouble::new(format!(
                "{name} ended with {code} in the guest, and not with a result:\n{}",
                tally.output
            )));
        }
        Ok(tally)
    }
}

impl Tally {
    /// Returns the number of tests that passed and were not skipped.
    pub fn ran(&self) -> u32 {
        self.passed.saturating_sub(self.skipped.len() as u32)
    }

    /// Adds a line; returns true if it was the result.
    fn read(&mut self, line: &str) -> bool {
        self.output.push_str(line);
        self.output.push('\n');
        if let Some(at) = line.find("SKIPPED ") {
            self.skipped.push(line[at..].to_owned());
        }
        let Some(result) = line.strip_prefix("test result: ") else {
            return false;
        };
        let count = |what: &str| {
            result
                .split([';', '.'])
                .find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
                .unwrap_or(0)
        };
        self.passed = count("passed");
        self.failed = count("failed");
        self.ignored = count("ignored");
        true
    }
}

fn quoted(path: &Path) -> String {
    quote(&path.display().to_string())
}

/// Returns the path of a test program: from the cargo messages in DRIVEBAY_LAB_PROGRAMS, else by running cargo.
fn built(name: &str) -> Result<PathBuf, Trouble> {
    let messages = match env::var_os("DRIVEBAY_LAB_PROGRAMS") {
        Some(file) => fs::read_to_string(file)?,
        None => {
            let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
                .args(["test", "--locked", "--no-run", "--message-format=json"])
                .args(["--workspace", "--test", name])
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .stdin(Stdio::null())
                .stderr(Stdio::inherit())
                .output()?;
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
    };
    programs(&messages, "test")
        .find_map(|(found, path)| (found == name).then_some(path))
        .ok_or_else(|| Trouble::new(format!("cargo builds no test program {name}")))
}

/// Returns the unit tests of all crates: the names of the crates, and their test programs, from the cargo messages in
/// DRIVEBAY_LAB_PROGRAMS.
///
/// # Errors
/// The variable is not set, or its file cannot be read.
pub fn unit_tests() -> Result<Vec<(String, PathBuf)>, Trouble> {
    let file = env::var_os("DRIVEBAY_LAB_PROGRAMS")
        .ok_or_else(|| Trouble::new("DRIVEBAY_LAB_PROGRAMS is not set: run hwtests/lab test"))?;
    Ok(programs(&fs::read_to_string(file)?, "lib").collect())
}

/// Returns the test programs of targets of a kind ("lib", "test") from cargo's messages.
fn programs(messages: &str, kind: &str) -> impl Iterator<Item = (String, PathBuf)> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(move |message| {
            message["target"]["kind"][0] == kind && message["profile"]["test"] == true
        })
        .filter_map(|message| {
            let name = message["target"]["name"].as_str()?.to_owned();
            Some((name, PathBuf::from(message["executable"].as_str()?)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_and_its_skips_are_read_from_what_the_test_runner_prints() {
        let mut tally = Tally::default();
        assert!(!tally.read("test a ... SKIPPED a: this kernel cannot mount xfs"));
        assert!(tally.read(
            "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 7 filtered out; finished in 1.50s"
        ));
        assert_eq!((tally.passed, tally.failed, tally.ignored), (12, 3, 1));
        assert_eq!(tally.skipped, ["SKIPPED a: this kernel cannot mount xfs"]);
    }
}
