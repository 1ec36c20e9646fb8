//! What users read follows the rules of the language: log messages are constant texts that alerts can match, and private
//! idioms stay out of them.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests fail loudly"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Places whose message is a constant of a table, or a line of a worker that is passed on.
const PASSED_ON: [&str; 3] = [
    "health/src/changes.rs",
    "worker/src/handle.rs",
    "worker/src/drill.rs",
];

/// Idioms that no user can search for.
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

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("tests") {
                sources(&path, into);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// The text between the brackets of each call of a logging macro, with the macro's place.
fn calls(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
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
            found.push((text[..at].matches('\n').count() + 1, &body[..end.unwrap()]));
        }
    }
    found
}

/// The last string of a call: its message.
fn message(call: &str) -> Option<&str> {
    let call = call.trim_end().trim_end_matches(',').strip_suffix('"')?;
    Some(&call[call.rfind('"')? + 1..])
}

/// Each HELP text says what is measured in a sentence, and its unit where the name alone does not.
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
    let (mut seen, mut wrong) = (0, Vec::new());
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
            seen += 1;
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
            // The first that fits.
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
    assert!(seen > 50, "only {seen} texts were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The private idioms in a text.
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
    let (mut seen, mut wrong) = (0, Vec::new());
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
            seen += 1;
            if message.contains('{') && !is_passed_on {
                wrong.push(format!("{place}: a variable part: {message}"));
            }
            let words = private_words(message).into_iter();
            wrong.extend(words.map(|word| format!("{place}: \"{word}\" in: {message}")));
        }
    }
    assert!(seen > 150, "only {seen} messages were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
