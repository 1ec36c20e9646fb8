//! Makes a filesystem with a planned UUID. `stage::format_guard` decides whether it may be made; this verifies only that the
//! device is not in use, and that it holds exactly the planned filesystem afterwards.

use super::{
    backend::{StageBackend, probe_flushed},
    device::Partition,
    jobs::FsError,
    kind::{self, MkfsPlan},
    mkfs_options::check_mkfs_options,
    stage, tools,
};
use drivebay_model::Signatures;
use drivebay_worker::Context;

/// Makes the filesystem, flushes it to the drive, and probes the device. Errs if the device is mounted or held elsewhere, or
/// if it holds anything but the planned filesystem afterwards.
pub fn make(
    backend: &dyn StageBackend,
    partition: &Partition,
    plan: &MkfsPlan<'_>,
    context: &mut Context,
) -> Result<(), FsError> {
    check_mkfs_options(plan.fs_type, plan.options)?;
    partition.must_be_free()?;
    let kind = kind::of(plan.fs_type);
    let (program, args) = (kind.facts().mkfs, kind.mkfs(plan, &partition.node));
    let failed = |output| FsError::Mkfs {
        tool: program.name.to_owned(),
        device: partition.device.clone(),
        output,
    };
    // mkfs.btrfs searches all devices that it sees for its UUID.
    let on = (partition.device.as_str(), Some(partition.node.as_path()));
    let output = tools::run(backend, program, args, on, context)?;
    if output.code != Some(0) {
        return Err(failed(tools::excerpt(&output)));
    }
    match probe_flushed(backend, partition, plan.volume, context)? {
        Signatures::Found(signatures)
            if stage::is_exactly(&signatures, plan.fs_type, plan.fs_uuid) =>
        {
            Ok(())
        }
        other => Err(failed(format!(
            "it reported success, and then {other:?} was found instead of {} {}",
            plan.fs_type, plan.fs_uuid
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use uuid::Uuid;

    use super::*;
    use drivebay_model::FsType;

    fn line(fs_type: FsType, options: &[&str], over_own: bool) -> String {
        let options: Vec<String> = options.iter().map(|&o| o.to_owned()).collect();
        let plan = MkfsPlan {
            volume: Uuid::nil(),
            fs_type,
            fs_uuid: Uuid::nil(),
            options: &options,
            over_own,
        };
        let kind = kind::of(fs_type);
        let words: Vec<_> = kind
            .mkfs(&plan, Path::new("/dev/sda2"))
            .iter()
            .map(|a| a.to_string_lossy().into_owned())
            .collect();
        format!("{} {}", kind.facts().mkfs.name, words.join(" "))
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
        let plan = MkfsPlan {
            volume: nil,
            fs_type: FsType::Btrfs,
            fs_uuid: nil,
            options: &[],
            over_own: false,
        };
        let trial = kind::of(FsType::Btrfs).try_mkfs(&plan, 4096, Path::new("/f"));
        assert_eq!(trial.args, ["-q", "-K", "/f"]);
        assert_eq!(
            line(FsType::Btrfs, &["-d", "single"], false),
            format!("mkfs.btrfs -q -K -d single -U {nil} /dev/sda2")
        );
    }
}
