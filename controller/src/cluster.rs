//! The `Cluster` service: the command line's requests to this controller. Lists are answered from memory.

use std::{collections::BTreeSet, pin::Pin, sync::Arc, time::Instant};

use drivebay_proto::{
    agent::{self, agent_client::AgentClient},
    controller::{
        CancelMovesRequest, Connection, CordonDriveRequest, GetControllerRequest,
        GetControllerResponse, GetVolumeRequest, GetVolumeResponse, ListDrivesRequest,
        ListMovesRequest, ListNodesRequest, ListVolumesRequest, LocateDriveRequest,
        MoveVolumesRequest, Node, NodeDrives, VolumeOnNode, cluster_server::Cluster,
    },
    words::NodeState,
};
use tokio_stream::{Stream, StreamExt, iter};
use tonic::{Request, Response, Status};

use drivebay_csi::topology::TopologyKey;
use drivebay_service::{
    agents::{Agent, AgentChannel, Agents, Past},
    call::{CHANGE_DEADLINE, call},
    catalog::Key,
};
use drivebay_view::drives::{in_trouble, is_noise};

/// Volumes read from the catalog at a time.
const STRIDE: usize = 1000;

/// Implementation of the `Cluster` service.
#[derive(Debug, Clone)]
pub struct ClusterService {
    agents: Agents,
    driver: String,
}

impl ClusterService {
    /// Returns the service over these agents, for this CSI driver name.
    pub fn new(agents: Agents, driver: String) -> Self {
        Self { agents, driver }
    }

    /// Returns the agents of these nodes; if none is named, those of all nodes of the cluster and of names with refused agents.
    fn named(&self, nodes: &[String]) -> Vec<Arc<Agent>> {
        if nodes.is_empty() {
            let shown =
                |agent: &Arc<Agent>| self.agents.is_node(agent) || agent.refused().is_some();
            return self.agents.all().into_iter().filter(shown).collect();
        }
        let nodes: BTreeSet<&String> = nodes.iter().collect();
        nodes
            .into_iter()
            .filter_map(|node| self.agents.get(node))
            .collect()
    }

    /// Returns a client for the node's agent, which takes answers that list all its moves. NOT_FOUND: the node is not known. UNAVAILABLE: its agent is not connected.
    fn client(&self, node: &str) -> Result<AgentClient<AgentChannel>, Status> {
        let agent = self.agents.get(node);
        let agent = agent.ok_or_else(|| Status::not_found(format!("no node {node:?} is known")))?;
        agent.client_for_moves().map_err(Status::from)
    }

    fn node(&self, agent: &Agent) -> Node {
        let facts = agent.facts();
        let connected = agent.connected();
        let expected = self.agents.expected().has_node(agent.node());
        let state = self.agents.state_of(agent);
        let mut notes: Vec<String> = agent.refused().into_iter().collect();
        if facts.is_none() {
            let why = if expected {
                "expected by Kubernetes; its agent has not connected since this controller started"
            } else {
                "no agent of this node was ever accepted"
            };
            notes.push(why.to_owned());
        }
        let facts = facts.as_ref();
        agent.read_inventory(|inventory| {
            // Decoding a drive is costly, so one pass counts both.
            let (mut drives, mut drives_in_trouble) = (0, 0);
            for drive in inventory.drives() {
                drives += u64::from(!is_noise(&drive));
                drives_in_trouble += u64::from(in_trouble(&drive));
            }
            Node {
                node_id: agent.node().to_owned(),
                state: state.to_string(),
                version: facts.map(|facts| facts.version.clone()).unwrap_or_default(),
                instance: facts
                    .map(|facts| facts.instance.clone())
                    .unwrap_or_default(),
                machine_id: facts
                    .map(|facts| facts.machine_id.clone())
                    .unwrap_or_default(),
                address: facts
                    .filter(|_| connected)
                    .map(|facts| facts.address.clone())
                    .unwrap_or_default(),
                away_seconds: inventory
                    .away_since()
                    .map_or(0, |since: Instant| since.elapsed().as_secs()),
                drives,
                drives_in_trouble,
                volumes: inventory.counts().volumes,
                volumes_abnormal: if inventory.away_since().is_some()
                    && state != NodeState::Connected
                {
                    inventory.counts().volumes
                } else {
                    inventory.counts().troubled
                },
                classes: inventory.classes().values().cloned().collect(),
                notes,
                revision: inventory.revision(),
                history: Vec::new(),
                expected,
                findings: inventory.findings().to_vec(),
            }
        })
    }
}

