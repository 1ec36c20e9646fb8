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
    /// Of an evacuation that the agent began without a request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub automatic: bool,
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

    /// Whether it is of an automatic evacuation that is not completed.
    pub fn is_automatic_and_open(&self) -> bool {
        self.automatic && !self.has_moved()
    }

    /// Whether the volume lives on the target, as far as is known.
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
            by: "ann".into(),
            automatic: false,
            requested_at: 0,
            progress,
        }
    }
}

/// All of this node, one per volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    pub moves: BTreeMap<Uuid, MoveRecord>,
    /// Of the last day, by the drive that volumes leave. Not written when there is none, as by agents that did not know it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub automatic: BTreeMap<DriveId, Recent>,
}

/// What keeps the agent from beginning to evacuate a drive by itself. Ages are seconds in which an agent ran: a wall clock that jumps
/// must not give a budget twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recent {
    /// Since the agent began to evacuate it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_seconds: Option<u64>,
    /// Since an operator cancelled a move off it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_seconds: Option<u64>,
}

/// How long both are kept, seconds: the day of the budget.
const DAY: u64 = 24 * 60 * 60;

impl Moves {
    /// Counts the ages of what is kept for a day, and forgets what is older.
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
        let mut file = next.look(Moves::clone);
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
