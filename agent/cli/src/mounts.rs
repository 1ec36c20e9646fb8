//! `volume mount` and `volume unmount`: manual mounts.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_common::{
    cli::WRONG,
    pick::{Part, PickError},
    progress::waiting,
    query::QueryError,
};
use drivebay_proto::agent::{HandMount, MountVolumeRequest, UnmountVolumeRequest};

use super::{
    args::MountArgs,
    client::Client,
    complain,
    keys::{SecretError, read_secret},
    name,
    table::printable,
    volumes::list_mounts,
};

/// Limit of mounting. The filesystem of a large, slow drive may be repaired first, for hours; the agent's own limits apply to that.
const MOUNT_DEADLINE: Duration = Duration::from_secs(7 * 3600);
const UNMOUNT_DEADLINE: Duration = Duration::from_secs(90);

/// Mounting or unmounting failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error(transparent)]
    Client(#[from] QueryError),
    #[error("cannot find out which directory {} is", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    #[error("{} is not text (UTF-8)", .0.display())]
    NotText(PathBuf),
    #[error("{failed} of {} could not be mounted", drivebay_common::units::count(*all, "volume"))]
    Some { failed: usize, all: usize },
    #[error(transparent)]
    Pick(#[from] PickError),
    #[error(transparent)]
    Secret(#[from] SecretError),
}

impl MountError {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Client(error) => error.code(),
            Self::Pick(error) => error.code(),
            Self::Directory(..) | Self::NotText(_) | Self::Some { .. } | Self::Secret(_) => WRONG,
        }
    }
}

/// Returns the id of the volume; the typed text if there is none, so that the agent reports what that means.
async fn meant(client: &mut Client, typed: &str) -> Result<String, MountError> {
    let inventory = client.inventory().await?;
    match name::volume(&inventory, typed, Part::Whole) {
        Ok(volume) => Ok(volume.id.clone()),
        Err(none) if none.is_none() => Ok(typed.to_owned()),
        Err(error) => Err(error.into()),
    }
}

/// Mounts one volume, or all persisted mounts, and returns the text to print.
pub async fn mount(args: &MountArgs) -> Result<String, MountError> {
    let mut client = Client::connect(&args.socket.socket).await?;
    let Some(name) = &args.name else {
        return mount_all(&mut client).await;
    };
    let path = match &args.dir {
        Some(dir) => absolute(dir)?,
        None => String::new(),
    };
    let options = args.options.iter().flat_map(|options| options.split(','));
    let volume = meant(&mut client, name).await?;
    let (secret, key_file) = match &args.key_file {
        Some(file) => (read_secret(file)?, kept(file)?),
        None => {
            let file = kept_file(&mut client, &volume).await?;
            (kept_secret(&file)?, file)
        }
    };
    let request = MountVolumeRequest {
        volume,
        path,
        mount_flags: options
            .map(str::trim)
            .filter(|option| !option.is_empty())
            .map(str::to_owned)
            .collect(),
        read_only: args.read_only,
        persist: args.persist,
        secret,
        key_file,
        no_recovery_key: args.no_recovery_key,
    };
    mount_one(&mut client, request).await
}

/// Returns the path of a secret's file to keep with a persisted mount; empty for the standard input.
fn kept(file: &Path) -> Result<String, MountError> {
    match file.as_os_str() == "-" {
        true => Ok(String::new()),
        false => absolute(file),
    }
}

/// Returns the file that is kept with the mount of a volume; empty if there is none.
async fn kept_file(client: &mut Client, volume: &str) -> Result<String, MountError> {
    let mounts = list_mounts(client).await?;
    let mount = mounts.into_iter().find(|mount| mount.volume_id == volume);
    Ok(mount.map(|mount| mount.key_file).unwrap_or_default())
}

/// Reads the secret from a file that is kept with a mount; empty if there is none.
fn kept_secret(file: &str) -> Result<String, MountError> {
    match file {
        "" => Ok(String::new()),
        file => Ok(read_secret(Path::new(file))?),
    }
}

async fn mount_one(client: &mut Client, request: MountVolumeRequest) -> Result<String, MountError> {
    let what = format!("mounting volume {}", printable(&request.volume));
    let call = client.manual_volumes.mount_volume(request);
    let answer = client.agent.answered_within(MOUNT_DEADLINE, call);
    let answer = waiting(&what, answer).await?;
    let mount = answer.into_inner().mount.unwrap_or_default();
    let kept = match mount.persist {
        true => ", also after each start of the host",
        false => "",
    };
    let text = format!("volume {} is mounted at {}{kept}", mount.name, mount.path);
    Ok(printable(&text) + "\n")
}

/// Tries every persisted mount: a missing drive does not affect other mounts.
async fn mount_all(client: &mut Client) -> Result<String, MountError> {
    let kept = list_mounts(client).await?;
    let kept: Vec<HandMount> = kept.into_iter().filter(|mount| mount.persist).collect();
    let (all, mut failed, mut text) = (kept.len(), 0, String::new());
    for mount in kept {
        match mount_kept(client, &mount).await {
            Ok(line) => text.push_str(&line),
            Err(MountError::Client(error)) if error.is_absence() => return Err(error.into()),
            Err(error) => {
                failed += 1;
                eprintln!(
                    "volume {} at {}:",
                    printable(&mount.name),
                    printable(&mount.path)
                );
                complain(&error);
            }
        }
    }
    if failed > 0 {
        print!("{text}");
        return Err(MountError::Some { failed, all });
    }
    if all == 0 {
        text.push_str("no volume is to be mounted at each start of the host\n");
    }
    Ok(text)
}

async fn mount_kept(client: &mut Client, mount: &HandMount) -> Result<String, MountError> {
    let request = MountVolumeRequest {
        volume: mount.volume_id.clone(),
        secret: kept_secret(&mount.key_file)?,
        ..MountVolumeRequest::default()
    };
    mount_one(client, request).await
}

/// Unmounts a volume, and returns the text to print.
pub async fn unmount(socket: &Path, what: &str) -> Result<String, MountError> {
    let mut client = Client::connect(socket).await?;
    // A slash, `.` or `..` makes it a path.
    let is_path = what.contains('/') || what == "." || what == "..";
    let named = match is_path {
        true => absolute(Path::new(what))?,
        false => match meant(&mut client, what).await {
            // It may be unmounted and deleted already; the name must not select another volume then.
            Err(MountError::Pick(PickError::OnlyBeginning { .. })) => what.to_owned(),
            meant => meant?,
        },
    };
    let request = UnmountVolumeRequest { what: named };
    let call = client.manual_volumes.unmount_volume(request);
    let answer = client.agent.answered_within(UNMOUNT_DEADLINE, call).await?;
    let text = match answer.into_inner().mount {
        Some(mount) => format!("volume {} is unmounted from {}", mount.name, mount.path),
        None => format!("{what} is not mounted by hand; nothing to unmount"),
    };
    Ok(printable(&text) + "\n")
}

/// Makes a path absolute without accessing the directory, which may be on an unresponsive drive.
fn absolute(dir: &Path) -> Result<String, MountError> {
    let path =
        std::path::absolute(dir).map_err(|source| MountError::Directory(dir.to_owned(), source))?;
    let text = path.to_str().map(str::to_owned);
    text.ok_or(MountError::NotText(path))
}
