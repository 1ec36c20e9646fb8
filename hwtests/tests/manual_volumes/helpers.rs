//! Helpers that several of these tests use.

use std::{fs, path::PathBuf};

use drivebay_hwtests::Rig;
use serde_json::Value;

/// Output and exit code of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CommandOutput {
    /// Returns the standard output. Panics unless the exit code is 0.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// Returns the standard error. Panics unless the exit code is `code` and the text has these words.
    pub(crate) fn refused(self, code: i32, words: &[&str]) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "{word:?}: {self:?}");
        }
        self.err
    }
}

/// Runs a command against the agent's socket; arguments are separated by spaces.
pub(crate) fn run(rig: &Rig, line: &str) -> CommandOutput {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = rig.agent.run_command(&words).unwrap();
    CommandOutput {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Creates a directory to mount at.
pub(crate) fn place(rig: &Rig, name: &str) -> PathBuf {
    let path = rig.dir().join("srv").join(name);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Returns `volume list` as JSON.
pub(crate) fn list(rig: &Rig) -> Value {
    serde_json::from_str(&run(rig, "volume list -o json").ok()).unwrap()
}

/// Returns the id of the live volume with this name.
pub(crate) fn id_of(rig: &Rig, name: &str) -> String {
    let list = list(rig);
    let volumes = list["volumes"].as_array().unwrap();
    let live = |one: &&Value| one["name"] == name && one["state"] != "erasing";
    let volume = volumes.iter().find(live);
    let volume = volume.unwrap_or_else(|| panic!("no volume {name}: {list}"));
    volume["id"].as_str().unwrap().to_owned()
}
