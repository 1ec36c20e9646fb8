//! The calls: their preparation, their requests, their permitted answers, and the required final state.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    MIB, csi,
    hang::HungDrive,
    node::{Node, Placed},
    tools,
};
use drivebay_proto::{
    agent::{CheckVolumeRequest, RescanRequest, agent_client::AgentClient},
    csi as wire,
};
use tonic::{Code, Status};

/// Time limit for a correct state once the drive responds.
const BACK: Duration = Duration::from_secs(90);
/// Pause between two attempts of a call; shorter than the kubelet's.
const AGAIN: Duration = Duration::from_millis(250);
/// Contents of a volume that was used before.
const LETTER: &str = "the only copy";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// CreateVolume on a blank drive, which is claimed.
    Claim,
    Create,
    /// CreateVolume where another drive could take the volume too.
    CreateEither,
    /// The first stage, which runs mkfs.
    StageExt4,
    StageXfs,
    /// A stage of a volume that was used before.
    StageAgain,
    /// A stage with a log to replay.
    StageReplayExt4,
    StageReplayXfs,
    /// A stage that runs e2fsck.
    StageRepair,
    StageBlock,
    Publish,
    PublishReadOnly,
    PublishBlock,
    Stats,
    Expand,
    NodeExpand,
    Unpublish,
    /// With dirty pages to write back.
    Unstage,
    /// DeleteVolume, and the erasing that follows.
    Delete,
    /// A read-only check requested by an operator.
    Check,
    /// A scan of all drives.
    Rescan,
    /// The repair of a backup partition table.
    Repair,
}

pub(crate) const CALLS: [Call; 22] = [
    Call::Claim,
    Call::Create,
    Call::CreateEither,
    Call::StageExt4,
    Call::StageXfs,
    Call::StageAgain,
    Call::StageReplayExt4,
    Call::StageReplayXfs,
    Call::StageRepair,
    Call::StageBlock,
    Call::Publish,
    Call::PublishReadOnly,
    Call::PublishBlock,
    Call::Stats,
    Call::Expand,
    Call::NodeExpand,
    Call::Unpublish,
    Call::Unstage,
    Call::Delete,
    Call::Check,
    Call::Rescan,
    Call::Repair,
];

/// Target of a call: a drive, its class, and the volume concerned.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) class: String,
    pub(crate) name: String,
    pub(crate) volume: Option<Placed>,
}

impl Call {
    /// True if the drive holds other volumes, in use.
    pub(crate) fn has_others(self) -> bool {
        self != Self::Claim
    }

    /// True if the class has a second drive, which responds.
    pub(crate) fn has_a_second_drive(self) -> bool {
        self == Self::CreateEither
    }

    /// Returns the longest time until an answer while the drive hangs: the agent's own deadline, the second in which a killed worker must
    /// end, and a margin for a busy machine. None if the call has no deadline.
    pub(crate) fn deadline(self) -> Option<Duration> {
        let seconds = match self {
            Self::Claim | Self::Create | Self::CreateEither | Self::Expand | Self::Delete => 70,
            Self::StageExt4
            | Self::StageXfs
            | Self::StageAgain
            | Self::StageReplayExt4
            | Self::StageReplayXfs
            | Self::StageRepair
            | Self::StageBlock => 119,
            Self::NodeExpand => 115,
            Self::Publish | Self::PublishReadOnly | Self::PublishBlock => 30,
            Self::Stats => 3,
            Self::Unpublish | Self::Unstage => 60,
            Self::Rescan | Self::Repair => 60,
            Self::Check => return None,
        };
        Some(Duration::from_secs(seconds))
    }

    /// True if an error with this code asks the caller to repeat the call or, for a creation, to try elsewhere. Never for a sample.
    pub(crate) fn may_answer(self, code: Code) -> bool {
        let again = matches!(
            code,
            Code::Aborted | Code::Unavailable | Code::DeadlineExceeded
        );
        let elsewhere = matches!(self, Self::Claim | Self::Create | Self::CreateEither)
            && code == Code::ResourceExhausted;
        // The last sample is always available.
        (again || elsewhere) && self != Self::Stats
    }

    fn capability(self) -> wire::VolumeCapability {
        match self {
            Self::StageBlock | Self::PublishBlock => csi::block(),
            Self::StageXfs | Self::StageReplayXfs | Self::NodeExpand => csi::mount("xfs"),
            _ => csi::mount("ext4"),
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Self::StageXfs | Self::StageReplayXfs | Self::NodeExpand => 304 * MIB,
            _ => 64 * MIB,
        }
    }

