//! Where a volume is: on the node its id names, or on another to which its drive was moved.

use std::{cmp::Reverse, sync::Arc};

use drivebay_proto::{VolumeId, agent::Volume};

use super::{Agent, Agents, copies::generation};
use crate::{catalog::Key, inventory::Inventory};

/// A volume and the agent that reports it.
#[derive(Debug, Clone)]
pub struct Found {
    pub agent: Arc<Agent>,
    /// The volume as last reported; its id names the node it is on.
    pub volume: Volume,
    /// The node in the id that was asked for, when the volume is on another.
    pub moved_from: Option<String>,
}

/// No agent can be asked about this volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// Never given out by Drivebay.
    #[error("volume {id:?} does not exist")]
    NotAnId {
        /// The id, cut to a readable length.
        id: String,
    },
    /// Its node has looked at every drive, and it is on none.
    #[error("volume {id} does not exist on node {node}")]
    NoSuchVolume {
        id: String,
        /// The node in it.
        node: String,
    },
    /// Its node was given up with all that is on it.
    #[error("volume {id} was forgotten with its node {node}")]
    ForgottenNodes {
        id: String,
        /// The node in it.
        node: String,
    },
    /// The agent has not looked at every drive, or is away: absence is not known.
    #[error(
        "volume {id} is not known, but the agent of node {node} is starting or disconnected; try again, and check that it runs"
    )]
    NotKnownYet {
        id: String,
        /// The node in it.
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

/// The id in its parts.
pub fn parse(id: &str) -> Result<VolumeId, LookupError> {
    id.parse().map_err(|_| LookupError::NotAnId {
        id: id.chars().take(128).collect(),
    })
}

impl Agents {
    /// The agent that would have the volume of this id, whether or not it does.
    pub fn of_volume(&self, id: &str) -> Result<Arc<Agent>, LookupError> {
        let parsed = parse(id)?;
        let node = parsed.node;
        if self.is_given_up(&node) {
            let id = id.to_owned();
            return Err(LookupError::ForgottenNodes { id, node });
        }
        self.get(&node).ok_or(LookupError::NodeNeverSeen { node })
    }

    /// The volume of this id, from what is known now, and the agent that reports it. One that is on another
    /// node than its id says is found there, if that node's agent is there to say so.
    pub fn volume(&self, id: &str) -> Result<Found, LookupError> {
        let parsed = parse(id)?;
        let owner = self.of_volume(id);
        let known = |key: &Key| {
            let volume = self.catalog().get(key);
            volume.filter(crate::catalog::exists)
        };
        let here = known(&Key::from(&parsed));
        let complete = owner
            .as_ref()
            .is_ok_and(|agent| agent.look(Inventory::complete));
        if let (Ok(agent), Some(volume)) = (&owner, &here)
            && complete
        {
            return Ok(Found {
                agent: agent.clone(),
                volume: volume.clone(),
                moved_from: None,
            });
        }
        if let Some((agent, volume)) = self.elsewhere(&parsed) {
            return Ok(Found {
                agent,
                volume,
                moved_from: Some(parsed.node),
            });
        }
        let agent = owner?;
        let (id, node) = (id.to_owned(), parsed.node);
        match here {
            Some(volume) => Ok(Found {
                agent,
                volume,
                moved_from: None,
            }),
            None if complete => Err(LookupError::NoSuchVolume { id, node }),
            None => Err(LookupError::NotKnownYet { id, node }),
        }
    }

    /// The volume of this uuid on another node than the id says, by the word of an agent that is there: the newest, and none that is
    /// older than what the id's own node had last. That would be what a move left behind, and not the volume.
    pub fn elsewhere(&self, id: &VolumeId) -> Option<(Arc<Agent>, Volume)> {
        let places = self.catalog().places(id.uuid);
        let here = self.catalog().get(&Key::from(id));
        let last = here.map_or(0, |volume| generation(&volume));
        let others = places.iter().filter(|key| *key.node != *id.node);
        others
            .filter_map(|key| Some((self.get(&key.node)?, self.catalog().get(key)?)))
            .filter(|(agent, volume)| generation(volume) >= last && agent.look(Inventory::complete))
            .min_by_key(|(_, volume)| (Reverse(generation(volume)), !volume.is_usable()))
    }
}
