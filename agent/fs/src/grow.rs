//! Grows a mounted filesystem to its device. A tool is started only if the filesystem is smaller than the tool would make it
//! on this device.

use std::path::Path;

use super::{backend::StageBackend, jobs::FsError, kind, tools};
use drivebay_model::FsType;
use drivebay_worker::Context;

/// Grows the filesystem if it is smaller than its device; true if it was.
pub fn grow(
    backend: &dyn StageBackend,
    fs_type: FsType,
    mount: &Path,
    (device, device_bytes): (&str, u64),
    context: &mut Context,
) -> Result<bool, FsError> {
    let kind = kind::of(fs_type);
    let node = super::device::node(device);
    if !kind.is_smaller(mount, &node, device_bytes)? {
        return Ok(false);
    }
    let failed = |output| FsError::Grow {
        path: mount.display().to_string(),
        output,
    };
    if let Some((least, why)) = kind.facts().least_growth
        && device_bytes < least
    {
        return Err(failed(why.to_owned()));
    }
    let (program, args) = kind.grow(mount, &node);
    let output = tools::run(backend, program, args, (device, None), context)?;
    if output.code != Some(0) {
        let message = format!("{}: {}", program.name, tools::excerpt(&output));
        return Err(failed(match kind.facts().growth_hint {
            Some((part, hint)) if message.contains(part) => format!("{message}; {hint}"),
            _ => message,
        }));
    }
    Ok(true)
}
