//! The command line's client of the controller.

use std::{path::Path, time::Duration};

use drivebay_common::query::{CalledProgram, MAX_ANSWER, Program, QueryError};
use drivebay_proto::agent::{
    CancelMovesResponse, CordonDriveResponse, ListMovesResponse, LocateDriveResponse,
    MoveVolumesResponse,
};
use drivebay_proto::controller::{
    CancelMovesRequest, CordonDriveRequest, GetControllerRequest, GetControllerResponse,
    GetVolumeRequest, GetVolumeResponse, ListDrivesRequest, ListMovesRequest, ListNodesRequest,
    ListVolumesRequest, LocateDriveRequest, MoveVolumesRequest, Node, NodeDrives, VolumeOnNode,
    cluster_client::ClusterClient,
};
use tonic::{Streaming, transport::Channel};

pub const CONTROLLER: Program = Program {
    name: "controller",
    advice: "Run this where the controller runs (in Kubernetes: kubectl exec into its pod) and name its socket with --socket",
    // Per message, since the controller answers from memory. A list of any length may take longer in total.
    deadline: Duration::from_secs(10),
};

/// Timeout of calls that an agent executes; longer than the controller's own timeout of the agent.
const CHANGE: Duration = Duration::from_secs(70);

/// A connection to the controller.
#[derive(Debug)]
pub struct Client {
    program: CalledProgram,
    inner: ClusterClient<Channel>,
}

impl Client {
    /// Connects to the controller's socket.
    pub async fn connect(socket: &Path) -> Result<Self, QueryError> {
        let (program, channel) = CalledProgram::dial(&CONTROLLER, socket).await?;
        let inner = ClusterClient::new(channel).max_decoding_message_size(MAX_ANSWER);
        Ok(Self { program, inner })
    }

    /// Returns these nodes, or all if none is named, ordered by id.
    pub async fn nodes(&mut self, nodes: &[String]) -> Result<Vec<Node>, QueryError> {
        self.nodes_with(ListNodesRequest {
            nodes: nodes.to_vec(),
            history: false,
        })
        .await
    }

    /// Returns one node with its last sessions and refusals; None if it is unknown.
    pub async fn node(&mut self, node: &str) -> Result<Option<Node>, QueryError> {
        let request = ListNodesRequest {
            nodes: vec![node.to_owned()],
            history: true,
        };
        Ok(self.nodes_with(request).await?.pop())
    }

    async fn nodes_with(&mut self, request: ListNodesRequest) -> Result<Vec<Node>, QueryError> {
        let call = self.inner.list_nodes(request);
        let stream = self.program.answered(call).await?.into_inner();
        let mut incoming = self.incoming(stream);
        let mut nodes = Vec::new();
        while let Some(node) = incoming.next().await? {
            nodes.push(node);
        }
        Ok(nodes)
    }

    /// Forwarded to the node's agent.
    pub async fn locate_drive(
        &mut self,
        request: LocateDriveRequest,
    ) -> Result<LocateDriveResponse, QueryError> {
        let call = self.inner.locate_drive(request);
        let answer = self.program.answered_within(CHANGE, call).await?;
        Ok(answer.into_inner())
    }

    /// Forwarded to the node's agent, which records the cordon on the drive.
    pub async fn cordon_drive(
        &mut self,
        request: CordonDriveRequest,
    ) -> Result<CordonDriveResponse, QueryError> {
        let call = self.inner.cordon_drive(request);
        let answer = self.program.answered_within(CHANGE, call).await?;
        Ok(answer.into_inner())
    }

    /// Forwarded to the node's agent, which records the moves.
    pub async fn move_volumes(
        &mut self,
        request: MoveVolumesRequest,
    ) -> Result<MoveVolumesResponse, QueryError> {
        let call = self.inner.move_volumes(request);
        let answer = self.program.answered_within(CHANGE, call).await?;
        Ok(answer.into_inner())
    }

    /// Forwarded to the node's agent.
    pub async fn cancel_moves(
        &mut self,
        request: CancelMovesRequest,
    ) -> Result<CancelMovesResponse, QueryError> {
        let call = self.inner.cancel_moves(request);
        let answer = self.program.answered_within(CHANGE, call).await?;
        Ok(answer.into_inner())
    }

    /// Forwarded to the node's agent.
    pub async fn list_moves(
        &mut self,
        request: ListMovesRequest,
    ) -> Result<ListMovesResponse, QueryError> {
        let call = self.inner.list_moves(request);
        let answer = self.program.answered_within(CHANGE, call).await?;
        Ok(answer.into_inner())
    }

    /// Streams the drives of these nodes, or of all if none is named.
    pub async fn drives(&mut self, nodes: &[String]) -> Result<Incoming<NodeDrives>, QueryError> {
        let nodes = nodes.to_vec();
        let call = self.inner.list_drives(ListDrivesRequest { nodes });
        let stream = self.program.answered(call).await?.into_inner();
        Ok(self.incoming(stream))
    }

    /// Streams the volumes of these nodes, or of all if none is named, in the order of ids. `deleted`: includes deleted ones.
    pub async fn volumes(
        &mut self,
        nodes: &[String],
        deleted: bool,
    ) -> Result<Incoming<VolumeOnNode>, QueryError> {
        let nodes = nodes.to_vec();
        let call = self
            .inner
            .list_volumes(ListVolumesRequest { nodes, deleted });
        let stream = self.program.answered(call).await?.into_inner();
        Ok(self.incoming(stream))
    }

    /// Returns one volume, also under the id of a node from which its drive was moved.
    pub async fn volume(&mut self, id: &str) -> Result<GetVolumeResponse, QueryError> {
        let call = self
            .inner
            .get_volume(GetVolumeRequest { id: id.to_owned() });
        Ok(self.program.answered(call).await?.into_inner())
    }

    /// Returns the findings about the controller itself.
    pub async fn controller(&mut self) -> Result<GetControllerResponse, QueryError> {
        let call = self.inner.get_controller(GetControllerRequest {});
        Ok(self.program.answered(call).await?.into_inner())
    }

    /// Returns the error for an answer that violates the protocol.
    pub fn senseless(&self, what: &'static str) -> QueryError {
        self.program.senseless(what)
    }

    fn incoming<T>(&self, stream: Streaming<T>) -> Incoming<T> {
        Incoming {
            program: self.program.clone(),
            stream,
        }
    }
}

/// Messages of a streamed answer, in the order received. The answer is complete once [`next`](Self::next) has returned None.
#[derive(Debug)]
pub struct Incoming<T> {
    program: CalledProgram,
    stream: Streaming<T>,
}

impl<T> Incoming<T> {
    /// Receives the next message; None at the end of a complete answer.
    pub async fn next(&mut self) -> Result<Option<T>, QueryError> {
        self.program.answered(self.stream.message()).await
    }
}
