//! One node as its orchestrator sees it: its sockets, and what every test does through them,
//! whether the agent runs on this machine or in the lab's guest.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_proto::{
    agent::{self as wire, InventoryUpdate, agent_client::AgentClient},
    csi::{Volume, VolumeCapability},
};

use crate::{Csi, MIB, csi, hang::HungDrive, wait};

/// Erasing a test's volume takes seconds; the machine may be busy.
const ERASE_LIMIT: Duration = Duration::from_secs(120);

/// An event leads to a scan within this, also on an emulated machine whose host is busy; the slow rescan of the
/// harness comes after minutes.
const EVENT_LIMIT: Duration = Duration::from_secs(60);

/// Most trouble is told at once; what is found by looking, when it is the drive's turn: after a minute.
const TOLD_LIMIT: Duration = Duration::from_secs(150);

/// A node's sockets, and where its orchestrator puts volumes.
#[derive(Debug, Clone)]
pub struct Node {
    /// The client.
    pub csi: Csi,
    /// The `Agent` service's socket, on this machine.
    pub agent_socket: PathBuf,
    /// A directory of the node's own, as the agent sees it.
    pub dir: PathBuf,
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

impl Node {
    /// A directory of the node's own, as the agent sees it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the agent knows.
    ///
    /// # Panics
    /// When it does not say.
    pub async fn inventory(&self) -> InventoryUpdate {
        csi::inventory(&self.agent_socket).await.unwrap()
    }

    /// Has every drive looked at, and waits until the inventory shows the result.
    ///
    /// # Panics
    /// When that fails.
    pub async fn rescan(&self) {
        let channel = csi::channel(&self.agent_socket).await.unwrap();
        AgentClient::new(channel)
            .rescan(wire::RescanRequest {})
            .await
            .unwrap();
    }

    /// What the agent says of the first drive that a test of it picks, if it lists one.
    pub async fn drive_where(&self, pick: impl Fn(&wire::Drive) -> bool) -> Option<wire::Drive> {
        let inventory = self.inventory().await;
        inventory.drives.into_iter().find(pick)
    }

    /// Waits until the agent says a state of the drive a test picks; answers with the drive.
    ///
    /// # Panics
    /// When that takes longer than an event needs; the slow rescan comes later.
    pub async fn drive_where_is(
        &self,
        name: &str,
        state: &str,
        pick: impl Fn(&wire::Drive) -> bool,
    ) -> wire::Drive {
        self.drive_within(EVENT_LIMIT, name, state, pick).await
    }

    async fn drive_within(
        &self,
        limit: Duration,
        name: &str,
        state: &str,
        pick: impl Fn(&wire::Drive) -> bool,
    ) -> wire::Drive {
        let found = wait::poll_async(limit, async || {
            let found = self.drive_where(&pick).await;
            found.filter(|drive| drive.state == state)
        });
        match found.await {
            Some(drive) => drive,
            None => panic!(
                "drive {name} is not {state} within {} s: {:#?}",
                limit.as_secs(),
                self.drive_where(&pick).await
            ),
        }
    }

    /// Waits until the agent says that a drive is blank and can be had: its first look at many drives takes a while.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn is_available(&self, drive: &HungDrive) {
        let name = drive.drive_ref().unwrap().kernel_name;
        self.drive_within(TOLD_LIMIT, &name, "available", |of| of.kernel_name == name)
            .await;
    }

    /// Waits until the agent lists no drive that a test picks.
    ///
    /// # Panics
    /// When that takes longer than an event needs.
    pub async fn no_drive(&self, name: &str, pick: impl Fn(&wire::Drive) -> bool) {
        let what = format!("drive {name} is listed no more");
        wait::until_async(EVENT_LIMIT, &what, async || {
            self.drive_where(&pick).await.is_none().then_some(())
        })
        .await;
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
        let kubelet = self.dir.join("kubelet");
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

    /// Why the agent says the volume is abnormal; empty when it is well.
    ///
    /// # Panics
    /// When it is not listed.
    pub async fn reasons(&self, volume: &Placed) -> Vec<String> {
        let told = self.volume_of(&volume.id).await;
        let told = told.expect("the agent lists the volume").conditions;
        told.into_iter().map(|one| one.reason).collect()
    }

    /// Waits until the agent says that the volume is abnormal for this reason.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn is_told(&self, volume: &Placed, reason: &str) -> wire::Condition {
        let what = format!("{} is told to have {reason}", volume.id);
        wait::until_async(TOLD_LIMIT, &what, async || {
            let told = self.volume_of(&volume.id).await?.conditions;
            told.into_iter().find(|one| one.reason == reason)
        })
        .await
    }

    /// Waits until the agent says nothing against the volume.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn is_well(&self, volume: &Placed) {
        let what = format!("{} is well", volume.id);
        wait::until_async(TOLD_LIMIT, &what, async || {
            let told = self.volume_of(&volume.id).await?;
            told.conditions.is_empty().then_some(())
        })
        .await;
    }

    /// Two volumes in use, the first of which something is going to happen to.
    ///
    /// # Panics
    /// When a call for one is refused.
    pub async fn two_in_use(&self, fs_type: &str) -> (Placed, Placed) {
        let made = async |name: &str| {
            let volume = self.volume(name, 512 * MIB, &csi::mount(fs_type)).await;
            self.use_volume(&volume).await;
            volume
        };
        (made("troubled").await, made("quiet").await)
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
}
