//! Places and generations: a volume that moves is recorded on two drives, and each record has its role in the move.
//!
//! The generation counts the drives on which a volume has lived: 1 where it was created, a higher one with each move. [judge] alone
//! decides, purely, which place is served, from the records of several drives and the agent's note.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::DriveId;

/// The other drive of a move.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Peer {
    /// UUID in its label, which it keeps wherever it is attached.
    pub label: Uuid,
    /// Identity of the drive when this was recorded, for messages.
    pub drive: DriveId,
}

/// Role of a record in a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub enum PlaceState {
    /// The volume is here.
    Live {
        generation: u64,
        /// The drive from which it was moved, if it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Peer>,
    },
    /// An incomplete copy. Never served.
    Incoming {
        /// Generation that the copy will have once it is live.
        generation: u64,
        from: Peer,
    },
    /// The source of a complete copy, which may have become live.
    Leaving {
        /// Generation of the copy.
        generation: u64,
        to: Peer,
    },
    /// The source of a copy that is live. The data here is outdated.
    Moved {
        /// Generation of the copy.
        generation: u64,
        to: Peer,
    },
}

impl Default for PlaceState {
    /// Returns the state of a volume that never moved.
    fn default() -> Self {
        Self::Live {
            generation: 1,
            from: None,
        }
    }
}

impl PlaceState {
    /// True for a volume that never moved. Such a record is written in the form that was used before places existed.
    pub fn is_first(&self) -> bool {
        *self == Self::default()
    }

    /// True if the volume is here, by this record alone.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Live { .. })
    }

    /// True for an incomplete copy: no volume is here.
    pub fn is_incoming(&self) -> bool {
        matches!(self, Self::Incoming { .. })
    }

    /// True for a new volume that gets the data of a snapshot or of another volume, and is incomplete: the copy of a move has at least
    /// generation 2. The peer is the drive from which it is copied.
    pub fn is_filling(&self) -> bool {
        matches!(self, Self::Incoming { generation: 1, .. })
    }

    /// True if the kernel has a device for it. Without one no byte can be read or written.
    pub fn has_device(&self) -> bool {
        self.is_live()
    }

    /// Returns the word on the wire and in LVM's tags.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Live { .. } => "live",
            Self::Incoming { .. } => "incoming",
            Self::Leaving { .. } => "leaving",
            Self::Moved { .. } => "moved",
        }
    }

    pub fn generation(&self) -> u64 {
        match self {
            Self::Live { generation, .. }
            | Self::Incoming { generation, .. }
            | Self::Leaving { generation, .. }
            | Self::Moved { generation, .. } => *generation,
        }
    }

    /// Returns the other drive of the move, if there is one.
    pub fn peer(&self) -> Option<&Peer> {
        match self {
            Self::Live { from, .. } => from.as_ref(),
            Self::Incoming { from, .. } => Some(from),
            Self::Leaving { to, .. } | Self::Moved { to, .. } => Some(to),
        }
    }

    /// Returns the state as text, for messages.
    pub fn describe(&self) -> String {
        match self {
            Self::Live { generation, .. } => format!("live, generation {generation}"),
            Self::Incoming { generation, from } => format!(
                "incoming from drive {}, generation {generation}",
                from.drive
            ),
            Self::Leaving { generation, to } => {
                format!("leaving to drive {}, generation {generation}", to.drive)
            }
            Self::Moved { generation, to } => {
                format!("moved to drive {}, generation {generation}", to.drive)
            }
        }
    }

    /// True if a record may change from one to the other: the order of a move, its reversal, and an operator's preference.
    pub fn may_become(&self, to: &Self) -> bool {
        match (self, to) {
            (Self::Live { generation: g, .. }, Self::Leaving { generation: n, .. }) => *n == g + 1,
            // The source could not be written before its copy became live.
            (Self::Live { generation: g, .. }, Self::Moved { generation: n, .. }) => n > g,
            (
                Self::Incoming {
                    generation: g,
                    from,
                },
                Self::Live {
                    generation: n,
                    from: of,
                },
            ) => match self.is_filling() {
                // From then on it is a separate volume.
                true => to.is_first(),
                false => n == g && of.as_ref() == Some(from),
            },
            (
                Self::Leaving {
                    generation: g,
                    to: a,
                },
                Self::Moved {
                    generation: n,
                    to: b,
                },
            ) => g == n && a == b,
            // Reversal, before a commit was issued, or above every generation that may be live elsewhere.
            (Self::Leaving { generation: g, .. }, Self::Live { generation: n, .. }) => {
                n + 1 == *g || n > g
            }
            (
                Self::Moved { generation: g, .. } | Self::Live { generation: g, .. },
                Self::Live { generation: n, .. },
            ) => n > g,
            _ => false,
        }
    }
}

/// The agent's note that the commit of a move was issued. From then on the copy may be live, whatever the target's record is later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitNote {
    /// Generation of the copy.
    pub generation: u64,
    pub from: Peer,
    pub to: Peer,
    /// True if the source could not be written, so that its record still has the volume as live.
    #[serde(default)]
    pub unfenced: bool,
}

