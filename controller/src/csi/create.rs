//! CreateVolume: the request checked, the node chosen, its agent asked, the answer checked.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use drivebay_proto::{VolumeId, agent, csi};
use tonic::Code;

use crate::{
    agents::{Agent, Agents},
    call::{CHANGE_DEADLINE, CallError, call},
    placement::{self, Choice, Node, PlacementError, Want},
    size::{self, SizeError},
    topology::TopologyKey,
    validate::{self, Capabilities, InvalidRequest, Parameters, SizeRange},
};

/// A CreateVolume request that can be served, if there is room.
#[derive(Debug, Clone)]
pub(crate) struct Create {
    name: String,
    capabilities: Capabilities,
    range: SizeRange,
    parameters: Parameters,
    topology: Option<csi::TopologyRequirement>,
}

impl TryFrom<csi::CreateVolumeRequest> for Create {
    type Error = InvalidRequest;

    fn try_from(request: csi::CreateVolumeRequest) -> Result<Self, InvalidRequest> {
        let name = validate::volume_name(&request.name)?.to_owned();
        let capabilities = validate::capabilities(&request.volume_capabilities)?;
        let range = validate::capacity_range(request.capacity_range.as_ref())?;
        let parameters = validate::parameters(&request.parameters)?;
        if !request.mutable_parameters.is_empty() {
            return Err(InvalidRequest::MutableParameters);
        }
        if request.volume_content_source.is_some() {
            return Err(InvalidRequest::ContentSource);
        }
        Ok(Self {
            name,
            capabilities,
            range,
            parameters,
            topology: request.accessibility_requirements,
        })
    }
}

impl Create {
    fn want(&self) -> Want {
        Want {
            class: self.parameters.class.clone(),
            block: self.capabilities.block,
            fs_type: self.capabilities.fs_type.or(self.parameters.fs_type),
            range: self.range,
        }
    }

    fn ask(&self, choice: &Choice) -> agent::CreateVolumeRequest {
        let want = self.want();
        agent::CreateVolumeRequest {
            name: self.name.clone(),
            class: choice.class.clone(),
            required_bytes: choice.bytes,
            limit_bytes: self.range.limit.unwrap_or(0),
            mode: self.capabilities.mode().to_owned(),
            fs_type: want
                .fs_type
                .filter(|_| !want.block)
                .unwrap_or_default()
                .to_owned(),
            mkfs_options: self.parameters.mkfs_options.clone(),
            mount_options: self.parameters.mount_options.clone(),
            parameters: self.parameters.kept.clone().into_iter().collect(),
        }
    }

    /// The agent's answer must be what was asked for: the provisioner deletes a volume that is too small.
    fn check(&self, node: &str, volume: &agent::Volume) -> Result<(), CallError> {
        let bad = |reason: String| Err(CallError::Nonsense { reason });
        let ours = volume
            .id
            .parse::<VolumeId>()
            .is_ok_and(|id| id.node == node);
        if !ours {
            return bad(format!(
                "volume id {:?} is not one of node {node}",
                volume.id
            ));
        }
        if volume.name != self.name || volume.mode != self.capabilities.mode() {
            return bad(format!("volume {} is another one", volume.id));
        }
        let large_enough = volume.size_bytes >= self.range.required.max(1);
        if !large_enough
            || self
                .range
                .limit
                .is_some_and(|limit| volume.size_bytes > limit)
        {
            return bad(format!(
                "volume {} has {} bytes",
                volume.id, volume.size_bytes
            ));
        }
        Ok(())
    }
}

/// No volume was made, or it is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    #[error("volume {name:?} is being created; ask again")]
    Pending { name: String },
    #[error(
        "volume {name:?} exists on node {node}, which is not among the accessibility_requirements"
    )]
    Elsewhere { name: String, node: String },
    #[error(transparent)]
    Placement(#[from] PlacementError),
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("creating the volume was interrupted, so whether it was done is not known; call again")]
    Lost,
}

/// CSI names of volumes being created, so that one name is never sent to two nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending(Arc<Mutex<BTreeSet<String>>>);

struct Guard(Pending, String);

impl Pending {
    fn enter(&self, name: &str) -> Result<Guard, CreateError> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !names.insert(name.to_owned()) {
            return Err(CreateError::Pending {
                name: name.to_owned(),
            });
        }
        Ok(Guard(self.clone(), name.to_owned()))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Self(Pending(names), name) = self;
        names
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }
}

/// Creates the volume, or finds the one that has its name; and the node it is on.
pub(crate) async fn create(
    agents: Agents,
    key: TopologyKey,
    pending: Pending,
    create: Create,
) -> Result<(String, agent::Volume), CreateError> {
    let guard = pending.enter(&create.name)?;
    // A caller that gives up drops its future; the name stays taken until the agent has answered.
    let task = tokio::spawn(async move {
        let _guard = guard;
        let choices = choose(&agents, &key, &create)?;
        try_each(&agents, &create, &choices).await
    });
    task.await.unwrap_or(Err(CreateError::Lost))
}

/// The nodes to ask, best first; the one that has a volume of this name already, and no other, if there is one.
fn choose(agents: &Agents, key: &TopologyKey, create: &Create) -> Result<Vec<Choice>, CreateError> {
    let want = create.want();
    let topology = create.topology.as_ref();
    let all = agents.all();
    let found = all.iter().find_map(|agent| {
        agent.look(|inventory| {
            let volume = inventory.shown().named(&create.name)?.clone();
            let class = want.class.clone().unwrap_or_else(|| volume.class.clone());
            let report = inventory.shown().classes.get(&class).cloned();
            Some((agent.node().to_owned(), class, report.unwrap_or_default()))
        })
    });
    if let Some((node, class, report)) = found {
        if !key.allows(topology, &node) {
            let name = create.name.clone();
            return Err(CreateError::Elsewhere { name, node });
        }
        let bytes = size::new_volume(want.range, want.rules(&report))?;
        return Ok(vec![Choice { node, class, bytes }]);
    }
    let nodes: Vec<Node> = all
        .iter()
        .map(|agent| {
            agent.look(|inventory| Node {
                id: agent.node().to_owned(),
                available: inventory.complete(),
                classes: inventory.shown().classes.clone(),
            })
        })
        .collect();
    Ok(placement::place(&want, topology, key, &nodes)?)
}

async fn try_each(
    agents: &Agents,
    create: &Create,
    choices: &[Choice],
) -> Result<(String, agent::Volume), CreateError> {
    let mut full = None;
    for choice in choices {
        let Some(agent) = agents.get(&choice.node) else {
            continue;
        };
        match ask(&agent, create, choice).await {
            Ok(volume) => return Ok((choice.node.clone(), volume)),
            // Its own word that it has made nothing: the report was older than somebody's last volume.
            Err(CallError::Answered {
                code: Code::ResourceExhausted,
                message,
            }) => {
                full = Some(CallError::Answered {
                    code: Code::ResourceExhausted,
                    message,
                });
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(full.map_or(CreateError::Lost, CreateError::Call))
}

async fn ask(
    agent: &Arc<Agent>,
    create: &Create,
    choice: &Choice,
) -> Result<agent::Volume, CallError> {
    let instance = agent.instance();
    let mut client = agent.client();
    let request = create.ask(choice);
    let answer = call(CHANGE_DEADLINE, async move {
        client.create_volume(request).await
    })
    .await?;
    let volume = answer.volume.ok_or_else(|| CallError::Nonsense {
        reason: "no volume in it".to_owned(),
    })?;
    create.check(agent.node(), &volume)?;
    agent.shows(&instance, answer.revision).await;
    Ok(volume)
}