    /// Creates the state that the call needs, on a drive that responds.
    pub(crate) async fn prepare(self, node: &Node, subject: &mut Subject, drive: &HungDrive) {
        match self {
            Self::Claim | Self::Create | Self::CreateEither | Self::Rescan => return,
            Self::Repair => {
                let size = drive.drive_ref().unwrap().size_bytes;
                drive
                    .alter(size - 512, 512, |header| header.fill(0))
                    .unwrap();
                return;
            }
            _ => {}
        }
        let volume = create(node, subject, self.bytes(), &self.capability()).await;
        let volume = node.place(&volume.unwrap(), &subject.name, &self.capability());
        subject.volume = Some(volume.clone());
        let letter = volume.target.join("letter");
        let write = || {
            fs::write(&letter, LETTER).unwrap();
            fs::File::open(&letter).unwrap().sync_all().unwrap();
        };
        match self {
            Self::Publish | Self::PublishReadOnly | Self::PublishBlock => {
                let (id, staging) = (&volume.id, &volume.staging);
                node.csi
                    .stage(id, staging, &volume.capability)
                    .await
                    .unwrap();
            }
            Self::StageAgain | Self::Delete | Self::Check => {
                node.use_volume(&volume).await;
                write();
                node.leave_volume(&volume).await;
            }
            Self::StageReplayExt4 | Self::StageReplayXfs => {
                node.use_volume(&volume).await;
                write();
                let target = volume.target.to_str().unwrap();
                tools::must("xfs_io", &["-x", "-c", "shutdown -f", target]);
                node.leave_volume(&volume).await;
            }
            Self::StageRepair => {
                node.use_volume(&volume).await;
                write();
                node.leave_volume(&volume).await;
                let device = node.device(&volume).await;
                let device = device.to_str().unwrap();
                tools::must("debugfs", &["-w", "-R", "ssv state 3", device]);
            }
            Self::Stats | Self::Unpublish => {
                node.use_volume(&volume).await;
                write();
            }
            Self::Unstage => {
                node.use_volume(&volume).await;
                write();
                fs::write(volume.target.join("dirty"), vec![7; 1 << 20]).unwrap();
                node.csi
                    .unpublish(&volume.id, &volume.target)
                    .await
                    .unwrap();
            }
            Self::NodeExpand => {
                node.use_volume(&volume).await;
                write();
                let more = node
                    .csi
                    .expand(&volume.id, 2 * volume.bytes, &volume.capability);
                more.await.unwrap();
            }
            _ => {}
        }
    }

    /// Makes the call. A creation returns the volume.
    pub(crate) async fn make(
        self,
        node: &Node,
        subject: &Subject,
    ) -> Result<Option<Placed>, Status> {
        let csi = &node.csi;
        let Some(volume) = &subject.volume else {
            return match self {
                Self::Rescan | Self::Repair => {
                    let channel = csi::channel(&node.agent_socket).await;
                    let channel =
                        channel.map_err(|error| Status::unavailable(error.to_string()))?;
                    let response = AgentClient::new(channel).rescan(RescanRequest {}).await;
                    response.map(|_| None)
                }
                _ => {
                    let made = create(node, subject, self.bytes(), &self.capability()).await?;
                    Ok(Some(node.place(&made, &subject.name, &self.capability())))
                }
            };
        };
        let (id, how) = (&volume.id, &volume.capability);
        match self {
            Self::Publish | Self::PublishBlock => {
                csi.publish(id, &volume.staging, &volume.target, how, false)
                    .await
            }
            Self::PublishReadOnly => {
                csi.publish(id, &volume.staging, &volume.target, how, true)
                    .await
            }
            Self::Stats => csi.stats(id, &volume.target).await.map(drop),
            Self::Expand => csi.expand(id, 2 * volume.bytes, how).await.map(drop),
            Self::NodeExpand => csi
                .node_expand(id, &volume.target, 2 * volume.bytes)
                .await
                .map(drop),
            Self::Unpublish => csi.unpublish(id, &volume.target).await,
            Self::Unstage => csi.unstage(id, &volume.staging).await,
            Self::Delete => csi.delete(id).await,
            Self::Check => {
                let channel = csi::channel(&node.agent_socket).await;
                let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
                let volume_id = id.clone();
                let mut agent = AgentClient::new(channel);
                agent
                    .check_volume(CheckVolumeRequest { volume_id })
                    .await
                    .map(drop)
            }
            _ => csi.stage(id, &volume.staging, how).await,
        }
        .map(|()| None)
    }

