//! The mapped device over a volume's own one: of an encrypted volume, or of one with lost sectors.

use super::{
    device::Device,
    error::{LayoutError, host_error, in_use},
};
use drivebay_model::{Contents, DriveId, Placed};

/// Adds the mapped devices of volumes that have one and are open.
pub(super) fn find<D: Device + ?Sized>(
    dev: &D,
    contents: &mut Contents,
) -> Result<(), LayoutError> {
    let id = contents.label.drive_id.clone();
    for placed in &mut contents.volumes {
        let mapping = dev.mapping(placed);
        placed.mapping =
            mapping.map_err(host_error(&id, "looking for the mapped device of a volume"))?;
    }
    Ok(())
}

/// Removes the mapped device of a volume that is not used any more. Errs with `InUse`
/// while it is open.
pub(super) fn unmap<D: Device + ?Sized>(
    dev: &D,
    id: &DriveId,
    placed: &Placed,
) -> Result<(), LayoutError> {
    dev.unmap(placed)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => in_use(placed, &dev.holders(placed)),
            _ => host_error(id, "removing the mapped device of a volume")(error),
        })
}
