//! `volume create`, `expand`, `delete` and `pv`: requests of an orchestrator, made by an operator.
//!
//! Sizes, classes and parameters are determined by the same code as for CSI (`drivebay_csi`); the agent validates everything again.

use std::{collections::HashMap, path::Path, time::Duration};

use drivebay_common::{
    cli::{NOT_FOUND, USAGE, WRONG},
    pick::{Part, PickError},
    progress::{Progress, waiting},
    query::QueryError,
};
use drivebay_csi::{
    Content, NewVolume,
    size::{self, SizeError},
    validate::{self, Access, InvalidRequest, SizeRange},
};
use drivebay_proto::{
    VolumeId,
    agent::{
        Class, CreateVolumeRequest, CreatedFor, DeleteVolumeRequest, Drive, ExpandVolumeRequest,
        GetDriverRequest, InventoryUpdate, Volume,
    },
    controller::{GetVolumeResponse, VolumeOnNode},
    names,
    words::{DriveState, Mode, NodeState, VolumeState},
};
use drivebay_view::{
    pv::{Manifest, PvError, manifest},
    show::VolumeSheet,
    volumes::{filesystem, state},
};

use super::{
    args::{CreateArgs, PvArgs, Show},
    client::Client,
    name,
    table::{human_size, printable},
};

/// Limit of creating, which may claim a drive and wait for others; the agent's own limits are lower.
pub(super) const CREATE_DEADLINE: Duration = Duration::from_secs(150);
/// Limit of expanding, which ends with the filesystem's own tool.
const EXPAND_DEADLINE: Duration = Duration::from_secs(180);
pub(super) const DELETE_DEADLINE: Duration = Duration::from_secs(90);

/// Error of a command that creates, expands, deletes, erases or restores a volume, or prints its PersistentVolume.
#[derive(Debug, thiserror::Error)]
pub enum ManualError {
    #[error(transparent)]
    Client(#[from] QueryError),
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error(transparent)]
    Pick(#[from] PickError),
    #[error(transparent)]
    Pv(#[from] PvError),
    #[error("volume {0:?} does not exist on this node; `drivebay-agent volumes` shows all")]
    NoSuchVolume(String),
    #[error("the size must be more than 0")]
    NoSize,
    #[error("no class is configured on this node; add one to the agent's config")]
    NoClasses,
    #[error("name a class of drives with --class: this node has {0}")]
    ClassNotNamed(String),
    #[error("there is no class {class:?} on this node; it has {classes}")]
    UnknownClass { class: String, classes: String },
    #[error(
        "volume {name} is in use{}; unmount it first: `drivebay-agent volume unmount {name}`, or, where an orchestrator uses it, delete what uses it",
        place(at)
    )]
    InUse {
        name: String,
        /// Mount points; empty if none is known.
        at: Vec<String>,
    },
    #[error("volume {0} is in no quarantine; `drivebay-agent volume delete {0}` deletes it")]
    NotQuarantined(String),
    #[error("volume {0} is being erased; its data is lost")]
    Erasing(String),
    /// No confirmation was given; the text is the preview.
    #[error("{0}")]
    NotConfirmed(String),
    #[error("--confirm says {typed:?}, but the volume's name is {name:?}; nothing was changed")]
    WrongConfirmation { typed: String, name: String },
    #[error("cannot write the answer as JSON or YAML")]
    Json(#[from] serde_json::Error),
}

fn place(at: &[String]) -> String {
    match at.first() {
        Some(at) => format!(" at {at}"),
        None => String::new(),
    }
}

impl ManualError {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Client(error) => error.code(),
            Self::Pick(error) => error.code(),
            Self::NoSuchVolume(_) => NOT_FOUND,
            Self::Invalid(_)
            | Self::NoSize
            | Self::ClassNotNamed(_)
            | Self::NotConfirmed(_)
            | Self::WrongConfirmation { .. } => USAGE,
            Self::Size(_)
            | Self::Pv(_)
            | Self::NoClasses
            | Self::UnknownClass { .. }
            | Self::InUse { .. }
            | Self::NotQuarantined(_)
            | Self::Erasing(_)
            | Self::Json(_) => WRONG,
        }
    }
}

