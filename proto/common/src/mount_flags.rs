//! Mount options that are refused for every volume: those that change *what* is mounted or *where*, that skip a journal, or that take the
//! node down on an error. Pure.
//!
//! Both programs refuse them by this function. The kernel checks whether a filesystem knows the others.

use crate::text;

/// Largest total size of all mount flags of a request, bytes (limit of the CSI specification).
pub const MAX_BYTES: usize = 4096;

/// A refused option of a mount, or of mkfs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("option {option:?} is refused: {why}")]
pub struct OptionError {
    /// First 128 characters of the option.
    pub option: String,
    pub why: &'static str,
}

impl OptionError {
    pub fn new(option: &str, why: &'static str) -> Self {
        Self {
            option: option.chars().take(128).collect(),
            why,
        }
    }
}

const WHERE: &str = "it changes what is mounted or where";
const JOURNAL: &str = "it skips the journal, without which the data may be inconsistent";
const PANIC: &str = "one volume's error may not take the node down";

/// Refused by name, with any value.
const REFUSED: &[(&str, &str)] = &[
    ("bind", WHERE),
    ("rbind", WHERE),
    ("move", WHERE),
    ("remount", WHERE),
    ("loop", WHERE),
    ("offset", WHERE),
    ("sizelimit", WHERE),
    ("encryption", WHERE),
    ("logdev", WHERE),
    ("rtdev", WHERE),
    ("journal_path", WHERE),
    ("journal_dev", WHERE),
    ("journal", WHERE),
    ("device", WHERE),
    ("sb", WHERE),
    ("subvol", WHERE),
    ("subvolid", WHERE),
    ("subvolrootid", WHERE),
    ("shared", WHERE),
    ("rshared", WHERE),
    ("slave", WHERE),
    ("rslave", WHERE),
    ("private", WHERE),
    ("rprivate", WHERE),
    ("unbindable", WHERE),
    ("runbindable", WHERE),
    (
        "nouuid",
        "it switches off the check that no other copy of this filesystem is mounted",
    ),
    ("norecovery", JOURNAL),
    ("noload", JOURNAL),
    ("nologreplay", JOURNAL),
    ("rescue", JOURNAL),
    ("abort", "it shuts the filesystem down"),
    ("user", "only fstab gives it a meaning"),
    ("users", "only fstab gives it a meaning"),
    ("owner", "only fstab gives it a meaning"),
    ("group", "only fstab gives it a meaning"),
    ("mand", "kernels have no mandatory locks any more"),
    ("helper", "no helper program is run"),
    ("uhelper", "no helper program is run"),
];

/// Returns the options of these elements, in order. An element may hold several, separated by commas; commas inside double quotes (an
/// SELinux context's categories) do not separate. Errs for the first one that is malformed or refused.
pub fn mount_flags(flags: &[String]) -> Result<Vec<&str>, OptionError> {
    let words = words(flags)?;
    for word in &words {
        if let Some(why) = refusal(word) {
            return Err(OptionError::new(word, why));
        }
    }
    Ok(words)
}

fn refusal(word: &str) -> Option<&'static str> {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    if name.to_ascii_lowercase().starts_with("x-mount.") {
        return Some(WHERE);
    }
    if matches!(word, "errors=panic" | "fatal_errors=panic") {
        return Some(PANIC);
    }
    let refused = REFUSED.iter().find(|(refused, _)| *refused == name);
    refused.map(|(_, why)| *why)
}

fn words(flags: &[String]) -> Result<Vec<&str>, OptionError> {
    if flags.iter().map(String::len).sum::<usize>() > MAX_BYTES {
        return Err(OptionError::new(
            &flags[0],
            "all options together may have at most 4096 bytes",
        ));
    }
    let mut words = Vec::new();
    for flag in flags {
        check_text(flag)?;
        if flag.matches('"').count() % 2 != 0 {
            return Err(OptionError::new(flag, "a double quote is not closed"));
        }
        for word in text::split_options(flag) {
            if word.is_empty() {
                return Err(OptionError::new(flag, "it has an empty part"));
            }
            if word.starts_with(['-', '=']) {
                return Err(OptionError::new(flag, "an option begins with a letter"));
            }
            if word.contains('"') && !is_context(word) {
                return Err(OptionError::new(
                    flag,
                    "only SELinux contexts may be quoted",
                ));
            }
            words.push(word);
        }
    }
    Ok(words)
}

fn is_context(word: &str) -> bool {
    ["context=", "fscontext=", "defcontext=", "rootcontext="]
        .iter()
        .any(|name| word.starts_with(name))
}

/// Errs if the text is empty or has characters that no mount or mkfs option may have.
pub fn check_text(option: &str) -> Result<(), OptionError> {
    if option.is_empty() {
        return Err(OptionError::new(option, "it is empty"));
    }
    if let Some(odd) = option
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || c.is_control() || "_-.=:/,+%@^\"".contains(*c)))
    {
        return Err(OptionError::new(
            option,
            if odd.is_whitespace() {
                "it holds white space; give each option as an element of its own"
            } else {
                "it holds a character that no option has"
            },
        ));
    }
    if option.chars().any(char::is_control) {
        return Err(OptionError::new(option, "it holds a control character"));
    }
    Ok(())
}
