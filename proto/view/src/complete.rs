//! Words that complete a command line at the Tab key: names of nodes, drives, volumes and classes. Pure; each program queries the names
//! with read-only calls, and completes nothing where no program answers.
//!
//! The shell's script runs the program itself with `COMPLETE` set (`clap_complete::CompleteEnv`); packages hold the scripts.

use std::{collections::BTreeSet, ffi::OsString, path::PathBuf, time::Duration};

use clap::{Arg, Command};
use clap_complete::engine::ArgValueCandidates;
pub use clap_complete::{CompleteEnv, engine::CompletionCandidate};
use drivebay_common::{pick::Names, units::count};
use drivebay_proto::{
    agent::{Class, Drive, Volume},
    words::VolumeState,
};

use super::{
    drives::is_noise,
    show::{claim, drive_names, volume_names},
    snapshots::{SnapshotEntry, entries, groups},
    table::{human_size, printable},
    volumes::state,
};

/// Longest time for which a completion waits for an answer.
pub const LIMIT: Duration = Duration::from_millis(500);

/// Kind of object that an argument names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    Node,
    Drive,
    Volume,
    /// A volume that was deleted and is kept for a while.
    Quarantined,
    Snapshot,
    /// A snapshot that was taken alone, or a group.
    SnapshotOrGroup,
    Class,
}

/// The command line with candidates for whatever names something that `of` can be asked for.
pub fn with_candidates(command: Command, of: fn(Named) -> Vec<CompletionCandidate>) -> Command {
    within(command, "", of)
}

fn within(command: Command, group: &str, of: fn(Named) -> Vec<CompletionCandidate>) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|arg| {
        if let Some(what) = named(group, &name, &arg) {
            return arg.add(ArgValueCandidates::new(move || of(what)));
        }
        match choice(&arg) {
            Some(words) => arg.add(ArgValueCandidates::new(move || {
                words.iter().map(CompletionCandidate::new).collect()
            })),
            None => arg,
        }
    });
    command.mut_subcommands(|sub| within(sub, &name, of))
}

/// Returns the kind of object that an argument names, by the name of its value in the help. None for a confirmation, which has to be
/// typed.
fn named(group: &str, command: &str, arg: &Arg) -> Option<Named> {
    let value = arg.get_value_names()?.first()?.as_str();
    Some(match (group, command, value) {
        (_, _, "CLASS") => Named::Class,
        (_, _, "DRIVE") | ("drive", _, "ID" | "OLD" | "NEW") => Named::Drive,
        (_, "restore" | "erase-now", "NAME") if arg.is_positional() => Named::Quarantined,
        // The name of a new volume is not one that there is.
        ("volume", "create", _) => return None,
        (_, _, "VOLUME") => Named::Volume,
        (_, _, "SNAPSHOT") => Named::Snapshot,
        (_, _, "SNAPSHOT|GROUP") => Named::SnapshotOrGroup,
        ("volume", _, "ID" | "NAME" | "NAME|DIR") if arg.is_positional() => Named::Volume,
        (_, _, "NODE") => Named::Node,
        ("node", _, "NAME") if arg.is_positional() => Named::Node,
        _ => return None,
    })
}

