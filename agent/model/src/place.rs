//! Places and generations: a volume that moves is recorded on two drives, and each record says which part it has in the move.
//!
//! The generation counts where a volume has lived: 1 where it was made, one more with each move. What follows from the records of
//! several drives and the agent's note is decided here, purely ([judge]); nothing else decides which place is served.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::DriveId;

/// The other drive of a move.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Peer {
    /// The uuid in its label, which it keeps whatever it is attached to.
    pub label: Uuid,
    /// Its identity when that was recorded, for people.
    pub drive: DriveId,
}

/// The part that a record has in a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub enum PlaceState {
    /// The volume lives here.
    Live {
        generation: u64,
        /// The drive that it came from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Peer>,
    },
    /// A copy that is being made. Never served.
    Incoming {
        /// That it will have once it is live.
        generation: u64,
        from: Peer,
    },
    /// The copy is whole, and may have become live.
    Leaving {
        /// Of the copy.
        generation: u64,
        to: Peer,
    },
    /// The copy is live. What is here is old.
    Moved {
        /// Of the copy.
        generation: u64,
        to: Peer,
    },
}

impl Default for PlaceState {
    /// Of a volume that never moved.
    fn default() -> Self {
        Self::Live {
            generation: 1,
            from: None,
        }
    }
}

impl PlaceState {
    /// Whether it is that of a volume that never moved. Such a record is written as before there were places.
    pub fn is_first(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the volume lives here, as far as this record goes.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Live { .. })
    }

    /// Whether it is a copy that is not complete: no volume is here.
    pub fn is_incoming(&self) -> bool {
        matches!(self, Self::Incoming { .. })
    }

    /// Whether it is a new volume that gets the bytes of a snapshot or of another volume, and is not complete: the copy of a move has
    /// at least generation 2. Its peer is the drive that it is copied from.
    pub fn is_filling(&self) -> bool {
        matches!(self, Self::Incoming { generation: 1, .. })
    }

    /// Whether the kernel has a device for it. Of all others nobody can read or write a byte.
    pub fn has_device(&self) -> bool {
        self.is_live()
    }

    /// The word on the wire and in LVM's tags.
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

    /// The other drive, if there is one.
    pub fn peer(&self) -> Option<&Peer> {
        match self {
            Self::Live { from, .. } => from.as_ref(),
            Self::Incoming { from, .. } => Some(from),
            Self::Leaving { to, .. } | Self::Moved { to, .. } => Some(to),
        }
    }

    /// In words.
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

    /// Whether a record may go from one to the other: the order of a move, its way back, and an operator's preference.
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
                // It is a volume of its own from then on.
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
            // Back, before a commit was issued, or above every generation that may be live elsewhere.
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

/// The agent's note that the commit of a move was issued: from then on its copy may be live, whatever the target says later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitNote {
    /// Of the copy.
    pub generation: u64,
    pub from: Peer,
    pub to: Peer,
    /// The source could not be written, and still says that the volume lives there.
    #[serde(default)]
    pub unfenced: bool,
}

/// One place, on a drive that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceSeen<'a> {
    /// The uuid in the drive's label.
    pub label: Uuid,
    pub state: &'a PlaceState,
}

/// Why it is not known which place has the volume's data. Nothing is mounted until another drive is seen, or an operator prefers a
/// place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// What is here is old, or may be: the newer place is on a drive that was not read, or that was read without it.
    TargetNotSeen(Peer),
    /// The source says that the copy is live, the copy says that it is not: a drive lost a write that it had confirmed.
    TargetNotCommitted(Peer),
    /// The commit was issued, and no place has that generation.
    CommitIssued(Peer),
    /// Several places are live with one generation.
    SeveralLive(u64),
}

impl Doubt {
    /// In words, with what ends it. `name`: names a drive.
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

/// What follows from all that was read of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// This place is served.
    Serve {
        /// Among the places that were judged.
        index: usize,
        /// It says `leaving`, and is to be live again, at the generation before, before it is served.
        revert: bool,
    },
    /// None is served.
    InDoubt(Doubt),
    /// There is only a copy that was never complete, and its source was not read.
    OnlyIncoming(Peer),
    /// No place at all.
    Nowhere,
}

/// Which place of a volume is served. `remembered`: the highest generation that was read as live on a drive which was not read since,
/// and that drive. Pure; `place_table.md` has every case of two drives.
pub fn judge(
    places: &[PlaceSeen<'_>],
    note: Option<&CommitNote>,
    remembered: Option<&(u64, Peer)>,
) -> Judgement {
    let live = || {
        let all = places.iter().enumerate();
        all.filter(|(_, place)| place.state.is_live())
    };
    // The highest generation that may be live on a drive that was not read, and who says so.
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
