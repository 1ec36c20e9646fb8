//! The agents: for each a client, and its inventory kept current by a task that follows
//! WatchInventory, asks for a full snapshot after a gap, and reconnects.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use drivebay_proto::{
    VolumeId,
    agent::{HelloRequest, WatchInventoryRequest, agent_client::AgentClient},
    volume_id::is_node_id,
};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Status, transport::Channel};

use crate::{
    call::{CallError, call},
    inventory::{Gap, Inventory},
};

/// Largest message taken from an agent: a full snapshot of 20,000 volumes with much to say of each, bytes.
const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// An agent that accepts a connection says hello within this.
const HELLO_DEADLINE: Duration = Duration::from_secs(5);
/// First pause before reconnecting; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long an acknowledged change may take to show in lists before the answer goes out anyway.
const SHOW_DEADLINE: Duration = Duration::from_secs(2);
/// An agent that is away for less is restarting; its volumes are not called unreachable yet.
const AWAY_GRACE: Duration = Duration::from_secs(60);

/// One node's agent.
#[derive(Debug)]
pub struct Agent {
    node: String,
    client: AgentClient<Channel>,
    inventory: watch::Sender<Inventory>,
}

impl Agent {
    /// The node id.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// A client to call the agent with; cheap.
    pub fn client(&self) -> AgentClient<Channel> {
        self.client.clone()
    }

    /// Looks at the inventory, now. Short: updates wait meanwhile.
    pub fn look<T>(&self, read: impl FnOnce(&Inventory) -> T) -> T {
        read(&self.inventory.borrow())
    }

    /// The agent process as last heard of, for [`shows`](Self::shows) after a call.
    pub fn instance(&self) -> String {
        self.look(|inventory| inventory.instance().to_owned())
    }

    /// Whether the agent has been away for so long that its volumes count as unreachable.
    pub fn unreachable(&self) -> bool {
        self.look(|inventory| {
            inventory
                .away_since()
                .is_some_and(|since| since.elapsed() >= AWAY_GRACE)
        })
    }

    /// Waits until the inventory shows this revision of this instance; false when that takes
    /// longer than `deadline`. What was acknowledged is durable either way.
    pub async fn wait_for(&self, instance: &str, revision: u64, deadline: Duration) -> bool {
        let mut seen = self.inventory.subscribe();
        let shown = seen.wait_for(|inventory| inventory.includes(instance, revision));
        matches!(tokio::time::timeout(deadline, shown).await, Ok(Ok(_)))
    }

    /// [`wait_for`](Self::wait_for) after a change that `instance` acknowledged, as long as a caller can be kept waiting.
    pub async fn shows(&self, instance: &str, revision: u64) {
        if !self.wait_for(instance, revision, SHOW_DEADLINE).await {
            tracing::warn!(
                node = self.node,
                revision,
                "the agent acknowledged a change but has not reported it; lists may lack it for a while"
            );
        }
    }
}

type Map = BTreeMap<String, Arc<Agent>>;

#[derive(Debug)]
struct Inner {
    map: RwLock<Map>,
    ready: watch::Sender<bool>,
    // Ends the watch tasks when the last `Agents` goes.
    _stop: DropGuard,
}

/// All agents that have ever said hello, by node id. Clones share one map.
#[derive(Debug, Clone)]
pub struct Agents {
    inner: Arc<Inner>,
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
        /// The id.
        id: String,
        /// The node in it.
        node: String,
    },
    /// The agent has not looked at every drive, or is away: absence is not known.
    #[error(
        "volume {id} is not known, but the agent of node {node} is starting or away; ask again, and see that it runs"
    )]
    NotKnownYet {
        /// The id.
        id: String,
        /// The node in it.
        node: String,
    },
    /// An agent of that node was never seen.
    #[error("no agent of node {node} has connected; see that it runs, then ask again")]
    NodeNeverSeen {
        /// The node in the id.
        node: String,
    },
}

impl Agents {
    /// The one agent behind this channel, which may not be there yet. Spawns the task that
    /// follows its inventory; it ends with the last clone of the returned value. Must be called within a tokio runtime.
    pub fn single(channel: Channel) -> Self {
        let stop = CancellationToken::new();
        let agents = Self {
            inner: Arc::new(Inner {
                map: RwLock::default(),
                ready: watch::Sender::new(false),
                _stop: stop.clone().drop_guard(),
            }),
        };
        let client = AgentClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let inner = Arc::downgrade(&agents.inner);
        let follow = async move {
            let mut pause = FIRST_PAUSE;
            loop {
                let began = Instant::now();
                let error = follow(&client, &inner).await;
                // What lasted was a connection; what did not is not asked for in a tight loop.
                if began.elapsed() > LONGEST_PAUSE {
                    pause = FIRST_PAUSE;
                }
                tracing::warn!(%error, retry_in = ?pause, "the agent's inventory is not followed");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        };
        tokio::spawn(async move { stop.run_until_cancelled(follow).await });
        agents
    }

    /// Turns true when a first agent has looked at every drive, and stays so.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.inner.ready.subscribe()
    }