fn connection(past: Past) -> Connection {
    Connection {
        at: past.at,
        outcome: past.outcome.to_string(),
        address: past.address,
        text: past.text,
        times: past.times,
    }
}

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Cluster for ClusterService {
    type ListNodesStream = Streamed<Node>;

    async fn list_nodes(
        &self,
        request: Request<ListNodesRequest>,
    ) -> Result<Response<Self::ListNodesStream>, Status> {
        let ListNodesRequest { nodes, history } = request.into_inner();
        let agents = self.named(&nodes);
        let this = self.clone();
        let nodes = iter(agents).map(move |agent| {
            let mut node = this.node(&agent);
            if history {
                node.history = agent.history().into_iter().map(connection).collect();
            }
            Ok(node)
        });
        Ok(Response::new(Box::pin(nodes)))
    }

    type ListDrivesStream = Streamed<NodeDrives>;

    async fn list_drives(
        &self,
        request: Request<ListDrivesRequest>,
    ) -> Result<Response<Self::ListDrivesStream>, Status> {
        let agents = self.named(&request.into_inner().nodes);
        let this = self.clone();
        let drives = iter(agents).map(move |agent| {
            Ok(NodeDrives {
                node_id: agent.node().to_owned(),
                state: this.agents.state_of(&agent).to_string(),
                drives: agent.read_inventory(|inventory| inventory.drives().collect()),
            })
        });
        Ok(Response::new(Box::pin(drives)))
    }

    type ListVolumesStream = Streamed<VolumeOnNode>;

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<Self::ListVolumesStream>, Status> {
        let ListVolumesRequest { nodes, deleted } = request.into_inner();
        let nodes: BTreeSet<String> = nodes.into_iter().collect();
        let this = self.clone();
        let (mut from, mut done) = (None::<Key>, false);
        // Pages are read as the client receives them, so that a cluster's volumes are never all in memory a second time.
        let pages = std::iter::from_fn(move || {
            if done {
                return None;
            }
            let page = this
                .agents
                .catalog()
                .after(from.as_ref(), STRIDE, |key, marks| {
                    (marks.exists || deleted) && (nodes.is_empty() || nodes.contains(&*key.node))
                });
            done = page.len() < STRIDE;
            from = page.last().map(|(key, _)| key.clone());
            let shown: Vec<_> = page
                .into_iter()
                .map(|(key, entry)| Ok(this.agents.on_node(&key, entry.decode(&key))))
                .collect();
            Some(shown)
        });
        Ok(Response::new(Box::pin(iter(pages.flatten()))))
    }

    async fn cordon_drive(
        &self,
        request: Request<CordonDriveRequest>,
    ) -> Result<Response<agent::CordonDriveResponse>, Status> {
        let CordonDriveRequest { node, request } = request.into_inner();
        let request = request.unwrap_or_default();
        let mut client = self.client(&node)?;
        let answer = call(CHANGE_DEADLINE, client.cordon_drive(request.clone())).await;
        let answer = answer.map_err(Status::from)?;
        let (drive, by, uncordon) = (&answer.drive, &request.by, request.uncordon);
        tracing::info!(
            node,
            drive,
            by,
            uncordon,
            changed = answer.changed,
            "drive cordon requested through this controller"
        );
        Ok(Response::new(answer))
    }

    async fn locate_drive(
        &self,
        request: Request<LocateDriveRequest>,
    ) -> Result<Response<agent::LocateDriveResponse>, Status> {
        let LocateDriveRequest { node, request } = request.into_inner();
        let request = request.unwrap_or_default();
        let mut client = self.client(&node)?;
        let on = request.on;
        let answer = call(CHANGE_DEADLINE, client.locate_drive(request)).await;
        let answer = answer.map_err(Status::from)?;
        let drive = &answer.drive;
        tracing::info!(
            node,
            drive,
            on,
            "drive light switched through this controller"
        );
        Ok(Response::new(answer))
    }

    async fn move_volumes(
        &self,
        request: Request<MoveVolumesRequest>,
    ) -> Result<Response<agent::MoveVolumesResponse>, Status> {
        let MoveVolumesRequest { node, request } = request.into_inner();
        let request = request.unwrap_or_default();
        let mut client = self.client(&node)?;
        let answer = call(CHANGE_DEADLINE, client.move_volumes(request.clone())).await;
        let answer = answer.map_err(Status::from)?;
        let (drive, volume, by) = (&answer.drive, &request.volume_id, &request.by);
        if !request.plan {
            tracing::info!(
                node,
                drive,
                volume,
                by,
                moves = answer.moves.len(),
                "volume moves requested through this controller"
            );
        }
        Ok(Response::new(answer))
    }

    async fn cancel_moves(
        &self,
        request: Request<CancelMovesRequest>,
    ) -> Result<Response<agent::CancelMovesResponse>, Status> {
        let CancelMovesRequest { node, request } = request.into_inner();
        let request = request.unwrap_or_default();
        let mut client = self.client(&node)?;
        let answer = call(CHANGE_DEADLINE, client.cancel_moves(request.clone())).await;
        let answer = answer.map_err(Status::from)?;
        let (drive, volume, by) = (&request.drive, &request.volume_id, &request.by);
        tracing::info!(
            node,
            drive,
            volume,
            by,
            cancelled = answer.cancelled.len(),
            too_late = answer.too_late.len(),
            "volume moves cancelled through this controller"
        );
        Ok(Response::new(answer))
    }

    async fn list_moves(
        &self,
        request: Request<ListMovesRequest>,
    ) -> Result<Response<agent::ListMovesResponse>, Status> {
        let mut client = self.client(&request.into_inner().node)?;
        let answer = call(
            CHANGE_DEADLINE,
            client.list_moves(agent::ListMovesRequest {}),
        )
        .await;
        Ok(Response::new(answer.map_err(Status::from)?))
    }

    async fn get_controller(
        &self,
        _: Request<GetControllerRequest>,
    ) -> Result<Response<GetControllerResponse>, Status> {
        let findings = self.agents.notes().troubles().findings();
        Ok(Response::new(GetControllerResponse { findings }))
    }

    async fn get_volume(
        &self,
        request: Request<GetVolumeRequest>,
    ) -> Result<Response<GetVolumeResponse>, Status> {
        let reported = self.agents.volume(&request.into_inner().id)?;
        let key = Key {
            uuid: drivebay_service::agents::parse(&reported.volume.id)?.uuid,
            node: reported.agent.node_id(),
        };
        Ok(Response::new(GetVolumeResponse {
            volume: Some(self.agents.on_node(&key, reported.volume)),
            driver: self.driver.clone(),
            topology_key: TopologyKey::new(&self.driver).as_str().to_owned(),
        }))
    }
}