/// Creates a volume, and returns the text to print.
pub async fn create(args: &CreateArgs) -> Result<String, ManualError> {
    let mut client = Client::connect(&args.show.socket.socket).await?;
    let inventory = client.inventory().await?;
    let request = request(args, &inventory)?;
    let is_there = client.find_volume(&args.name).await?.is_some();
    let what = creating(&inventory, &request);
    let call = client.manual_volumes.create_volume(request);
    let answer = client.agent.answered_within(CREATE_DEADLINE, call);
    let answer = waiting(&what, answer).await?;
    let volume = answer.into_inner().volume;
    let volume = volume.ok_or_else(|| client.agent.senseless("no volume"))?;
    let how = match is_there {
        true => "exists already",
        false => "is created",
    };
    shown(&inventory, &volume, &args.show, usable(&volume, how))
}

/// Returns a message about a created volume, and the command to use it.
pub(super) fn usable(volume: &Volume, how: &str) -> String {
    let place = match volume.known_mode() {
        Some(Mode::Block) => "FILE",
        _ => "DIR",
    };
    let (name, described) = (printable(&volume.name), described(volume));
    let key = match volume.parameters.contains_key(names::PARAM_ENCRYPTION) {
        true => " --key-file FILE",
        false => "",
    };
    format!(
        "volume {name} {how}: {described}\nuse it with `drivebay-agent volume mount {name} {place}{key}`\n"
    )
}

/// Returns the progress message, which mentions a drive that must be claimed, since that takes longer.
fn creating(inventory: &InventoryUpdate, request: &CreateVolumeRequest) -> String {
    let has_room = |drive: &Drive| {
        drive.class == request.class
            && drive.known_state() == Some(DriveState::Claimed)
            && drive.largest_free_bytes >= request.required_bytes
    };
    let claims = match inventory.drives.iter().any(has_room) {
        true => "",
        false => ", on a drive that is claimed first",
    };
    format!("creating volume {}{claims}", printable(&request.name))
}

/// Returns the volume in the requested format; `text` for the table.
fn shown(
    inventory: &InventoryUpdate,
    volume: &Volume,
    show: &Show,
    text: String,
) -> Result<String, ManualError> {
    let Some(document) = show.output.document() else {
        return Ok(text);
    };
    let drive = inventory
        .drives
        .iter()
        .find(|drive| drive.id == volume.drive);
    let sheet = VolumeSheet::new(&inventory.node_id, volume, drive);
    Ok(document.write(&sheet)?)
}

/// Returns size, use, class and drive of a volume.
pub(super) fn described(volume: &Volume) -> String {
    let fs = filesystem(volume);
    printable(&format!(
        "{}, {fs}, class {}, on drive {}",
        human_size(volume.size_bytes),
        volume.class,
        volume.drive
    ))
}

/// Returns the request that a StorageClass with the same parameters would cause. Pure.
pub(super) fn request(
    args: &CreateArgs,
    inventory: &InventoryUpdate,
) -> Result<CreateVolumeRequest, ManualError> {
    validate::volume_name(&args.name)?;
    if args.size == 0 {
        return Err(ManualError::NoSize);
    }
    let class = class(inventory, args.class.as_deref())?;
    let fs_type = match &args.fs {
        Some(named) => validate::filesystem("--fs", named)?,
        None => None,
    };
    let (access, fs_type) = match args.block {
        true => (Access::Block, None),
        false => (
            Access::mount(fs_type),
            Content::mount(fs_type).filesystem(class),
        ),
    };
    let options = [
        (names::PARAM_CLASS, Some(class.name.as_str())),
        (names::PARAM_FS_TYPE, fs_type),
        (names::PARAM_MKFS_OPTIONS, args.mkfs_options.as_deref()),
        (names::PARAM_MOUNT_OPTIONS, args.mount_options.as_deref()),
        (
            names::PARAM_ENCRYPTION,
            args.encrypt.then_some(names::ENCRYPTION_LUKS2),
        ),
    ];
    let options = options
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)));
    let options: HashMap<String, String> = options
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let parameters = validate::parameters(&options)?;
    let volume = NewVolume {
        name: args.name.clone(),
        class: Some(class.name.clone()),
        content: Content::new(access, &parameters)?,
        range: SizeRange {
            required: args.size,
            limit: None,
        },
        source: None,
        parameters: parameters.kept,
        created_for: CreatedFor::default(),
        manual: true,
    };
    let bytes = size::new_volume(volume.range, volume.content.size_rules(class))?;
    Ok(volume.agent_request(&class.name, bytes))
}

