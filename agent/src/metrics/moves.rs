//! Series of moves: volumes with their source and target, bytes left to copy, and time of the request.

use drivebay_common::metrics::{
    Def, Families,
    families::{gauge, number, one},
};

use super::View;
use drivebay_node::volumes::moves::{MovePhase, MoveStatus};

const VOLUME: &[&str] = &["volume"];

const PHASE: Def = gauge(
    "drivebay_volume_move_phase",
    "1 for the current phase of the volume's move from drive to target: waiting, copying, completing, moved or in-doubt. No series once the old place is erased.",
    &["volume", "drive", "target", "phase"],
);
const LEFT: Def = gauge(
    "drivebay_volume_move_left_bytes",
    "Bytes of the volume that are not copied to its new drive yet; 0 once all are.",
    VOLUME,
);
const REQUESTED: Def = gauge(
    "drivebay_volume_move_requested_timestamp_seconds",
    "Unix time at which the volume's move was requested.",
    VOLUME,
);

pub(super) const DEFINITIONS: &[Def] = &[PHASE, LEFT, REQUESTED];

pub(super) fn put(view: &View, into: &mut Families) {
    for one_move in &view.moves {
        let id = one_move.uuid.to_string();
        let phase = [
            id.as_str(),
            &one_move.from.0,
            &one_move.to.0,
            one_move.phase.as_str(),
        ];
        into.put(&PHASE, &phase, one());
        let labels = [id.as_str()];
        into.put(&LEFT, &labels, number(left_bytes(one_move)));
        into.put(&REQUESTED, &labels, number(one_move.requested_at));
    }
}

/// Returns the bytes left to copy. A restarted agent does not know the progress of a copy; from the completion on, nothing is left.
fn left_bytes(of: &MoveStatus) -> u64 {
    match of.phase {
        MovePhase::Waiting | MovePhase::Copying => of.total_bytes.saturating_sub(of.done_bytes),
        MovePhase::Completing | MovePhase::Moved | MovePhase::InDoubt => 0,
    }
}
