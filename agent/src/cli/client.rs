//! The command line's way to the agent: its unix socket, a deadline on every answer.

use std::{
    future::Future,
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_common::dial;
use drivebay_proto::agent::{
    InventoryUpdate, RescanRequest, WatchInventoryRequest, agent_client::AgentClient,
};
use tokio::time::timeout;
use tonic::{Status, transport::Channel};

/// Nothing a person waits for at a prompt should take longer.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// A rescan looks at every drive, each with its own deadline of 10 s.
const RESCAN_DEADLINE: Duration = Duration::from_secs(60);
/// A full snapshot of a thousand volumes is below 1 MiB; tonic's default limit is 4 MiB.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// Why the agent gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is none, or it is not for us.
    #[error(
        "no agent answers at {socket}. Start one with `drivebay-agent run --config FILE` (as root), name its socket with --socket, or see what an agent would do with `drivebay-agent claim-plan --config FILE`, which needs none"
    )]
    NoAgent {
        socket: PathBuf,
        #[source]
        source: dial::DialError,
    },
    /// It is there and says nothing.
    #[error("the agent at {socket} did not answer within {} s; see its log", limit.as_secs())]
    Silent {
        socket: PathBuf,
        /// How long it had.
        limit: Duration,
    },
    /// It answered with an error.
    #[error("the agent refused: {}", .0.message())]
    Refused(Box<Status>),
    /// It ended its answer early.
    #[error("the agent at {0} ended the call without an answer; is it stopping?")]
    Ended(PathBuf),
}

impl ClientError {
    /// Whether no agent is there at all (exit code 3), as opposed to one that says no.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::NoAgent { .. } | Self::Silent { .. } | Self::Ended(_)
        )
    }
}

/// A connection to the agent.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    inner: AgentClient<Channel>,
}

impl Client {
    /// Dials.
    pub async fn connect(socket: &Path) -> Result<Self, ClientError> {
        let dialled = timeout(DEADLINE, dial::once(socket)).await;
        let channel = dialled
            .map_err(|_| silent(socket, DEADLINE))?
            .map_err(|source| ClientError::NoAgent {
                socket: socket.to_owned(),
                source,
            })?;
        Ok(Self {
            socket: socket.to_owned(),
            inner: AgentClient::new(channel).max_decoding_message_size(MAX_MESSAGE),
        })
    }

    /// The inventory now: the first message of the watch, always a full one.
    pub async fn inventory(&mut self) -> Result<InventoryUpdate, ClientError> {
        let socket = self.socket.clone();
        let inner = &mut self.inner;
        let first = async move {
            let mut stream = inner
                .watch_inventory(WatchInventoryRequest {})
                .await?
                .into_inner();
            stream.message().await
        };
        answered(&socket, DEADLINE, first)
            .await?
            .ok_or(ClientError::Ended(socket))
    }

    /// Looks again at all drives; the revision that shows the result.
    pub async fn rescan(&mut self) -> Result<u64, ClientError> {
        let call = self.inner.rescan(RescanRequest {});
        Ok(answered(&self.socket, RESCAN_DEADLINE, call)
            .await?
            .into_inner()
            .revision)
    }

    /// The generated client, for a stream whose length is not known.
    pub fn raw(&mut self) -> &mut AgentClient<Channel> {
        &mut self.inner
    }
}

fn silent(socket: &Path, limit: Duration) -> ClientError {
    ClientError::Silent {
        socket: socket.to_owned(),
        limit,
    }
}

/// An answer within the limit, or why there is none.
pub async fn answered<T>(
    socket: &Path,
    limit: Duration,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, ClientError> {
    timeout(limit, call)
        .await
        .map_err(|_| silent(socket, limit))?
        .map_err(|status| match status.code() {
            // What tonic itself says when the connection breaks.
            tonic::Code::Unavailable if std::error::Error::source(&status).is_some() => {
                ClientError::Ended(socket.to_owned())
            }
            _ => ClientError::Refused(Box::new(status)),
        })
}
