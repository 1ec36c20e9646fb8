//! Operations on volumes for the tests about a node's life: make one on a chosen drive, write data, and
//! verify it by its digest.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use drivebay_proto::{
    agent as wire,
    csi::{CreateVolumeRequest, Volume, VolumeCapability},
};

use tonic::{Code, Status};

use super::{Guest, LabRig, guest::quote};
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

    /// Creates an encrypted volume of a class, and thinks of paths for it.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn encrypted_in(
        &self,
        class: &str,
        name: &str,
        bytes: u64,
        capability: &VolumeCapability,
    ) -> Placed {
        let parameters = [("class", class), ("encryption", "luks2")];
        let made = persistently(async || self.create(&parameters, name, bytes, capability).await);
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
        let parameters = [("class", class)];
        self.create(&parameters, name, bytes, capability).await
    }

    async fn create(
        &self,
        parameters: &[(&str, &str)],
        name: &str,
        bytes: u64,
        capability: &VolumeCapability,
    ) -> Result<Volume, Status> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(csi::bytes(bytes)),
            volume_capabilities: vec![capability.clone()],
            parameters: parameters.iter().map(owned).collect(),
            ..CreateVolumeRequest::default()
        };
        self.csi.create_with(request).await
    }

    /// Stages and publishes, as often as it takes.
    ///
    /// # Panics
    /// When it is refused for good.
    pub async fn serve(&self, volume: &Placed) {
        self.serve_with(volume, &[]).await;
    }

    /// Stages with secrets and publishes, as often as it takes.
    ///
    /// # Panics
    /// When it is refused for good.
    pub async fn serve_with(&self, volume: &Placed, secrets: &[(&str, &str)]) {
        let (id, staging, capability) = (&volume.id, &volume.staging, &volume.capability);
        persistently(async || self.csi.stage_with(id, staging, capability, secrets).await).await;
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
        let output = self.guest().run(&format!(
            "dd if={file} iflag=nocache count=0 status=none; sha256sum <{file}"
        ));
        output
            .split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    /// Returns the drive whose identity contains this text, as the agent reports it.
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
            let drive = self.drive_named(part).await;
            drive.filter(|drive| drive.state == state)
        })
        .await
    }

    /// Waits until these drives were scanned and are available: the agent repeats a first scan that timed out in a busy
    /// emulated machine.
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

/// Returns the lines of `lvs` and `dmsetup ls` in a guest that belong to snapshots, also to those of checks, to those being removed, and
/// to reserves that are not erased yet.
///
/// # Errors
/// One of the two commands failed, so that nothing is known; with its output.
pub fn snapshots_listed(guest: &Guest) -> Result<Vec<String>, String> {
    let ran = guest.ran("lvs --noheadings --all --options lv_name && dmsetup ls");
    if !ran.ok() {
        return Err(format!("lvs or dmsetup failed: {}", ran.stderr.trim_end()));
    }
    let lines = ran.stdout.lines().map(str::trim);
    let of_snapshots = lines.filter(|line| is_of_snapshot(line));
    Ok(of_snapshots.map(str::to_owned).collect())
}

/// The agent names what it makes `drivebay-snap-…`, `drivebay-check-…` and `drivebay-erasing-snap-…`; LVM and device-mapper add the suffixes.
fn is_of_snapshot(line: &str) -> bool {
    let parts = ["snap", "check", "-real", "-cow"];
    parts.iter().any(|part| line.contains(part))
}

/// Waits until [`snapshots_listed`] is empty. It is repeated after an error, which does not count as empty.
///
/// # Panics
/// If that takes too long, with the last result.
pub fn has_no_snapshots(guest: &Guest) {
    let mut last = Ok(Vec::new());
    let gone = wait::poll(LAB_LIMIT, || {
        last = snapshots_listed(guest);
        last.as_ref().is_ok_and(Vec::is_empty).then_some(())
    });
    assert!(gone.is_some(), "snapshots are left: {last:?}");
}

/// Repeats a call as an orchestrator does while the error asks for it: in a busy emulated machine the scan of a drive takes
/// longer than the agent waits.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_snapshots_and_of_what_they_store_are_distinguished_from_those_of_volumes() {
        for line in [
            "drivebay-snap-5d7a2c9e",
            "[drivebay-check-5d7a2c9e]",
            "drivebay-erasing-snap-5d7a2c9e",
            "vg-written-real\t(254:1)",
            "vg-drivebay--snap--5d7a2c9e-cow\t(254:2)",
        ] {
            assert!(is_of_snapshot(line), "{line}");
        }
        for line in ["written", "vg-written\t(254:0)", "No devices found"] {
            assert!(!is_of_snapshot(line), "{line}");
        }
    }
}
