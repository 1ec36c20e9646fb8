//! Finds a volume or a snapshot: on the node its id names, or on another to which its drive was moved. Group snapshots: `group_lookup`.

use std::{cmp::Reverse, fmt, sync::Arc};

use drivebay_proto::{
    VolumeId,
    agent::{Volume, VolumeSnapshot},
};

use super::{Agent, Agents, copies::generation};
use crate::{
    catalog::{Key, SnapshotPlace, exists, is_answered, is_copying, is_read},
    inventory::Inventory,
};

/// A volume and the agent that reports it.
#[derive(Debug, Clone)]
pub struct ReportedVolume {
    pub agent: Arc<Agent>,
    /// The volume as last reported; its id names the node it is on.
    pub volume: Volume,
    /// The node in the id that was asked for, when the volume is on another.
    pub moved_from: Option<String>,
}

/// A snapshot and the agent that reports it.
#[derive(Debug, Clone)]
pub struct ReportedSnapshot {
    pub agent: Arc<Agent>,
    /// The snapshot as last reported; its id names the node it is on.
    pub snapshot: VolumeSnapshot,
    /// The volume that it is of, on the same node.
    pub volume: Volume,
    /// The node in the id that was asked for, when the snapshot is on another.
    pub moved_from: Option<String>,
}

/// Kind of thing that an id is of; displayed as in messages: `volume`, `snapshot`, `group snapshot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdOf {
    Volume,
    Snapshot,
    GroupSnapshot,
}

impl fmt::Display for IdOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Volume => "volume",
            Self::Snapshot => "snapshot",
            Self::GroupSnapshot => "group snapshot",
        })
    }
}

/// The lookup of a volume, snapshot or group snapshot failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// Never given out by Drivebay.
    #[error("{of} {id:?} does not exist")]
    NotAnId {
        of: IdOf,
        /// The id, cut to a readable length.
        id: String,
    },
    /// Observed absence: the agent of its node is connected, has scanned every drive, and has it on none.
    #[error("{of} {id} does not exist on node {node}")]
    NotThere {
        of: IdOf,
        id: String,
        /// The node in it.
        node: String,
    },
    /// A copy that is still being made: CreateVolume has not returned its id to any caller.
    #[error(
        "volume {id} is being made as a copy on node {node}, and does not exist until the copy is complete"
    )]
    Copying {
        id: String,
        /// The node that makes it.
        node: String,
    },
    /// Absent because an operator ran `node forget` for its node.
    #[error("{of} {id} was forgotten with its node {node}")]
    ForgottenNodes {
        of: IdOf,
        id: String,
        /// The node in it.
        node: String,
    },
    /// The agent has not scanned every drive yet, or is disconnected: the absence of the id proves nothing.
    #[error(
        "{of} {id} is not known, but the agent of node {node} is starting or disconnected; try again, and check that it runs"
    )]
    NotKnownYet {
        of: IdOf,
        id: String,
        /// The node in it.
        node: String,
    },
    /// The id may be of a snapshot of this volume, whose drive is missing or was not scanned: then its snapshots are not reported.
    #[error(
        "the snapshots of volume {volume} are not known, since its drive {drive} on node {node} is missing or was not scanned; see that it is connected, then ask again"
    )]
    SnapshotsNotKnown {
        /// Id of the volume, as its agent reports it.
        volume: String,
        drive: String,
        node: String,
    },
    /// An agent of that node was never seen.
    #[error(
        "no agent of node {node} has connected; see that it runs, then ask again, or give the node up with `node forget {node}`"
    )]
    NodeNeverSeen {
        /// The node in the id.
        node: String,
    },
}

impl LookupError {
    /// Returns the error for an id that its node did not report. `complete`: its agent is connected, and has scanned every present drive.
    pub(super) fn absent(of: IdOf, id: &str, node: String, complete: bool) -> Self {
        let id = id.to_owned();
        match complete {
            true => Self::NotThere { of, id, node },
            false => Self::NotKnownYet { of, id, node },
        }
    }

