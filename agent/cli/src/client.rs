//! The command line's way to the agent.

use std::{path::Path, time::Duration};

use drivebay_common::ask::{AskError, Asked, MAX_ANSWER, Program};
use drivebay_proto::{
    agent::{
        DriveLatencyRequest, DriveLatencyResponse, FindVolumeRequest, InventoryUpdate,
        ListCopiesRequest, RescanRequest, Volume, VolumeCopy, WatchInventoryRequest,
        agent_client::AgentClient, by_hand_client::ByHandClient,
    },
    words::VolumeState,
};
use tonic::{Code, transport::Channel};

pub const AGENT: Program = Program {
    name: "agent",
    advice: "Start one with `drivebay-agent run --config FILE` (as root), name its socket with --socket, or see what an agent would do with `drivebay-agent claim-plan --config FILE`, which needs none",
    deadline: Duration::from_secs(5),
};
/// A rescan looks at every drive, each with its own deadline of 10 s.
const RESCAN_DEADLINE: Duration = Duration::from_secs(60);

/// A connection to the agent.
#[derive(Debug)]
pub struct Client {
    pub asked: Asked,
    /// The generated client, for what has no function here.
    pub raw: AgentClient<Channel>,
    /// What is done by hand.
    pub by_hand: ByHandClient<Channel>,
}

impl Client {
    /// Dials.
    pub async fn connect(socket: &Path) -> Result<Self, AskError> {
        let (asked, channel) = Asked::dial(&AGENT, socket).await?;
        let by_hand = ByHandClient::new(channel.clone());
        let raw = AgentClient::new(channel).max_decoding_message_size(MAX_ANSWER);
        Ok(Self {
            asked,
            raw,
            by_hand,
        })
    }

    /// The inventory now: the first message of the watch, always a full one.
    pub async fn inventory(&mut self) -> Result<InventoryUpdate, AskError> {
        let raw = &mut self.raw;
        let first = async move {
            let mut stream = raw
                .watch_inventory(WatchInventoryRequest {})
                .await?
                .into_inner();
            stream.message().await
        };
        self.asked
            .answered(first)
            .await?
            .ok_or_else(|| self.asked.ended())
    }

    /// The live volume of this name, uuid or id; None: there is none for certain.
    pub async fn find_volume(&mut self, called: &str) -> Result<Option<Volume>, AskError> {
        let request = FindVolumeRequest {
            volume: called.to_owned(),
        };
        let by_hand = &mut self.by_hand;
        let asked = async move {
            match by_hand.find_volume(request).await {
                Ok(answer) => Ok(answer.into_inner().volume),
                Err(status) if status.code() == Code::NotFound => Ok(None),
                Err(status) => Err(status),
            }
        };
        self.asked.answered(asked).await
    }

    /// The latencies of a drive; None of an agent that does not tell them, or of a drive that it lost meanwhile.
    pub async fn drive_latency(
        &mut self,
        drive: &str,
    ) -> Result<Option<DriveLatencyResponse>, AskError> {
        let raw = &mut self.raw;
        let request = DriveLatencyRequest {
            drive: drive.to_owned(),
        };
        let asked = async move {
            match raw.drive_latency(request).await {
                Ok(answer) => Ok(Some(answer.into_inner())),
                Err(status) if matches!(status.code(), Code::Unimplemented | Code::NotFound) => {
                    Ok(None)
                }
                Err(status) => Err(status),
            }
        };
        self.asked.answered(asked).await
    }

    /// The copies of snapshots and volumes to new volumes that go on. Refused as UNIMPLEMENTED by an agent that makes none.
    pub async fn list_copies(&mut self) -> Result<Vec<VolumeCopy>, AskError> {
        let call = self.raw.list_copies(ListCopiesRequest {});
        Ok(self.asked.answered(call).await?.into_inner().copies)
    }

    /// The same, asked for only if one of these volumes is being copied.
    pub async fn copies_to(&mut self, volumes: &[Volume]) -> Result<Vec<VolumeCopy>, AskError> {
        let is_copying = |volume: &Volume| volume.known_state() == Some(VolumeState::Copying);
        match volumes.iter().any(is_copying) {
            true => self.list_copies().await,
            false => Ok(Vec::new()),
        }
    }

    /// Looks again at all drives; the revision that shows the result.
    pub async fn rescan(&mut self) -> Result<u64, AskError> {
        let call = self.raw.rescan(RescanRequest {});
        let answer = self.asked.answered_within(RESCAN_DEADLINE, call).await?;
        Ok(answer.into_inner().revision)
    }
}
