//! Unreadable sectors of a moving volume. Those that are free space of its filesystem are copied around; those that may hold data are lost:
//! they read as errors on the target, too, until they are written (`drivebay_model::lost`).

use std::time::Duration;

use super::copy::{Ends, MoveError};
use crate::{
    state::moves::MoveRecord,
    volumes::{Volumes, guard::VolumeGuard, locate::LocateResult},
};
use drivebay_layout::jobs::SetParameters;
use drivebay_model::{
    Extent, PlaceState, RecordState,
    cause::chain,
    lost, runs,
    units::human_size,
    unreadable::{Holds, LocatedPiece},
};
use drivebay_sys::{dm, offload::offload};

/// Time after which sectors that may hold data are read once more, before they count as lost: a cable or a controller recovers.
pub(super) const SECOND_LOOK: Duration = Duration::from_secs(2);
/// Device-mapper answers at once, unless it has to load a module.
const ASK_DEVICE_MAPPER: Duration = Duration::from_secs(10);

/// Unreadable ranges of one attempt at a copy, relative to the volume's start.
#[derive(Debug, Default)]
pub(super) struct GivenUp {
    /// Hold no data, and end behind the bytes copied so far.
    pub(super) holds_nothing: Vec<Extent>,
    /// May hold data, and failed once.
    failed: Vec<Extent>,
    /// May hold data, and failed twice. All of the volume.
    pub(super) lost: Vec<Extent>,
}

impl GivenUp {
    /// Adds ranges that may hold data and failed. Those that failed before are lost. Returns the bytes of either: to be read once more, lost.
    fn add(&mut self, with_data: &[Extent]) -> [u64; 2] {
        let again = runs::within(with_data, &self.failed);
        let first = runs::without(with_data, &self.failed);
        self.lost = runs::joined([self.lost.as_slice(), &again].concat());
        self.failed = runs::joined([self.failed.as_slice(), &first].concat());
        [first, again].map(|ranges| runs::bytes(&ranges))
    }

    /// Drops what is not needed behind byte `done` of the volume.
    pub(super) fn copied(&mut self, done: u64) {
        self.holds_nothing.retain(|range| range.end() > done);
        self.failed.retain(|range| range.end() > done);
    }
}

impl Volumes {
    /// Adds the unreadable ranges of a step, which has to be repeated. Errs with `Unreadable` if ranges that may hold data stop the move.
    /// The volume must not be in use.
    pub(super) async fn give_up(
        &self,
        given_up: &mut GivenUp,
        (ends, of): (&Ends, &MoveRecord),
        unreadable: Vec<Extent>,
        held: Option<&VolumeGuard>,
    ) -> Result<(), MoveError> {
        let volume = &ends.volume;
        let with_data = with_data(&unreadable, &self.free_of(ends, &unreadable, held).await?);
        let free = runs::without(&unreadable, &with_data);
        if !free.is_empty() {
            let bytes = runs::bytes(&free);
            tracing::warn!(volume = %volume.uuid, drive = %volume.drive, bytes, "unreadable sectors of a moving volume are free space; copying goes on around them");
            given_up.holds_nothing.extend(free);
        }
        let Some(first) = with_data.first().copied() else {
            return Ok(());
        };
        let all = runs::joined([given_up.lost.as_slice(), &with_data].concat());
        if let Some(why) = self.cannot_lose(ends, of, &all).await {
            return Err(MoveError::Unreadable {
                drive: volume.drive.clone(),
                bytes: runs::bytes(&with_data),
                ranges: with_data.len(),
                first: first.start,
                why,
            });
        }
        let offset = first.start;
        let [again_bytes, lost_bytes] = given_up.add(&with_data);
        if lost_bytes > 0 {
            tracing::error!(volume = %volume.uuid, drive = %volume.drive, bytes = lost_bytes, offset, "unreadable sectors of a moving volume are lost; they will read as errors on its new drive, too");
        }
        if again_bytes > 0 {
            tracing::warn!(volume = %volume.uuid, drive = %volume.drive, bytes = again_bytes, offset, "sectors of a moving volume do not read; reading them once more");
            tokio::time::sleep(SECOND_LOOK).await;
        }
        Ok(())
    }

    /// Returns what the volume's filesystem has in unreadable ranges; empty if it cannot be asked.
    async fn free_of(
        &self,
        ends: &Ends,
        unreadable: &[Extent],
        held: Option<&VolumeGuard>,
    ) -> Result<Vec<LocatedPiece>, MoveError> {
        let volume = &ends.volume;
        let RecordState::Fs {
            fs_type,
            mounted: true,
            ..
        } = volume.placed.record.state
        else {
            return Ok(Vec::new());
        };
        let pieces = unreadable.to_vec();
        let located = self.locate_for(held, volume, &ends.source, fs_type, pieces);
        match located.await {
            LocateResult::Answered(pieces) => Ok(pieces),
            LocateResult::NotNow => Err(MoveError::NotNow(
                "something else uses the volume or its drive".into(),
            )),
            LocateResult::Failed(error) => {
                tracing::warn!(volume = %volume.uuid, error = %chain(&error), "cannot ask the filesystem of a moving volume about unreadable sectors");
                Ok(Vec::new())
            }
        }
    }

