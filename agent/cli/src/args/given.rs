//! Paths and formats that a command line sets.

use std::path::Path;

use super::{Command, DriveCommand, SmartCommand, SnapshotCommand, VolumeCommand};

impl Command {
    /// Returns the socket that the command uses; None if it uses no agent.
    pub fn socket(&self) -> Option<&Path> {
        let socket = match self {
            Self::Health { show } => &show.socket,
            Self::Drives(args) | Self::Drive(DriveCommand::List(args)) => &args.socket,
            Self::Volumes(args) | Self::Volume(VolumeCommand::List(args)) => &args.socket,
            Self::Moves(args) => &args.at,
            Self::Snapshots(args) => &args.socket,
            Self::Rescan { socket } | Self::LogLevel { socket, .. } => socket,
            Self::Drive(command) => match command {
                DriveCommand::List(args) => &args.socket,
                DriveCommand::Show(args) => &args.show.socket,
                DriveCommand::Ack(args) => &args.of.at,
                DriveCommand::Unack(args) => &args.at,
                DriveCommand::Cordon(args) => &args.of.of.at,
                DriveCommand::Uncordon(args) => &args.of.at,
                DriveCommand::Evacuate(args) => &args.at,
                DriveCommand::Replace(args) => &args.at,
                DriveCommand::Retire(args) => &args.of.at,
                DriveCommand::Wipe { socket, .. }
                | DriveCommand::Locate { socket, .. }
                | DriveCommand::Release { socket, .. }
                | DriveCommand::Adopt { socket, .. } => socket,
            },
            Self::Volume(command) => match command {
                VolumeCommand::Show(args) => &args.show.socket,
                VolumeCommand::Create(args) => &args.show.socket,
                VolumeCommand::Clone { copy, .. } => &copy.socket,
                VolumeCommand::Expand { show, .. } => &show.socket,
                VolumeCommand::Mount(args) => &args.socket,
                VolumeCommand::Move(args) => &args.at,
                VolumeCommand::Prefer(args) => &args.socket,
                VolumeCommand::Pv(args) => &args.socket,
                VolumeCommand::EraseNow(args) | VolumeCommand::Restore(args) => &args.socket,
                VolumeCommand::List(args) => &args.socket,
                VolumeCommand::Erased { show, .. } => &show.socket,
                VolumeCommand::Check { socket, .. }
                | VolumeCommand::Rekey { socket, .. }
                | VolumeCommand::CheckKey { socket, .. }
                | VolumeCommand::RecoveryKey { socket, .. }
                | VolumeCommand::Unmount { socket, .. }
                | VolumeCommand::Delete { socket, .. } => socket,
            },
            Self::Snapshot(command) => match command {
                SnapshotCommand::Create(args) => &args.show.socket,
                SnapshotCommand::List(args) => &args.socket,
                SnapshotCommand::Restore { copy, .. } => &copy.socket,
                SnapshotCommand::Delete { socket, .. } => socket,
            },
            _ => return None,
        };
        Some(&socket.socket)
    }

    /// True if the output is for programs: JSON or YAML, in which commands to type are printed without the options of this command line.
    pub fn is_for_programs(&self) -> bool {
        let document = match self {
            Self::Health { show } => show.output.document(),
            Self::Drives(args) | Self::Drive(DriveCommand::List(args)) => {
                args.list.output.document()
            }
            Self::Moves(args) => args.list.output.document(),
            Self::Snapshots(args) | Self::Snapshot(SnapshotCommand::List(args)) => {
                args.list.output.document()
            }
            Self::Snapshot(SnapshotCommand::Create(args)) => args.show.output.document(),
            Self::Volumes(args) | Self::Volume(VolumeCommand::List(args)) => {
                args.list.output.document()
            }
            Self::Drive(DriveCommand::Show(args)) | Self::Volume(VolumeCommand::Show(args)) => {
                args.show.output.document()
            }
            Self::Volume(VolumeCommand::Erased { show, .. }) => show.output.document(),
            Self::Volume(VolumeCommand::Create(args)) => args.show.output.document(),
            Self::Volume(VolumeCommand::Expand { show, .. }) => show.output.document(),
            Self::ClaimPlan { output, .. } | Self::Rules { output } => output.document(),
            Self::Smart(SmartCommand::Explain(args)) => args.output.document(),
            Self::Volume(VolumeCommand::Pv(_)) | Self::Schema { .. } | Self::NomadPlugin(_) => {
                return true;
            }
            _ => None,
        };
        document.is_some()
    }

    /// Returns the configuration that a command reads which also uses an agent.
    pub fn config(&self) -> Option<&Path> {
        match self {
            Self::Drive(DriveCommand::Wipe { config, .. }) => Some(&config.config),
            _ => None,
        }
    }
}
