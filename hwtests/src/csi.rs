//! A thin CSI client with one short method for each call of an orchestrator.

mod snapshots;

use std::{
    collections::HashMap,
    fmt, io,
    path::Path,
    sync::{Arc, LazyLock},
    time::Duration,
};

use drivebay_proto::{
    agent::{InventoryUpdate, WatchInventoryRequest, agent_client::AgentClient},
    csi::{
        self as wire, CapacityRange, VolumeCapability,
        controller_client::ControllerClient,
        group_controller_client::GroupControllerClient,
        identity_client::IdentityClient,
        node_client::NodeClient,
        volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
    },
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::UnixStream,
    runtime::{Handle, Runtime, RuntimeFlavor},
};
use tonic::{
    Status,
    transport::{Channel, Endpoint, Uri},
};

pub use self::snapshots::{from_snapshot, from_volume};
use crate::{Trouble, wait};

/// Timeout of a call.
const CALL_LIMIT: Duration = Duration::from_secs(120);
/// Longest time until the controller has the agent's state.
const FOLLOWS: Duration = Duration::from_secs(10);

/// Runtime of connections of single-threaded tests: a test's own runtime blocks while it waits for an agent to end, and an ending agent
/// waits up to a second for each socket whose clients do not close their connections.
static CONNECTIONS: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("connections")
        .enable_all()
        .build()
        .expect("a runtime")
});

/// A connection to a CSI socket. Clones share it.
#[derive(Clone)]
pub struct Csi {
    channel: Channel,
    make_dir: Arc<MakeDir>,
}

/// Creates a directory, with its parents, on the agent's machine, as the kubelet does before its calls.
pub type MakeDir = dyn Fn(&Path) -> io::Result<()> + Send + Sync;

impl fmt::Debug for Csi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Csi").finish_non_exhaustive()
    }
}

/// Connects to a unix socket.
///
/// # Errors
/// Nothing answers there.
pub async fn channel(socket: &Path) -> Result<Channel, Trouble> {
    channel_within(socket, CALL_LIMIT).await
}

/// Like [`channel`], with another timeout of calls.
///
/// # Errors
/// Nothing answers there.
pub async fn channel_within(socket: &Path, limit: Duration) -> Result<Channel, Trouble> {
    let path = socket.to_owned();
    let connecting = async move {
        Endpoint::from_static("http://localhost")
            .timeout(limit)
            .connect_with_connector(tower::service_fn(move |_: Uri| {
                let path = path.clone();
                async move { UnixStream::connect(path).await.map(TokioIo::new) }
            }))
            .await
    };
    let connected = match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => CONNECTIONS
            .spawn(connecting)
            .await
            .map_err(io::Error::other)?,
        _ => connecting.await,
    };
    connected.map_err(|error| Trouble::doing(format!("connecting to {}", socket.display()), &error))
}

/// Returns the first, full message of an agent's inventory.
///
/// # Errors
/// The agent does not answer.
pub async fn inventory(agent_socket: &Path) -> Result<InventoryUpdate, Trouble> {
    let mut client = AgentClient::new(channel(agent_socket).await?);
    let mut stream = client
        .watch_inventory(WatchInventoryRequest {})
        .await?
        .into_inner();
    stream
        .message()
        .await?
        .ok_or_else(|| Trouble::new("the agent ended its inventory without a message"))
}

/// Capability of a filesystem, writable on this node; an empty type: the class's own.
pub fn mount(fs_type: &str) -> VolumeCapability {
    capability(
        AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            ..MountVolume::default()
        }),
        Mode::SingleNodeWriter,
    )
}

/// Capability of an ext4 volume with these mount flags.
pub fn flags(flags: &[&str]) -> VolumeCapability {
    let mount = MountVolume {
        fs_type: "ext4".to_owned(),
        mount_flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
        ..MountVolume::default()
    };
    capability(AccessType::Mount(mount), Mode::SingleNodeWriter)
}

/// Capability of a raw block volume, writable on this node.
pub fn block() -> VolumeCapability {
    capability(AccessType::Block(BlockVolume {}), Mode::SingleNodeWriter)
}

