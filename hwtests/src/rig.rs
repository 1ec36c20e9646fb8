//! A shelf, an agent on it, and a client: what most tests begin with. Dropped in order:
//! the agent is stopped before its drives go.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_proto::{
    agent::{self as wire, InventoryUpdate},
    csi::{Volume, VolumeCapability},
};

use crate::{Agent, Csi, DriveSpec, Settings, Shelf, csi, wait};

/// Erasing a test's volume takes seconds; the machine may be busy.
const ERASE_LIMIT: Duration = Duration::from_secs(120);

/// An event leads to a survey within this; the slow rescan of the harness comes after minutes.
const EVENT_LIMIT: Duration = Duration::from_secs(30);

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

    /// What the agent says of the drive with this shelf name, if it lists it.
    pub async fn drive(&self, name: &str) -> Option<wire::Drive> {
        let prefix = format!("loop-{name}.img-");
        let inventory = self.inventory().await;
        inventory
            .drives
            .into_iter()
            .find(|drive| drive.id.starts_with(&prefix))
    }

    /// Waits until the agent says a state of a drive; answers with the drive.
    ///
    /// # Panics
    /// When that takes longer than an event needs; the slow rescan comes later.
    pub async fn drive_is(&self, name: &str, state: &str) -> wire::Drive {
        let what = format!("drive {name} is {state}");
        wait::until_async(EVENT_LIMIT, &what, async || {
            self.drive(name).await.filter(|drive| drive.state == state)
        })
        .await
    }

    /// The shelf name of the drive that is refused for this reason.
    ///
    /// # Panics
    /// When there is none.
    pub async fn holding(&self, code: &str) -> String {
        let inventory = self.inventory().await;
        let found = inventory.drives.iter().find(|drive| {
            drive.id.starts_with("loop-") && drive.rejects.iter().any(|reject| reject.code == code)
        });
        let id = &found
            .unwrap_or_else(|| panic!("no drive is refused for {code}"))
            .id;
        let name = id
            .strip_prefix("loop-")
            .and_then(|rest| rest.split(".img-").next());
        name.unwrap_or_default().to_owned()
    }

    /// What the agent says of a volume, if it lists it.
    pub async fn volume_of(&self, id: &str) -> Option<wire::Volume> {
        let inventory = self.inventory().await;
        inventory.volumes.into_iter().find(|of| of.id == id)
    }

    /// Waits until the agent says a state of a volume; answers with the volume.
    ///
    /// # Panics
    /// When that takes longer than an event needs.
    pub async fn volume_is(&self, id: &str, state: &str) -> wire::Volume {
        let what = format!("volume {id} is {state}");
        wait::until_async(EVENT_LIMIT, &what, async || {
            self.volume_of(id).await.filter(|of| of.state == state)
        })
        .await
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
