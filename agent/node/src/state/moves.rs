//! Requested moves, with what the next agent must know: the request, an issued commit, and the time for which an old
//! place was kept.
//!
//! The drives record which place is live; the note of a commit is a third record, for a drive that loses a write it had
//! confirmed. Losing the file loses no data: unfinished copies are erased, and old places are kept for the delay from
//! then on.

use std::{collections::BTreeMap, io};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Damage, Saved, StateKind, Stored, parse, versioned};
use drivebay_model::{CommitNote, DriveId};

/// A requested move of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRecord {
    /// The volume's CSI name, for people.
    pub name: String,
    pub from: DriveId,
    pub to: DriveId,
    /// Generation of the volume at `to`.
    pub generation: u64,
    /// True if a stage waits until the volume has moved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold: bool,
    /// True if unreadable sectors that may hold data stop it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub abort_on_error: bool,
    /// Requester of the move.
    pub by: String,
    /// True if it belongs to an evacuation that the agent began without a request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub automatic: bool,
    /// Unix time, seconds.
    pub requested_at: u64,
    pub progress: MoveProgress,
}

/// Durable progress of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub enum MoveProgress {
    /// No commit was issued: the volume lives at `from`.
    Requested,
    /// The commit was issued. Whether it took effect is recorded on the target.
    Committing { note: CommitNote },
    /// The target has confirmed the commit, and its record shows that.
    Moved {
        /// Present only while the record on the source may declare the volume live there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<CommitNote>,
        /// Seconds for which the old place was kept, counted only while an agent runs.
        kept_seconds: u64,
        /// True if the volume was in use since it moved.
        used: bool,
        /// True if an operator requested that the old place is dropped as soon as possible.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        now: bool,
    },
}

impl MoveRecord {
    /// Returns the recorded note of an issued commit, if there is one.
    pub fn note(&self) -> Option<&CommitNote> {
        match &self.progress {
            MoveProgress::Requested => None,
            MoveProgress::Committing { note } => Some(note),
            MoveProgress::Moved { note, .. } => note.as_ref(),
        }
    }

    /// True for a move of an automatic evacuation that is not completed.
    pub fn is_automatic_and_open(&self) -> bool {
        self.automatic && !self.has_moved()
    }

    /// True if the target has confirmed the commit.
    pub fn has_moved(&self) -> bool {
        matches!(self.progress, MoveProgress::Moved { .. })
    }
}

#[cfg(test)]
impl MoveRecord {
    /// Volume pvc-1 moves at an operator's request.
    pub(crate) fn sample(from: DriveId, to: DriveId, progress: MoveProgress) -> Self {
        Self {
            name: "pvc-1".into(),
            from,
            to,
            generation: 2,
            hold: false,
            abort_on_error: false,
            by: "ann".into(),
            automatic: false,
            requested_at: 0,
            progress,
        }
    }
}

/// Moves of this node, at most one per volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    pub moves: BTreeMap<Uuid, MoveRecord>,
    /// Automatic evacuations of the last day, by the drive that volumes leave. Omitted if empty, as by agents that did not know the field.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub automatic: BTreeMap<DriveId, Recent>,
}

/// Events that keep the agent from beginning an automatic evacuation of a drive. Ages are seconds in which an agent ran: a jump of the wall
/// clock must not grant a budget twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recent {
    /// Time since the agent began to evacuate the drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_seconds: Option<u64>,
    /// Time since an operator cancelled a move off the drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_seconds: Option<u64>,
}

/// Time for which the ages of `Recent` are kept, in seconds: the day of the budget.
const DAY: u64 = 24 * 60 * 60;

impl Moves {
    /// Adds elapsed seconds to the ages of automatic evacuations, and removes those of a day or more.
    pub fn age(&mut self, elapsed_seconds: u64) {
        let older = |age: Option<u64>| {
            let age = age?.saturating_add(elapsed_seconds);
            (age < DAY).then_some(age)
        };
        for recent in self.automatic.values_mut() {
            recent.begun_seconds = older(recent.begun_seconds);
            recent.cancelled_seconds = older(recent.cancelled_seconds);
        }
        self.automatic
            .retain(|_, recent| *recent != Recent::default());
    }
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

/// The file of moves. While it cannot be read, no move is begun or completed.
pub type SavedMoves = Saved<Moves>;

impl Saved<Moves> {
    /// Returns every recorded move, by volume.
    pub fn all(&self) -> BTreeMap<Uuid, MoveRecord> {
        self.inspect(|file| file.moves.clone())
    }

    /// Returns the recorded move of a volume.
    pub fn of(&self, volume: Uuid) -> Option<MoveRecord> {
        self.inspect(|file| file.moves.get(&volume).cloned())
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
            requested_at: 7,
            ..MoveRecord::sample(
                DriveId("a".into()),
                DriveId("b".into()),
                MoveProgress::Committing { note: note.clone() },
            )
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
    async fn the_budget_of_automatic_evacuations_survives_a_restart_and_ends_after_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let (a, b) = (DriveId("a".into()), DriveId("b".into()));
        let saved = SavedMoves::new(&state);
        saved.load().await;
        let begin = |file: &mut Moves| {
            let begun = file.automatic.entry(a.clone()).or_default();
            begun.begun_seconds = Some(0);
            let cancelled = file.automatic.entry(b.clone()).or_default();
            cancelled.cancelled_seconds = Some(60);
            file.age(DAY - 61);
        };
        saved.change(begin).await.unwrap();
        let next = SavedMoves::new(&state);
        next.load().await;
        let mut file = next.inspect(Moves::clone);
        assert_eq!(file.automatic[&a].begun_seconds, Some(DAY - 61));
        assert_eq!(file.automatic[&b].cancelled_seconds, Some(DAY - 1));
        file.age(1);
        assert_eq!(file.automatic.keys().collect::<Vec<_>>(), [&a]);
        file.age(u64::MAX);
        assert!(file.automatic.is_empty());
    }

    #[test]
    fn a_file_of_an_agent_without_automatic_evacuations_is_read_and_written_as_it_was() {
        let text = r#"{"version":1,"moves":{"00000000-0000-0000-0000-000000000009":{"name":"pvc-1","from":"a","to":"b",
"generation":2,"by":"ann","requested_at":7,"progress":{"is":"requested"}}}}"#;
        let read = Moves::from_bytes(text.as_bytes()).unwrap();
        let record = &read.moves[&Uuid::from_u128(9)];
        assert!(!record.automatic && read.automatic.is_empty());
        let written = String::from_utf8(read.to_bytes().unwrap()).unwrap();
        assert!(!written.contains("automatic"), "{written}");
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
