//! What the tests about a node's life do with volumes: make one on a chosen drive, put data in, and
//! find it again by its digest.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use drivebay_proto::{
    agent as wire,
    csi::{CreateVolumeRequest, Volume, VolumeCapability},
};

use tonic::{Code, Status};

use super::{LabRig, guest::quote};
use crate::{Settings, csi, node::Placed, wait};

/// Events, scans and mounts are done by then, in an emulated machine on a busy one.
pub const LAB_LIMIT: Duration = Duration::from_secs(180);

/// A class for each of these drives (class name, layout, a part of the drive's identity), so that a test chooses
/// where a volume goes. The class "demo" then selects nothing.
pub fn class_per_drive(drives: &[(&str, &str, &str)]) -> impl FnOnce(&mut Settings) + use<> {
    let mut more = String::new();
    for (class, layout, part) in drives {
        let _ = write!(
            more,
            "\n[[class]]\nname = \"{class}\"\nlayout = \"{layout}\"\n[class.select]\ndrive = [\"*{part}*\"]\n"
        );
    }
    move |settings| {
        settings.select = "path = [\"none\"]".to_owned();
        settings.more = more;
    }
}

impl LabRig {
    /// Creates a volume of a class, and thinks of paths for it.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn volume_in(
        &self,
        class: &str,
        name: &str,
        bytes: u64,
        capability: &VolumeCapability,
    ) -> Placed {
        let made = persistently(async || self.try_volume_in(class, name, bytes, capability).await);
        self.place(&made.await, name, capability)
    }

    /// CreateVolume of a class, once.
    ///
    /// # Errors
    /// As answered.
    pub async fn try_volume_in(
        &self,
        class: &str,
        name: &str,
        bytes: u64,
        capability: &VolumeCapability,
    ) -> Result<Volume, Status> {
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(csi::bytes(bytes)),
            volume_capabilities: vec![capability.clone()],
            parameters: [("class".to_owned(), class.to_owned())].into(),
            ..CreateVolumeRequest::default()
        };
        self.csi.create_with(request).await
    }

    /// Stages and publishes, as often as it takes.
    ///
    /// # Panics
    /// When it is refused for good.
    pub async fn serve(&self, volume: &Placed) {
        let (id, staging, capability) = (&volume.id, &volume.staging, &volume.capability);
        persistently(async || self.csi.stage(id, staging, capability).await).await;
        let target = &volume.target;
        persistently(async || {
            self.csi
                .publish(id, staging, target, capability, false)
                .await
        })
        .await;
    }

    /// Writes random bytes into a published volume, durably; answers with their digest.
    ///
    /// # Panics
    /// When they cannot be written.
    pub fn put_letter(&self, volume: &Placed, kib: u32) -> String {
        let file = letter(volume);
        self.guest().run(&format!(
            "head -c {kib}K /dev/urandom >{file} && sync -f {file}"
        ));
        self.letter(volume)
    }

    /// The digest of what `put_letter` wrote, read from the drive.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn letter(&self, volume: &Placed) -> String {
        let file = letter(volume);
        let said = self.guest().run(&format!(
            "dd if={file} iflag=nocache count=0 status=none; sha256sum <{file}"
        ));
        said.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    /// What the agent says of the drive whose identity holds this text.
    pub async fn drive_named(&self, part: &str) -> Option<wire::Drive> {
        self.drive_where(|drive| drive.id.contains(part)).await
    }

    /// Waits until the agent says a state of the drive whose identity holds this text.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn drive_named_is(&self, part: &str, state: &str) -> wire::Drive {
        let what = format!("drive {part} is {state}");
        wait::until_async(LAB_LIMIT, &what, async || {
            let found = self.drive_named(part).await;
            found.filter(|drive| drive.state == state)
        })
        .await
    }

    /// Waits until these drives were looked at and are free to use: a first look that took too long in a busy emulated
    /// machine is repeated by the agent.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn are_available(&self, drives: &[&str]) {
        for drive in drives {
            self.drive_named_is(drive, "available").await;
        }
    }

    /// The message of a volume's abnormal condition in ListVolumes; None when it is well.
    ///
    /// # Panics
    /// When it is not listed, or without a condition.
    pub async fn abnormal(&self, id: &str) -> Option<String> {
        let entries = self.csi.list().await.unwrap();
        let entry = entries
            .into_iter()
            .find(|entry| entry.volume.as_ref().is_some_and(|of| of.volume_id == id));
        let status = entry.unwrap_or_else(|| panic!("ListVolumes does not show {id}"));
        let condition = status.status.and_then(|status| status.volume_condition);
        let condition = condition.unwrap_or_else(|| panic!("{id} has no condition"));
        condition.abnormal.then_some(condition.message)
    }

    /// Waits until nothing is being erased any more, in an emulated machine.
    ///
    /// # Panics
    /// When it takes too long.
    pub async fn all_erased(&self) {
        wait::until_async(2 * LAB_LIMIT, "deleted volumes are erased", async || {
            let inventory = self.inventory().await;
            let open = inventory.volumes.iter().any(|of| of.state == "erasing");
            (!open).then_some(())
        })
        .await;
    }
}

/// Repeats a call as an orchestrator does while the answer is one that asks for it: in a busy emulated machine a look at a
/// drive takes longer than the agent waits.
///
/// # Panics
/// When the last answer is an error.
pub async fn persistently<T>(call: impl AsyncFn() -> Result<T, Status>) -> T {
    let begun = Instant::now();
    loop {
        match call().await {
            Ok(done) => return done,
            Err(status)
                if matches!(
                    status.code(),
                    Code::Unavailable | Code::Aborted | Code::ResourceExhausted
                ) && begun.elapsed() < LAB_LIMIT =>
            {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Err(status) => panic!("refused: {status:?}"),
        }
    }
}

fn letter(volume: &Placed) -> String {
    quote(&volume.target.join("letter").display().to_string())
}
