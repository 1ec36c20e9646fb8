//! Making a filesystem with a planned UUID. Whether it may be made is `stage::format_guard`'s decision;
//! this checks only that nobody holds the device, and that afterwards exactly the planned one is there.

use std::ffi::OsString;

use uuid::Uuid;

use super::{
    backend::StageBackend,
    device::{Partition, io_error},
    jobs::FsError,
    mkfs_options::check_mkfs_options,
    stage, tools,
};
use drivebay_model::{Cause, FsType, Signatures};
use drivebay_worker::Context;

/// What to make.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The volume, for messages.
    pub volume: Uuid,
    pub fs_type: FsType,
    /// Its UUID, on the volume's record already.
    pub fs_uuid: Uuid,
    /// Further arguments.
    pub options: &'a [String],
    /// Our own unfinished one, never mounted, is there: mkfs.xfs must be told to overwrite it.
    pub over_own: bool,
}

/// Program and arguments.
///
/// No discard: the space was erased when its last owner left, and discarding terabytes would make the first
/// mount slow. ext4 reserves nothing for root, since a volume has one owner; `-m` changes that. `-f`/`-F` are
/// left out on purpose: on an Empty device they are not needed, and without them mkfs.xfs and mkfs.btrfs
/// refuse whatever we failed to see.
pub fn command(plan: &Plan<'_>, node: &std::path::Path) -> (&'static str, Vec<OsString>) {
    let mut args: Vec<OsString> = Vec::new();
    let mut push = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    let uuid = plan.fs_uuid.to_string();
    let program = match plan.fs_type {
        FsType::Ext4 => {
            push(&["-q", "-m", "0"]);
            // mke2fs takes the last -E alone, so the request's extended options are joined to ours.
            let (extended, rest) = split_extended(plan.options);
            push(&["-E", &extended]);
            push(&rest.iter().map(String::as_str).collect::<Vec<_>>());
            push(&["-U", &uuid]);
            "mkfs.ext4"
        }
        FsType::Xfs => {
            push(&["-q", "-K"]);
            if plan.over_own {
                push(&["-f"]);
            }
            push(&plan.options.iter().map(String::as_str).collect::<Vec<_>>());
            push(&["-m", &format!("uuid={uuid}")]);
            "mkfs.xfs"
        }
        FsType::Btrfs => {
            push(&["-q", "-K"]);
            push(&plan.options.iter().map(String::as_str).collect::<Vec<_>>());
            push(&["-U", &uuid]);
            "mkfs.btrfs"
        }
    };
    args.push(node.into());
    (program, args)
}

/// The same as a trial that makes nothing on a device: `file` is a file of the size, taken for a device with logical sectors of
/// `sector` bytes; mkfs.ext4 is told so by [SECTOR_VARIABLE].
pub fn trial_command(
    plan: &Plan<'_>,
    sector: u32,
    file: &std::path::Path,
) -> (&'static str, Vec<OsString>) {
    let (program, mut args) = command(plan, file);
    match plan.fs_type {
        FsType::Ext4 => args.insert(0, "-n".into()),
        FsType::Xfs => {
            args.insert(0, "-N".into());
            // Options that name one are compared with it by `xfs_sector`: twice it is an error.
            if sector > 512 && xfs_sector(plan.options).is_none() {
                args.splice(1..1, ["-s".into(), format!("size={sector}").into()]);
            }
        }
        // Given a UUID it looks for it on every device that it sees, of which one may not answer.
        FsType::Btrfs => {
            let uuid = args.len().saturating_sub(3);
            args.drain(uuid..uuid + 2);
        }
    }
    (program, args)
}

/// Read by mkfs.ext4: the logical sector size, bytes, that it takes its device to have.
pub const SECTOR_VARIABLE: &str = "MKE2FS_DEVICE_SECTSIZE";

/// The value of `-s size=` among options of mkfs.xfs, as it is given; None: there is no such option.
pub fn xfs_sector(options: &[String]) -> Option<&str> {
    let at = options.iter().position(|one| one.starts_with("-s"))?;
    let attached = &options[at][2..];
    let value = match attached.is_empty() {
        true => options.get(at + 1)?.as_str(),
        false => attached,
    };
    Some(value.strip_prefix("size=").unwrap_or(value))
}

