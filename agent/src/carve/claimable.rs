//! What must be true of a drive before anything is written to it, whichever layout it gets.

use super::{
    device::{self, Medium},
    error::{CarveError, io_error, refused},
};
use crate::carve::probe::{Blankness, GptState, Probe, Probed};
use crate::model::Signatures;
use crate::model::{Cause, ClaimPolicy, DriveId, DriveRef, Extent, MIB, drive::PartitionFacts};
use crate::worker::{Context, Job};

/// Bytes at both ends that must be zeros (design invariant 2).
pub(super) const EDGE: u64 = 16 * MIB;

/// Fails for a partition that the kernel has.
pub(super) fn no_partition(id: &DriveId, found: Option<&PartitionFacts>) -> Result<(), CarveError> {
    match found {
        Some(facts) => Err(refused(
            id,
            format!("HasPartitions: the kernel has {}", facts.kernel_name),
        )),
        None => Ok(()),
    }
}

/// Fails where a byte is found that is not zero: both ends of the run, and samples between them.
pub(super) fn is_blank<D: Medium>(dev: &D, id: &DriveId, run: Extent) -> Result<(), CarveError> {
    match device::sample_nonzero(dev, run, EDGE.min(run.len)).map_err(io_error(id, "sampling"))? {
        None => Ok(()),
        Some(at) => Err(refused(id, format!("NotBlank: there is data at byte {at}"))),
    }
}

pub(super) fn probe(
    drive: &DriveRef,
    policy: Option<ClaimPolicy>,
    context: &mut Context,
) -> Result<Probed, CarveError> {
    Probe {
        drive: drive.clone(),
        policy,
    }
    .run(context)
    .map_err(|error| CarveError::Io {
        drive: drive.id.to_string(),
        what: "probing before claiming".into(),
        source: Cause::new(&error),
    })
}

/// What a drive must be to be claimed. `busy` is not looked at: it is we who hold it.
pub(super) fn is_claimable(
    id: &DriveId,
    probed: &Probed,
    policy: ClaimPolicy,
) -> Result<(), CarveError> {
    if probed.read_only {
        return Err(refused(id, "ReadOnly: the kernel says read-only".into()));
    }
    if probed.signatures != Signatures::Empty {
        return Err(refused(
            id,
            format!("it is not empty: {:?}", probed.signatures),
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
        (ClaimPolicy::Blank, Blankness::DataAt(at)) => Err(refused(
            id,
            format!(
                "NotBlank: there is data at byte {at}; if the data is not needed, erase it with `drive wipe`"
            ),
        )),
        (ClaimPolicy::Blank, Blankness::NotSampled) => Err(refused(
            id,
            "NotBlank: whether it is blank was not found out".into(),
        )),
        (ClaimPolicy::SignatureFree, _) => Ok(()),
    }
}
