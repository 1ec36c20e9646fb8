//! Resolution of the drive or volume that a user names, for every command of both programs.
//!
//! A command that only shows something also takes a unique prefix. One that changes something takes whole names only: after `db` is
//! deleted, a repeated `volume delete db` must not delete `db-1`.

use std::{borrow::Cow, path::Path};

/// Largest number of candidates that an error lists.
const LISTED: usize = 10;

/// All names of one object.
#[derive(Debug, Clone, Default)]
pub struct Names<'a> {
    /// Identity, which takes precedence over every other name.
    pub id: &'a str,
    /// Other names; empty ones are ignored.
    pub others: Vec<&'a str>,
    /// True if it is deleted: it matches only if nothing else does.
    pub deleted: bool,
    /// Description for candidate lists, besides the identity.
    pub label: String,
}

/// Required part of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The whole name, for commands that change something.
    Whole,
    /// A whole name or a unique prefix. Whole names come first; of either, deleted objects count only if no other matches.
    Beginning,
}

/// Kind of the objects that are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Noun for messages, in the singular: `drive`, `volume`, `snapshot or group`.
    pub name: &'static str,
    /// Command that lists them.
    pub list: &'static str,
}

/// Reason for which the typed name matches no object, or several.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PickError {
    #[error("there is no {} {name:?}; `{}` shows all of them", kind.name, kind.list)]
    None {
        kind: Kind,
        /// The name as typed.
        name: String,
    },
    #[error(
        "{name:?} is ambiguous; it could be{}\ntype more of it, or the identity",
        lines(candidates)
    )]
    Several {
        name: String,
        /// Objects that match equally well, at least two: the identity of each, with its label in parentheses if it has one.
        candidates: Vec<String>,
    },
    #[error(
        "there is no {} {name:?}, and a command that changes something does not take the beginning of a name; whole names are{}",
        kind.name, lines(candidates)
    )]
    OnlyBeginning {
        kind: Kind,
        name: String,
        candidates: Vec<String>,
    },
}

fn lines(candidates: &[String]) -> String {
    let shown = candidates.iter().take(LISTED);
    let mut text: String = shown.map(|one| format!("\n  {one}")).collect();
    if let Some(more @ 1..) = candidates.len().checked_sub(LISTED) {
        text.push_str(&format!("\n  and {more} more"));
    }
    text
}

/// A typed name, and the kernel name of the device that it refers to, if any.
#[derive(Debug, Clone, Copy)]
pub struct Typed<'a> {
    name: &'a str,
    device: Option<&'a str>,
}

impl<'a> Typed<'a> {
    /// `device`: result of [`device_behind`].
    pub fn new(name: &'a str, device: Option<&'a str>) -> Self {
        Self { name, device }
    }

    fn plain(&self) -> &'a str {
        self.name.strip_prefix("/dev/").unwrap_or(self.name)
    }

    /// True if it is a whole name or a prefix of a name of this object.
    pub fn fits(&self, names: &Names<'_>) -> bool {
        self.begins(names) || self.is_called(names) || names.id == self.name
    }

    fn is_called(&self, names: &Names<'_>) -> bool {
        let plain = self.plain();
        let is_it = |one: &str| {
            !one.is_empty() && (one == plain || one == self.name || Some(one) == self.device)
        };
        names.others.iter().any(|one| is_it(one))
    }

    fn begins(&self, names: &Names<'_>) -> bool {
        let plain = self.plain();
        let mut all = names.others.iter().chain([&names.id]);
        !plain.is_empty() && all.any(|one| one.starts_with(plain))
    }
}

/// Returns the kernel name of the device that a path, or a name below /dev/disk/by-id, resolves to. Does no I/O on a drive.
pub fn device_behind(typed: &str) -> Option<String> {
    let path = match typed.starts_with('/') {
        true => Cow::Borrowed(Path::new(typed)),
        false if typed.is_empty() || typed.contains('/') => return None,
        false => Cow::Owned(Path::new("/dev/disk/by-id").join(typed)),
    };
    let device = path.canonicalize().ok()?;
    let name = device.strip_prefix("/dev").ok()?;
    Some(name.to_str()?.to_owned())
}

