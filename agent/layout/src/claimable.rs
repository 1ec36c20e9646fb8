//! Conditions that a drive must meet before anything is written to it, for both layouts.

use super::{
    device::{self, Medium},
    error::{LayoutError, io_error, refused},
    gpt,
    lvm::metadata,
};
use crate::probe::{Blankness, GptState, Probe, Probed};
use drivebay_model::Signatures;
use drivebay_model::{Cause, ClaimPolicy, DriveId, DriveRef, Extent, MIB, drive::PartitionFacts};
use drivebay_worker::{Context, Job};

/// Bytes at both ends that must be zeros (design invariant 2).
pub(super) const EDGE: u64 = 16 * MIB;

/// Fails if the kernel has a partition of the drive.
pub(super) fn no_partition(
    id: &DriveId,
    partition: Option<&PartitionFacts>,
) -> Result<(), LayoutError> {
    match partition {
        Some(facts) => Err(refused(
            id,
            format!("HasPartitions: the kernel has {}", facts.kernel_name),
        )),
        None => Ok(()),
    }
}

/// Fails unless the drive certainly is no LVM physical volume. Data in an LVM volume may look like
/// the table of an unfinished claim.
pub(super) fn no_pv<D: Medium + ?Sized>(dev: &D, id: &DriveId) -> Result<(), LayoutError> {
    match metadata::read(dev).map_err(io_error(id, "reading the LVM label"))? {
        metadata::PvContents::NoPv => Ok(()),
        _ => Err(refused(
            id,
            "LvmPv: it is an LVM physical volume, and no claim of layout partition".into(),
        )),
    }
}

/// Fails if the drive has any part of a GPT: an unfinished claim of layout lvm has none, so another
/// program made it since.
pub(super) fn no_table<D: Medium + ?Sized>(dev: &D, id: &DriveId) -> Result<(), LayoutError> {
    let scanned = gpt::scan(dev).map_err(io_error(id, "reading the partition table"))?;
    match scanned.state {
        GptState::None => Ok(()),
        GptState::Whole => Err(refused(
            id,
            "PartitionTable: besides an unfinished claim it has a partition table".into(),
        )),
        GptState::Damaged(why) => Err(refused(
            id,
            format!("GptDamaged: besides an unfinished claim it has a partition table: {why}"),
        )),
    }
}

/// Fails if a byte that is not zero is found; reads both ends of the run, and samples between them.
pub(super) fn is_blank<D: Medium>(dev: &D, id: &DriveId, run: Extent) -> Result<(), LayoutError> {
    match device::sample_nonzero(dev, run, EDGE.min(run.len)).map_err(io_error(id, "sampling"))? {
        None => Ok(()),
        Some(at) => Err(refused(id, format!("NotBlank: there is data at byte {at}"))),
    }
}

pub(super) fn probe(
    drive: &DriveRef,
    policy: Option<ClaimPolicy>,
    context: &mut Context,
) -> Result<Probed, LayoutError> {
    run(drive, policy, false, context)
}

/// Probes a drive whose claim was interrupted after its partition table, for anything else on it.
pub(super) fn probe_begun(drive: &DriveRef, context: &mut Context) -> Result<Probed, LayoutError> {
    run(drive, None, true, context)
}

fn run(
    drive: &DriveRef,
    policy: Option<ClaimPolicy>,
    past_own_table: bool,
    context: &mut Context,
) -> Result<Probed, LayoutError> {
    Probe {
        drive: drive.clone(),
        policy,
        past_own_table,
    }
    .run(context)
    .map_err(|error| LayoutError::Io {
        drive: drive.id.to_string(),
        what: "probing before claiming".into(),
        source: Cause::new(&error),
    })
}

