//! `snapshots`, `snapshot`, and copies of volumes.

use clap::{Args, Subcommand, ValueEnum};

use drivebay_common::sizes::parse_size;
use drivebay_csi::{Reserve, new_group_snapshot::MAX_MEMBERS, new_snapshot::parse_max_age};
use drivebay_view::{args::ListArgs, watch::WatchArg};

use super::{Show, SocketArg};

/// Commands on snapshots.
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Take a snapshot of a volume, or of several at one moment; they may be in use
    ///
    /// On the volume's drive; layout lvm only. What the volume overwrites afterwards is kept in the snapshot's reserve. A snapshot whose
    /// reserve is full is lost; the volume is not affected. While a volume has snapshots, writing to it is slower, and it is not
    /// deleted, expanded or moved. A snapshot is deleted when it reaches its age limit. An existing snapshot of this name and volume is
    /// not changed.
    ///
    /// Snapshots of several volumes are a group: all are taken, or none, while all the volumes stand still, and they are deleted together.
    #[command(after_help = "\
Examples:
  drivebay-agent snapshot create db                                         named as db-20261128-020000
  drivebay-agent snapshot create shop/data-db-0 --name before-upgrade --reserve 50%
  drivebay-agent snapshot create db --reserve 20GiB --max-age 12h
  drivebay-agent snapshot create db db-log --name nightly                   a group of two")]
    Create(SnapshotCreateArgs),
    /// The same as `drivebay-agent snapshots`
    #[command(visible_alias = "ls")]
    List(SnapshotsArgs),
    /// Create a volume with the contents of a snapshot
    ///
    /// On this node, with the class, filesystem and mount options of the snapshot's volume. Snapshot and volume are not changed. The
    /// command waits until everything is copied and shows progress; Ctrl-C ends the command, not the copying. Deleting the new volume
    /// cancels it.
    #[command(after_help = "\
Examples:
  drivebay-agent snapshot restore db-20261128-020000 --name db-restored
  drivebay-agent snapshot restore before-upgrade --name db-large --size 200GiB --no-wait")]
    Restore {
        /// Name, uuid or id; no prefix
        snapshot: String,
        /// The new volume.
        #[command(flatten)]
        copy: CopyArgs,
    },
    /// Delete a snapshot, or all of a group: THEIR DATA IS LOST
    ///
    /// The volumes are not affected. The space is erased in the background, and is free afterwards. Without --confirm nothing is
    /// changed: the snapshots are shown, and the command to type. Deleting a snapshot that does not exist succeeds. A snapshot of a group is
    /// deleted with the group alone.
    #[command(after_help = "\
Examples:
  drivebay-agent snapshot delete before-upgrade                             shows it
  drivebay-agent snapshot delete before-upgrade --confirm before-upgrade    deletes it
  drivebay-agent snapshot delete nightly --confirm nightly                  deletes the snapshots of group nightly")]
    Delete {
        /// Name, uuid or id; no prefix
        #[arg(value_name = "SNAPSHOT|GROUP")]
        snapshot: String,
        /// Its name, in full
        #[arg(long, value_name = "NAME")]
        confirm: Option<String>,
        #[command(flatten)]
        socket: SocketArg,
    },
}

/// Options of `snapshot create`.
#[derive(Debug, Args)]
pub struct SnapshotCreateArgs {
    /// Name, uuid, id, PersistentVolume, claim or device, or a unique prefix; several make a group
    #[arg(value_name = "VOLUME", required = true, num_args = 1..=MAX_MEMBERS)]
    pub volumes: Vec<String>,
    /// Name of the snapshot or group. Default: the volume's name, or "group", and the time (UTC)
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Space for what the volume overwrites: a share of its size, such as 50%, or a size with its unit
    #[arg(long, value_name = "SHARE|SIZE", default_value = "20%", value_parser = reserve)]
    pub reserve: Reserve,
    /// Age at which it is deleted, such as 36h or 7d, at least 1m; or none, to keep it until it is deleted
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = max_age)]
    pub max_age: MaxAge,
    #[command(flatten)]
    pub show: Show,
}

/// Options of `snapshots` and `snapshot list`.
#[derive(Debug, Args)]
pub struct SnapshotsArgs {
    /// Only snapshots of these volumes, by name or unique prefix
    #[arg(value_name = "VOLUME")]
    pub names: Vec<String>,
    #[command(flatten)]
    pub list: ListArgs,
    #[command(flatten)]
    pub watch: WatchArg,
    #[command(flatten)]
    pub socket: SocketArg,
}

/// The volume that is made as a copy, of `snapshot restore` and `volume clone`.
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// Name of the new volume: 1 to 128 bytes, no control characters
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// Size of the new volume with its unit, such as 200GiB; not less than that of what is copied, which is the default
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// When blocks of what is copied do not read
    #[arg(long, value_enum, default_value_t = Unreadable::Fail)]
    pub unreadable: Unreadable,
    /// Return once copying has begun; do not wait for its end
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Handling of unreadable blocks, as the StorageClass parameter copyUnreadable has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Unreadable {
    /// Make no volume
    Fail,
    /// Make a volume with zeros in their place, and show how many bytes that is
    Zeros,
}

