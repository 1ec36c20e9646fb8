//! Moves that were asked for, and what an agent after this one has to know of them: the request, that a commit was issued, and how
//! long an old place is kept.
//!
//! The drives say which place is live; the note of a commit is the third witness, for a drive that loses a write that it had
//! confirmed. Losing the file loses no data: unfinished copies are erased, and old places are kept for the delay from then on.

use std::{collections::BTreeMap, io};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Damage, Saved, StateKind, Stored, parse, versioned};
use drivebay_model::{CommitNote, DriveId};

/// One move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRecord {
    /// The volume's CSI name, for people.
    pub name: String,
    pub from: DriveId,
    pub to: DriveId,
    /// That the volume will have there.
    pub generation: u64,
    /// A stage waits until the volume has moved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold: bool,
    /// Who asked.
    pub by: String,
    /// When, seconds since 1970.
    pub requested_at: u64,
    pub progress: MoveProgress,
}

/// How far it is, as far as that has to be durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub enum MoveProgress {
    /// Not committed.
    Requested,
    /// The commit was issued. Whether the target has it, the target says.
    Committing { note: CommitNote },
    /// The target has confirmed it, and says so.
    Moved {
        /// Only while the source may say that the volume lives there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<CommitNote>,
        /// How long the old place was kept, in seconds in which an agent ran.
        kept_seconds: u64,
        /// The volume was in use since.
        used: bool,
        /// The old place goes as soon as it can, on an operator's word.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        now: bool,
    },
}

impl MoveRecord {
    /// The commit that was issued, if one was.
    pub fn note(&self) -> Option<&CommitNote> {
        match &self.progress {
            MoveProgress::Requested => None,
            MoveProgress::Committing { note } => Some(note),
            MoveProgress::Moved { note, .. } => note.as_ref(),
        }
    }

    /// Whether the volume lives on the target, as far as is known.
    pub fn has_moved(&self) -> bool {
        matches!(self.progress, MoveProgress::Moved { .. })
    }
}

/// All of this node, one per volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    pub moves: BTreeMap<Uuid, MoveRecord>,
}

impl Stored for Moves {
    const KIND: StateKind = StateKind::Moves;

    fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        parse(bytes)
    }

    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        versioned(self)
    }
}

/// The file. While it cannot be read, no move is begun or completed.
pub type SavedMoves = Saved<Moves>;

impl Saved<Moves> {
    /// Every one.
    pub fn all(&self) -> BTreeMap<Uuid, MoveRecord> {
        self.look(|file| file.moves.clone())
    }

    /// That of a volume.
    pub fn of(&self, volume: Uuid) -> Option<MoveRecord> {
        self.look(|file| file.moves.get(&volume).cloned())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::state::StateDir;
    use drivebay_model::Peer;

    #[tokio::test]
    async fn a_commit_that_was_noted_is_known_to_the_next_agent() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let peer = |n: u128, drive: &str| Peer {
            label: Uuid::from_u128(n),
            drive: DriveId(drive.into()),
        };
        let note = CommitNote {
            generation: 2,
            from: peer(1, "a"),
            to: peer(2, "b"),
            unfenced: false,
        };
        let record = MoveRecord {
            name: "pvc-1".into(),
            from: DriveId("a".into()),
            to: DriveId("b".into()),
            generation: 2,
            hold: false,
            by: "ann".into(),
            requested_at: 7,
            progress: MoveProgress::Committing { note: note.clone() },
        };
        let (uuid, saved) = (Uuid::from_u128(9), SavedMoves::new(&state));
        saved.load().await;
        saved
            .change(|file| {
                file.moves.insert(uuid, record.clone());
            })
            .await
            .unwrap();
        let next = SavedMoves::new(&state);
        next.load().await;
        assert_eq!(next.of(uuid), Some(record));
        assert_eq!(next.of(uuid).unwrap().note(), Some(&note));
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        std::fs::create_dir(state.path_of(StateKind::Moves)).unwrap();
        let saved = SavedMoves::new(&state);
        saved.load().await;
        assert!(saved.unread().is_some());
        saved.change(|_| ()).await.unwrap_err();
    }
}
