//! The commands in the documents exist, with the options they have there. Those that install a host are run unchanged by `lab_install`;
//! those that need a cluster are marked there. Files and functions that the documents on the code name exist.
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
use drivebay_proto::condition::{NormalReason, Reason};

const DOCUMENTS: [&str; 8] = [
    "README.md",
    "SECURITY.md",
    "agent/README.md",
    "controller/README.md",
    "deploy/README.md",
    "deploy/alerts/README.md",
    "deploy/chart/README.md",
    "systemd/README.md",
];

/// Directory of the documents by task, relative to the repository; with subdirectories.
const BY_TASK: &str = "deploy/docs";

/// Documents on the code: their paths are relative to the repository.
const ON_THE_CODE: [&str; 4] = [
    "CONTRIBUTING.md",
    "SECURITY.md",
    "agent/decisions.md",
    "controller/decisions.md",
];

const AN_ID: &str = "5b0c3c5e-6f0b-4a6e-9a57-0d5d8f0c8a11@rack1-node7";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn document(name: &str) -> String {
    let path = repository().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the names of all documents for users.
fn documents() -> Vec<String> {
    let mut all: Vec<String> = DOCUMENTS.map(str::to_owned).to_vec();
    let mut folders = vec![PathBuf::from(BY_TASK)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(repository().join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if repository().join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                all.push(path.display().to_string());
            }
        }
    }
    all.sort();
    all
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

/// Returns the lines of code, and the text between backticks.
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

/// Returns the command of a Drivebay program in a piece, without a prefix that runs it elsewhere, comments and optional arguments. None if
/// there is none, or a list of alternatives.
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
    let mut unique = BTreeSet::new();
    for name in documents() {
        for piece in pieces(&document(&name)) {
            let Some(words) = command(&piece) else {
                continue;
            };
            if words.len() == 1 || !unique.insert(words.clone()) {
                continue;
            }
            // The placeholder of a volume id must be a valid id.
            let word = |word: &'_ String| if word == "ID" { AN_ID } else { word }.to_owned();
            let mut words: Vec<String> = words.iter().map(word).collect();
            words.push("--help".to_owned());
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let output = run(&words, Path::new("/"));
            assert!(output.status.success(), "{name}: {piece:?}: {output:?}");
        }
    }
    assert!(
        unique.len() > 30,
        "the documents name more commands: {unique:#?}"
    );
    // Control: a subcommand or an option that does not exist is refused.
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
    let all = pieces(&document("deploy/docs/security.md"));
    let certs: Vec<_> = all
        .iter()
        .filter_map(|piece| command(piece))
        .filter(|words| words[1..].first().is_some_and(|word| word == "certs"))
        .collect();
    assert!(certs.len() >= 2, "{certs:?}");
    for words in &certs {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if words.contains(&"--dir") {
            let output = run(&words, dir.path());
            assert!(output.status.success(), "{words:?}: {output:?}");
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

/// Collects the Markdown files below a directory, without those of builds and of hidden directories.
fn markdown(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_left_out = path
            .file_name()
            .is_none_or(|name| name == "target" || name.as_encoded_bytes().starts_with(b"."));
        if is_left_out {
            continue;
        }
        if path.is_dir() {
            markdown(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            into.push(path);
        }
    }
}

#[test]
fn every_line_of_a_document_is_narrower_than_200_characters() {
    let mut files = Vec::new();
    markdown(&repository(), &mut files);
    assert!(files.len() > 40, "{files:?}");
    let mut wide = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        let lines = text.lines().zip(1..);
        wide.extend(
            lines
                .filter(|(line, _)| line.chars().count() >= 200)
                .map(|(_, number)| format!("{}:{number}", file.display())),
        );
    }
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}

/// A wrapped table is shown as one paragraph.
#[test]
fn every_table_of_a_document_has_a_line_for_each_row() {
    let mut files = Vec::new();
    markdown(&repository(), &mut files);
    let mut joined = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        joined.extend(
            text.lines()
                .zip(1..)
                .filter(|(line, _)| line.contains("|---") && !line.trim_start().starts_with("|---"))
                .map(|(_, number)| format!("{}:{number}", file.display())),
        );
    }
    assert!(joined.is_empty(), "{}", joined.join("\n"));
}

/// Returns the text between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the files and directories of the repository that a text names between backticks.
fn paths(text: &str) -> Vec<&str> {
    let top: BTreeSet<String> = fs::read_dir(repository())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    let is_path = |word: &&str| {
        let (first, rest) = word.split_once('/').unwrap_or((word, ""));
        let is_plain = word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
        is_plain && top.contains(first) && (!rest.is_empty() || first.contains('.'))
    };
    // A command's options are not part of its path.
    let words = quoted(text)
        .into_iter()
        .filter_map(|piece| piece.split(' ').next());
    words.filter(is_path).collect()
}

/// Returns the walks of the section "Six walks": title, and numbered items, each as one line.
fn walks(text: &str) -> Vec<(String, Vec<String>)> {
    let (_, section) = text.split_once("\n## Six walks\n").unwrap();
    let mut walks: Vec<(String, Vec<String>)> = Vec::new();
    for line in section.lines().take_while(|line| !line.starts_with("## ")) {
        if let Some(title) = line.strip_prefix("### ") {
            walks.push((title.to_owned(), Vec::new()));
            continue;
        }
        let Some((_, items)) = walks.last_mut() else {
            continue;
        };
        let number = line.split_once(". ").map(|(number, _)| number);
        if number.is_some_and(|number| number.parse::<u32>().is_ok()) {
            items.push(line.to_owned());
        } else if let Some(more) = line.strip_prefix("   ")
            && let Some(item) = items.last_mut()
        {
            item.push(' ');
            item.push_str(more.trim());
        }
    }
    walks
}

#[test]
fn every_file_that_a_document_on_the_code_names_exists() {
    for name in ON_THE_CODE {
        for path in paths(&document(name)) {
            assert!(repository().join(path).exists(), "{name}: {path}");
        }
    }
    let named =
        paths("see `agent/src/lib.rs`, `hwtests/measure --help`, `a/b`, `Cargo.toml`, `agent`");
    assert_eq!(named, ["agent/src/lib.rs", "hwtests/measure", "Cargo.toml"]);
}

#[test]
fn every_function_that_a_walk_names_is_in_its_file() {
    let walks = walks(&document("CONTRIBUTING.md"));
    assert_eq!(walks.len(), 6, "{walks:#?}");
    // NodePublishVolume and an unplugged drive take five files at most.
    assert!(walks[..2].iter().all(|(_, items)| items.len() <= 5));
    for item in walks.into_iter().flat_map(|(_, items)| items) {
        // Further files in an item are asides; functions belong to the first one.
        let mut words = quoted(&item).into_iter();
        let path = words.next().unwrap_or_default();
        let is_file = path.ends_with(".rs") && repository().join(path).is_file();
        assert!(is_file, "an item begins with its file: {item}");
        let code = document(path);
        let named: Vec<&str> = words
            .filter(|word| word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
            .collect();
        assert!(!named.is_empty(), "what is to be read in it: {item}");
        for word in named {
            let is_type = word.starts_with(|c: char| c.is_ascii_uppercase());
            let is_there = if is_type {
                code.contains(word)
            } else {
                code.contains(&format!("fn {word}("))
                    || code.contains(&format!("fn {word}<"))
                    || code.contains(&format!("pub {word}:"))
            };
            assert!(is_there, "{path} has no {word}");
        }
    }
}

/// Returns the cells of the table whose first column has this name, by row.
fn table(text: &str, first: &str) -> Vec<Vec<String>> {
    let lines = text
        .lines()
        .skip_while(|line| !line.starts_with(&format!("| {first} |")));
    let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        row.split('|')
            .skip(1)
            .map(|cell| cell.trim().to_owned())
            .collect()
    })
    .collect()
}

