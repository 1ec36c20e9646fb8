//! Texts follow the rules of the language: log messages are constant texts that alerts can match; neither they nor comments nor
//! documents have private idioms.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests fail loudly"
)]

use clap::CommandFactory;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Files whose messages are constants of a table, or lines of a worker that are passed on.
const PASSED_ON: [&str; 3] = [
    "health/src/changes.rs",
    "worker/src/handle.rs",
    "worker/src/drill.rs",
];

/// Idioms that a user cannot search for.
const PRIVATE: [&str; 26] = [
    "looked at",
    "look at",
    "looking at",
    "told",
    "tells",
    "said",
    "speaks",
    "anew",
    "is back",
    "away",
    "given up",
    "let in",
    "listened to",
    "heard",
    "stranger",
    "door",
    "burial",
    "remembered",
    "what is known",
    "tried again",
    "somebody",
    "nobody",
    "wanted",
    "badly",
    "whose it is",
    "for ever",
];

/// Adds the Rust sources below a directory, without tests in directories of their own.
fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    files(dir, "rs", "tests", into);
}

/// Adds the files with this extension below a directory, except those in directories named `without`.
fn files(dir: &Path, extension: &str, without: &str, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with(without) {
                files(&path, extension, without, into);
            }
        } else if path.extension().is_some_and(|of| of == extension) {
            into.push(path);
        }
    }
}

/// Returns the text of a line of a Rust source if it is a comment, else an empty one.
fn comment(line: &str) -> &str {
    let Some(text) = line.trim_start().strip_prefix("//") else {
        return "";
    };
    let text = text.strip_prefix(['/', '!']).unwrap_or(text);
    text.strip_prefix(' ').unwrap_or(text)
}

/// Returns the paragraphs, list items and table rows of Markdown in lower case, each with the number of its first line. Code is left out:
/// fenced, indented after an empty line, or inline.
fn paragraphs<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<(usize, String)> {
    let mut result: Vec<(usize, String)> = Vec::new();
    let (mut is_fenced, mut has_ended) = (false, true);
    for (index, line) in lines.enumerate() {
        let text = line.trim();
        let is_fence = text.starts_with("```");
        is_fenced ^= is_fence;
        let is_indented = has_ended && line.starts_with("    ");
        if is_fence || is_fenced || is_indented || text.is_empty() {
            has_ended = true;
            continue;
        }
        match result.last_mut() {
            Some((_, paragraph)) if !has_ended && !text.starts_with(['|', '-']) => {
                paragraph.push(' ');
                paragraph.push_str(text);
            }
            _ => result.push((index + 1, text.to_owned())),
        }
        has_ended = false;
    }
    for (_, paragraph) in &mut result {
        let prose: Vec<&str> = paragraph.split('`').step_by(2).collect();
        *paragraph = prose.join(" ").to_lowercase();
    }
    result
}

