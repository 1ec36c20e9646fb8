//! Client of the agent's socket.

use std::{path::Path, time::Duration};

use drivebay_common::query::{CalledProgram, MAX_ANSWER, Program, QueryError};
use drivebay_proto::{
    agent::{
        DriveLatencyRequest, DriveLatencyResponse, FindVolumeRequest, InventoryUpdate,
        ListCopiesRequest, RescanRequest, Volume, VolumeCopy, WatchInventoryRequest,
        agent_client::AgentClient, manual_volumes_client::ManualVolumesClient,
    },
    words::VolumeState,
};
use tonic::{Code, transport::Channel};

pub const AGENT: Program = Program {
    name: "agent",
    advice: "Where it is a service, `systemctl status drivebay-agent` shows why it does not run. Else start one with `drivebay-agent run --config FILE` (as root), name its socket with --socket, or see what an agent would do with `drivebay-agent claim-plan --config FILE`, which needs none",
    deadline: Duration::from_secs(5),
};
/// Limit of a rescan, which scans every drive with a deadline of 10 s each.
const RESCAN_DEADLINE: Duration = Duration::from_secs(60);

/// A connection to the agent.
#[derive(Debug)]
pub struct Client {
    pub agent: CalledProgram,
    /// The generated client, for calls without a method here.
    pub raw: AgentClient<Channel>,
    /// Client of the calls for manual operations.
    pub manual_volumes: ManualVolumesClient<Channel>,
}

impl Client {
    /// Connects to the agent's socket.
    pub async fn connect(socket: &Path) -> Result<Self, QueryError> {
        let (agent, channel) = CalledProgram::dial(&AGENT, socket).await?;
        let manual_volumes = ManualVolumesClient::new(channel.clone());
        let raw = AgentClient::new(channel).max_decoding_message_size(MAX_ANSWER);
        Ok(Self {
            agent,
            raw,
            manual_volumes,
        })
    }

    /// Returns the current inventory: the first message of the watch, which is always a full one.
    pub async fn inventory(&mut self) -> Result<InventoryUpdate, QueryError> {
        let raw = &mut self.raw;
        let first = async move {
            let mut stream = raw
                .watch_inventory(WatchInventoryRequest {})
                .await?
                .into_inner();
            stream.message().await
        };
        self.agent
            .answered(first)
            .await?
            .ok_or_else(|| self.agent.ended())
    }

    /// Returns the live volume whose name, uuid or id is `called`; None if the agent is certain that there is none.
    pub async fn find_volume(&mut self, called: &str) -> Result<Option<Volume>, QueryError> {
        let request = FindVolumeRequest {
            volume: called.to_owned(),
        };
        let manual_volumes = &mut self.manual_volumes;
        let call = async move {
            match manual_volumes.find_volume(request).await {
                Ok(answer) => Ok(answer.into_inner().volume),
                Err(status) if status.code() == Code::NotFound => Ok(None),
                Err(status) => Err(status),
            }
        };
        self.agent.answered(call).await
    }

    /// Returns the latencies of a drive; None if the agent does not implement the call, or has no drive of this identity any more.
    pub async fn drive_latency(
        &mut self,
        drive: &str,
    ) -> Result<Option<DriveLatencyResponse>, QueryError> {
        let raw = &mut self.raw;
        let request = DriveLatencyRequest {
            drive: drive.to_owned(),
        };
        let call = async move {
            match raw.drive_latency(request).await {
                Ok(answer) => Ok(Some(answer.into_inner())),
                Err(status) if matches!(status.code(), Code::Unimplemented | Code::NotFound) => {
                    Ok(None)
                }
                Err(status) => Err(status),
            }
        };
        self.agent.answered(call).await
    }

    /// Returns the copies of snapshots and volumes to new volumes that are in progress. An agent that does not support copies refuses with
    /// UNIMPLEMENTED.
    pub async fn list_copies(&mut self) -> Result<Vec<VolumeCopy>, QueryError> {
        let call = self.raw.list_copies(ListCopiesRequest {});
        Ok(self.agent.answered(call).await?.into_inner().copies)
    }

    /// Returns why the volume of this name could not be created as a copy; None if the agent keeps no such failure.
    pub async fn copy_failure(&mut self, name: &str) -> Result<Option<String>, QueryError> {
        let call = self.raw.list_copies(ListCopiesRequest {});
        let failed = self.agent.answered(call).await?.into_inner().failed;
        let failed = failed.into_iter().find(|copy| copy.name == name);
        Ok(failed.map(|copy| copy.waits_for))
    }

    /// Returns all running copies; none, without a call, if none of these volumes is being copied.
    pub async fn copies_to(&mut self, volumes: &[Volume]) -> Result<Vec<VolumeCopy>, QueryError> {
        let is_copying = |volume: &Volume| volume.known_state() == Some(VolumeState::Copying);
        match volumes.iter().any(is_copying) {
            true => self.list_copies().await,
            false => Ok(Vec::new()),
        }
    }

    /// Scans all drives. Returns the inventory revision that shows the result.
    pub async fn rescan(&mut self) -> Result<u64, QueryError> {
        let call = self.raw.rescan(RescanRequest {});
        let answer = self.agent.answered_within(RESCAN_DEADLINE, call).await?;
        Ok(answer.into_inner().revision)
    }
}
