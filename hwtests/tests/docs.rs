//! The commands in the documents are commands that there are, with options that they have. Those that install a host
//! are run as they stand by `lab_install`; those that need a cluster are marked there.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use drivebay_hwtests::program;

const DOCUMENTS: [&str; 6] = [
    "README.md",
    "agent/README.md",
    "controller/README.md",
    "deploy/README.md",
    "deploy/alerts/README.md",
    "systemd/README.md",
];

const AN_ID: &str = "5b0c3c5e-6f0b-4a6e-9a57-0d5d8f0c8a11@rack1-node7";

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn binary(name: &str) -> Option<PathBuf> {
    match name {
        "drivebay-agent" => Some(program::agent().unwrap()),
        "drivebay-controller" => Some(program::controller().unwrap()),
        _ => None,
    }
}

fn run(words: &[&str], dir: &Path) -> Output {
    let program = binary(words[0]).unwrap();
    let mut command = Command::new(program);
    command.args(&words[1..]).current_dir(dir).output().unwrap()
}

/// Lines of code, and what stands between backticks.
fn pieces(text: &str) -> Vec<String> {
    let mut fenced = false;
    let (mut code, mut prose) = (Vec::new(), String::new());
    for line in text.replace("\\\n", " ").lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            code.push(line.trim().to_owned());
        } else {
            prose.push_str(line);
            prose.push(' ');
        }
    }
    code.extend(prose.split('`').skip(1).step_by(2).map(str::to_owned));
    code
}

/// A command of ours in a piece, without what runs it elsewhere, remarks, and what is optional. None: none, or a list of
/// several.
fn command(piece: &str) -> Option<Vec<String>> {
    let piece = piece.rsplit(" -- ").next()?;
    let piece = piece.split(" #").next()?.split("  ").next()?;
    let mut words: Vec<String> = piece.split_whitespace().map(str::to_owned).collect();
    binary(words.first()?)?;
    if let Some(optional) = words.iter().position(|word| word.starts_with('[')) {
        words.truncate(optional);
    }
    (!words.iter().any(|word| word == "|")).then_some(words)
}

#[test]
fn every_command_that_a_document_names_is_one_with_these_options() {
    let mut seen = BTreeSet::new();
    for name in DOCUMENTS {
        for piece in pieces(&document(name)) {
            let Some(words) = command(&piece) else {
                continue;
            };
            if words.len() == 1 || !seen.insert(words.clone()) {
                continue;
            }
            // What stands for a volume id must be one.
            let word = |word: &'_ String| if word == "ID" { AN_ID } else { word }.to_owned();
            let mut words: Vec<String> = words.iter().map(word).collect();
            words.push("--help".to_owned());
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let said = run(&words, Path::new("/"));
            assert!(said.status.success(), "{name}: {piece:?}: {said:?}");
        }
    }
    assert!(
        seen.len() > 30,
        "the documents name more commands: {seen:#?}"
    );
    // What the test is about: a subcommand or an option that is not there is refused.
    for wrong in [
        ["drivebay-agent", "no-such", "--help"],
        ["drivebay-agent", "drives", "--no-such"],
    ] {
        assert!(!run(&wrong, Path::new("/")).status.success(), "{wrong:?}");
    }
}

#[test]
fn the_commands_that_make_certificates_make_them() {
    let dir = tempfile::tempdir().unwrap();
    let all = pieces(&document("deploy/README.md"));
    let certs: Vec<_> = all
        .iter()
        .filter_map(|piece| command(piece))
        .filter(|words| words[1..].first().is_some_and(|word| word == "certs"))
        .collect();
    assert!(certs.len() >= 2, "{certs:?}");
    for words in &certs {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if words.contains(&"--dir") {
            let said = run(&words, dir.path());
            assert!(said.status.success(), "{words:?}: {said:?}");
        }
    }
    for file in ["ca.pem", "controller.pem", "controller-key.pem"] {
        assert!(dir.path().join("certs").join(file).exists(), "{file}");
    }
    for file in ["ca.pem", "node.pem", "node-key.pem"] {
        let node = dir.path().join("certs/nodes/rack1-node7");
        assert!(node.join(file).exists(), "{file}");
    }
}
