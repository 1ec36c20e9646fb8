//! A shelf, an agent on it, and a client: what most tests begin with. Dropped in order:
//! the agent is stopped before its drives go.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_proto::{
    agent::InventoryUpdate,
    csi::{Volume, VolumeCapability},
};

use crate::{Agent, Csi, DriveSpec, Settings, Shelf, csi, wait};

/// Erasing a test's volume takes seconds; the machine may be busy.
const ERASE_LIMIT: Duration = Duration::from_secs(120);

/// Everything a test needs of one node.
#[derive(Debug)]
pub struct Rig {
    /// The client.
    pub csi: Csi,
    /// The agent.
    pub agent: Agent,
    /// The drives.
    pub shelf: Shelf,
}

/// A volume with the paths an orchestrator would give it.
#[derive(Debug, Clone)]
pub struct Placed {
    /// Its CSI id.
    pub id: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// How it is used.
    pub capability: VolumeCapability,
    /// Its staging path.
    pub staging: PathBuf,
    /// Its target path.
    pub target: PathBuf,
}

impl Rig {
    /// Drives, and an agent that has found them.
    ///
    /// # Panics
    /// When the shelf or the agent cannot be had.
    pub async fn with(drives: Vec<DriveSpec>) -> Self {
        Self::tuned(drives, |_| ()).await
    }

    /// As `with`, with other settings.
    ///
    /// # Panics
    /// When the shelf or the agent cannot be had.
    pub async fn tuned(drives: Vec<DriveSpec>, tune: impl FnOnce(&mut Settings)) -> Self {
        let mut shelf = Shelf::new().unwrap();
        for drive in drives {
            shelf.add(drive).unwrap();
        }
        let mut settings = Settings::new(shelf.dir(), &shelf.pattern());
        tune(&mut settings);
        let agent = Agent::start(settings).await.unwrap();
        let csi = agent.csi().await.unwrap();
        Self { csi, agent, shelf }
    }

    /// A directory of the rig.
    pub fn dir(&self) -> &Path {
        self.shelf.dir()
    }

    /// What the agent knows.
    ///
    /// # Panics
    /// When it does not say.
    pub async fn inventory(&self) -> InventoryUpdate {
        csi::inventory(&self.agent.settings().agent_socket())
            .await
            .unwrap()
    }

    /// Creates a volume, and thinks of paths for it.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn volume(&self, name: &str, bytes: u64, capability: &VolumeCapability) -> Placed {
        let volume = self.csi.create(name, bytes, capability).await.unwrap();
        self.place(&volume, name, capability)
    }

    /// Paths for a volume.
    pub fn place(&self, volume: &Volume, name: &str, capability: &VolumeCapability) -> Placed {
        let kubelet = self.dir().join("kubelet");
        Placed {
            id: volume.volume_id.clone(),
            bytes: u64::try_from(volume.capacity_bytes).unwrap_or(0),
            capability: capability.clone(),
            staging: kubelet.join("staging").join(name),
            target: kubelet.join("pods").join(name).join("mount"),
        }
    }

    /// Stages and publishes.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn use_volume(&self, volume: &Placed) {
        self.csi
            .stage(&volume.id, &volume.staging, &volume.capability)
            .await
            .unwrap();
        self.publish(volume).await;
    }

    /// Publishes, writable.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn publish(&self, volume: &Placed) {
        self.csi
            .publish(
                &volume.id,
                &volume.staging,
                &volume.target,
                &volume.capability,
                false,
            )
            .await
            .unwrap();
    }

    /// Unpublishes and unstages.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn leave_volume(&self, volume: &Placed) {
        self.csi
            .unpublish(&volume.id, &volume.target)
            .await
            .unwrap();
        self.csi.unstage(&volume.id, &volume.staging).await.unwrap();
    }

    /// The kernel name of a volume's device, as the agent says it.
    ///
    /// # Panics
    /// When it has none.
    pub async fn device(&self, volume: &Placed) -> PathBuf {
        let inventory = self.inventory().await;
        let found = inventory.volumes.iter().find(|of| of.id == volume.id);
        let name = &found.expect("the agent lists the volume").device;
        assert!(!name.is_empty(), "volume {} has no device", volume.id);
        Path::new("/dev").join(name)
    }

    /// Waits until nothing is being erased any more.
    ///
    /// # Panics
    /// When it takes too long.
    pub async fn erased(&self) {
        wait::until_async(ERASE_LIMIT, "deleted volumes are erased", async || {
            let inventory = self.inventory().await;
            let open = inventory.volumes.iter().any(|of| of.state == "erasing");
            (!open).then_some(())
        })
        .await;
    }

    /// Starts the agent again after `stop` or `kill9`, with a new client.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn start_again(&mut self) {
        self.agent.start_again().await.unwrap();
        self.csi = self.agent.csi().await.unwrap();
    }
}