/// Asserts that the paragraphs that `read` finds in these files, more than `least` in all, have no private idioms.
fn assert_no_private_idioms(
    root: &Path,
    files: &[PathBuf],
    least: usize,
    read: impl Fn(&str) -> Vec<(usize, String)>,
) {
    let (mut count, mut wrong) = (0, Vec::new());
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        let name = file.strip_prefix(root).unwrap().display();
        for (line, paragraph) in read(&text) {
            count += 1;
            let words = private_words(&paragraph).into_iter();
            wrong.extend(words.map(|word| format!("{name}:{line}: \"{word}\" in: {paragraph}")));
        }
    }
    assert!(count > least, "only {count} paragraphs were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the arguments of each call of a logging macro, with the macro's line number.
fn calls(text: &str) -> Vec<(usize, &str)> {
    let mut result = Vec::new();
    for level in ["error!(", "warn!(", "info!(", "debug!(", "trace!("] {
        let macro_name = format!("tracing::{level}");
        for (at, _) in text.match_indices(&macro_name) {
            let body = &text[at + macro_name.len()..];
            let (mut depth, mut quoted, mut escaped) = (1, false, false);
            let end = body.find(|c| {
                match c {
                    _ if escaped => escaped = false,
                    '\\' if quoted => escaped = true,
                    '"' => quoted = !quoted,
                    '(' if !quoted => depth += 1,
                    ')' if !quoted => depth -= 1,
                    _ => {}
                }
                depth == 0
            });
            result.push((text[..at].matches('\n').count() + 1, &body[..end.unwrap()]));
        }
    }
    result
}

/// Returns the last string of a call, which is its message.
fn message(call: &str) -> Option<&str> {
    let call = call.trim_end().trim_end_matches(',').strip_suffix('"')?;
    Some(&call[call.rfind('"')? + 1..])
}

/// Each HELP text states the measured value in a sentence, and its unit where the name alone does not.
#[test]
fn metric_help_texts_are_in_plain_words_and_name_their_unit() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for metrics in [
        "agent/src/metrics",
        "controller/src/metrics",
        "proto/common/src/metrics",
    ] {
        sources(&root.join(metrics), &mut files);
    }
    let (mut count, mut wrong) = (0, Vec::new());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for pair in lines.windows(2) {
            let literal = |line: &str| {
                let line = line.trim_end_matches(',');
                Some(line.strip_prefix('"')?.strip_suffix('"')?.to_owned())
            };
            let name = literal(pair[0]).filter(|name| {
                name.starts_with("drivebay_")
                    && !name.contains(|c: char| !c.is_alphanumeric() && c != '_')
            });
            let (Some(name), Some(help)) = (name, literal(pair[1])) else {
                continue;
            };
            count += 1;
            let mut problem = |what: &str| wrong.push(format!("{name}: {what}: {help}"));
            if !help.ends_with('.')
                || !help.starts_with(char::is_uppercase) && !help.starts_with('1')
            {
                problem("no sentence");
            }
            for word in private_words(&help) {
                problem(word);
            }
            let lower = help.to_lowercase();
            // The first match.
            let units = [
                ("_timestamp_seconds", "unix time"),
                ("_seconds", "second"),
                ("_bytes", "byte"),
                ("_celsius", "celsius"),
                ("_ratio", "ratio"),
            ];
            let unit = units.iter().find(|(part, _)| name.contains(part));
            if unit.is_some_and(|(_, word)| !lower.contains(word)) {
                problem("its unit is missing");
            }
        }
    }
    assert!(count > 50, "only {count} texts were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the private idioms in a text.
fn private_words(text: &str) -> Vec<&'static str> {
    let letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
    PRIVATE
        .into_iter()
        .filter(|word| {
            text.match_indices(word).any(|(at, word)| {
                !letter(text[..at].chars().next_back())
                    && !letter(text[at + word.len()..].chars().next())
            })
        })
        .collect()
}

#[test]
fn log_messages_are_constant_and_in_plain_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for crate_dir in ["agent", "controller", "proto"] {
        sources(&root.join(crate_dir), &mut files);
    }
    let (mut count, mut wrong) = (0, Vec::new());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let is_passed_on = PASSED_ON.iter().any(|place| file.ends_with(place));
        for (line, call) in calls(&text) {
            let place = format!("{}:{line}", file.strip_prefix(root).unwrap().display());
            let Some(message) = message(call) else {
                if !is_passed_on {
                    wrong.push(format!("{place}: no message at its end: {call}"));
                }
                continue;
            };
            count += 1;
            if message.contains('{') && !is_passed_on {
                wrong.push(format!("{place}: a variable part: {message}"));
            }
            let words = private_words(message).into_iter();
            wrong.extend(words.map(|word| format!("{place}: \"{word}\" in: {message}")));
        }
    }
    assert!(count > 150, "only {count} messages were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn comments_have_no_private_idioms() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut all = Vec::new();
    for dir in ["agent", "controller", "proto", "deploy/pages", "hwtests"] {
        files(&root.join(dir), "rs", "target", &mut all);
    }
    // The list of the idioms is here.
    all.retain(|file| !file.ends_with("hwtests/tests/language.rs"));
    assert_no_private_idioms(root, &all, 10_000, |text| {
        paragraphs(text.lines().map(comment))
    });
}

