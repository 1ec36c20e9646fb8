//! Fits a mounted filesystem to its device. A tool is started only when the filesystem is smaller than what
//! the tool would make of the device.

use std::{fs::File, path::Path};

use super::{
    backend::StageBackend, device::io_error, jobs::FsError, kind::ext4::superblock, tools,
};
use drivebay_model::FsType;
use drivebay_sys::fssize::{XfsGeometry, btrfs_device_bytes, xfs_geometry};
use drivebay_worker::Context;

/// Whether it is smaller than it could be. `node` is read for ext4 (its superblock is in the same cache as
/// the mounted filesystem's), the others are asked through their mount.
pub fn is_smaller(
    fs_type: FsType,
    mount: &Path,
    node: &Path,
    device_bytes: u64,
) -> Result<bool, FsError> {
    let open = |path: &Path| File::open(path).map_err(|error| io_error("opening", path, error));
    let size = |error| io_error("asking the size of the filesystem at", mount, error);
    Ok(match fs_type {
        FsType::Ext4 => {
            use std::os::unix::fs::FileExt;
            let mut head = vec![0; superblock::HEAD_BYTES];
            open(node)?
                .read_exact_at(&mut head, 0)
                .map_err(|error| io_error("reading the superblock of", node, error))?;
            superblock::ext4(&head).is_some_and(|sb| sb.blocks < sb.blocks_on(device_bytes))
        }
        FsType::Xfs => {
            let geometry = xfs_geometry(open(mount)?).map_err(size)?;
            geometry.data_blocks < xfs_blocks_on(geometry, device_bytes)
        }
        FsType::Btrfs => {
            btrfs_device_bytes(open(mount)?).map_err(size)?
                < device_bytes / BTRFS_SECTOR * BTRFS_SECTOR
        }
    })
}

/// btrfs rounds its device's size down to its sector size, of which this is the usual and smallest one here.
const BTRFS_SECTOR: u64 = 4096;
/// btrfs_ioctl_resize answers EINVAL for anything smaller, in bytes.
const BTRFS_LEAST: u64 = 256 * 1024 * 1024;
/// XFS gives up a last allocation group smaller than this (XFS_MIN_AG_BLOCKS).
const XFS_MIN_AG_BLOCKS: u64 = 64;

/// Blocks that xfs_growfs would give it on a device of this size.
fn xfs_blocks_on(geometry: XfsGeometry, device_bytes: u64) -> u64 {
    let blocks = device_bytes / geometry.block_size.max(1);
    let rest = blocks % geometry.ag_blocks.max(1);
    if rest < XFS_MIN_AG_BLOCKS {
        blocks - rest
    } else {
        blocks
    }
}

/// Grows it when it is smaller; true when it was.
pub fn grow(
    backend: &dyn StageBackend,
    fs_type: FsType,
    mount: &Path,
    (device, device_bytes): (&str, u64),
    context: &mut Context,
) -> Result<bool, FsError> {
    let node = super::device::node(device);
    if !is_smaller(fs_type, mount, &node, device_bytes)? {
        return Ok(false);
    }
    if fs_type == FsType::Btrfs && device_bytes < BTRFS_LEAST {
        return Err(FsError::Grow {
            path: mount.display().to_string(),
            output: "the kernel resizes btrfs only to 256 MiB or more; expand the volume to that"
                .to_owned(),
        });
    }
    let (program, args) = match fs_type {
        FsType::Ext4 => ("resize2fs", vec![node.into_os_string()]),
        FsType::Xfs => ("xfs_growfs", vec!["-d".into(), mount.into()]),
        FsType::Btrfs => (
            "btrfs",
            vec![
                "filesystem".into(),
                "resize".into(),
                "max".into(),
                mount.into(),
            ],
        ),
    };
    let output = tools::run(backend, program, args, (device, None), context)?;
    if output.code != Some(0) {
        let mut said = format!("{program}: {}", tools::excerpt(&output));
        if fs_type == FsType::Ext4 && said.contains("Permission denied") {
            said.push_str("; growing a mounted ext4 needs CAP_SYS_RESOURCE, and a filesystem without its error flag");
        }
        return Err(FsError::Grow {
            path: mount.display().to_string(),
            output: said,
        });
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xfs_is_not_grown_by_less_than_its_smallest_group() {
        let geometry = XfsGeometry {
            block_size: 4096,
            ag_blocks: 1000,
            data_blocks: 4000,
        };
        assert_eq!(xfs_blocks_on(geometry, 4000 * 4096), 4000);
        assert_eq!(xfs_blocks_on(geometry, 4063 * 4096), 4000);
        assert_eq!(xfs_blocks_on(geometry, 4064 * 4096 + 4095), 4064);
    }
}
