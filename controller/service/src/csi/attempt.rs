//! Sends a create to one node after the other until one has made the volume or refused it. Several controllers agree on the
//! node for a name.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use drivebay_common::cli::chain;
use drivebay_proto::{
    agent::{self, agent_client::AgentClient},
    csi::TopologyRequirement,
};
use tonic::Code;

use super::{
    create::{self, Choices, CreateError},
    pending::Unfinished,
};
use crate::{
    agents::{Agent, AgentChannel, Agents, IdOf},
    call::{CHANGE_DEADLINE, CallError, call},
    inventory::Inventory,
    placement::{self, Choice},
};
use drivebay_csi::{NewVolume, topology::TopologyKey};

/// Timeout of the agent that records the node for a name; it answers from memory.
const KEEP_DEADLINE: Duration = Duration::from_secs(1);

/// True if the code means that the agent has not made the volume and is not making it.
fn is_final(code: Code) -> bool {
    !matches!(
        code,
        Code::Ok
            | Code::Aborted
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Internal
            | Code::Unavailable
            | Code::Unknown
    )
}

/// One create, and the nodes that it may be sent to.
pub(super) struct Attempt<'a> {
    pub(super) agents: &'a Agents,
    pub(super) key: &'a TopologyKey,
    pub(super) volume: &'a NewVolume,
    pub(super) topology: Option<&'a TopologyRequirement>,
    /// True if exactly one node is allowed.
    pub(super) is_one: bool,
}

impl Attempt<'_> {
    pub(super) async fn try_each(
        &self,
        choices: Choices,
    ) -> Result<(String, agent::Volume), CreateError> {
        let (agents, is_one) = (self.agents, self.is_one);
        let mut refused = None;
        let Choices { settled, all } = choices;
        let mut left: VecDeque<Choice> = all.into();
        let mut tried: Vec<String> = Vec::new();
        while let Some(first) = left.pop_front() {
            let choice = match is_one || tried.len() < settled {
                true => first,
                false => self.agreed(first, &mut left, &tried).await,
            };
            tried.push(choice.node.clone());
            // The volume is on this node, or may be: until it answers, no other one is asked.
            let is_settled = tried.len() <= settled;
            let Some(agent) = agents.get(&choice.node) else {
                if is_settled {
                    return Err(CreateError::InDoubt {
                        name: self.volume.name.clone(),
                        node: choice.node,
                    });
                }
                continue;
            };
            let client = match self.volume.source {
                Some(_) => agent.client_for_copies(),
                None => agent.client(),
            };
            let client = match client {
                Ok(client) => client,
                Err(error) if is_settled => return Err(error.into()),
                // Nothing was sent, so another node may be asked.
                Err(error) => {
                    refused.get_or_insert(error);
                    continue;
                }
            };
            let (name, node) = (&self.volume.name, &choice.node);
            // If only one node is allowed, no second one can be asked meanwhile, so the doubt is made durable only if no
            // final answer comes. This saves a sync on every create.
            if is_one {
                agents.notes().doubt_soon(name, node)?;
            } else {
                agents.notes().doubt(name, node).await?;
            }
            let error = match send_create(&agent, client, self.volume, &choice).await {
                Ok(volume) => {
                    agents.notes().settle(name, node);
                    return Ok((choice.node.clone(), volume));
                }
                Err(error) => error,
            };
            match &error {
                CallError::Answered { code, .. } if is_final(*code) => {
                    agents.notes().settle(name, node);
                    // The agent made no volume: its space was used up since its last report, so another node is asked.
                    if *code != Code::ResourceExhausted {
                        return Err(error.into());
                    }
                    refused = Some(error);
                }
                _ => {
                    if is_one && let Err(unwritten) = agents.notes().flush().await {
                        tracing::warn!(
                            name,
                            node,
                            error = %chain(&unwritten),
                            "cannot save a create with an unknown outcome; it is forgotten if the controller restarts"
                        );
                    }
                    return Err(error.into());
                }
            }
        }
        let lost = Unfinished::Lost { of: IdOf::Volume };
        Err(refused.map_or(lost.into(), CreateError::Call))
    }

    /// Returns the node to ask next: the given one, or an equally preferred one to which another controller has sent the
    /// name already. Choices that are not used stay in `left`.
    async fn agreed(&self, first: Choice, left: &mut VecDeque<Choice>, tried: &[String]) -> Choice {
        let topology = self.topology;
        let rank = |node: &str| self.key.preference(topology, node);
        let Some(kept) = self.kept(&first.node, tried).await else {
            return first;
        };
        let may_be = kept != first.node
            && !tried.contains(&kept)
            && self.key.allows(topology, &kept)
            && rank(&kept) == rank(&first.node)
            && create::is_there(self.agents, &kept);
        if !may_be {
            return first;
        }
        let position = left.iter().position(|choice| choice.node == kept);
        // A node without space by its last report is asked, too, since only its answer is certain.
        let other = position.and_then(|at| left.remove(at)).unwrap_or(Choice {
            node: kept,
            ..first.clone()
        });
        left.push_front(first);
        other
    }

    /// Returns the node that all controllers use for the name. None if there is only one node to choose from, or no agent answered.
    async fn kept(&self, node: &str, tried: &[String]) -> Option<String> {
        let topology = self.topology;
        let name = &self.volume.name;
        let there = self.agents.all().into_iter().filter(|agent| {
            self.key.allows(topology, agent.node()) && agent.read_inventory(Inventory::complete)
        });
        let mut there: Vec<Arc<Agent>> = there.collect();
        if there.len() < 2 {
            return None;
        }
        there.sort_by_cached_key(|agent| placement::turn(name, agent.node()));
        let keeper = there.first()?;
        let mut client = keeper.client().ok()?;
        let request = agent::KeepPlacementRequest {
            name: name.clone(),
            node: node.to_owned(),
            refused_by: tried.to_vec(),
        };
        let answer = call(KEEP_DEADLINE, async move {
            client.keep_placement(request).await
        });
        match answer.await {
            Ok(kept) => Some(kept.node),
            Err(error) => {
                tracing::debug!(name, keeper = keeper.node(), %error, "cannot agree with other controllers on a node; taking the best");
                None
            }
        }
    }
}

async fn send_create(
    agent: &Arc<Agent>,
    mut client: AgentClient<AgentChannel>,
    requested: &NewVolume,
    choice: &Choice,
) -> Result<agent::Volume, CallError> {
    let instance = agent.instance();
    let request = requested.agent_request(&choice.class, choice.bytes);
    let answer = call(CHANGE_DEADLINE, async move {
        client.create_volume(request).await
    })
    .await?;
    let volume = answer.volume.ok_or_else(|| CallError::Nonsense {
        reason: "no volume in it".to_owned(),
    })?;
    create::check_answer(requested, agent.node(), &volume)?;
    agent.shows(&instance, answer.revision).await;
    Ok(volume)
}
