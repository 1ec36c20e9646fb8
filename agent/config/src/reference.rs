//! Reference of the configuration, generated from the comments of the example and the keys of the code: the man page drivebay.toml(5),
//! which packages install, and `deploy/docs/reference/configuration.md`, which a test generates that fails if the file is outdated.

use std::{borrow::Cow, path::Path};

use super::{
    EXAMPLE, HostFacts, parse,
    raw::Raw,
    schema::{self, Key},
};
use drivebay_smart::Thresholds;

/// Section of the thresholds, whose keys are documented with the rules.
const THRESHOLDS: &str = "[smart.thresholds]";
/// Format of values, and their checks.
pub const VALUES: &str = "\
A default is what holds without the key. Sizes: \"10GiB\" (binary) or \"500GB\" (decimal); a number without a unit is bytes, at least
1 MiB of them. Durations: \"30s\", \"5m\", \"24h\".
`drivebay-agent check-config` reports every mistake with its line, keys that there are none of, and mount options that this host's
kernel refuses; it warns of selectors that can never match.
";

/// A section of the file, with all its keys.
#[derive(Debug)]
pub struct Section {
    /// Name with its brackets.
    pub name: &'static str,
    /// Introduction in Markdown; may be empty.
    pub remark: String,
    pub keys: Vec<Described>,
}

/// A key with its documentation.
#[derive(Debug)]
pub struct Described {
    pub name: &'static str,
    /// Value as written in the file.
    pub value: &'static str,
    /// True if `value` is the default, not only an example.
    pub is_default: bool,
    /// Allowed values, if there are no others; may be empty.
    pub values: Cow<'static, str>,
    /// Description in Markdown: the comment above the key in the example, or the meaning of the threshold.
    pub meaning: Cow<'static, str>,
}

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

/// A heading of the example, with the comment before it.
#[derive(Debug)]
struct Heading<'e> {
    name: &'e str,
    remark: String,
}

fn parts(example: &str) -> (Vec<Heading<'_>>, Vec<Entry<'_>>) {
    let (mut sections, mut entries): (Vec<Heading<'_>>, Vec<Entry<'_>>) = Default::default();
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
            sections.push(Heading { name: text, remark });
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

/// Returns every key of the example.
#[cfg(test)]
pub(super) fn entries(example: &str) -> Vec<Entry<'_>> {
    parts(example).1
}

/// Returns a host without facts, so that defaults do not depend on it.
pub(super) fn bare() -> HostFacts {
    HostFacts {
        hostname: "node7".into(),
        has_dir: |_: &Path| false,
        check_mount_options: |_, _| drivebay_fs::kernel_options::OptionsCheck::Accepted,
    }
}

/// True if removing this line from the example does not change the configuration.
fn is_default(entry: &Entry<'_>) -> bool {
    let with = |shown: bool| {
        let keep = |(line, text): (usize, &str)| match (line == entry.line, shown) {
            (false, _) => format!("{text}\n"),
            (true, true) => format!("{}\n", text.trim_start_matches('#')),
            (true, false) => String::new(),
        };
        let text: String = EXAMPLE.lines().enumerate().map(keep).collect();
        parse(&text, &bare()).map(|checked| format!("{:?}", checked.config))
    };
    with(true).is_ok() && with(true) == with(false)
}

fn described(entry: Entry<'static>, keys: &[Key]) -> Described {
    let is_it = |key: &&Key| key.section == entry.section && key.name == entry.key;
    let words = keys.iter().find(is_it).map_or(&[][..], |key| key.words);
    let is_default = is_default(&entry);
    let threshold = match entry.section {
        THRESHOLDS => Thresholds::range(entry.key).zip(Thresholds::meaning(entry.key)),
        _ => None,
    };
    let (values, meaning) = match threshold {
        Some((range, meaning)) => {
            let values = match *range.end() {
                i32::MAX => format!("{} or more", range.start()),
                end => format!("{} to {end}", range.start()),
            };
            (values, meaning.into())
        }
        None => (words.join(", "), entry.remark.into()),
    };
    Described {
        name: entry.key,
        value: entry.value,
        is_default,
        values: values.into(),
        meaning,
    }
}

/// Returns every section and key, in the order of the example.
pub fn sections() -> Vec<Section> {
    let keys = schema::keys::<Raw>();
    let (headings, entries) = parts(EXAMPLE);
    let mut sections: Vec<Section> = Vec::new();
    for heading in headings {
        // The example has two classes.
        if !sections.iter().any(|section| section.name == heading.name) {
            sections.push(Section {
                name: heading.name,
                remark: heading.remark,
                keys: Vec::new(),
            });
        }
    }
    for entry in entries {
        let section = sections.iter_mut().find(|it| it.name == entry.section);
        if let Some(section) = section {
            section.keys.push(described(entry, &keys));
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use drivebay_common::terminal::Terminal;

    use super::*;

    /// Wraps the lines of the document.
    const LINES: Terminal = Terminal {
        width: Some(120),
        ..Terminal::NONE
    };
    const HEAD: &str = "\
# Configuration of drivebay-agent

Every section and key of `/etc/drivebay/drivebay.toml`, in the order of `drivebay.example.toml`. Made from that file and from the code:
change the comments there, then `DRIVEBAY_UPDATE=1 cargo test --workspace --lib configuration_reference`.

";

    fn document() -> String {
        let mut text = format!("{HEAD}{VALUES}");
        for section in sections() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "\n## {}\n", section.name);
            if !section.remark.is_empty() {
                text.push_str(&LINES.wrapped("", &section.remark));
                text.push('\n');
            }
            for key in &section.keys {
                let value = match key.is_default {
                    true => format!("default `{}`", key.value),
                    false => format!("for example `{}`", key.value),
                };
                let values = match &*key.values {
                    "" => String::new(),
                    values => format!("; values: {values}"),
                };
                let words = format!("`{}` ({value}{values}): {}", key.name, key.meaning);
                text.push_str(&LINES.wrapped("- ", &words));
            }
        }
        text
    }

    #[test]
    fn every_key_of_the_configuration_is_explained() {
        let sections = sections();
        let keys = sections.iter().flat_map(|section| &section.keys);
        let silent = keys.filter(|key| key.meaning.is_empty());
        assert_eq!(silent.count(), 0, "{sections:#?}");
    }

    #[test]
    fn the_configuration_reference_is_current() {
        let document = document();
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
}