fn split_extended(options: &[String]) -> (String, Vec<String>) {
    let (mut extended, mut rest) = ("nodiscard".to_owned(), Vec::new());
    let mut each = options.iter();
    while let Some(option) = each.next() {
        match option.strip_prefix("-E") {
            Some("") => extended = format!("{extended},{}", each.next().map_or("", String::as_str)),
            Some(value) => extended = format!("{extended},{value}"),
            None => rest.push(option.clone()),
        }
    }
    (extended, rest)
}

/// Makes it, flushes it to the drive, and looks at it again.
pub fn make(
    backend: &dyn StageBackend,
    partition: &Partition,
    plan: &Plan<'_>,
    context: &mut Context,
) -> Result<(), FsError> {
    check_mkfs_options(plan.fs_type, plan.options)?;
    // The tools open it exclusively themselves, so this one is let go before they start.
    drop(partition.hold().map_err(|error| {
        io_error(
            "taking exclusively (is it mounted or held elsewhere?)",
            &partition.node,
            error,
        )
    })?);
    let (program, args) = command(plan, &partition.node);
    let failed = |output| FsError::Mkfs {
        tool: program.to_owned(),
        device: partition.device.clone(),
        output,
    };
    // mkfs.btrfs looks for its UUID on every device that it sees.
    let on = (partition.device.as_str(), Some(partition.node.as_path()));
    let output = tools::run(backend, program, args, on, context)?;
    if output.code != Some(0) {
        return Err(failed(tools::excerpt(&output)));
    }
    context.step(&format!("flushing {}", partition.device));
    partition
        .flush()
        .map_err(|error| io_error("flushing", &partition.node, error))?;
    let probe = |source: Cause| FsError::Probe {
        uuid: plan.volume,
        device: partition.device.clone(),
        source,
    };
    match backend.probe(&partition.node).map_err(probe)? {
        Signatures::Found(found) if stage::is_exactly(&found, plan.fs_type, plan.fs_uuid) => Ok(()),
        other => Err(failed(format!(
            "it reported success, and then {other:?} was found instead of {} {}",
            plan.fs_type, plan.fs_uuid
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn line(fs_type: FsType, options: &[&str], over_own: bool) -> String {
        let options: Vec<String> = options.iter().map(|&o| o.to_owned()).collect();
        let plan = Plan {
            volume: Uuid::nil(),
            fs_type,
            fs_uuid: Uuid::nil(),
            options: &options,
            over_own,
        };
        let (program, args) = command(&plan, Path::new("/dev/sda2"));
        let words: Vec<_> = args
            .iter()
            .map(|a| a.to_string_lossy().into_owned())
            .collect();
        format!("{program} {}", words.join(" "))
    }

    #[test]
    fn the_planned_uuid_and_the_device_come_last_and_nothing_is_forced() {
        let nil = Uuid::nil();
        assert_eq!(
            line(FsType::Ext4, &[], false),
            format!("mkfs.ext4 -q -m 0 -E nodiscard -U {nil} /dev/sda2")
        );
        assert_eq!(
            line(
                FsType::Ext4,
                &["-E", "stride=4", "-b", "4096", "-Ediscard"],
                true
            ),
            format!("mkfs.ext4 -q -m 0 -E nodiscard,stride=4,discard -b 4096 -U {nil} /dev/sda2")
        );
        assert_eq!(
            line(FsType::Xfs, &["-m", "crc=1"], false),
            format!("mkfs.xfs -q -K -m crc=1 -m uuid={nil} /dev/sda2")
        );
        assert_eq!(
            line(FsType::Xfs, &[], true),
            format!("mkfs.xfs -q -K -f -m uuid={nil} /dev/sda2")
        );
        let plan = Plan {
            volume: nil,
            fs_type: FsType::Btrfs,
            fs_uuid: nil,
            options: &[],
            over_own: false,
        };
        let (_, trial) = trial_command(&plan, 4096, Path::new("/f"));
        assert_eq!(trial, ["-q", "-K", "/f"]);
        assert_eq!(
            line(FsType::Btrfs, &["-d", "single"], false),
            format!("mkfs.btrfs -q -K -d single -U {nil} /dev/sda2")
        );
    }
}