/// Returns the object that the typed name means. Precedence: identity, whole names, prefixes; objects that are not deleted before deleted
/// ones. Errs if none or several match at the first level with a match, or if only a prefix does where `part` is `Whole`.
pub fn pick<'a, T>(
    all: &'a [T],
    typed: Typed<'_>,
    kind: Kind,
    part: Part,
    names: impl Fn(&'a T) -> Names<'a>,
) -> Result<&'a T, PickError> {
    let named: Vec<(&T, Names<'_>)> = all.iter().map(|one| (one, names(one))).collect();
    let by = |fits: &dyn Fn(&Names<'_>) -> bool| -> Vec<&(&'a T, Names<'a>)> {
        named.iter().filter(|(_, names)| fits(names)).collect()
    };
    let levels = [
        by(&|names| names.id == typed.name && !typed.name.is_empty()),
        by(&|names| !names.deleted && typed.is_called(names)),
        by(&|names| typed.is_called(names)),
        by(&|names| !names.deleted && typed.begins(names)),
        by(&|names| typed.begins(names)),
    ];
    // The last two levels are prefixes.
    let of_whole_names = levels.len() - 2;
    let levels = levels.into_iter().enumerate();
    let Some((how, some)) = levels.into_iter().find(|(_, some)| !some.is_empty()) else {
        return Err(PickError::None {
            kind,
            name: typed.name.to_owned(),
        });
    };
    let name = typed.name.to_owned();
    let candidates = || some.iter().map(|(_, names)| candidate(names)).collect();
    match some.as_slice() {
        _ if how >= of_whole_names && part == Part::Whole => Err(PickError::OnlyBeginning {
            kind,
            name,
            candidates: candidates(),
        }),
        [(one, _)] => Ok(one),
        _ => Err(PickError::Several {
            name,
            candidates: candidates(),
        }),
    }
}

/// Returns the indexes of objects for a list filtered by name: all with this whole name, else all with this prefix. Errs if there is none.
pub fn select<'a, T>(
    all: &'a [T],
    typed: Typed<'_>,
    kind: Kind,
    names: impl Fn(&'a T) -> Names<'a>,
) -> Result<Vec<usize>, PickError> {
    let by = |fits: &dyn Fn(&Names<'_>) -> bool| -> Vec<usize> {
        let fitting = all.iter().enumerate().filter(|(_, one)| fits(&names(one)));
        fitting.map(|(at, _)| at).collect()
    };
    let called =
        by(&|names| (names.id == typed.name && !typed.name.is_empty()) || typed.is_called(names));
    let positions = match called.is_empty() {
        true => by(&|names| typed.begins(names)),
        false => called,
    };
    match positions.is_empty() {
        false => Ok(positions),
        true => Err(PickError::None {
            kind,
            name: typed.name.to_owned(),
        }),
    }
}

fn candidate(names: &Names<'_>) -> String {
    match names.label.as_str() {
        "" => names.id.to_owned(),
        label => format!("{} ({label})", names.id),
    }
}