/// Returns the named class, or the only one.
fn class<'a>(
    inventory: &'a InventoryUpdate,
    named: Option<&str>,
) -> Result<&'a Class, ManualError> {
    let class_names = || {
        let names: Vec<&str> = inventory
            .classes
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        names.join(", ")
    };
    match (named, inventory.classes.as_slice()) {
        (_, []) => Err(ManualError::NoClasses),
        (None, [class]) => Ok(class),
        (None, _) => Err(ManualError::ClassNotNamed(class_names())),
        (Some(named), classes) => {
            let entry = classes.iter().find(|class| class.name == named);
            entry.ok_or_else(|| ManualError::UnknownClass {
                class: named.to_owned(),
                classes: class_names(),
            })
        }
    }
}

/// Expands a volume, and returns the text to print.
pub async fn expand(name: &str, bytes: u64, show: &Show) -> Result<String, ManualError> {
    if bytes == 0 {
        return Err(ManualError::NoSize);
    }
    let mut client = Client::connect(&show.socket.socket).await?;
    let inventory = client.inventory().await?;
    let before = live(&mut client, &inventory, name).await?;
    let before = before.ok_or_else(|| ManualError::NoSuchVolume(name.to_owned()))?;
    let what = format!("expanding volume {}", printable(&before.name));
    let call = client.manual_volumes.expand_volume(ExpandVolumeRequest {
        id: before.id.clone(),
        required_bytes: bytes,
        limit_bytes: 0,
    });
    let answer = client.agent.answered_within(EXPAND_DEADLINE, call);
    let answer = waiting(&what, answer).await?.into_inner();
    let volume = answer.volume;
    let volume = volume.ok_or_else(|| client.agent.senseless("no volume"))?;
    let filesystem = match (volume.known_mode(), answer.filesystem_grown) {
        (Some(Mode::Block), _) => "",
        (_, true) => "; its filesystem fills it",
        (_, false) => "; its filesystem grows at the next mount",
    };
    let changed = match volume.size_bytes > before.size_bytes {
        true => "is expanded",
        false => "was as large already",
    };
    let text = format!(
        "volume {} {changed}: {}{filesystem}\n",
        printable(&volume.name),
        described(&volume)
    );
    shown(&inventory, &volume, show, text)
}

/// Returns the live volume to change; None if there is certainly none of this name.
async fn live(
    client: &mut Client,
    inventory: &InventoryUpdate,
    name: &str,
) -> Result<Option<Volume>, ManualError> {
    match name::volume(inventory, name, Part::Whole) {
        Ok(volume) if !volume.is_deleted() => Ok(Some(volume.clone())),
        Err(error) if !error.is_none() => Err(error.into()),
        _ => Ok(client.find_volume(name).await?),
    }
}

/// Deletes the volume if `confirm` is its name, and returns the text to print. Errs with a preview if `confirm` is None.
pub async fn delete(
    socket: &Path,
    name: &str,
    confirm: Option<&str>,
    wait: bool,
) -> Result<String, ManualError> {
    let mut client = Client::connect(socket).await?;
    let inventory = client.inventory().await?;
    let target = match live(&mut client, &inventory, name).await {
        // A confirmed name is typed in full: the command is repeated, and the volume is deleted already.
        Err(ManualError::Pick(PickError::OnlyBeginning { .. })) if confirm == Some(name) => {
            client.find_volume(name).await?
        }
        result => result?,
    };
    let Some(volume) = target else {
        return Ok(format!("there is no volume {name:?}; nothing to delete\n"));
    };
    may_delete(&volume, confirm)?;
    let call = client.manual_volumes.delete_volume(DeleteVolumeRequest {
        id: volume.id.clone(),
        quarantine: false,
    });
    client.agent.answered_within(DELETE_DEADLINE, call).await?;
    let what = match volume.known_state() {
        _ if wait => {
            erased(&mut client, &volume).await?;
            "its space is erased, and is offered again"
        }
        Some(VolumeState::Missing) => {
            "its drive is missing; if it comes back, the volume is kept for a while and then erased"
        }
        _ => "its space is being erased, and is offered again afterwards",
    };
    Ok(format!(
        "volume {} is deleted; {what}\n",
        printable(&volume.name)
    ))
}