/// The words of a value that the help writes as `one|other`.
fn choice(arg: &Arg) -> Option<Vec<String>> {
    let value = arg.get_value_names()?.first()?;
    let is_word = |word: &str| {
        word.bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    let words: Vec<&str> = value.split('|').collect();
    let is_choice = words.len() > 1 && words.iter().all(|word| is_word(word));
    is_choice.then(|| words.into_iter().map(str::to_owned).collect())
}

/// The value of a long option in a command line that is being typed, which a shell may have split at the `=`.
pub fn option_value(words: &[OsString], option: &str) -> Option<OsString> {
    let mut last = None;
    for (at, word) in words.iter().enumerate() {
        let next = |further: usize| words.get(at + further).cloned();
        if word == option {
            last = match next(1) {
                Some(equals) if equals == "=" => next(2),
                value => value,
            };
        } else if let Some(value) = word.to_str().and_then(|word| word.strip_prefix(option))
            && let Some(value) = value.strip_prefix('=')
        {
            last = Some(value.into());
        }
    }
    last.filter(|value| !value.is_empty())
}

/// The words that are being typed, of the arguments with which a shell's script calls the program: those behind `--`.
pub fn typed(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter();
    arguments.find(|word| word == "--");
    arguments.collect()
}

/// Returns the socket to connect to: of `--socket` in the typed words, else of the environment, else the default.
pub fn socket(words: &[OsString], environment: Option<OsString>, default: &str) -> PathBuf {
    option_value(words, "--socket")
        .or(environment)
        .unwrap_or_else(|| default.into())
        .into()
}

pub fn of_nodes<'a>(nodes: impl IntoIterator<Item = &'a str>) -> Vec<CompletionCandidate> {
    let plain = nodes.into_iter().filter(|node| is_plain(node));
    plain.map(CompletionCandidate::new).collect()
}

pub fn of_classes<'a>(classes: impl IntoIterator<Item = &'a Class>) -> Vec<CompletionCandidate> {
    let names = classes.into_iter().map(|class| class.name.as_str());
    of_nodes(names.collect::<BTreeSet<&str>>())
}

/// Each drive by the name that `first` chooses, else by its identity; by any other name of it where nothing is called as what was typed.
pub fn of_drives<'a>(
    drives: impl IntoIterator<Item = &'a Drive>,
    first: fn(&Drive) -> &str,
) -> Vec<CompletionCandidate> {
    let each = drives.into_iter().flat_map(|drive| {
        let (size, state) = (human_size(drive.size_bytes), &drive.state);
        let help = format!("{size} {}, {state}, {}", drive.media, drive.verdict);
        let device = format!("/dev/{}", drive.kernel_name);
        let further = match drive.kernel_name.as_str() {
            "" => Vec::new(),
            _ => vec![device],
        };
        let first = Some(first(drive)).filter(|name| !name.is_empty());
        let first = first.unwrap_or(&drive.id);
        words_of(first, &drive_names(drive), further, &help, is_noise(drive))
    });
    each.collect()
}

/// Each volume by its claim, its name in Nomad, or else its name; by any other name of it where nothing is called as what was typed.
/// A deleted one is offered only where nothing else fits.
pub fn of_volumes<'a>(volumes: impl IntoIterator<Item = &'a Volume>) -> Vec<CompletionCandidate> {
    let volumes = volumes.into_iter();
    let each = volumes.flat_map(|volume| of_volume(volume, volume.is_deleted()));
    each.collect()
}

/// Those that were deleted and are kept for a while, each as `of_volumes` offers it.
pub fn of_quarantined<'a>(
    volumes: impl IntoIterator<Item = &'a Volume>,
) -> Vec<CompletionCandidate> {
    let is_kept = |volume: &&Volume| volume.known_state() == Some(VolumeState::Quarantined);
    let each = volumes.into_iter().filter(is_kept);
    each.flat_map(|volume| of_volume(volume, false)).collect()
}

/// Each snapshot of these volumes by its name.
pub fn of_snapshots<'a>(volumes: impl IntoIterator<Item = &'a Volume>) -> Vec<CompletionCandidate> {
    entries(volumes).into_iter().flat_map(of_snapshot).collect()
}

/// Returns candidates for each group, and for each snapshot of these volumes that is in none.
pub fn of_snapshots_and_groups<'a>(
    volumes: impl IntoIterator<Item = &'a Volume>,
) -> Vec<CompletionCandidate> {
    let all = entries(volumes);
    let groups = groups(&all).into_iter().flat_map(|entry| {
        let help = format!("group of {}", count(entry.members.len(), "snapshot"));
        words_of(&entry.group.name, &entry.names(), Vec::new(), &help, false)
    });
    let alone = all.iter().filter(|entry| entry.snapshot.group.is_none());
    groups
        .chain(alone.flat_map(|entry| of_snapshot(*entry)))
        .collect()
}