/// Age at which a snapshot is deleted, seconds; None: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxAge(pub Option<u64>);

fn max_age(text: &str) -> Result<MaxAge, &'static str> {
    parse_max_age(text).map(MaxAge)
}

fn reserve(text: &str) -> Result<Reserve, String> {
    match text.strip_suffix('%') {
        Some(share) => match share.parse() {
            Ok(percent @ 1..=100) => Ok(Reserve {
                percent,
                ..Reserve::default()
            }),
            _ => Err("a share is a whole number from 1% to 100%".to_owned()),
        },
        None => match parse_size(text).map_err(|error| error.to_string())? {
            0 => Err("the reserve must be more than 0".to_owned()),
            bytes => Ok(Reserve {
                least: bytes,
                most: Some(bytes),
                ..Reserve::default()
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use drivebay_proto::names;

    use super::*;
    use crate::{Cli, Command, VolumeCommand};

    fn parsed(line: &[&str]) -> Result<Command, clap::Error> {
        let words = ["x"].iter().chain(line);
        Cli::try_parse_from(words).map(|cli| cli.command)
    }

    #[test]
    fn a_reserve_is_a_share_or_a_size_with_its_unit() {
        let share = |percent| Reserve {
            percent,
            ..Reserve::default()
        };
        let exactly = Reserve {
            least: 2 << 30,
            most: Some(2 << 30),
            ..Reserve::default()
        };
        for (text, expected) in [
            ("20%", Some(Reserve::default())),
            ("100%", Some(share(100))),
            ("2GiB", Some(exactly)),
            ("0%", None),
            ("101%", None),
            ("1.5%", None),
            ("%", None),
            ("-1%", None),
            ("20", None),
            ("0B", None),
            ("20G", None),
        ] {
            assert_eq!(reserve(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn a_snapshot_is_of_1_to_32_volumes_and_has_an_age_limit_of_at_least_a_minute() {
        let created = |line: &[&str]| {
            let words = [&["snapshot", "create"][..], line].concat();
            parsed(&words).map(|command| match command {
                Command::Snapshot(SnapshotCommand::Create(args)) => args,
                other => panic!("{other:?}"),
            })
        };
        let both = created(&["db", "log", "--max-age", "36h"]).unwrap();
        assert_eq!(both.volumes, ["db", "log"]);
        assert_eq!(both.max_age, MaxAge(Some(36 * 3600)));
        let kept = created(&["db", "--max-age", "none"]).unwrap();
        assert_eq!(kept.max_age, MaxAge(None));
        // The defaults of a VolumeSnapshotClass without parameters.
        let default = created(&["db"]).unwrap();
        assert_eq!(default.reserve, Reserve::default());
        let week = names::DEFAULT_SNAPSHOT_MAX_AGE;
        assert_eq!(default.max_age, MaxAge(Some(week)));
        assert!(created(&["v"; 32]).is_ok());
        for wrong in [
            &["v"; 33][..],
            &[],
            &["db", "--max-age", "59s"],
            &["db", "--max-age", "7"],
            &["db", "--max-age", "never"],
        ] {
            assert!(created(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_copy_needs_a_name_and_has_the_size_of_its_source_by_default() {
        for line in [
            &["snapshot", "restore", "s", "--name", "new"][..],
            &["volume", "clone", "db", "--name", "new"],
        ] {
            let copy = match parsed(line).unwrap() {
                Command::Snapshot(SnapshotCommand::Restore { copy, .. })
                | Command::Volume(VolumeCommand::Clone { copy, .. }) => copy,
                other => panic!("{other:?}"),
            };
            assert_eq!(
                (copy.name.as_str(), copy.size, copy.no_wait),
                ("new", None, false)
            );
            assert_eq!(copy.unreadable, Unreadable::Fail);
            assert!(parsed(&line[..3]).is_err(), "{line:?}");
            let skip = [line, &["--unreadable", "skip"]].concat();
            assert!(parsed(&skip).is_err(), "{skip:?}");
        }
    }

    #[test]
    fn every_snapshot_command_calls_the_agent_at_the_socket_that_is_typed() {
        for line in [
            &["snapshots"][..],
            &["snapshot", "ls"],
            &["snapshot", "create", "db"],
            &["snapshot", "restore", "s", "--name", "new"],
            &["snapshot", "delete", "s"],
            &["volume", "clone", "db", "--name", "new"],
        ] {
            let command = parsed(&[line, &["--socket", "/s"]].concat()).unwrap();
            assert_eq!(
                command.socket(),
                Some(std::path::Path::new("/s")),
                "{line:?}"
            );
        }
    }
}
