//! `nomad-plugin`: the dynamic host volume plugin of Nomad (1.10 and newer) for this host's volumes.
//!
//! Nomad executes it with an operation and an environment of DHV_* variables only, reads JSON from its standard output, and kills it after
//! a minute. Nomad also repeats the creation of its volumes at each start of its client: that mounts them after a boot, and must never
//! create an empty volume in place of a lost one.

use std::{
    env, fs,
    io::{self, ErrorKind},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
    time::Duration,
};

use clap::{Args, ValueEnum};
use drivebay_common::{cli::chain, query::QueryError};
use drivebay_proto::{
    agent::{
        CreateVolumeRequest, DeleteVolumeRequest, ExpandVolumeRequest, InventoryUpdate,
        MountVolumeRequest, UnmountVolumeRequest, Volume,
    },
    names,
    words::Mode,
};
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout};

use super::{args::SocketArg, client::Client, manual};

pub mod error;
pub mod request;

pub use error::NomadError;
use request::{Create, Target, create_args};

/// Limit of an operation: Nomad kills a plugin after 60 s.
const LIMIT: Duration = Duration::from_secs(55);
/// Time to wait for an agent that is starting.
const AGENT_LIMIT: Duration = Duration::from_secs(30);
/// Delay between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(500);
/// Owner and mode of a root directory that are unchanged since mkfs.
const FRESH: (u32, u32, u32) = (0, 0, 0o755);

/// Arguments of `nomad-plugin`.
#[derive(Debug, Args)]
pub struct NomadArgs {
    /// What Nomad asks for; the rest is in its DHV_* variables
    #[arg(value_enum)]
    pub operation: Operation,
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Operations that Nomad executes a plugin for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// Print the version; starts no process and makes no call
    Fingerprint,
    /// Create a volume if there is none of this id, expand it if it is too small, and mount it
    Create,
    /// Unmount and delete a volume that `create` made
    Delete,
}

#[derive(Debug, Serialize)]
struct Version {
    version: &'static str,
}

#[derive(Debug, Serialize)]
struct Created<'a> {
    path: &'a Path,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Failed {
    error: String,
}

/// Executes Nomad's operation, and returns the text to print.
pub async fn run(args: &NomadArgs) -> Result<String, NomadError> {
    let variable = |name: &str| env::var_os(name);
    match args.operation {
        Operation::Fingerprint => Ok(serde_json::to_string(&Version {
            version: env!("CARGO_PKG_VERSION"),
        })?),
        Operation::Create => {
            let spec = Create::read(variable)?;
            let done = timeout(LIMIT, create(&args.socket.socket, &spec)).await;
            done.unwrap_or_else(|_| Err(late(&spec.target)))
        }
        Operation::Delete => {
            let target = Target::read(variable)?;
            let done = timeout(LIMIT, delete(&args.socket.socket, &target)).await;
            done.unwrap_or_else(|_| Err(late(&target)))
        }
    }
}

/// Returns the failure as JSON, which Nomad shows.
pub fn refusal(error: &NomadError) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Failed {
        error: chain(error),
    })
}

fn late(target: &Target) -> NomadError {
    NomadError::Late {
        volume: target.volume.clone(),
    }
}

/// Connects, and waits for a starting agent until it has scanned its drives.
async fn connect(socket: &Path) -> Result<(Client, InventoryUpdate), NomadError> {
    let end = Instant::now() + AGENT_LIMIT;
    loop {
        let attempt = async {
            let mut client = Client::connect(socket).await?;
            let inventory = client.inventory().await?;
            Ok::<_, QueryError>((client, inventory))
        };
        let error = match attempt.await {
            Ok((client, inventory)) if inventory.ready => return Ok((client, inventory)),
            Ok(_) => NomadError::NotReady,
            Err(error @ (QueryError::Nobody { .. } | QueryError::Ended { .. })) => error.into(),
            Err(error) => return Err(error.into()),
        };
        if Instant::now() >= end {
            return Err(error);
        }
        sleep(PAUSE).await;
    }
}

