//! One node as its orchestrator sees it: its sockets, and common operations of tests, for an agent on this machine or in the lab's guest.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_proto::{
    agent::{self as wire, InventoryUpdate, agent_client::AgentClient},
    csi::{CreateVolumeRequest, Volume, VolumeCapability},
};

use tonic::{Code, Status};

use crate::{Csi, MIB, csi, hang::HungDrive, wait};

/// Longest time to erase a test's volume, which takes seconds; the machine may be busy.
const ERASE_LIMIT: Duration = Duration::from_secs(120);

/// Longest time from an event to its scan, also on an emulated machine whose host is busy; the harness's periodic rescan comes after
/// minutes.
const EVENT_LIMIT: Duration = Duration::from_secs(60);

/// Longest time until a condition is reported. Most are reported at once; those found by checks when it is the drive's turn, after a
/// minute.
const REPORT_LIMIT: Duration = Duration::from_secs(150);

/// Sockets of a node, and the directory in which its orchestrator mounts volumes.
#[derive(Debug, Clone)]
pub struct Node {
    /// Client of the CSI socket.
    pub csi: Csi,
    /// Socket of the `Agent` service on this machine.
    pub agent_socket: PathBuf,
    /// Directory of the node, as the agent sees it.
    pub dir: PathBuf,
}

/// A volume with the paths that an orchestrator assigns.
#[derive(Debug, Clone)]
pub struct Placed {
    /// `volume_id` in CSI calls for the volume.
    pub id: String,
    /// Size after creation, bytes; an expansion does not change it.
    pub bytes: u64,
    /// Capability with which it is used.
    pub capability: VolumeCapability,
    /// Staging path; empty for a driver that does not stage volumes.
    pub staging: PathBuf,
    /// Target path of NodePublishVolume and NodeUnpublishVolume.
    pub target: PathBuf,
}

/// True if a creation may succeed later without a change of the cluster: the space of a raw volume is being zeroed (ABORTED), or drives
/// were not scanned or polled yet within the 30 s for which the agent waits for them (RESOURCE_EXHAUSTED).
fn is_put_off(status: &Status) -> bool {
    let waits = ["first scan yet", "SMART data yet"];
    match status.code() {
        Code::Aborted => true,
        Code::ResourceExhausted => waits.iter().any(|text| status.message().contains(text)),
        _ => false,
    }
}

impl Node {
    /// Returns the node's directory, as the agent sees it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the agent's inventory.
    ///
    /// # Panics
    /// When the agent does not answer.
    pub async fn inventory(&self) -> InventoryUpdate {
        csi::inventory(&self.agent_socket).await.unwrap()
    }

    /// Makes the agent scan every drive, and waits until the inventory has the result.
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

    /// Returns the first drive in the inventory that satisfies `pick`.
    pub async fn drive_where(&self, pick: impl Fn(&wire::Drive) -> bool) -> Option<wire::Drive> {
        let inventory = self.inventory().await;
        inventory.drives.into_iter().find(pick)
    }

