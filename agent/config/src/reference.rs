//! `deploy/docs/reference/configuration.md`, made from the comments of the example configuration and the keys that the code knows. Only a test
//! makes it, which fails when the document is not current.

use std::fmt::Write as _;

use super::{
    parse,
    raw::Raw,
    schema::{self, Key},
    tests::{EXAMPLE, bare},
};
use drivebay_smart::Thresholds;

/// Its keys are explained where the rules' numbers are.
const THRESHOLDS: &str = "[smart.thresholds]";
const HEAD: &str = "\
# Configuration of drivebay-agent

Every section and key of `/etc/drivebay/drivebay.toml`, in the order of `drivebay.example.toml`. Made from that file and from the code:
change the comments there, then `DRIVEBAY_UPDATE=1 cargo test --workspace --lib configuration_reference`.

A default is what holds without the key. Sizes: \"10GiB\" (binary) or \"500GB\" (decimal); a number without a unit is bytes, at least 1 MiB of
them. Durations: \"30s\", \"5m\", \"24h\".
`drivebay-agent check-config` reports every mistake with its line, keys that there are none of, and mount options that this host's
kernel refuses; it warns of selectors that can never match.
";

/// One key of the example.
#[derive(Debug)]
pub(super) struct Entry<'e> {
    pub(super) section: &'e str,
    pub(super) key: &'e str,
    value: &'e str,
    remark: String,
    /// Line in the example, from 0.
    line: usize,
}

/// A section of the example, with the remark before it.
#[derive(Debug)]
struct Section<'e> {
    name: &'e str,
    remark: String,
}

fn parts(example: &str) -> (Vec<Section<'_>>, Vec<Entry<'_>>) {
    let (mut sections, mut entries): (Vec<Section<'_>>, Vec<Entry<'_>>) = Default::default();
    let mut remark = String::new();
    for (line, text) in example.lines().enumerate() {
        if let Some(words) = text.strip_prefix("# ") {
            remark.push_str(if remark.is_empty() { "" } else { " " });
            remark.push_str(words);
            continue;
        }
        let remark = std::mem::take(&mut remark);
        let text = text.trim_start_matches('#');
        if text.starts_with('[') {
            sections.push(Section { name: text, remark });
        } else if let (Some((key, value)), Some(section)) =
            (text.split_once(" = "), sections.last())
        {
            let section = section.name;
            // The example has two classes.
            if !entries
                .iter()
                .any(|it| it.section == section && it.key == key)
            {
                entries.push(Entry {
                    section,
                    key,
                    value,
                    remark,
                    line,
                });
            }
        }
    }
    (sections, entries)
}

/// Every key of the example.
pub(super) fn entries(example: &str) -> Vec<Entry<'_>> {
    parts(example).1
}

/// Whether the example without this line, and with it, means the same.
fn is_default(example: &str, entry: &Entry<'_>) -> bool {
    let with = |shown: bool| {
        let keep = |(line, text): (usize, &str)| match (line == entry.line, shown) {
            (false, _) => format!("{text}\n"),
            (true, true) => format!("{}\n", text.trim_start_matches('#')),
            (true, false) => String::new(),
        };
        let text: String = example.lines().enumerate().map(keep).collect();
        parse(&text, &bare()).map(|checked| format!("{:?}", checked.config))
    };
    with(true).is_ok() && with(true) == with(false)
}

/// The document.
pub(super) fn document(example: &str, keys: &[Key]) -> String {
    let (sections, entries) = parts(example);
    let mut text = HEAD.to_owned();
    let cell = |text: &str| text.replace('|', "\\|");
    let code = |text: &str| match text {
        "" => String::new(),
        text => format!("`{}`", cell(text)),
    };
    for section in &sections {
        let of = || entries.iter().filter(|it| it.section == section.name);
        let first = sections.iter().find(|it| it.name == section.name);
        if !first.is_some_and(|first| std::ptr::eq(first, section)) {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n## {}\n", section.name);
        if !section.remark.is_empty() {
            let _ = writeln!(text, "{}\n", section.remark);
        }
        text.push_str(
            "| key | default | for example | values | meaning |\n|---|---|---|---|---|\n",
        );
        for entry in of() {
            let default = is_default(example, entry);
            let (default, example) = match default {
                true => (entry.value, ""),
                false => ("", entry.value),
            };
            let is_it = |key: &&Key| key.section == entry.section && key.name == entry.key;
            let words = keys.iter().find(is_it).map_or(&[][..], |key| key.words);
            let (mut values, mut meaning) = (words.join(", "), entry.remark.as_str());
            if entry.section == THRESHOLDS {
                let range = Thresholds::range(entry.key).expect("a threshold");
                values = match *range.end() {
                    i32::MAX => format!("{} or more", range.start()),
                    end => format!("{} to {end}", range.start()),
                };
                meaning = Thresholds::meaning(entry.key).expect("a threshold");
            }
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} | {} |",
                entry.key,
                code(default),
                code(example),
                values,
                cell(meaning)
            );
        }
    }
    text
}

#[test]
fn every_key_of_the_configuration_is_explained() {
    let document = document(EXAMPLE, &schema::keys::<Raw>());
    let silent = document.lines().filter(|line| line.ends_with("|  |"));
    assert_eq!(silent.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn the_configuration_reference_is_current() {
    let document = document(EXAMPLE, &schema::keys::<Raw>());
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../deploy/docs/reference/configuration.md"
    );
    if std::env::var_os("DRIVEBAY_UPDATE").is_some() {
        std::fs::write(path, &document).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(path).unwrap_or_default(),
        document,
        "update it: DRIVEBAY_UPDATE=1 cargo test --workspace --lib configuration_reference"
    );
}