async fn create(socket: &Path, spec: &Create) -> Result<String, NomadError> {
    let (mut client, inventory) = connect(socket).await?;
    let Target { volume: name, at } = &spec.target;
    let existing = client.find_volume(name).await?;
    let is_new = existing.is_none();
    let volume = match existing {
        Some(volume) => {
            matches_spec(&volume, spec)?;
            enlarged(&mut client, volume, spec).await?
        }
        // Created by the first create, and removed only by delete.
        None if fs::symlink_metadata(at).is_ok() => {
            return Err(NomadError::Lost {
                volume: name.clone(),
                at: at.clone(),
            });
        }
        None => made(&mut client, &inventory, spec).await?,
    };
    if let Err(error) = in_place(&mut client, spec).await {
        // Nomad drops a volume whose first create failed. It was empty.
        return Err(match is_new {
            true => taken_back(&mut client, &spec.target, &volume, error).await,
            false => error,
        });
    }
    Ok(serde_json::to_string(&created(at, &volume))?)
}

/// Returns the properties that Nomad reads; `bytes` is the capacity that it shows. It does not read free space.
fn created<'a>(at: &'a Path, volume: &Volume) -> Created<'a> {
    Created {
        path: at,
        bytes: volume.size_bytes,
    }
}

/// Errs unless an existing volume is the requested one. Pure.
fn matches_spec(volume: &Volume, spec: &Create) -> Result<(), NomadError> {
    is_ours(volume)?;
    let parameters = &spec.parameters;
    let none = String::new();
    let kept = |key: &str| volume.parameters.get(key).unwrap_or(&none);
    for (what, has, wish) in [
        ("class", &volume.class, &parameters.class),
        ("filesystem", &volume.fs_type, &parameters.fs_type),
        (
            "mkfsOptions",
            kept(names::PARAM_MKFS_OPTIONS),
            &parameters.mkfs_options,
        ),
        (
            "mountOptions",
            kept(names::PARAM_MOUNT_OPTIONS),
            &parameters.mount_options,
        ),
    ] {
        if let Some(wish) = wish.as_ref().filter(|wish| *wish != has) {
            return Err(NomadError::Differs {
                volume: volume.name.clone(),
                what,
                has: has.clone(),
                requested: wish.clone(),
            });
        }
    }
    Ok(())
}

fn is_ours(volume: &Volume) -> Result<(), NomadError> {
    match volume.manual && volume.known_mode() == Some(Mode::Mount) {
        true => Ok(()),
        false => Err(NomadError::NotOurs {
            volume: volume.name.clone(),
        }),
    }
}

/// Returns the request to the agent. Pure.
fn new_volume(
    spec: &Create,
    inventory: &InventoryUpdate,
) -> Result<CreateVolumeRequest, NomadError> {
    let mut request = manual::request(&create_args(spec), inventory)?;
    if spec.largest > 0 {
        if request.required_bytes > spec.largest {
            return Err(NomadError::OverLargest {
                largest: spec.largest,
                size: request.required_bytes,
            });
        }
        request.limit_bytes = spec.largest;
    }
    request.created_for = Some(spec.created_for.clone());
    Ok(request)
}

async fn made(
    client: &mut Client,
    inventory: &InventoryUpdate,
    spec: &Create,
) -> Result<Volume, NomadError> {
    let request = new_volume(spec, inventory)?;
    let call = client.manual_volumes.create_volume(request);
    let answer = client.agent.answered_within(LIMIT, call).await?;
    let volume = answer.into_inner().volume;
    Ok(volume.ok_or_else(|| client.agent.senseless("no volume"))?)
}