    /// Waits until the drive that satisfies `pick` has this state; returns the drive.
    ///
    /// # Panics
    /// When that takes longer than an event; the periodic rescan comes later.
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
        let polled = wait::poll_async(limit, async || {
            let drive = self.drive_where(&pick).await;
            drive.filter(|drive| drive.state == state)
        });
        match polled.await {
            Some(drive) => drive,
            None => panic!(
                "drive {name} is not {state} within {} s: {:#?}",
                limit.as_secs(),
                self.drive_where(&pick).await
            ),
        }
    }

    /// Waits until a drive is blank and available; the first scan of many drives takes a while.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn is_available(&self, drive: &HungDrive) {
        let name = drive.drive_ref().unwrap().kernel_name;
        self.drive_within(REPORT_LIMIT, &name, "available", |of| {
            of.kernel_name == name
        })
        .await;
    }

    /// Waits until the agent lists no drive that satisfies `pick`.
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

    /// Returns a volume of the inventory.
    pub async fn volume_of(&self, id: &str) -> Option<wire::Volume> {
        let inventory = self.inventory().await;
        inventory.volumes.into_iter().find(|of| of.id == id)
    }

    /// Waits until a volume has this state; returns the volume.
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

    /// Creates a volume, and assigns paths. Repeats a call that is put off, as a provisioner does.
    ///
    /// # Panics
    /// When it is refused, or is answered so for too long.
    pub async fn volume(&self, name: &str, bytes: u64, capability: &VolumeCapability) -> Placed {
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(csi::bytes(bytes)),
            volume_capabilities: vec![capability.clone()],
            ..Default::default()
        };
        self.volume_with(request).await.unwrap()
    }

    /// Like `volume`, with all of a request. It has one capability.
    ///
    /// # Errors
    /// The status with which it is refused.
    ///
    /// # Panics
    /// When it is put off for too long.
    pub async fn volume_with(&self, request: CreateVolumeRequest) -> Result<Placed, Status> {
        let what = format!("volume {} is created", request.name);
        let volume = wait::until_async(ERASE_LIMIT, &what, async || {
            match self.csi.create_with(request.clone()).await {
                Err(status) if is_put_off(&status) => None,
                answer => Some(answer),
            }
        })
        .await?;
        Ok(self.place(&volume, &request.name, &request.volume_capabilities[0]))
    }

    /// Assigns paths to a volume.
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

    /// Stages and publishes a volume.
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

    /// Publishes a volume, writable.
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

    /// Unpublishes and unstages a volume.
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

    /// Returns the path of a volume's device, by the name that the agent reports.
    ///
    /// # Panics
    /// When it has none.
    pub async fn device(&self, volume: &Placed) -> PathBuf {
        let inventory = self.inventory().await;
        let listed = inventory.volumes.iter().find(|of| of.id == volume.id);
        let name = &listed.expect("the agent lists the volume").device;
        assert!(!name.is_empty(), "volume {} has no device", volume.id);
        Path::new("/dev").join(name)
    }

    /// Returns the offset of a volume on its drive, bytes. `lvm`: the one of a logical volume that is the first of its drive.
    ///
    /// # Panics
    /// When the volume has no device.
    pub async fn start_of(&self, volume: &Placed, lvm: u64) -> u64 {
        let device = self.device(volume).await;
        let name = device.file_name().unwrap().to_str().unwrap();
        let sectors = std::fs::read_to_string(format!("/sys/class/block/{name}/start"));
        match sectors {
            Ok(sectors) => sectors.trim().parse::<u64>().unwrap() * 512,
            // Logical volumes have no such file.
            Err(_) => lvm,
        }
    }

    /// Returns the reasons of the volume's conditions.
    ///
    /// # Panics
    /// When it is not listed.
    pub async fn reasons(&self, volume: &Placed) -> Vec<String> {
        let listed = self.volume_of(&volume.id).await;
        let conditions = listed.expect("the agent lists the volume").conditions;
        conditions.into_iter().map(|one| one.reason).collect()
    }

    /// Waits until the volume has a condition with this reason.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn has_condition(&self, volume: &Placed, reason: &str) -> wire::Condition {
        let what = format!("{} has {reason}", volume.id);
        wait::until_async(REPORT_LIMIT, &what, async || {
            let conditions = self.volume_of(&volume.id).await?.conditions;
            conditions.into_iter().find(|one| one.reason == reason)
        })
        .await
    }

    /// Waits until the volume has no condition.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn is_well(&self, volume: &Placed) {
        let what = format!("{} is well", volume.id);
        wait::until_async(REPORT_LIMIT, &what, async || {
            let listed = self.volume_of(&volume.id).await?;
            listed.conditions.is_empty().then_some(())
        })
        .await;
    }

    /// Creates and publishes two volumes, the first of which is to be affected by a fault.
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

    /// Waits until no volume is being erased.
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