fn of_snapshot(entry: SnapshotEntry<'_>) -> Vec<CompletionCandidate> {
    let size = human_size(entry.snapshot.size_bytes);
    let help = format!("{size} of {}, {}", entry.volume.name, entry.snapshot.state);
    let name = &entry.snapshot.name;
    words_of(name, &entry.names(), Vec::new(), &help, false)
}

fn of_volume(volume: &Volume, hidden: bool) -> Vec<CompletionCandidate> {
    let (size, claim) = (human_size(volume.size_bytes), claim(volume));
    let help = format!("{size} {}, {}", volume.class, state(volume));
    let first = match claim.as_str() {
        "" => volume.name.as_str(),
        claim => claim,
    };
    words_of(
        first,
        &volume_names(volume, &claim),
        Vec::new(),
        &help,
        hidden,
    )
}

/// The words for one thing. Hidden ones are offered only where nothing else fits; of those that fit, only the first.
fn words_of(
    first: &str,
    names: &Names<'_>,
    further: Vec<String>,
    help: &str,
    hidden: bool,
) -> Vec<CompletionCandidate> {
    let others = names.others.iter().copied().chain([names.id]);
    let all = [first].into_iter().chain(others).map(str::to_owned);
    let all = all.chain(further).filter(|word| is_plain(word));
    let candidate = |(at, word): (usize, String)| {
        CompletionCandidate::new(word)
            .help(Some(printable(help).into()))
            .id(Some(names.id.to_owned()))
            .hide(hidden || at > 0)
    };
    all.enumerate().map(candidate).collect()
}

