//! The node's findings about quarantined volumes. Pure.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use drivebay_model::{Finding, Volume, VolumeState, finding::Code};

/// Returns a finding for each quarantined volume that is mounted, published, or otherwise in use: it is not erased
/// before that ends.
pub(super) fn findings(
    volumes: &BTreeMap<Uuid, Volume>,
    kept_in_use: &BTreeSet<Uuid>,
) -> Vec<Finding> {
    let quarantined = volumes
        .values()
        .filter(|volume| volume.state == VolumeState::Quarantined);
    let held = quarantined.filter(|one| one.in_use || kept_in_use.contains(&one.uuid));
    let finding = |volume: &Volume| {
        let (name, uuid) = (&volume.placed.record.name, volume.uuid);
        Finding::new(
            Code::QuarantinedInUse,
            format!(
                "volume {name} ({uuid}) was deleted, is in quarantine, and is still in use; it is not erased before that ends. Unmount it, or delete the pod; `drivebay-agent volume restore {uuid}` gives the volume back"
            ),
        )
    };
    held.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{DriveState, RecordState, samples};

    #[test]
    fn a_quarantined_volume_that_is_in_use_is_a_finding_with_a_stable_text() {
        let drive = samples::drive("sda", DriveState::Claimed, None);
        let findings_of = |state, in_use, kept| {
            let volume = Volume {
                state,
                in_use,
                ..samples::volume(&drive, samples::placed(7, RecordState::New))
            };
            let uuid = volume.uuid;
            let kept: BTreeSet<_> = if kept { [uuid].into() } else { [].into() };
            findings(&[(uuid, volume)].into(), &kept)
        };
        let quarantined = VolumeState::Quarantined;
        let by_mount = findings_of(quarantined, true, false);
        assert_eq!(by_mount.len(), 1);
        assert_eq!(by_mount[0].code, "QuarantinedInUse");
        assert!(by_mount[0].message.contains("volume restore"));
        assert_eq!(findings_of(quarantined, true, true), by_mount);
        assert_eq!(findings_of(quarantined, false, true), by_mount);
        assert_eq!(findings_of(quarantined, false, false), []);
        assert_eq!(findings_of(VolumeState::Ready, true, true), []);
    }
}
