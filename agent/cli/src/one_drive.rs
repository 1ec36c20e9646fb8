//! Common parts of commands that act on one drive: finding it by a typed name, the preview, and the confirmation by its identity.

use std::{fmt::Write as _, path::Path};

use drivebay_common::{
    cli::{NOBODY, USAGE},
    pick::{Part, PickError},
    query::QueryError,
};
use drivebay_proto::agent::{Drive, InventoryUpdate, Volume};
use tonic::Code;

use super::{
    client::Client,
    drives::below,
    name,
    table::{human_size, printable},
};

/// Texts of an action on a drive.
#[derive(Debug)]
pub struct DriveAction {
    pub verb: &'static str,
    /// First line of the preview: the effect.
    pub warning: &'static str,
    /// Beginning of the sentence with the command to type.
    pub aim: &'static str,
}

/// Error of a command that acts on one drive, found by its full name.
#[derive(Debug, thiserror::Error)]
pub enum OneDriveError {
    #[error(transparent)]
    Client(#[from] QueryError),
    /// No drive, or several, match the name.
    #[error(transparent)]
    Pick(#[from] PickError),
    /// No confirmation was given; the text is the preview.
    #[error("{0}")]
    NotConfirmed(String),
    /// The operator is unknown.
    #[error("{NOBODY}")]
    Nobody,
    /// Another identity was confirmed.
    #[error("--confirm says {typed:?}, but the identity of {drive} is {id:?}; nothing was changed")]
    WrongConfirmation {
        drive: String,
        typed: String,
        id: String,
    },
}

impl OneDriveError {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Client(error) => error.code(),
            Self::Pick(error) => error.code(),
            Self::NotConfirmed(_) | Self::Nobody | Self::WrongConfirmation { .. } => USAGE,
        }
    }
}

/// Returns the drive of this full name, with a connection to the agent and its inventory.
pub async fn named(
    socket: &Path,
    name: &str,
) -> Result<(Client, InventoryUpdate, Drive), OneDriveError> {
    let mut client = Client::connect(socket).await?;
    let inventory = client.inventory().await?;
    let drive = name::drive(&inventory, name, Part::Whole)?.clone();
    Ok((client, inventory, drive))
}

/// Errs unless `confirm` is the drive's identity; with the preview if it is None.
pub fn confirmed(
    inventory: &InventoryUpdate,
    drive: &Drive,
    name: &str,
    confirm: Option<&str>,
    action: &DriveAction,
) -> Result<(), OneDriveError> {
    match confirm {
        None => Err(OneDriveError::NotConfirmed(shown(inventory, drive, action))),
        Some(typed) if typed == drive.id => Ok(()),
        Some(typed) => Err(OneDriveError::WrongConfirmation {
            drive: name.to_owned(),
            typed: typed.to_owned(),
            id: drive.id.clone(),
        }),
    }
}

/// Returns the confirmation to send to the agent: the drive's identity, or an empty text. Without it, the agent reports any other reason to
/// refuse first, and else that the confirmation is missing.
pub fn spelled_out(drive: &Drive, confirmed: &Result<(), OneDriveError>) -> String {
    match confirmed {
        Ok(()) => drive.id.clone(),
        Err(_) => String::new(),
    }
}

/// Returns the result of a call with `spelled_out`; Err with the agent's reason to refuse, or with the preview if the confirmation is all
/// that is missing.
pub fn refused_first<T>(
    confirmed: Result<(), OneDriveError>,
    answer: Result<T, QueryError>,
) -> Result<T, OneDriveError> {
    let only_unconfirmed = match &answer {
        Ok(_) => true,
        Err(QueryError::Refused { status, .. }) => status.code() == Code::InvalidArgument,
        Err(_) => false,
    };
    match confirmed {
        Err(unconfirmed) if only_unconfirmed => Err(unconfirmed),
        _ => Ok(answer?),
    }
}

/// Returns the preview: the drive with its volumes, and the command to type.
pub fn shown(inventory: &InventoryUpdate, drive: &Drive, action: &DriveAction) -> String {
    let mut text = format!("{}\n\n", action.warning);
    let mut line = |name: &str, value: &str| {
        let value = if value.is_empty() {
            "-".to_owned()
        } else {
            printable(value)
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name:<9}{value}");
    };
    line("drive", &drive.id);
    line(
        "device",
        &if drive.kernel_name.is_empty() {
            String::new()
        } else {
            format!("/dev/{}", drive.kernel_name)
        },
    );
    line("model", &drive.model);
    line("serial", &drive.serial);
    line("size", &human_size(drive.size_bytes));
    line("state", &drive.state);
    for detail in below(drive) {
        line("seen", &detail);
    }
    let volumes: Vec<&Volume> = inventory
        .volumes
        .iter()
        .filter(|volume| volume.drive == drive.id)
        .collect();
    for volume in volumes {
        line(
            "volume",
            &format!(
                "{} ({}, {})",
                volume.name,
                human_size(volume.size_bytes),
                volume.state
            ),
        );
    }
    let _ = write!(
        text,
        "\nNothing was changed. {aim}, spell out its identity:\n\n  drivebay-agent drive {verb} {id} --confirm {id}",
        aim = action.aim,
        verb = action.verb,
        id = drive.id
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory() -> InventoryUpdate {
        let drive = |id: &str, kernel_name: &str| Drive {
            id: id.into(),
            kernel_name: kernel_name.into(),
            model: "EVIL\u{1b}[2J".into(),
            size_bytes: 4 << 40,
            state: "rejected".into(),
            rejects: vec![drivebay_proto::agent::Reject {
                code: "Filesystem".into(),
                detail: "ext4".into(),
            }],
            ..Drive::default()
        };
        InventoryUpdate {
            drives: vec![
                drive("wwn-a", "sda"),
                drive("sda", "sdb"),
                drive("wwn-gone", ""),
            ],
            volumes: vec![Volume {
                drive: "wwn-a".into(),
                name: "pvc-1".into(),
                size_bytes: 1 << 30,
                state: "ready".into(),
                ..Volume::default()
            }],
            ..InventoryUpdate::default()
        }
    }

    #[test]
    fn a_drive_is_found_by_identity_before_kernel_name() {
        let inventory = inventory();
        let picked = |name: &str| name::drive(&inventory, name, Part::Whole);
        let id = |name: &str| picked(name).map(|drive| drive.id.clone()).ok();
        assert_eq!(id("wwn-a").as_deref(), Some("wwn-a"));
        assert_eq!(id("/dev/sda").as_deref(), Some("wwn-a"));
        assert_eq!(id("sda").as_deref(), Some("sda"), "an identity wins");
        assert_eq!(id("sdb").as_deref(), Some("sda"));
        assert_eq!((id(""), id("/dev/"), id("sdc")), (None, None, None));
        assert_eq!(
            id("wwn-g"),
            None,
            "a beginning is not enough to change anything"
        );
    }

    #[test]
    fn what_would_be_lost_is_shown_with_the_words_to_type() {
        let inventory = inventory();
        let text = shown(&inventory, &inventory.drives[0], &crate::wipe::WIPE);
        assert_eq!(
            text,
            "\
wiping destroys everything on this drive:

  drive    wwn-a
  device   /dev/sda
  model    EVIL\\u{1b}[2J
  serial   -
  size     4 TiB
  state    rejected
  seen     Filesystem: ext4
  volume   pvc-1 (1 GiB, ready)

Nothing was changed. To wipe it, spell out its identity:

  drivebay-agent drive wipe wwn-a --confirm wwn-a"
        );
    }
}
