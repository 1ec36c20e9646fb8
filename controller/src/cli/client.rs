//! The command line's way to the controller: its unix socket, a deadline on every answer.

use std::{
    future::Future,
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_proto::controller::{
    GetVolumeRequest, GetVolumeResponse, ListDrivesRequest, ListNodesRequest, ListVolumesRequest,
    Node, NodeDrives, VolumeOnNode, cluster_client::ClusterClient,
};
use tokio::time::timeout;
use tonic::{Code, Status, Streaming, transport::Channel};

use crate::dial;

/// For each message, since everything is answered from memory. A list of any length may take longer.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// The drives of one node are below 1 MiB; tonic's default limit is 4 MiB.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// Why the controller gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is none, or it is not for us.
    #[error(
        "no controller answers at {}. Run this where the controller runs (in Kubernetes: kubectl exec into its pod) and name its socket with --socket", socket.display()
    )]
    NoController {
        socket: PathBuf,
        #[source]
        source: dial::DialError,
    },
    /// It is there and says nothing.
    #[error("the controller at {} did not answer within {} s; see its log", .0.display(), DEADLINE.as_secs())]
    Silent(PathBuf),
    /// It answered with an error.
    #[error("the controller refused: {}", .0.message())]
    Refused(Box<Status>),
    /// It ended its answer early.
    #[error("the controller at {} ended the call before its answer was whole; is it stopping?", .0.display())]
    Ended(PathBuf),
    /// It answered with something that means nothing.
    #[error("the controller at {} answered with {what}; is it of another version?", socket.display())]
    Senseless {
        socket: PathBuf,
        /// What it said.
        what: &'static str,
    },
}

impl ClientError {
    /// Whether no controller is there at all (exit code 3), as opposed to one that says no.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::NoController { .. } | Self::Silent(_) | Self::Ended(_)
        )
    }
}

/// A connection to the controller.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    inner: ClusterClient<Channel>,
}

impl Client {
    /// Dials.
    pub async fn connect(socket: &Path) -> Result<Self, ClientError> {
        let channel = timeout(DEADLINE, dial::once(socket))
            .await
            .map_err(|_| ClientError::Silent(socket.to_owned()))?
            .map_err(|source| ClientError::NoController {
                socket: socket.to_owned(),
                source,
            })?;
        Ok(Self {
            socket: socket.to_owned(),
            inner: ClusterClient::new(channel).max_decoding_message_size(MAX_MESSAGE),
        })
    }

    /// These nodes (none named: all), by name.
    pub async fn nodes(&mut self, nodes: &[String]) -> Result<Vec<Node>, ClientError> {
        let nodes = nodes.to_vec();
        let call = self.inner.list_nodes(ListNodesRequest { nodes });
        let stream = answered(&self.socket, call).await?.into_inner();
        let mut incoming = self.incoming(stream);
        let mut known = Vec::new();
        while let Some(node) = incoming.next().await? {
            known.push(node);
        }
        Ok(known)
    }

    /// The drives of these nodes (none named: all).
    pub async fn drives(&mut self, nodes: &[String]) -> Result<Incoming<NodeDrives>, ClientError> {
        let nodes = nodes.to_vec();
        let call = self.inner.list_drives(ListDrivesRequest { nodes });
        let stream = answered(&self.socket, call).await?.into_inner();
        Ok(self.incoming(stream))
    }

    /// The volumes of these nodes (none named: all), by id.
    pub async fn volumes(
        &mut self,
        nodes: &[String],
        deleted: bool,
    ) -> Result<Incoming<VolumeOnNode>, ClientError> {
        let nodes = nodes.to_vec();
        let call = self
            .inner
            .list_volumes(ListVolumesRequest { nodes, deleted });
        let stream = answered(&self.socket, call).await?.into_inner();
        Ok(self.incoming(stream))
    }

    /// One volume, wherever it is.
    pub async fn volume(&mut self, id: &str) -> Result<GetVolumeResponse, ClientError> {
        let call = self
            .inner
            .get_volume(GetVolumeRequest { id: id.to_owned() });
        Ok(answered(&self.socket, call).await?.into_inner())
    }

    /// The answer that means nothing.
    pub fn senseless(&self, what: &'static str) -> ClientError {
        ClientError::Senseless {
            socket: self.socket.clone(),
            what,
        }
    }

    fn incoming<T>(&self, stream: Streaming<T>) -> Incoming<T> {
        Incoming {
            socket: self.socket.clone(),
            stream,
        }
    }
}

/// An answer in many messages.
#[derive(Debug)]
pub struct Incoming<T> {
    socket: PathBuf,
    stream: Streaming<T>,
}

impl<T> Incoming<T> {
    /// The next message; None when the answer is whole.
    pub async fn next(&mut self) -> Result<Option<T>, ClientError> {
        answered(&self.socket, self.stream.message()).await
    }
}

async fn answered<T>(
    socket: &Path,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, ClientError> {
    timeout(DEADLINE, call)
        .await
        .map_err(|_| ClientError::Silent(socket.to_owned()))?
        .map_err(|status| match status.code() {
            // What tonic itself says when the connection breaks, before an answer and within one.
            Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled
                if std::error::Error::source(&status).is_some() =>
            {
                ClientError::Ended(socket.to_owned())
            }
            _ => ClientError::Refused(Box::new(status)),
        })
}