/// Names that say nothing of a value.
const EMPTY_NAMES: [&str; 3] = ["told", "said", "asked"];

/// Returns the `EMPTY_NAMES` that a line of code binds or declares, as a variable, field, parameter or function.
fn empty_names(line: &str) -> Vec<&'static str> {
    let code = line.split("//").next().unwrap_or_default();
    // Every second part is a string literal, or, in a literal of several lines, a part of it.
    let code: String = code.split('"').step_by(2).collect::<Vec<_>>().join("\"\"");
    let word = |at: Option<char>| at.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut all = EMPTY_NAMES.to_vec();
    all.retain(|name| {
        code.match_indices(name).any(|(at, name)| {
            !word(code[..at].chars().next_back()) && !word(code[at + name.len()..].chars().next())
        })
    });
    all
}

#[test]
fn names_say_what_a_value_holds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut all = Vec::new();
    for dir in ["agent", "controller", "proto", "deploy/pages", "hwtests"] {
        files(&root.join(dir), "rs", "target", &mut all);
    }
    // The list of the names is here.
    all.retain(|file| !file.ends_with("hwtests/tests/language.rs"));
    let (mut count, mut wrong) = (0, Vec::new());
    for file in all {
        let name = file.strip_prefix(root).unwrap().display();
        for (index, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            count += 1;
            let names = empty_names(line).into_iter();
            wrong.extend(names.map(|word| format!("{name}:{}: {word} in: {line}", index + 1)));
        }
    }
    assert!(count > 100_000, "only {count} lines were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(empty_names("    let said = \"told\"; // asked"), ["said"]);
}

#[test]
fn documents_have_no_private_idioms() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    // Without README.md: it introduces the project to readers who do not know the terms of the field yet.
    let mut all = ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
        .map(|name| root.join(name))
        .to_vec();
    for dir in [
        "agent",
        "controller",
        "proto",
        "deploy",
        "hwtests",
        "systemd",
    ] {
        files(&root.join(dir), "md", "target", &mut all);
    }
    // A row of the results stays as it was written at its measurement.
    all.retain(|file| !file.ends_with("hwtests/results.md"));
    assert_no_private_idioms(root, &all, 1_000, |text| paragraphs(text.lines()));
}

#[test]
fn idioms_are_found_in_prose_over_two_lines_and_not_in_code() {
    let source = "\
//! Nobody
let told = 1;
    /// It is looked
    /// at with `told`, and `what is
    /// known` is kept.
    ///
    ///     told
    ///
    /// ```
    /// told
    /// ```
    // - A door
    // - Doors\n";
    let idioms: Vec<(usize, Vec<&str>)> = paragraphs(source.lines().map(comment))
        .into_iter()
        .map(|(line, paragraph)| (line, private_words(&paragraph)))
        .collect();
    let expected: [(usize, Vec<&str>); 4] = [
        (1, vec!["nobody"]),
        (3, vec!["looked at"]),
        (12, vec!["door"]),
        (13, vec![]),
    ];
    assert_eq!(idioms, expected);
}

#[test]
fn help_has_the_terms_of_the_field() {
    fn check(mut command: clap::Command, count: &mut usize) {
        *count += 1;
        let help = command.render_long_help().to_string();
        for phrase in [
            "Aligned columns",
            "More of them",
            "For programs",
            "The same as YAML",
            "beginning of one",
            "beginning that no other",
            "by any name",
            "given up",
            "Be Nomad's",
            "keeps nothing on disk",
        ] {
            assert!(!help.contains(phrase), "{phrase}: {help}");
        }
        let all = command.get_subcommands().cloned();
        all.for_each(|command| check(command, count));
    }
    let mut count = 0;
    check(drivebay_cli::Cli::command(), &mut count);
    check(drivebay_controller::config::Cli::command(), &mut count);
    assert!(count > 30, "only {count} commands were found");
}