#[test]
fn every_reason_of_a_volume_condition_is_documented_with_its_status() {
    let documented: Vec<(String, String)> =
        table(&document("deploy/docs/reference/health.md"), "reason")
            .into_iter()
            .map(|row| {
                let status = row[1].split(',').next().unwrap();
                (row[0].clone(), status.to_owned())
            })
            .collect();
    let reasons: Vec<(String, String)> = Reason::ALL
        .iter()
        .map(|reason| (reason.to_string(), reason.status().to_string()))
        .collect();
    assert_eq!(documented, reasons);
    let normal = table(&document("deploy/docs/reference/health.md"), "not abnormal");
    let normal: Vec<&str> = normal.iter().map(|row| row[0].as_str()).collect();
    let reasons: Vec<&str> = NormalReason::ALL.iter().map(|one| one.as_str()).collect();
    assert_eq!(normal, reasons);
}

/// Returns the anchor that GitHub makes of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .collect::<String>();
    kept.trim().replace(' ', "-")
}

/// Returns the targets of links, outside of code.
fn links(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut targets = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced || line.starts_with("    ") {
            continue;
        }
        let plain: Vec<&str> = line.split('`').step_by(2).collect();
        for part in plain.join("``").split("](").skip(1) {
            if let Some((link, _)) = part.split_once(')') {
                targets.push(link.to_owned());
            }
        }
    }
    targets
}

#[test]
fn every_link_of_a_document_leads_to_a_file_and_a_section_that_there_is() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for name in documents() {
        let folder = Path::new(&name).parent().unwrap().to_owned();
        for link in links(&document(&name)) {
            if link.contains("://") {
                continue;
            }
            count += 1;
            let (file, section) = link.split_once('#').unwrap_or((&link, ""));
            let path = match file {
                "" => PathBuf::from(&name),
                file => folder.join(file),
            };
            let there = repository().join(&path);
            if !there.exists() {
                wrong.push(format!("{name}: {link}: no file"));
                continue;
            }
            let text = fs::read_to_string(&there).unwrap_or_default();
            let headings = text.lines().filter(|line| line.starts_with('#'));
            let mut anchors = headings.map(|line| anchor(line.trim_start_matches('#')));
            if !section.is_empty() && !anchors.any(|target| target == section) {
                wrong.push(format!("{name}: {link}: no section"));
            }
        }
    }
    assert!(count > 60, "only {count} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_the_first_page_shows_of_a_dump_is_what_the_program_prints() {
    let page = document("README.md");
    let (_, block) = page
        .split_once("```\n# drivebay-agent smart explain ")
        .unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let (file, shown) = block.split_once('\n').unwrap();
    let output = run(&["drivebay-agent", "smart", "explain", file], &repository());
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut lines = printed.lines();
    for line in shown.lines() {
        assert!(
            lines.any(|printed| printed == line),
            "{line:?} is not there, or not in this order:\n{printed}"
        );
    }
}
