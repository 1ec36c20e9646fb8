//! Source of a new volume that is requested as a copy. Pure.

use drivebay_csi::{Content, NewVolume, source::Source};
use drivebay_proto::{VolumeId, names};
use uuid::Uuid;

use super::super::{VolumeError, copies::Original};
use drivebay_model::{CopySource, FsType, Mode, units::size_beside};

/// Returns the snapshot or volume of this node that the request names; None: no copy is requested.
///
/// # Errors
/// `NoSource`: the id is of another node, or was never issued by Drivebay.
pub(super) fn copy_source(
    requested: &NewVolume,
    node: &str,
) -> Result<Option<CopySource>, VolumeError> {
    let Some(source) = &requested.source else {
        return Ok(None);
    };
    let uuid = |id: &str| -> Option<Uuid> {
        let id: VolumeId = id.parse().ok()?;
        (id.node == node).then_some(id.uuid)
    };
    let parsed = match source {
        Source::Snapshot(id) => uuid(id).map(CopySource::Snapshot),
        Source::Volume(id) => uuid(id).map(CopySource::Volume),
    };
    let unknown = || VolumeError::NoSource {
        what: source.to_string(),
    };
    parsed.map(Some).ok_or_else(unknown)
}

/// Errs unless a volume as requested can be a copy of `original`.
pub(super) fn fits(original: &Original, requested: &NewVolume) -> Result<(), VolumeError> {
    let invalid = |field, why| Err(VolumeError::Invalid { field, why });
    // The copy has the source's header, with its key: it cannot be encrypted otherwise.
    let why = match (original.is_encrypted(), requested.is_encrypted()) {
        (true, false) => {
            Some("what is copied is encrypted; use a StorageClass with encryption: luks2")
        }
        (false, true) => Some(
            "what is copied is not encrypted; use a StorageClass without it, or copy the files to an encrypted volume",
        ),
        _ => None,
    };
    if let Some(why) = why {
        return invalid(names::PARAM_ENCRYPTION, why.to_owned());
    }
    let (has, wanted) = (original.size_bytes, requested.range.required);
    if wanted < has {
        let why = format!(
            "{} is less than the {} of what is copied",
            size_beside(wanted, has),
            size_beside(has, wanted)
        );
        return invalid("required_bytes", why);
    }
    let (mode, fs_type) = match &requested.content {
        Content::Block => (Mode::Block, None),
        Content::Mount { fs_type, .. } => (Mode::Mount, *fs_type),
    };
    if mode != original.mode {
        let why = format!(
            "{mode} was requested, and what is copied is {}",
            original.mode
        );
        return invalid("mode", why);
    }
    match (fs_type.and_then(FsType::parse), original.fs_type) {
        (Some(wanted), Some(has)) if wanted != has => invalid(
            "fs_type",
            format!("{wanted} was requested, and what is copied has {has}"),
        ),
        _ => Ok(()),
    }
}