    /// Returns `SnapshotsNotKnown` if the volume is missing or was not scanned, so that its snapshots are not reported.
    pub(crate) fn of_unread(volume: &Volume, node: &str) -> Option<Self> {
        (!is_read(volume)).then(|| Self::SnapshotsNotKnown {
            volume: volume.id.clone(),
            drive: volume.drive.clone(),
            node: node.to_owned(),
        })
    }
}

/// A volume's id in its parts.
pub fn parse(id: &str) -> Result<VolumeId, LookupError> {
    parse_as(IdOf::Volume, id)
}

/// The id in its parts.
pub fn parse_as(of: IdOf, id: &str) -> Result<VolumeId, LookupError> {
    id.parse().map_err(|_| LookupError::NotAnId {
        of,
        id: id.chars().take(128).collect(),
    })
}

impl Agents {
    /// Returns the agent of the node in the id, whether or not that agent reports the id.
    pub fn owner(&self, of: IdOf, id: &VolumeId) -> Result<Arc<Agent>, LookupError> {
        let node = id.node.clone();
        if self.is_given_up(&node) {
            let id = id.to_string();
            return Err(LookupError::ForgottenNodes { of, id, node });
        }
        self.get(&node).ok_or(LookupError::NodeNeverSeen { node })
    }

    /// Returns the volume of this id as in the catalog, and the agent that reports it. A volume on another node than
    /// the one in its id is found if that node's agent reports it, and the node in the id is disconnected or does not read it.
    pub fn volume(&self, id: &str) -> Result<ReportedVolume, LookupError> {
        let of = IdOf::Volume;
        let parsed = parse_as(of, id)?;
        let owner = self.owner(of, &parsed);
        let existing = |key: &Key| {
            let volume = self.catalog().get(key);
            volume.filter(exists)
        };
        let here = existing(&Key::from(&parsed));
        let complete = owner
            .as_ref()
            .is_ok_and(|agent| agent.read_inventory(Inventory::complete));
        if let (Ok(agent), Some(volume)) = (&owner, &here)
            && complete
            && is_read(volume)
        {
            return Ok(ReportedVolume {
                agent: agent.clone(),
                volume: volume.clone(),
                moved_from: None,
            });
        }
        if let Some((agent, volume)) = self.elsewhere(&parsed) {
            return Ok(ReportedVolume {
                agent,
                volume,
                moved_from: Some(parsed.node),
            });
        }
        let agent = owner?;
        match here {
            Some(volume) => Ok(ReportedVolume {
                agent,
                volume,
                moved_from: None,
            }),
            None => Err(LookupError::absent(of, id, parsed.node, complete)),
        }
    }

    /// As [`volume`](Self::volume), for a caller of CSI: a copy that is still being made does not exist yet.
    pub fn volume_of_csi(&self, id: &str) -> Result<ReportedVolume, LookupError> {
        let reported = self.volume(id)?;
        match is_copying(&reported.volume) {
            true => Err(LookupError::Copying {
                id: id.to_owned(),
                node: reported.agent.node().to_owned(),
            }),
            false => Ok(reported),
        }
    }

    /// Returns the snapshot of this id as in the catalog, its volume, and the agent that reports both. A snapshot on another node than
    /// the one in its id is found if that node's agent reports it. A snapshot that is still being created does not exist yet.
    pub fn snapshot(&self, id: &str) -> Result<ReportedSnapshot, LookupError> {
        let of = IdOf::Snapshot;
        let parsed = parse_as(of, id)?;
        let owner = self.owner(of, &parsed);
        let is_there = |agent: &Arc<Agent>| agent.read_inventory(Inventory::complete);
        let complete = owner.as_ref().is_ok_and(is_there);
        let place = self.catalog().snapshot(&Key::from(&parsed));
        let here = place.as_ref().and_then(answered);
        if (!complete || here.is_none())
            && let Some(moved) = self.snapshot_elsewhere(&parsed)
        {
            return Ok(moved);
        }
        let agent = owner?;
        match here {
            Some((snapshot, volume)) => Ok(ReportedSnapshot {
                agent,
                snapshot,
                volume,
                moved_from: None,
            }),
            None => Err(self.absent(of, id, &agent, complete)),
        }
    }