/// One place of a volume, on a drive that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedPlace<'a> {
    /// UUID in the drive's label.
    pub label: Uuid,
    pub state: &'a PlaceState,
}

/// Reason why it is unknown which place has the volume's data. Nothing is mounted until another drive is read, or an operator prefers a
/// place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// The data here is outdated, or may be: the newer place is on a drive that was not read, or that was read without it.
    TargetNotSeen(Peer),
    /// The source has the copy as live, and the copy itself does not: a drive lost a write that it had confirmed.
    TargetNotCommitted(Peer),
    /// The commit was issued, and no place that was read has that generation.
    CommitIssued(Peer),
    /// Several places are live with one generation.
    SeveralLive(u64),
}

impl Doubt {
    /// Returns the reason as text, with the action that resolves it. `name` returns the name of a drive.
    pub fn describe(&self, name: impl Fn(&DriveId) -> String) -> String {
        match self {
            Self::TargetNotSeen(to) => format!(
                "what is here is old, or may be: it is live on drive {}, or may be, and that drive was not read with it; attach that drive, or decide with volume prefer",
                name(&to.drive)
            ),
            Self::TargetNotCommitted(to) => format!(
                "it was moved to drive {}, which lost that write although it had confirmed it; decide with volume prefer",
                name(&to.drive)
            ),
            Self::CommitIssued(to) => format!(
                "its move to drive {} was being completed, and no drive that was read says that it was; attach that drive, or decide with volume prefer",
                name(&to.drive)
            ),
            Self::SeveralLive(generation) => {
                format!("several drives have it as live, generation {generation}; detach the copy")
            }
        }
    }
}

/// Decision on the places of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// This place is served.
    Serve {
        /// Index among the places that were judged.
        index: usize,
        /// True if the record is `leaving` and must become live again, with the generation before, before the place is served.
        revert: bool,
    },
    /// No place is served.
    InDoubt(Doubt),
    /// There is only an incomplete copy, and its source was not read.
    OnlyIncoming(Peer),
    /// There is no place.
    Nowhere,
}

/// Decides which place of a volume is served. `remembered`, from the persisted state: the highest generation that was read as live on a
/// drive which was not read since, and that drive. Pure; `place_table.md` has every case of two drives.
pub fn judge(
    places: &[ObservedPlace<'_>],
    note: Option<&CommitNote>,
    remembered: Option<&(u64, Peer)>,
) -> Judgement {
    let live = || {
        let all = places.iter().enumerate();
        all.filter(|(_, place)| place.state.is_live())
    };
    // The highest generation that may be live on a drive that was not read, and that drive.
    let elsewhere = places
        .iter()
        .filter_map(|place| match place.state {
            PlaceState::Leaving { generation, to } | PlaceState::Moved { generation, to } => {
                Some((*generation, to))
            }
            _ => None,
        })
        .chain(remembered.map(|(generation, at)| (*generation, at)))
        .chain(note.map(|note| (note.generation, &note.to)))
        .max_by_key(|(generation, _)| *generation);
    let top = live().max_by_key(|(_, place)| place.state.generation());
    if let Some((index, place)) = top {
        let generation = place.state.generation();
        if elsewhere.is_none_or(|(other, _)| other <= generation) {
            let same = live().filter(|(_, other)| other.state.generation() == generation);
            return match same.count() {
                1 => Judgement::Serve {
                    index,
                    revert: false,
                },
                _ => Judgement::InDoubt(Doubt::SeveralLive(generation)),
            };
        }
    }
    let Some((generation, to)) = elsewhere else {
        let source = places.iter().find_map(|place| place.state.peer());
        return source.map_or(Judgement::Nowhere, |source| {
            Judgement::OnlyIncoming(source.clone())
        });
    };
    if note.is_some_and(|note| note.generation == generation) {
        return Judgement::InDoubt(Doubt::CommitIssued(to.clone()));
    }
    if remembered.is_some_and(|(other, _)| *other == generation) {
        return Judgement::InDoubt(Doubt::TargetNotSeen(to.clone()));
    }
    let target = places.iter().find(|place| {
        place.label == to.label
            && matches!(place.state, PlaceState::Incoming { generation: n, .. } if *n == generation)
    });
    let mut sources = places.iter().enumerate().filter(|(_, place)| {
        matches!(place.state, PlaceState::Leaving { generation: n, .. } | PlaceState::Moved { generation: n, .. } if *n == generation)
    });
    match (sources.next(), sources.next(), target) {
        (Some((index, source)), None, Some(_))
            if top.is_none() && matches!(source.state, PlaceState::Leaving { .. }) =>
        {
            Judgement::Serve {
                index,
                revert: true,
            }
        }
        (_, _, Some(_)) => Judgement::InDoubt(Doubt::TargetNotCommitted(to.clone())),
        (_, _, None) => Judgement::InDoubt(Doubt::TargetNotSeen(to.clone())),
    }
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