    /// Returns a description of the missing effect, or None if the drive has it. Sends no request to a hung drive.
    pub(crate) async fn lacks(self, node: &Node, subject: &Subject) -> Option<String> {
        let missing = |is: bool, what: &str| is.then(|| what.to_owned());
        let Some(volume) = &subject.volume else {
            return match self {
                Self::Claim | Self::Create | Self::CreateEither => {
                    let inventory = node.inventory().await;
                    let named = inventory
                        .volumes
                        .iter()
                        .filter(|of| of.name == subject.name && of.state != "erasing");
                    let count = named.count();
                    (count != 1).then(|| format!("{count} volumes have its name"))
                }
                _ => None,
            };
        };
        let mounted = |path: &Path| drivebay_hwtests::tree::mounted_times(path) > 0;
        match self {
            Self::Publish | Self::PublishReadOnly | Self::PublishBlock => {
                missing(!mounted(&volume.target), "not published")
            }
            Self::Unpublish => missing(mounted(&volume.target), "still published"),
            Self::Unstage => missing(mounted(&volume.staging), "still staged"),
            Self::Delete => {
                let listed = node
                    .csi
                    .ids()
                    .await
                    .is_ok_and(|ids| ids.contains(&volume.id));
                missing(listed, "still listed")
            }
            Self::Expand => {
                let now = node.volume_of(&volume.id).await;
                let grown = now.is_some_and(|now| now.size_bytes >= 2 * volume.bytes);
                missing(!grown, "not grown")
            }
            Self::Stats | Self::Check | Self::NodeExpand => None,
            // A raw volume has no mount at its staging path.
            Self::StageBlock => None,
            _ => missing(!mounted(&volume.staging), "not staged"),
        }
    }

    /// Uses the result of the call. Errs with the first defect.
    pub(crate) async fn is_usable(self, node: &Node, subject: &Subject) -> Result<(), String> {
        let Some(volume) = &subject.volume else {
            return Ok(());
        };
        let csi = &node.csi;
        if self == Self::Delete {
            return Ok(());
        }
        let describe = |what: &'static str| move |status: Status| format!("{what}: {status}");
        let (staging, target) = (&volume.staging, &volume.target);
        // Until the kernel has released what was detached.
        repeated(async || csi.stage(&volume.id, staging, &volume.capability).await)
            .await
            .map_err(describe("staging it"))?;
        let read_only = self == Self::PublishReadOnly;
        csi.publish(&volume.id, staging, target, &volume.capability, read_only)
            .await
            .map_err(describe("publishing it"))?;
        let had_letter = matches!(
            self,
            Self::StageAgain
                | Self::StageReplayExt4
                | Self::StageReplayXfs
                | Self::StageRepair
                | Self::Stats
                | Self::Unpublish
                | Self::Unstage
                | Self::NodeExpand
                | Self::Check
        );
        if had_letter {
            let letter = fs::read_to_string(target.join("letter"));
            if letter.as_deref().ok() != Some(LETTER) {
                return Err(format!("its data: {letter:?}"));
            }
        }
        csi.stats(&volume.id, target)
            .await
            .map_err(describe("sampling it"))?;
        csi.unpublish(&volume.id, target)
            .await
            .map_err(describe("unpublishing it"))?;
        csi.unstage(&volume.id, staging)
            .await
            .map_err(describe("unstaging it"))?;
        // Busy while any process has its device open, for example through a mount namespace created while it was mounted.
        let end = Instant::now() + BACK;
        loop {
            match csi.delete(&volume.id).await {
                Err(status)
                    if status.code() == Code::FailedPrecondition && Instant::now() < end =>
                {
                    tokio::time::sleep(AGAIN).await;
                }
                deleted => return deleted.map_err(describe("deleting it")),
            }
        }
    }
}

/// Repeats a call while its answer is retryable, for at most [`BACK`].
pub(crate) async fn repeated<T>(call: impl AsyncFn() -> Result<T, Status>) -> Result<T, Status> {
    let end = Instant::now() + BACK;
    loop {
        match call().await {
            Err(status) if Instant::now() < end && is_retried(&status) => {
                tokio::time::sleep(AGAIN).await;
            }
            answer => return answer,
        }
    }
}

fn is_retried(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Aborted | Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted
    )
}

/// Sends CreateVolume in the subject's class, with its name.
async fn create(
    node: &Node,
    subject: &Subject,
    bytes: u64,
    how: &wire::VolumeCapability,
) -> Result<wire::Volume, Status> {
    let Subject { class, name, .. } = subject;
    make(node, class, name, bytes, how).await
}

/// Sends CreateVolume in a class.
pub(crate) async fn make(
    node: &Node,
    class: &str,
    name: &str,
    bytes: u64,
    how: &wire::VolumeCapability,
) -> Result<wire::Volume, Status> {
    node.csi
        .create_with(wire::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(csi::bytes(bytes)),
            volume_capabilities: vec![how.clone()],
            parameters: [("class".to_owned(), class.to_owned())].into(),
            ..Default::default()
        })
        .await
}