/// Waits until a deleted volume is gone, or is in another state than erasing.
async fn erased(client: &mut Client, volume: &Volume) -> Result<(), QueryError> {
    let mut progress = Progress::begin();
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        let inventory = client.inventory().await?;
        let left = inventory.volumes.iter().find(|one| one.id == volume.id);
        match left {
            Some(left) if left.known_state() == Some(VolumeState::Erasing) => {
                progress.show(&format!(
                    "volume {}: {}",
                    printable(&left.name),
                    state(left)
                ));
            }
            _ => return Ok(()),
        }
    }
}

/// Errs unless the volume is unused and confirmed; being in use is reported first. Pure.
fn may_delete(volume: &Volume, confirm: Option<&str>) -> Result<(), ManualError> {
    let name = printable(&volume.name);
    if volume.published {
        return Err(ManualError::InUse {
            name,
            at: volume.mounts.clone(),
        });
    }
    match confirm {
        Some(typed) if typed == volume.name => Ok(()),
        Some(typed) => Err(ManualError::WrongConfirmation {
            typed: typed.to_owned(),
            name: volume.name.clone(),
        }),
        None => {
            let through_csi = match volume.manual {
                true => "",
                false => {
                    "\nIt was made through CSI: if a PersistentVolume names it, delete its claim instead.\n"
                }
            };
            Err(ManualError::NotConfirmed(format!(
                "deleting destroys what is in this volume:\n\n  volume  {name} ({})\n  id      {}\n{through_csi}\nNothing was changed. To delete it, spell out its name:\n\n  drivebay-agent volume delete {name} --confirm {name}",
                described(volume),
                printable(&volume.id),
            )))
        }
    }
}