/// Expands the volume if it is too small. A larger one than requested is not changed: volumes do not shrink. Requested each time, since an
/// earlier call may have ended before the filesystem grew.
async fn enlarged(
    client: &mut Client,
    volume: Volume,
    spec: &Create,
) -> Result<Volume, NomadError> {
    let size = volume.size_bytes.max(spec.smallest);
    let call = client.manual_volumes.expand_volume(ExpandVolumeRequest {
        id: volume.id,
        required_bytes: size,
        limit_bytes: if spec.largest < size { 0 } else { spec.largest },
    });
    let answer = client.agent.answered_within(LIMIT, call).await?;
    let volume = answer.into_inner().volume;
    Ok(volume.ok_or_else(|| client.agent.senseless("no volume"))?)
}

/// Mounts the volume, and sets the owner of its root directory.
async fn in_place(client: &mut Client, spec: &Create) -> Result<(), NomadError> {
    let Target { volume, at } = &spec.target;
    fs::create_dir_all(at).map_err(failed("make", at))?;
    let call = client.manual_volumes.mount_volume(MountVolumeRequest {
        volume: volume.clone(),
        path: spec.target.path()?.to_owned(),
        persist: true,
        ..MountVolumeRequest::default()
    });
    client.agent.answered_within(LIMIT, call).await?;
    owned(spec)
}

/// Sets owner and mode of the root directory, unless they were changed already.
fn owned(spec: &Create) -> Result<(), NomadError> {
    let at = &spec.target.at;
    let now = fs::metadata(at).map_err(failed("read the mode of", at))?;
    if (now.uid(), now.gid(), now.mode() & 0o7777) != FRESH {
        return Ok(());
    }
    let owner = spec.parameters.owner;
    if owner.uid.is_some() || owner.gid.is_some() {
        chown(at, owner.uid, owner.gid).map_err(failed("change the owner of", at))?;
    }
    if let Some(mode) = owner.mode {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(at, mode).map_err(failed("change the mode of", at))?;
    }
    Ok(())
}

async fn taken_back(
    client: &mut Client,
    target: &Target,
    volume: &Volume,
    error: NomadError,
) -> NomadError {
    match removed(client, target, volume).await {
        Ok(()) => error,
        Err(undo) => NomadError::LeftOver {
            volume: target.volume.clone(),
            error: Box::new(error),
            undo: Box::new(undo),
        },
    }
}

async fn delete(socket: &Path, target: &Target) -> Result<String, NomadError> {
    let (mut client, _) = connect(socket).await?;
    match client.find_volume(&target.volume).await? {
        Some(volume) => {
            is_ours(&volume)?;
            removed(&mut client, target, &volume).await?;
        }
        None => no_directory(&target.at)?,
    }
    Ok(String::new())
}

async fn removed(client: &mut Client, target: &Target, volume: &Volume) -> Result<(), NomadError> {
    let unmounted = client.manual_volumes.unmount_volume(UnmountVolumeRequest {
        what: target.volume.clone(),
    });
    client.agent.answered_within(LIMIT, unmounted).await?;
    let deleted = client.manual_volumes.delete_volume(DeleteVolumeRequest {
        id: volume.id.clone(),
        quarantine: false,
    });
    client.agent.answered_within(LIMIT, deleted).await?;
    no_directory(&target.at)
}

/// Removes the mount point; a directory with content is left.
fn no_directory(at: &Path) -> Result<(), NomadError> {
    match fs::remove_dir(at) {
        Ok(()) => Ok(()),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(()),
            _ => Err(failed("remove", at)(error)),
        },
    }
}

