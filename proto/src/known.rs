//! Typed accessors for fields whose words are a closed set.

use crate::{
    agent, controller,
    words::{
        CheckResult, DriveState, Mode, MovePhase, NodeState, Peers, PollState, RangeContent,
        SnapshotState, Status, Transport, Verdict, VolumeState,
    },
};

/// `MESSAGE { ACCESSOR: FIELD as SET, }`: defines an accessor that parses a field; None if it is empty or a word of a newer peer.
macro_rules! accessors {
    ($($message:path { $($accessor:ident: $field:ident as $set:ty,)+ })+) => { $(
        impl $message { $(
            /// None: a word of a newer peer, or none.
            pub fn $accessor(&self) -> Option<$set> {
                <$set>::parse(&self.$field)
            }
        )+ }
    )+ };
}

accessors! {
    agent::Drive {
        known_state: state as DriveState,
        known_verdict: verdict as Verdict,
        known_transport: transport as Transport,
    }
    agent::DriveHealth { known_poll: poll as PollState, }
    agent::UnreadableRange { known_content: holds as RangeContent, }
    agent::Volume { known_state: state as VolumeState, known_mode: mode as Mode, }
    agent::VolumeSnapshot { known_state: state as SnapshotState, }
    agent::Move { known_phase: phase as MovePhase, }
    agent::Condition { known_status: status as Status, }
    agent::CheckVolumeResponse { known_outcome: outcome as CheckResult, }
    agent::DriveLatencyResponse { known_peers: compared_with as Peers, }
    controller::Node { known_state: state as NodeState, }
    controller::NodeDrives { known_state: state as NodeState, }
    controller::VolumeOnNode { known_node_state: node_state as NodeState, }
}

impl agent::VolumePlace {
    /// Returns the place's role in a move: "moved, generation 2".
    pub fn describe(&self) -> String {
        format!("{}, generation {}", self.is, self.generation)
    }
}

impl agent::Volume {
    /// True if it was deleted: it is being erased, or in quarantine.
    pub fn is_deleted(&self) -> bool {
        matches!(
            self.known_state(),
            Some(VolumeState::Erasing | VolumeState::Quarantined)
        )
    }

    /// True if its state is NEW or READY.
    pub fn is_usable(&self) -> bool {
        matches!(
            self.known_state(),
            Some(VolumeState::New | VolumeState::Ready)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_as_it_is_written_and_another_is_of_a_newer_peer() {
        for state in DriveState::ALL {
            assert_eq!(DriveState::parse(state.as_str()), Some(*state));
        }
        let volume = |state: &str| agent::Volume {
            state: state.into(),
            ..agent::Volume::default()
        };
        let deleted = ["erasing", "quarantined"].map(|state| volume(state).is_deleted());
        assert_eq!(deleted, [true, true]);
        assert_eq!(
            volume("not-scanned").known_state(),
            Some(VolumeState::NotScanned)
        );
        for other in ["", "moved", "NEW"] {
            assert_eq!(volume(other).known_state(), None, "{other}");
            assert!(!volume(other).is_deleted());
        }
        assert!(Verdict::Unknown < Verdict::Good && Verdict::Suspect < Verdict::Bad);
    }
}