    /// Returns why these ranges of the volume stop the move; None if they can be lost.
    async fn cannot_lose(&self, ends: &Ends, of: &MoveRecord, lost: &[Extent]) -> Option<String> {
        if of.abort_on_error {
            return Some("that was requested (--abort-on-error)".to_owned());
        }
        let header_bytes = ends.volume.placed.record.header_bytes();
        if lost.iter().any(|range| range.start < header_bytes) {
            return Some("they are in the header of an encrypted volume".to_owned());
        }
        if !lost::fit(lost) {
            return Some(format!(
                "no more than {} in {} ranges of a volume can be kept as errors",
                human_size(lost::MOST_BYTES),
                lost::MOST_RANGES
            ));
        }
        let lacking = offload("lost-sectors", ASK_DEVICE_MAPPER, dm::lossy_unavailable);
        let unavailable = lacking.await;
        let unavailable = unavailable.unwrap_or_else(|error| Some(error.to_string()));
        unavailable.map(|why| format!("this host cannot keep them as errors: {why}"))
    }

    /// Records the lost sectors of a complete copy with it, durably, before it can become the volume.
    pub(super) async fn record_lost(
        &self,
        ends: &Ends,
        of: &MoveRecord,
        lost: &[Extent],
    ) -> Result<(), MoveError> {
        let mut parameters = ends.volume.placed.record.parameters.clone();
        lost::keep((!lost.is_empty()).then_some(lost), &mut parameters);
        let copy = ends.volume.copies.iter().find(|copy| copy.drive == of.to);
        let copy = copy.ok_or(MoveError::Changed)?;
        if copy.placed.record.parameters == parameters {
            return Ok(());
        }
        let job = SetParameters {
            drive: ends.target.clone(),
            uuid: ends.volume.uuid,
            place: PlaceState::Incoming {
                generation: of.generation,
                from: ends.source_peer.clone(),
            },
            parameters,
        };
        let done = self.on_drive(&of.to, job).await?;
        self.node.inventory().put_contents(&of.to, done.contents);
        Ok(())
    }
}

/// Returns the parts of these ranges that may hold data. Pure.
fn with_data(unreadable: &[Extent], pieces: &[LocatedPiece]) -> Vec<Extent> {
    let free: Vec<Extent> = pieces
        .iter()
        .filter(|piece| piece.holds == Holds::FilesystemFree)
        .map(|piece| piece.extent)
        .collect();
    runs::without(unreadable, &free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_lost_when_it_has_failed_twice() {
        let extent = |start, len| Extent { start, len };
        let mut given_up = GivenUp::default();
        assert_eq!(given_up.add(&[extent(0, 8192)]), [8192, 0]);
        assert_eq!(given_up.lost, []);
        // The second block reads by now; another one does not.
        let both = [extent(0, 4096), extent(65536, 4096)];
        assert_eq!(given_up.add(&both), [4096, 4096]);
        assert_eq!(given_up.lost, [extent(0, 4096)]);
        assert_eq!(given_up.add(&[extent(65536, 4096)]), [0, 4096]);
        given_up.copied(131_072);
        assert_eq!(given_up.lost, [extent(0, 4096), extent(65536, 4096)]);
    }

    #[test]
    fn only_what_the_filesystem_reports_as_free_holds_nothing() {
        let extent = |start, len| Extent { start, len };
        let piece = |start, len, holds| LocatedPiece {
            extent: extent(start, len),
            holds,
        };
        let files = Holds::Files {
            files: vec!["/db".into()],
            more: 0,
        };
        let unknown = Holds::Unknown { why: "?".into() };
        let unreadable = [extent(0, 8192), extent(16384, 4096), extent(32768, 4096)];
        let pieces = [
            piece(0, 4096, Holds::FilesystemFree),
            piece(4096, 4096, files),
            piece(16384, 4096, Holds::FilesystemFree),
            piece(32768, 4096, unknown),
        ];
        assert_eq!(
            with_data(&unreadable, &pieces),
            [extent(4096, 4096), extent(32768, 4096)]
        );
        assert_eq!(with_data(&unreadable, &[]), unreadable);
        assert_eq!(with_data(&unreadable[1..2], &pieces), []);
    }
}