/// True if a word needs no quoting in any shell and is no option. Names come from any client that may create volumes, and a shell inserts
/// the chosen candidate unquoted.
fn is_plain(word: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "-_./:@+,".contains(c);
    !word.is_empty() && !word.starts_with('-') && word.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use clap::arg;
    use drivebay_proto::agent::{CreatedFor, SnapshotGroup, VolumeSnapshot};

    use super::*;

    /// The words among these that begin as what was typed, as a shell gets them.
    fn offered(candidates: &[CompletionCandidate], typed: &str) -> Vec<String> {
        let fit = candidates.iter().filter(|one| {
            let value = one.get_value().to_string_lossy();
            value.starts_with(typed)
        });
        let fit: Vec<&CompletionCandidate> = fit.collect();
        let visible = fit.iter().any(|one| !one.is_hide_set());
        let mut ids = BTreeSet::new();
        let shown = fit.iter().filter(|one| !visible || !one.is_hide_set());
        let shown = shown.filter(|one| one.get_id().is_none_or(|id| ids.insert(id)));
        shown
            .map(|one| one.get_value().to_string_lossy().into_owned())
            .collect()
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_socket_is_the_typed_one_then_the_environments_then_the_default() {
        for (line, environment, meant) in [
            ("x drives --socket /a", Some("/b"), "/a"),
            ("x drives --socket=/a", Some("/b"), "/a"),
            // As bash splits it.
            ("x drives --socket = /a --all", None, "/a"),
            ("x --socket /a drives --socket /c", None, "/c"),
            ("x drives --socket", Some("/b"), "/b"),
            ("x drives --socket ", Some("/b"), "/b"),
            ("x drives --sockets=/a", None, "/d"),
            ("x", None, "/d"),
        ] {
            let path = socket(&words(line), environment.map(Into::into), "/d");
            assert_eq!(path, PathBuf::from(meant), "{line}");
        }
        let arguments = words("drivebay-agent -- drivebay-agent drive show");
        assert_eq!(typed(arguments), words("drivebay-agent drive show"));
        assert_eq!(typed(words("drivebay-agent")), Vec::<OsString>::new());
    }

    #[test]
    fn what_an_argument_names_follows_from_its_place_and_a_confirmation_is_never_completed() {
        let positional = |name: &'static str| Arg::new("it").value_name(name);
        let option = |name: &'static str| Arg::new("it").long("it").value_name(name);
        for (group, command, arg, what) in [
            ("x", "drives", positional("DRIVE"), Some(Named::Drive)),
            ("drive", "show", positional("ID"), Some(Named::Drive)),
            ("drive", "replace", positional("NEW"), Some(Named::Drive)),
            ("volume", "show", positional("ID"), Some(Named::Volume)),
            (
                "volume",
                "unmount",
                positional("NAME|DIR"),
                Some(Named::Volume),
            ),
            (
                "volume",
                "restore",
                positional("NAME"),
                Some(Named::Quarantined),
            ),
            (
                "snapshot",
                "restore",
                positional("SNAPSHOT"),
                Some(Named::Snapshot),
            ),
            ("snapshot", "restore", option("NAME"), None),
            (
                "snapshot",
                "delete",
                positional("SNAPSHOT|GROUP"),
                Some(Named::SnapshotOrGroup),
            ),
            (
                "snapshot",
                "create",
                positional("VOLUME"),
                Some(Named::Volume),
            ),
            ("volume", "clone", positional("VOLUME"), Some(Named::Volume)),
            ("volume", "clone", option("NAME"), None),
            ("volume", "create", positional("NAME"), None),
            ("volume", "create", option("CLASS"), Some(Named::Class)),
            ("volume", "delete", option("NAME"), None),
            ("volume", "move", option("DRIVE"), Some(Named::Drive)),
            ("drive", "wipe", option("IDENTITY"), None),
            ("node", "forget", positional("NAME"), Some(Named::Node)),
            ("node", "forget", option("NAME"), None),
            ("x", "volumes", option("NODE"), Some(Named::Node)),
            ("x", "run", arg!(--flag), None),
        ] {
            assert_eq!(
                named(group, command, &arg),
                what,
                "{group} {command} {arg:?}"
            );
        }
        let filesystems = choice(&option("ext4|xfs|btrfs")).unwrap();
        assert_eq!(filesystems, ["ext4", "xfs", "btrfs"]);
        assert_eq!(choice(&option("FILE|DEVICE|-")), None);
        assert_eq!(choice(&option("NAME")), None);
    }

    #[test]
    fn a_drive_is_offered_by_its_kernel_name_and_completed_by_any_other() {
        let drive = |kernel_name: &str, id: &str, serial: &str| Drive {
            id: id.into(),
            kernel_name: kernel_name.into(),
            serial: serial.into(),
            state: "claimed".into(),
            ..Drive::default()
        };
        let mut noise = drive("loop0", "loop-0", "");
        noise.state = "rejected".into();
        noise.rejects = vec![drivebay_proto::agent::Reject {
            code: "NotADisk".into(),
            detail: String::new(),
        }];
        let drives = [
            drive("sda", "wwn-0x5a", "S 1"),
            drive("sdb", "wwn-0x5b", "S2"),
            drive("", "wwn-0x5c", "S3"),
            noise,
        ];
        let all = of_drives(&drives, |drive| &drive.kernel_name);
        for (typed, expected) in [
            ("", &["sda", "sdb", "wwn-0x5c"][..]),
            ("sd", &["sda", "sdb"]),
            ("wwn-0x5b", &["wwn-0x5b"]),
            // A serial number that a shell would take for two words is not offered.
            ("S", &["S2", "S3"]),
            ("/dev/sdb", &["/dev/sdb"]),
            ("loop", &["loop0"]),
            ("x", &[]),
        ] {
            assert_eq!(offered(&all, typed), expected, "{typed:?}");
        }
        // Of several nodes.
        let all = of_drives(&drives[..2], |drive| &drive.id);
        assert_eq!(offered(&all, ""), ["wwn-0x5a", "wwn-0x5b"]);
        assert_eq!(offered(&all, "sdb"), ["sdb"]);
        let help = all[1].get_help().unwrap().to_string();
        assert!(help.contains("claimed"), "{help}");
    }

    #[test]
    fn a_volume_is_offered_as_its_user_calls_it_and_a_name_that_a_shell_would_execute_never() {
        let volume = |name: &str, uuid: &str, claim: &str| Volume {
            id: format!("{uuid}@n1"),
            name: name.into(),
            state: "ready".into(),
            created_for: Some(CreatedFor {
                claim: claim.into(),
                namespace: "shop".into(),
                ..CreatedFor::default()
            }),
            ..Volume::default()
        };
        let mut deleted = volume("old", "uuid-4", "");
        deleted.state = "quarantined".into();
        let all = [
            volume("pvc-1", "uuid-1", "data-db-0"),
            volume("db", "uuid-2", ""),
            volume("$(reboot)", "uuid-3", "a;b"),
            deleted,
        ];
        let live = of_volumes(&all);
        for (typed, expected) in [
            ("", &["shop/data-db-0", "db", "uuid-3"][..]),
            ("pvc", &["pvc-1"]),
            ("uuid-1", &["uuid-1"]),
            ("$", &[]),
            ("old", &["old"]),
        ] {
            assert_eq!(offered(&live, typed), expected, "{typed:?}");
        }
        assert_eq!(offered(&of_quarantined(&all), ""), ["old"]);
        for word in live.iter().map(CompletionCandidate::get_value) {
            assert!(is_plain(&word.to_string_lossy()), "{word:?}");
        }
    }

    #[test]
    fn a_snapshot_is_offered_by_its_name_with_its_volume_and_completed_by_its_uuid() {
        let snapshot = |name: &str, uuid: &str| VolumeSnapshot {
            id: format!("{uuid}@n1"),
            name: name.into(),
            state: "ready".into(),
            ..VolumeSnapshot::default()
        };
        let db = Volume {
            name: "db".into(),
            snapshots: vec![snapshot("db-1", "uuid-1"), snapshot("a b", "uuid-2")],
            ..Volume::default()
        };
        let all = of_snapshots([&db, &Volume::default()]);
        // In the order of their names.
        assert_eq!(offered(&all, ""), ["uuid-2", "db-1"]);
        assert_eq!(offered(&all, "uuid-1"), ["uuid-1"]);
        let help = all[1].get_help().unwrap().to_string();
        assert!(help.contains("of db, ready"), "{help}");
        // The snapshots of a group are not offered: they are deleted only with it.
        let mut db = db;
        db.snapshots[0].group = Some(SnapshotGroup {
            id: "uuid-3@n1".into(),
            name: "nightly".into(),
            members: 1,
        });
        let all = of_snapshots_and_groups([&db]);
        assert_eq!(offered(&all, ""), ["nightly", "uuid-2"]);
        assert_eq!(offered(&all, "uuid-3"), ["uuid-3"]);
        assert_eq!(offered(&all, "db"), [""; 0]);
    }

    #[test]
    fn classes_of_several_nodes_are_offered_once() {
        let class = |name: &str| Class {
            name: name.into(),
            ..Class::default()
        };
        let all = of_classes(&[class("fast"), class("bulk"), class("fast")]);
        assert_eq!(offered(&all, ""), ["bulk", "fast"]);
        assert_eq!(offered(&of_nodes(["n1", "-x", "n2"]), ""), ["n1", "n2"]);
    }

    #[test]
    fn arguments_of_inner_commands_get_their_candidates() {
        fn of(what: Named) -> Vec<CompletionCandidate> {
            vec![CompletionCandidate::new(format!("{what:?}"))]
        }
        let show = Command::new("show").arg(Arg::new("id").value_name("ID"));
        let line = Command::new("x").subcommand(Command::new("drive").subcommand(show));
        let mut line = with_candidates(line, of);
        let words = words("x drive show D");
        let candidates = clap_complete::engine::complete(&mut line, words, 3, None).unwrap();
        let values: Vec<&OsStr> = candidates
            .iter()
            .map(CompletionCandidate::get_value)
            .collect();
        assert_eq!(values, ["Drive"]);
    }
}
