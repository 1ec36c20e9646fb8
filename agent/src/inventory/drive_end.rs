//! Whether a volume owns the end of its drive, where partition tables and md superblocks are looked for. Pure.

use crate::{
    carve::lvm::plan::TAIL,
    model::{Drive, Finding, Layout, finding::Code},
};

/// What is to be said of a drive that an earlier release claimed; later ones leave its last MiB to no volume.
pub(super) fn condition(drive: &Drive) -> Option<Finding> {
    let contents = drive.contents.as_ref();
    let contents = contents.filter(|contents| contents.layout == Layout::Lvm)?;
    let end = drive.facts.size_bytes.saturating_sub(TAIL);
    let owner = contents
        .volumes
        .iter()
        .find(|placed| placed.pieces.iter().any(|run| run.end() > end))?;
    Some(Finding::new(
        Code::VolumeOwnsDriveEnd,
        format!(
            "volume {} owns the last bytes of the drive, which an earlier release claimed: a partition table or md superblock \
             that its user writes there is ignored by Drivebay, and not by other programs of the host. Move its data to a \
             volume of another drive, and delete it",
            owner.record.uuid
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DriveState, Extent, MIB, RecordState, samples};

    #[test]
    fn only_an_lv_in_the_last_mib_is_told_of() {
        let told = |layout: Layout, from_end: u64| {
            let mut placed = samples::placed(1, RecordState::New);
            let mut drive = samples::drive("sda", DriveState::Claimed, None);
            let start = drive.facts.size_bytes - 8 * MIB;
            placed.pieces = vec![Extent {
                start,
                len: 8 * MIB - from_end,
            }];
            let mut contents = samples::contents(1, 1, vec![placed], 0);
            contents.layout = layout;
            drive.contents = Some(contents);
            condition(&drive).map(|finding| finding.code)
        };
        let code = Some(Code::VolumeOwnsDriveEnd.to_string());
        assert_eq!(told(Layout::Lvm, 0), code);
        assert_eq!(told(Layout::Lvm, MIB - 1), code);
        assert_eq!(told(Layout::Lvm, MIB), None);
        assert_eq!(told(Layout::Partition, 0), None);
    }
}