    /// Returns the error for a snapshot or group snapshot that this agent did not report: `SnapshotsNotKnown` if one of its volumes is
    /// missing or was not scanned. `complete`: as in [`LookupError::absent`].
    pub(super) fn absent(&self, of: IdOf, id: &str, agent: &Agent, complete: bool) -> LookupError {
        let node = agent.node();
        let unread = |key: Key| LookupError::of_unread(&self.catalog().get(&key)?, node);
        let volumes: Vec<Key> = match complete {
            true => agent.read_inventory(|inventory| inventory.keys().collect()),
            false => Vec::new(),
        };
        let unknown = volumes.into_iter().find_map(unread);
        unknown.unwrap_or_else(|| LookupError::absent(of, id, node.to_owned(), complete))
    }

    /// Returns the snapshot of this uuid on another node than the id names, from connected agents that have scanned every drive; of
    /// several, the one of the volume with the highest generation. None does not mean that it does not exist.
    pub fn snapshot_elsewhere(&self, id: &VolumeId) -> Option<ReportedSnapshot> {
        let places = self.catalog().snapshot_places(id.uuid).into_iter();
        let others = places.filter(|place| *place.key.node != *id.node);
        let candidates = others.filter_map(|place| {
            let agent = self.get(&place.key.node)?;
            let (snapshot, volume) = answered(&place)?;
            agent
                .read_inventory(Inventory::complete)
                .then(|| ReportedSnapshot {
                    agent,
                    snapshot,
                    volume,
                    moved_from: Some(id.node.clone()),
                })
        });
        candidates.min_by_key(|candidate| Reverse(generation(&candidate.volume)))
    }

    /// True if the agent of the node in the id is connected, has scanned every drive, and reads the volume on one.
    pub(crate) fn is_on_its_node(
        &self,
        owner: &Result<Arc<Agent>, LookupError>,
        id: &VolumeId,
    ) -> bool {
        let complete = |agent: &Arc<Agent>| agent.read_inventory(Inventory::complete);
        let volume = self.catalog().get(&Key::from(id));
        owner.as_ref().is_ok_and(complete)
            && volume.is_some_and(|volume| exists(&volume) && is_read(&volume))
    }

    /// Returns another node than the one in the id that last had the volume on a drive, no older than what the id's own node had last, and
    /// is disconnected or has not scanned every drive: the volume may be there.
    pub(crate) fn may_be_on(&self, id: &VolumeId) -> Option<String> {
        let mut others = self.places_elsewhere(id).into_iter();
        let (agent, _) = others.find(|(agent, _)| !agent.read_inventory(Inventory::complete))?;
        Some(agent.node().to_owned())
    }

    /// Returns the places of the volume on other nodes than the one in the id, of nodes that are not forgotten: those that read it, or did by
    /// their last report, and are no older than what the id's own node had last. Older ones are what a move left behind.
    fn places_elsewhere(&self, id: &VolumeId) -> Vec<(Arc<Agent>, Volume)> {
        let places = self.catalog().places(id.uuid).into_iter();
        let here = self.catalog().get(&Key::from(id));
        let last = here.map_or(0, |volume| generation(&volume));
        places
            .filter(|key| *key.node != *id.node && !self.is_given_up(&key.node))
            .filter_map(|key| Some((self.get(&key.node)?, self.catalog().get(&key)?)))
            .filter(|(_, volume)| generation(volume) >= last && is_read(volume))
            .collect()
    }

    /// Returns the volume of this uuid on another node than the one in the id, from connected agents that have scanned every drive and read it;
    /// of several, the newest.
    pub fn elsewhere(&self, id: &VolumeId) -> Option<(Arc<Agent>, Volume)> {
        let others = self.places_elsewhere(id).into_iter();
        others
            .filter(|(agent, _)| agent.read_inventory(Inventory::complete))
            .min_by_key(|(_, volume)| (Reverse(generation(volume)), !volume.is_usable()))
    }
}

/// The snapshot at a place that exists for CSI, and its volume.
pub(super) fn answered(place: &SnapshotPlace) -> Option<(VolumeSnapshot, Volume)> {
    let snapshot = place.snapshot().filter(is_answered)?;
    Some((snapshot, place.decode_volume()))
}