    /// The agents now, by node id.
    pub fn all(&self) -> Vec<Arc<Agent>> {
        let map = self
            .inner
            .map
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        map.values().cloned().collect()
    }

    /// The agent of this node.
    pub fn get(&self, node: &str) -> Option<Arc<Agent>> {
        let map = self
            .inner
            .map
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        map.get(node).cloned()
    }

    /// The agent that would have the volume of this id, whether or not it does.
    pub fn of_volume(&self, id: &str) -> Result<Arc<Agent>, LookupError> {
        let parsed: VolumeId = id.parse().map_err(|_| LookupError::NotAnId {
            id: id.chars().take(128).collect(),
        })?;
        self.get(&parsed.node)
            .ok_or(LookupError::NodeNeverSeen { node: parsed.node })
    }

    /// The volume of this id, from what is known now, and its agent.
    pub fn volume(
        &self,
        id: &str,
    ) -> Result<(Arc<Agent>, Arc<drivebay_proto::agent::Volume>), LookupError> {
        let agent = self.of_volume(id)?;
        let (volume, complete) =
            agent.look(|inventory| (inventory.shown().volume(id).cloned(), inventory.complete()));
        let (id, node) = (id.to_owned(), agent.node.clone());
        match volume {
            Some(volume) => Ok((agent, volume)),
            None if complete => Err(LookupError::NoSuchVolume { id, node }),
            None => Err(LookupError::NotKnownYet { id, node }),
        }
    }
}

/// Why the inventory is not followed for now.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error("the agent did not say hello: {0}")]
    Hello(#[source] CallError),
    #[error("the agent calls itself {0:?}, which is not a node id")]
    NodeId(String),
    #[error("the inventory stream broke: {}", .0.message())]
    Stream(#[source] Status),
    #[error("the agent ended the inventory stream")]
    Ended,
    #[error(transparent)]
    Gap(#[from] Gap),
    #[error("the controller is stopping")]
    Stopping,
}

async fn follow(client: &AgentClient<Channel>, inner: &std::sync::Weak<Inner>) -> FollowError {
    let hello = {
        let mut client = client.clone();
        let asked = call(HELLO_DEADLINE, async move {
            client.hello(HelloRequest::default()).await
        });
        match asked.await {
            Ok(hello) => hello,
            Err(error) => return FollowError::Hello(error),
        }
    };
    if !is_node_id(&hello.node_id) {
        return FollowError::NodeId(hello.node_id);
    }
    tracing::info!(
        node = hello.node_id,
        version = hello.version,
        "agent connected"
    );
    let Some(agent) = enrol(client, inner, hello.node_id) else {
        return FollowError::Stopping;
    };
    let error = watch(&agent, inner).await;
    let now = Instant::now();
    agent.inventory.send_modify(|inventory| inventory.away(now));
    error
}

// The agent's entry in the map; the one there is, if it has been here before, with all that is known of it.
fn enrol(
    client: &AgentClient<Channel>,
    inner: &std::sync::Weak<Inner>,
    node: String,
) -> Option<Arc<Agent>> {
    let inner = inner.upgrade()?;
    let mut map = inner.map.write().unwrap_or_else(PoisonError::into_inner);
    let agent = map.entry(node.clone()).or_insert_with(|| {
        let mut inventory = Inventory::new(node.clone());
        inventory.away(Instant::now());
        Arc::new(Agent {
            client: client.clone(),
            inventory: watch::Sender::new(inventory),
            node,
        })
    });
    Some(agent.clone())
}

async fn watch(agent: &Agent, inner: &std::sync::Weak<Inner>) -> FollowError {
    let request = Request::new(WatchInventoryRequest {});
    let mut stream = match agent.client().watch_inventory(request).await {
        Ok(response) => response.into_inner(),
        Err(status) => return FollowError::Stream(status),
    };
    loop {
        let update = match stream.message().await {
            Ok(Some(update)) => update,
            Ok(None) => return FollowError::Ended,
            Err(status) => return FollowError::Stream(status),
        };
        if !update.node_id.is_empty() && update.node_id != agent.node {
            return FollowError::NodeId(update.node_id);
        }
        let mut applied = Ok(());
        agent
            .inventory
            .send_modify(|inventory| applied = inventory.apply(update));
        if let Err(gap) = applied {
            return gap.into();
        }
        if agent.look(Inventory::complete)
            && let Some(inner) = inner.upgrade()
        {
            inner
                .ready
                .send_if_modified(|ready| !std::mem::replace(ready, true));
        }
    }
}
