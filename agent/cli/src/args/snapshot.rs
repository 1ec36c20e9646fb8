//! `snapshots`, `snapshot`, and copies of volumes.

use clap::{Args, Subcommand};

use drivebay_config::units::parse_size;
use drivebay_view::{args::ListArgs, watch::WatchArg};

use super::{Show, SocketArg};

/// What can be done with snapshots.
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Take a snapshot of a volume, which may be in use
    ///
    /// On the volume's drive; layout lvm only. What the volume overwrites afterwards is kept in the snapshot's reserve. A snapshot whose
    /// reserve is full is lost; the volume is not affected. While a volume has snapshots, writing to it is slower, and it is not
    /// deleted, expanded or moved. An existing snapshot of this name and volume is not changed.
    #[command(after_help = "\
Examples:
  drivebay-agent snapshot create db                                         named as db-20261128-020000
  drivebay-agent snapshot create shop/data-db-0 --name before-upgrade --reserve 50%
  drivebay-agent snapshot create db --reserve 20GiB")]
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
    /// Delete a snapshot: ITS DATA IS LOST
    ///
    /// Its volume is not affected. Its space is erased in the background, and is free afterwards. Without --confirm nothing is
    /// changed: the snapshot is shown, and the command to type. Deleting a snapshot that does not exist succeeds.
    #[command(after_help = "\
Examples:
  drivebay-agent snapshot delete before-upgrade                             shows it
  drivebay-agent snapshot delete before-upgrade --confirm before-upgrade    deletes it")]
    Delete {
        /// Name, uuid or id; no prefix
        snapshot: String,
        /// Its name, in full
        #[arg(long, value_name = "NAME")]
        confirm: Option<String>,
        /// Where the agent is.
        #[command(flatten)]
        socket: SocketArg,
    },
}

/// Options of `snapshot create`.
#[derive(Debug, Args)]
pub struct SnapshotCreateArgs {
    /// Name, uuid, id, PersistentVolume, claim or device, or a unique prefix
    pub volume: String,
    /// Name of the snapshot. Default: the volume's name and the time (UTC)
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Space for what the volume overwrites: a share of its size, such as 50%, or a size with its unit. Default: 20%
    #[arg(long, value_name = "SHARE|SIZE", value_parser = reserve)]
    pub reserve: Option<Reserve>,
    /// How to show it, and where the agent is.
    #[command(flatten)]
    pub show: Show,
}

/// Options of `snapshots` and `snapshot list`.
#[derive(Debug, Args)]
pub struct SnapshotsArgs {
    /// Only snapshots of these volumes, by name or unique prefix
    #[arg(value_name = "VOLUME")]
    pub names: Vec<String>,
    /// How to show them.
    #[command(flatten)]
    pub list: ListArgs,
    /// How often.
    #[command(flatten)]
    pub watch: WatchArg,
    /// Where the agent is.
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
    /// Return once copying has begun; do not wait for its end
    #[arg(long)]
    pub no_wait: bool,
    /// Where the agent is.
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Space for what a volume overwrites while it has a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// Of the volume's size, 1 to 100.
    Percent(u32),
    /// Not 0.
    Bytes(u64),
}

fn reserve(text: &str) -> Result<Reserve, String> {
    match text.strip_suffix('%') {
        Some(share) => match share.parse() {
            Ok(percent @ 1..=100) => Ok(Reserve::Percent(percent)),
            _ => Err("a share is a whole number from 1% to 100%".to_owned()),
        },
        None => match parse_size(text).map_err(|error| error.to_string())? {
            0 => Err("the reserve must be more than 0".to_owned()),
            bytes => Ok(Reserve::Bytes(bytes)),
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Cli, Command, VolumeCommand};

    fn parsed(line: &[&str]) -> Result<Command, clap::Error> {
        let words = ["x"].iter().chain(line);
        Cli::try_parse_from(words).map(|cli| cli.command)
    }

    #[test]
    fn a_reserve_is_a_share_or_a_size_with_its_unit() {
        for (text, expected) in [
            ("20%", Some(Reserve::Percent(20))),
            ("100%", Some(Reserve::Percent(100))),
            ("2GiB", Some(Reserve::Bytes(2 << 30))),
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
            assert!(parsed(&line[..3]).is_err(), "{line:?}");
        }
    }

    #[test]
    fn every_snapshot_command_asks_the_agent_at_the_socket_that_is_typed() {
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