/// Returns the PersistentVolume of a volume.
pub async fn pv(args: &PvArgs) -> Result<Manifest, ManualError> {
    let mut client = Client::connect(&args.socket.socket).await?;
    let inventory = client.inventory().await?;
    let volume = name::volume(&inventory, &args.name, Part::Beginning)?.clone();
    let call = client.manual_volumes.get_driver(GetDriverRequest {});
    let driver = client.agent.answered(call).await?.into_inner();
    let id: VolumeId = volume
        .id
        .parse()
        .map_err(|_| client.agent.senseless("a volume id that is none"))?;
    let manual = volume.manual && volume.published;
    let unmount = format!(
        "First unmount it by hand: drivebay-agent volume unmount {}",
        printable(&volume.name)
    );
    let answer = GetVolumeResponse {
        volume: Some(VolumeOnNode {
            node_id: inventory.node_id.clone(),
            node_state: NodeState::Connected.to_string(),
            volume: Some(volume),
            ..VolumeOnNode::default()
        }),
        driver: driver.name,
        topology_key: driver.topology_key,
    };
    let mut made = manifest(&answer, &id, &args.claim)?;
    if manual {
        made.first.push(unmount);
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Cli, Command, VolumeCommand};

    fn class_of(name: &str) -> Class {
        Class {
            name: name.into(),
            fs_type: "ext4".into(),
            extent_bytes: 1 << 20,
            smallest_volume_bytes: 16 << 20,
            ..Class::default()
        }
    }

    fn inventory(classes: &[&str]) -> InventoryUpdate {
        InventoryUpdate {
            classes: classes.iter().map(|name| class_of(name)).collect(),
            ..InventoryUpdate::default()
        }
    }

    fn args(line: &[&str]) -> CreateArgs {
        let words = ["x", "volume", "create"].iter().chain(line);
        match Cli::try_parse_from(words).unwrap().command {
            Command::Volume(VolumeCommand::Create(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    fn made(line: &[&str]) -> CreateVolumeRequest {
        request(&args(line), &inventory(&["fast"])).unwrap()
    }

    #[test]
    fn a_request_is_what_a_storage_class_with_these_words_leads_to() {
        let plain = made(&["db", "--size", "100MB"]);
        assert_eq!(
            (
                plain.class.as_str(),
                plain.mode.as_str(),
                plain.fs_type.as_str()
            ),
            ("fast", "mount", "ext4")
        );
        assert_eq!(plain.required_bytes, 96 << 20, "whole MiB");
        assert_eq!(plain.parameters["fsType"], "ext4");
        // Explicit or by default: the same volume, so that a repeated request finds it.
        let explicit = made(&["db", "--size", "100MB", "--class", "fast", "--fs", "ext4"]);
        assert_eq!(explicit, plain);
        let xfs = made(&[
            "db",
            "--size",
            "1MiB",
            "--fs",
            "xfs",
            "--mkfs-options",
            "-m reflink=1",
            "--mount-options",
            "noatime",
        ]);
        assert_eq!(xfs.required_bytes, 300 << 20, "what xfs needs");
        assert_eq!(xfs.mkfs_options, "-m reflink=1");
        assert_eq!(xfs.mount_options, "noatime");
        let block = made(&["db", "--size", "1MiB", "--block"]);
        assert_eq!((block.mode.as_str(), block.fs_type.as_str()), ("block", ""));
        assert!(!block.parameters.contains_key("fsType"));
    }

    #[test]
    fn an_invalid_request_is_refused_before_anything_is_sent() {
        let one = inventory(&["fast"]);
        for line in [
            &["", "--size", "1GiB"][..],
            &["a\nb", "--size", "1GiB"],
            &["db", "--size", "0"],
            &["db", "--size", "1GiB", "--fs", "ntfs"],
            &[
                "db",
                "--size",
                "1GiB",
                "--fs",
                "xfs",
                "--mkfs-options",
                "/dev/sda",
            ],
        ] {
            let error = request(&args(line), &one).unwrap_err();
            assert_eq!(error.code(), USAGE, "{line:?}: {error}");
        }
        let (none, two) = (inventory(&[]), inventory(&["fast", "bulk"]));
        let typed = args(&["db", "--size", "1GiB"]);
        assert!(matches!(
            request(&typed, &none),
            Err(ManualError::NoClasses)
        ));
        let message = request(&typed, &two).unwrap_err().to_string();
        assert!(message.contains("fast, bulk"), "{message}");
        let typed = args(&["db", "--size", "1GiB", "--class", "slow"]);
        let message = request(&typed, &two).unwrap_err().to_string();
        assert!(
            message.contains("slow") && message.contains("fast, bulk"),
            "{message}"
        );
    }

    #[test]
    fn a_volume_in_use_is_refused_before_its_name_is_required() {
        let mut volume = Volume {
            name: "db".into(),
            id: "x".into(),
            manual: true,
            published: true,
            mounts: vec!["/srv/db".into()],
            ..Volume::default()
        };
        for confirm in [None, Some("db")] {
            let error = may_delete(&volume, confirm).unwrap_err();
            assert!(error.to_string().contains("at /srv/db"), "{error}");
            assert_eq!(error.code(), WRONG);
        }
        volume.published = false;
        assert!(may_delete(&volume, Some("db")).is_ok());
        for confirm in [None, Some("d"), Some("")] {
            assert_eq!(may_delete(&volume, confirm).unwrap_err().code(), USAGE);
        }
        let message = may_delete(&volume, None).unwrap_err().to_string();
        assert!(
            message.contains("volume delete db --confirm db"),
            "{message}"
        );
        assert!(!message.contains("CSI"), "{message}");
        volume.manual = false;
        let message = may_delete(&volume, None).unwrap_err().to_string();
        assert!(message.contains("delete its claim instead"), "{message}");
    }
}