impl PickError {
    /// True if the name matches no object at all.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None { .. })
    }

    /// Returns the exit code of a command that fails with this error.
    pub fn code(&self) -> u8 {
        match self {
            Self::None { .. } => crate::cli::NOT_FOUND,
            Self::Several { .. } | Self::OnlyBeginning { .. } => crate::cli::USAGE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind {
        name: "drive",
        list: "drives",
    };

    // Identity, other names, deleted.
    type One = (&'static str, &'static [&'static str], bool);

    const ALL: &[One] = &[
        ("wwn-0x5000a", &["sda", "S1"], false),
        ("wwn-0x5000ab", &["sdb", "S1"], false),
        ("sda", &["sdc", "S3"], false),
        ("gone", &["db", ""], true),
        ("live", &["db", "pvc-1"], false),
        ("old", &["pvc-1234"], true),
    ];

    fn found(typed: &str, device: Option<&str>, part: Part) -> Result<&'static str, PickError> {
        let names = |one: &'static One| Names {
            id: one.0,
            others: one.1.to_vec(),
            deleted: one.2,
            label: one.1[0].to_owned(),
        };
        pick(ALL, Typed::new(typed, device), KIND, part, names).map(|one| one.0)
    }

    #[test]
    fn whole_names_mean_one_whatever_else_begins_so() {
        for (typed, device, meant) in [
            ("wwn-0x5000a", None, "wwn-0x5000a"),
            ("sda", None, "sda"),
            ("/dev/sda", None, "wwn-0x5000a"),
            ("/dev/disk/by-id/x", Some("sdb"), "wwn-0x5000ab"),
            ("x", Some("sdb"), "wwn-0x5000ab"),
            ("S3", None, "sda"),
            ("db", None, "live"),
            ("pvc-1", None, "live"),
            ("pvc-1234", None, "old"),
        ] {
            for part in [Part::Whole, Part::Beginning] {
                assert_eq!(found(typed, device, part), Ok(meant), "{typed}");
            }
        }
    }

    #[test]
    fn a_beginning_is_enough_to_show_and_not_to_change() {
        assert_eq!(found("pv", None, Part::Beginning), Ok("live"));
        assert_eq!(
            found("wwn-0x5000ab", None, Part::Beginning),
            Ok("wwn-0x5000ab")
        );
        let refused = found("pv", None, Part::Whole).unwrap_err();
        assert_eq!((refused.code(), refused.is_none()), (2, false));
        assert!(refused.to_string().contains("\n  live (db)"), "{refused}");
        for nothing in ["", "/dev/", "sdz", "/dev/sdz"] {
            for part in [Part::Whole, Part::Beginning] {
                let refused = found(nothing, None, part).unwrap_err();
                assert_eq!(
                    (refused.code(), refused.is_none()),
                    (6, true),
                    "{nothing:?}"
                );
            }
        }
    }

    #[test]
    fn what_could_be_several_lists_them() {
        for typed in ["wwn", "S1"] {
            let refused = found(typed, None, Part::Beginning).unwrap_err();
            assert_eq!(refused.code(), 2);
            assert_eq!(
                refused.to_string(),
                format!(
                    "{typed:?} is ambiguous; it could be\n  wwn-0x5000a (sda)\n  wwn-0x5000ab (sdb)\ntype more of it, or the identity"
                )
            );
        }
        let many = PickError::Several {
            name: "a".into(),
            candidates: vec!["x".into(); 12],
        };
        assert!(many.to_string().contains("\n  and 2 more\n"), "{many}");
    }

    #[test]
    fn a_list_has_what_is_called_so_else_what_begins_so() {
        let names = |one: &'static One| Names {
            id: one.0,
            others: one.1.to_vec(),
            ..Names::default()
        };
        let selected = |typed: &str| select(ALL, Typed::new(typed, None), KIND, names);
        assert_eq!(selected("db"), Ok(vec![3, 4]));
        assert_eq!(selected("pvc-1"), Ok(vec![4]));
        assert_eq!(selected("pvc"), Ok(vec![4, 5]));
        assert!(selected("x").unwrap_err().is_none());
        assert!(selected("").unwrap_err().is_none());
    }

    #[test]
    fn a_link_leads_to_the_kernels_name() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("ata-NULL");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        let device = device_behind(link.to_str().unwrap());
        assert_eq!(device.as_deref(), Some("null"));
        for nothing in ["/nowhere", "../null", "", "/etc/passwd"] {
            assert_eq!(device_behind(nothing), None, "{nothing}");
        }
    }
}