fn failed(what: &'static str, at: &Path) -> impl Fn(io::Error) -> NomadError {
    let at = at.to_owned();
    move |source| NomadError::Directory {
        what,
        at: at.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use drivebay_common::terminal::Terminal;
    use drivebay_proto::agent::{Class, Condition};

    use drivebay_view::show::claim;

    use super::*;
    use crate::{
        Cli, Command,
        args::Format,
        health::{self, health},
        nomad::request::tests::spec_with,
        volumes,
        watch::OutputTarget,
    };

    #[test]
    fn a_volume_is_listed_and_picked_under_the_name_that_nomads_user_gave() {
        let db = Volume {
            id: "7b1d5c1e-0000-4000-8000-000000000001@n1".into(),
            name: "nomad-1".into(),
            manual: true,
            created_for: Some(spec_with("null").created_for),
            conditions: vec![Condition {
                abnormal: true,
                status: "DEGRADED".into(),
                reason: "ReadOnly".into(),
                ..Condition::default()
            }],
            ..Volume::default()
        };
        let inventory = InventoryUpdate {
            node_id: "n1".into(),
            ready: true,
            volumes: vec![db, Volume::default()],
            ..InventoryUpdate::default()
        };
        let (now, terminal) = (0, Terminal::NONE);
        let line = ["x", "volumes", "default/db", "--no-headers"];
        let Command::Volumes(args) = Cli::parse_from(line).command else {
            panic!("volumes");
        };
        let listed =
            volumes::render(&inventory, &[], &[], &args, OutputTarget { now, terminal }).unwrap();
        assert!(
            listed.starts_with("nomad-1 ") && listed.contains(" default/db "),
            "{listed}"
        );
        let output = health::HealthOutput {
            format: Format::Table,
            now,
            terminal,
        };
        let (text, _) = health(&inventory, output).unwrap();
        assert!(text.contains("volume nomad-1 (default/db)\n"), "{text}");
    }

    #[test]
    fn a_volume_is_made_under_nomads_id_with_what_its_user_calls_it_and_its_capacity_is_returned() {
        let inventory = InventoryUpdate {
            classes: vec![Class {
                name: "fast".into(),
                fs_type: "ext4".into(),
                extent_bytes: 4 << 20,
                ..Class::default()
            }],
            ..InventoryUpdate::default()
        };
        let request = new_volume(&spec_with("null"), &inventory).unwrap();
        assert!(request.name.starts_with("nomad-"), "{request:?}");
        assert_eq!(
            (request.required_bytes, request.limit_bytes),
            (64 << 20, 128 << 20)
        );
        let volume = Volume {
            size_bytes: 68 << 20,
            manual: true,
            created_for: request.created_for,
            ..Volume::default()
        };
        assert_eq!(claim(&volume), "default/db");
        let answer = created(Path::new("/srv/nomad/1"), &volume);
        assert_eq!(
            serde_json::to_string(&answer).unwrap(),
            r#"{"path":"/srv/nomad/1","bytes":71303168}"#
        );
    }

    #[test]
    fn a_volume_that_is_there_is_taken_only_if_it_is_the_one_that_is_requested() {
        let volume = Volume {
            name: "nomad-1".into(),
            class: "fast".into(),
            fs_type: "xfs".into(),
            mode: "mount".into(),
            manual: true,
            ..Volume::default()
        };
        let plain = spec_with("null");
        assert!(matches_spec(&volume, &plain).is_ok());
        let same = spec_with(r#"{"class":"fast","fsType":"xfs"}"#);
        assert!(matches_spec(&volume, &same).is_ok());
        let other = spec_with(r#"{"fsType":"ext4"}"#);
        let refused = matches_spec(&volume, &other).unwrap_err().to_string();
        assert!(refused.contains("filesystem \"xfs\""), "{refused}");
        // Also one that would be refused for a new volume.
        for (parameters, what) in [
            (r#"{"mountOptions":"bind"}"#, "mountOptions"),
            (r#"{"mkfsOptions":"-b 99"}"#, "mkfsOptions"),
        ] {
            let refused = matches_spec(&volume, &spec_with(parameters)).unwrap_err();
            assert!(refused.to_string().contains(what), "{refused}");
        }
        for not_ours in [
            Volume {
                manual: false,
                ..volume.clone()
            },
            Volume {
                mode: "block".into(),
                ..volume.clone()
            },
        ] {
            let refused = matches_spec(&not_ours, &plain).unwrap_err();
            assert!(matches!(refused, NomadError::NotOurs { .. }), "{refused}");
        }
    }
}