/// Returns a capability with this access type and mode.
pub fn capability(access: AccessType, mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_type: Some(access),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

/// Returns a range with this required size and no limit.
pub fn bytes(required: u64) -> CapacityRange {
    CapacityRange {
        required_bytes: i64::try_from(required).unwrap_or(i64::MAX),
        limit_bytes: 0,
    }
}

/// Returns a path as text for a request.
pub fn text(path: &Path) -> String {
    path.display().to_string()
}

impl Csi {
    /// Connects to a socket.
    ///
    /// # Errors
    /// Nothing answers there.
    pub async fn connect(socket: &Path) -> Result<Self, Trouble> {
        Ok(Self {
            channel: channel(socket).await?,
            make_dir: Arc::new(|dir: &Path| std::fs::create_dir_all(dir)),
        })
    }

    /// Sets how directories are created, for an agent on another machine.
    #[must_use]
    pub fn with_dirs(
        mut self,
        make_dir: impl Fn(&Path) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.make_dir = Arc::new(make_dir);
        self
    }

    /// Returns the connection, for calls without a method here.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Returns a client of the Identity service.
    pub fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(self.channel.clone())
    }

    /// Returns a client of the Controller service.
    pub fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone())
    }

    /// Returns a client of the GroupController service.
    pub fn group_controller(&self) -> GroupControllerClient<Channel> {
        GroupControllerClient::new(self.channel.clone())
    }

    /// Returns a client of the Node service.
    pub fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone())
    }

    /// True if Probe is answered, ready or not: a bound socket may belong to a program that is about to end.
    pub async fn answers(&self) -> bool {
        self.identity().probe(wire::ProbeRequest {}).await.is_ok()
    }

    /// True if Probe answers ready.
    pub async fn ready(&self) -> bool {
        self.identity()
            .probe(wire::ProbeRequest {})
            .await
            .is_ok_and(|answer| answer.into_inner().ready != Some(false))
    }

    /// CreateVolume with this required size, bytes.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn create(
        &self,
        name: &str,
        size: u64,
        capability: &VolumeCapability,
    ) -> Result<wire::Volume, Status> {
        self.create_with(wire::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(bytes(size)),
            volume_capabilities: vec![capability.clone()],
            ..Default::default()
        })
        .await
    }

    /// CreateVolume.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn create_with(
        &self,
        request: wire::CreateVolumeRequest,
    ) -> Result<wire::Volume, Status> {
        let answer = self.controller().create_volume(request).await?;
        answer
            .into_inner()
            .volume
            .ok_or_else(|| Status::data_loss("CreateVolume answered without a volume"))
    }

    /// DeleteVolume.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn delete(&self, id: &str) -> Result<(), Status> {
        let request = wire::DeleteVolumeRequest {
            volume_id: id.to_owned(),
            secrets: HashMap::new(),
        };
        self.controller().delete_volume(request).await.map(drop)
    }

    /// ListVolumes, all pages.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn list(&self) -> Result<Vec<wire::list_volumes_response::Entry>, Status> {
        let (mut all, mut starting_token) = (Vec::new(), String::new());
        loop {
            let request = wire::ListVolumesRequest {
                max_entries: 0,
                starting_token,
            };
            let page = self.controller().list_volumes(request).await?.into_inner();
            all.extend(page.entries);
            if page.next_token.is_empty() {
                return Ok(all);
            }
            starting_token = page.next_token;
        }
    }

    /// Returns the ids in ListVolumes.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn ids(&self) -> Result<Vec<String>, Status> {
        let entries = self.list().await?;
        Ok(entries
            .into_iter()
            .filter_map(|entry| entry.volume)
            .map(|volume| volume.volume_id)
            .collect())
    }

    /// GetCapacity without parameters, bytes.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn capacity(&self) -> Result<i64, Status> {
        let request = wire::GetCapacityRequest::default();
        let answer = self.controller().get_capacity(request).await?;
        Ok(answer.into_inner().available_capacity)
    }

    /// Waits until GetCapacity without parameters returns this many bytes; the controller follows the agent's inventory.
    ///
    /// # Panics
    /// When it is not for ten seconds, or cannot be asked.
    pub async fn capacity_is(&self, bytes: i64) {
        let is = async || (self.capacity().await.unwrap() == bytes).then_some(());
        if wait::poll_async(FOLLOWS, is).await.is_none() {
            assert_eq!(self.capacity().await.unwrap(), bytes);
        }
    }

    /// ControllerExpandVolume; returns the new size, and true if node expansion is required.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn expand(
        &self,
        id: &str,
        size: u64,
        capability: &VolumeCapability,
    ) -> Result<(i64, bool), Status> {
        let request = wire::ControllerExpandVolumeRequest {
            volume_id: id.to_owned(),
            capacity_range: Some(bytes(size)),
            volume_capability: Some(capability.clone()),
            ..Default::default()
        };
        let answer = self.controller().controller_expand_volume(request).await?;
        let answer = answer.into_inner();
        Ok((answer.capacity_bytes, answer.node_expansion_required))
    }

    /// NodeStageVolume, after creating the staging directory as the kubelet does.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn stage(
        &self,
        id: &str,
        staging: &Path,
        capability: &VolumeCapability,
    ) -> Result<(), Status> {
        self.stage_with(id, staging, capability, &[]).await
    }

    /// NodeStageVolume with secrets, after creating the staging directory.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn stage_with(
        &self,
        id: &str,
        staging: &Path,
        capability: &VolumeCapability,
        secrets: &[(&str, &str)],
    ) -> Result<(), Status> {
        (self.make_dir)(staging)?;
        let word = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let request = wire::NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: text(staging),
            volume_capability: Some(capability.clone()),
            secrets: secrets.iter().map(word).collect(),
            ..Default::default()
        };
        self.node().node_stage_volume(request).await.map(drop)
    }

    /// NodeUnstageVolume.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn unstage(&self, id: &str, staging: &Path) -> Result<(), Status> {
        let request = wire::NodeUnstageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: text(staging),
        };
        self.node().node_unstage_volume(request).await.map(drop)
    }

    /// NodePublishVolume, after creating the target's parent as the kubelet does.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn publish(
        &self,
        id: &str,
        staging: &Path,
        target: &Path,
        capability: &VolumeCapability,
        readonly: bool,
    ) -> Result<(), Status> {
        self.publish_with(id, staging, target, capability, readonly, &[])
            .await
    }

    /// NodePublishVolume with a volume context, in which the kubelet names the pod.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn publish_with(
        &self,
        id: &str,
        staging: &Path,
        target: &Path,
        capability: &VolumeCapability,
        readonly: bool,
        context: &[(&str, &str)],
    ) -> Result<(), Status> {
        if let Some(parent) = target.parent() {
            (self.make_dir)(parent)?;
        }
        let word = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let request = wire::NodePublishVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: text(staging),
            target_path: text(target),
            volume_capability: Some(capability.clone()),
            readonly,
            volume_context: context.iter().map(word).collect(),
            ..Default::default()
        };
        self.node().node_publish_volume(request).await.map(drop)
    }

    /// NodeUnpublishVolume.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn unpublish(&self, id: &str, target: &Path) -> Result<(), Status> {
        let request = wire::NodeUnpublishVolumeRequest {
            volume_id: id.to_owned(),
            target_path: text(target),
        };
        self.node().node_unpublish_volume(request).await.map(drop)
    }

    /// NodeGetVolumeStats.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn stats(
        &self,
        id: &str,
        path: &Path,
    ) -> Result<wire::NodeGetVolumeStatsResponse, Status> {
        let request = wire::NodeGetVolumeStatsRequest {
            volume_id: id.to_owned(),
            volume_path: text(path),
            staging_target_path: String::new(),
        };
        let answer = self.node().node_get_volume_stats(request).await?;
        Ok(answer.into_inner())
    }

    /// NodeExpandVolume.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn node_expand(&self, id: &str, path: &Path, size: u64) -> Result<i64, Status> {
        let request = wire::NodeExpandVolumeRequest {
            volume_id: id.to_owned(),
            volume_path: text(path),
            capacity_range: Some(bytes(size)),
            ..Default::default()
        };
        let answer = self.node().node_expand_volume(request).await?;
        Ok(answer.into_inner().capacity_bytes)
    }
}