/// Fails unless a probed drive can be claimed. Does not check `busy`: this process itself holds the
/// drive.
pub(super) fn is_claimable(
    id: &DriveId,
    probed: &Probed,
    policy: ClaimPolicy,
) -> Result<(), LayoutError> {
    if probed.read_only {
        return Err(refused(id, "ReadOnly: the kernel says read-only".into()));
    }
    if probed.signatures != Signatures::Empty {
        return Err(refused(
            id,
            format!("it is not empty: {:?}", probed.signatures),
        ));
    }
    if probed.written_sector.is_some() {
        return Err(refused(
            id,
            "SectorSizeChanged: it has our table for sectors of another size".into(),
        ));
    }
    if let Some(what) = &probed.traces {
        return Err(refused(id, format!("OursDamaged: it has {what}")));
    }
    if probed.gpt != GptState::None || probed.ours.is_some() {
        return Err(refused(id, format!("PartitionTable: {:?}", probed.gpt)));
    }
    match (policy, &probed.blankness) {
        (ClaimPolicy::Blank, Blankness::Blank) => Ok(()),
        (ClaimPolicy::Blank, Blankness::DataAt(at)) => {
            Err(refused(id, format!("NotBlank: there is data at byte {at}")))
        }
        (ClaimPolicy::Blank, Blankness::NotSampled) => Err(refused(
            id,
            "NotBlank: whether it is blank was not found out".into(),
        )),
        (ClaimPolicy::SignatureFree, _) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeDrive;
    use drivebay_model::Layout;

    fn id() -> DriveId {
        DriveId("wwn-0xfa4e".into())
    }

    fn blank() -> Probed {
        Probed {
            size_bytes: 1 << 40,
            read_only: false,
            busy: true,
            signatures: Signatures::Empty,
            gpt: GptState::None,
            ours: None,
            written_sector: None,
            traces: None,
            gpt_types: vec![],
            blankness: Blankness::Blank,
        }
    }

    fn data() -> Blankness {
        Blankness::DataAt(7)
    }

    #[test]
    fn only_a_blank_drive_is_claimable_or_one_without_signatures_by_choice() {
        let refused = [
            (
                "ReadOnly",
                Probed {
                    read_only: true,
                    ..blank()
                },
            ),
            (
                "it is not empty",
                Probed {
                    signatures: Signatures::Found(vec![]),
                    ..blank()
                },
            ),
            (
                "OursDamaged",
                Probed {
                    traces: Some("a label".into()),
                    ..blank()
                },
            ),
            (
                "PartitionTable",
                Probed {
                    gpt: GptState::Damaged("half".into()),
                    ..blank()
                },
            ),
            (
                "PartitionTable",
                Probed {
                    ours: Some(Layout::Lvm),
                    ..blank()
                },
            ),
        ];
        for (reason, probed) in refused {
            for policy in [ClaimPolicy::Blank, ClaimPolicy::SignatureFree] {
                let error = is_claimable(&id(), &probed, policy).unwrap_err();
                assert!(error.to_string().contains(reason), "{policy:?}: {error}");
            }
        }
        for blankness in [data(), Blankness::NotSampled] {
            let probed = Probed {
                blankness,
                ..blank()
            };
            let error = is_claimable(&id(), &probed, ClaimPolicy::Blank).unwrap_err();
            assert!(error.to_string().contains("NotBlank"), "{error}");
            is_claimable(&id(), &probed, ClaimPolicy::SignatureFree).unwrap();
        }
        is_claimable(&id(), &blank(), ClaimPolicy::Blank).unwrap();
    }

    #[test]
    fn a_drive_with_a_partition_of_the_kernel_is_not_claimable() {
        let facts = PartitionFacts {
            kernel_name: "sda1".into(),
            number: 1,
            start_bytes: MIB,
            size_bytes: MIB,
            major: 8,
            minor: 1,
        };
        no_partition(&id(), None).unwrap();
        let error = no_partition(&id(), Some(&facts)).unwrap_err();
        assert!(error.to_string().contains("sda1"), "{error}");
    }

    #[test]
    fn a_byte_anywhere_in_the_first_or_last_16_mib_is_data() {
        let drive = FakeDrive::new(128 * MIB, 512);
        let run = Extent {
            start: 0,
            len: 128 * MIB,
        };
        is_blank(&drive, &id(), run).unwrap();
        for at in [16 * MIB - 1024, 112 * MIB + 512] {
            drive.rot(at, 1);
            let error = is_blank(&drive, &id(), run).unwrap_err();
            assert!(error.to_string().contains(&format!("byte {at}")), "{error}");
            drive.rot(at, 1);
        }
        is_blank(&drive, &id(), run).unwrap();
    }
}
