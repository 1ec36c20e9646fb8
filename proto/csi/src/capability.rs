//! Volume capabilities: the subset of CSI's combinations that a local volume supports.

use drivebay_proto::{
    csi::{
        VolumeCapability,
        volume_capability::{AccessType, access_mode::Mode as CsiMode},
    },
    words::Mode,
};

use crate::validate::{self, InvalidRequest, MAX_MAP_BYTES};
use drivebay_common::mount_flags::mount_flags;

/// Access type of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Raw block device; Drivebay makes no filesystem on it.
    Block,
    /// Filesystem that is mounted with these flags.
    Mount {
        /// Filesystem, if the capability names one.
        fs_type: Option<&'static str>,
        /// Mount flags, none of which is refused by name; at most 4 KiB in total.
        flags: Vec<String>,
    },
}

impl Access {
    /// Returns access as a filesystem, without flags.
    pub fn mount(fs_type: Option<&'static str>) -> Self {
        let flags = Vec::new();
        Self::Mount { fs_type, flags }
    }

    /// Returns the word in the agent's protocol: `block` or `mount`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Block => Mode::Block.as_str(),
            Self::Mount { .. } => Mode::Mount.as_str(),
        }
    }
}

/// A capability that a local volume supports, as [`capability`] returns it: every access mode is of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability {
    pub access: Access,
    /// True for access mode SINGLE_NODE_READER_ONLY: the agent stages and publishes the volume read-only.
    pub read_only: bool,
    /// Access mode SINGLE_NODE_SINGLE_WRITER: only one target path.
    pub single_writer: bool,
}

/// Checks one capability of a request. Errs for one that is malformed, and then for one that is not supported.
pub fn capability(given: &VolumeCapability) -> Result<Capability, InvalidRequest> {
    let access_type = given
        .access_type
        .as_ref()
        .ok_or(InvalidRequest::NoAccessType)?;
    let mode = given
        .access_mode
        .as_ref()
        .and_then(|mode| CsiMode::try_from(mode.mode).ok())
        .ok_or(InvalidRequest::NoAccessMode)?;
    // Malformed takes precedence over unsupported.
    let access = match access_type {
        AccessType::Block(_) => Access::Block,
        AccessType::Mount(mount) => {
            let field = "volume_capability.mount.mount_flags";
            let bytes = mount.mount_flags.iter().map(String::len).sum();
            if bytes > MAX_MAP_BYTES {
                return Err(InvalidRequest::TooLong {
                    field,
                    bytes,
                    limit: MAX_MAP_BYTES,
                });
            }
            for flag in &mount.mount_flags {
                validate::text(field, flag, MAX_MAP_BYTES)?;
            }
            if mode == CsiMode::Unknown {
                return Err(InvalidRequest::NoAccessMode);
            }
            let fs_type = validate::filesystem("volume_capability.mount.fs_type", &mount.fs_type)?;
            if !mount.volume_mount_group.is_empty() {
                return Err(InvalidRequest::MountGroup);
            }
            mount_flags(&mount.mount_flags)
                .map_err(|refused| InvalidRequest::MountFlag { field, refused })?;
            Access::Mount {
                fs_type,
                flags: mount.mount_flags.clone(),
            }
        }
    };
    match mode {
        CsiMode::Unknown => Err(InvalidRequest::NoAccessMode),
        CsiMode::MultiNodeReaderOnly
        | CsiMode::MultiNodeSingleWriter
        | CsiMode::MultiNodeMultiWriter => Err(InvalidRequest::MultiNode {
            mode: mode.as_str_name(),
        }),
        CsiMode::SingleNodeWriter
        | CsiMode::SingleNodeReaderOnly
        | CsiMode::SingleNodeSingleWriter
        | CsiMode::SingleNodeMultiWriter => Ok(Capability {
            access,
            read_only: mode == CsiMode::SingleNodeReaderOnly,
            single_writer: mode == CsiMode::SingleNodeSingleWriter,
        }),
    }
}

/// Checks all capabilities of a request. Errs if there is none or if they are of different access types or filesystems; returns one access
/// with the flags of all.
pub fn capabilities(given: &[VolumeCapability]) -> Result<Access, InvalidRequest> {
    if given.is_empty() {
        return Err(InvalidRequest::Missing {
            field: "volume_capabilities",
        });
    }
    let mut unsupported = None;
    let mut all = Vec::with_capacity(given.len());
    for one in given {
        match capability(one) {
            Ok(parsed) => all.push(parsed.access),
            Err(error) if error.is_unsupported() => {
                unsupported.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(error) = unsupported {
        return Err(error);
    }
    let blocks = all.iter().filter(|one| **one == Access::Block).count();
    if blocks > 0 && blocks < all.len() {
        return Err(InvalidRequest::MixedAccess);
    }
    let (mut chosen, mut all_flags) = (None, Vec::new());
    for access in all {
        let Access::Mount { fs_type, flags } = access else {
            return Ok(Access::Block);
        };
        chosen = validate::one_filesystem(chosen, fs_type)?;
        all_flags.extend(flags);
    }
    Ok(Access::Mount {
        fs_type: chosen,
        flags: all_flags,
    })
}

#[cfg(test)]
mod tests {
    use drivebay_proto::csi::volume_capability::{AccessMode, MountVolume};

    use super::*;

    #[test]
    fn a_mount_flag_that_changes_what_is_mounted_is_refused_by_name_and_others_are_the_kernels() {
        let of = |flag: &str| VolumeCapability {
            access_mode: Some(AccessMode {
                mode: CsiMode::SingleNodeWriter.into(),
            }),
            access_type: Some(AccessType::Mount(MountVolume {
                mount_flags: vec!["noatime".to_owned(), flag.to_owned()],
                ..MountVolume::default()
            })),
        };
        for flag in [
            "bind",
            "remount",
            "move",
            "rbind",
            "shared",
            "rslave",
            "loop=/dev/loop0",
        ] {
            let error = capability(&of(flag)).unwrap_err();
            assert!(error.is_unsupported());
            assert!(
                error
                    .to_string()
                    .contains(&format!("option {flag:?} is refused")),
                "{error}"
            );
            assert_eq!(capabilities(&[of(flag)]), Err(error));
        }
        assert!(capability(&of("nobarrier,discard")).is_ok());
    }
}
