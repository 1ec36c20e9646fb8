//! One row of the table: a drive with volumes, a fault on it, and the result.

use std::{fs, ops::Range, time::Duration};

use drivebay_hwtests::{
    MIB, csi,
    hang::HungDrive,
    node::{Node, Placed},
    wait,
};
use drivebay_layout::{
    layout,
    lvm::{label, metadata},
};
use drivebay_model::Contents;
use drivebay_proto::{agent, csi as wire};
use drivebay_sys::blockdev::BlockDev;
use tonic::{Code, Status};

use crate::place::{Fault, Place};

/// A repair begins with the scan that finds the fault, and takes a moment; the machine may be busy.
const REPAIRED: Duration = Duration::from_secs(60);
const LETTER: &str = "the only copy";

/// Use of the volumes when the fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Idle,
    Mounted,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    pub(crate) place: Place,
    pub(crate) fault: Fault,
    pub(crate) used: Use,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    pub(crate) place: String,
    pub(crate) fault: String,
    pub(crate) used: String,
    pub(crate) drive_state: String,
    pub(crate) staged: String,
    pub(crate) deleted: String,
    pub(crate) repaired: String,
    pub(crate) wrong: Vec<String>,
}

pub(crate) struct Row {
    pub(crate) spec: Spec,
    pub(crate) drive: HungDrive,
    pub(crate) node: Node,
    pub(crate) outcome: Outcome,
    class: String,
    /// The staged or idle volume, used before; it holds the fault if that is in a volume.
    troubled: Option<Placed>,
    /// A volume not in use, staged and read during the test.
    beside: Option<Placed>,
    /// A volume deleted during the test.
    doomed: Option<Placed>,
    is_deleted: bool,
}

fn code<T>(answer: &Result<T, Status>) -> String {
    match answer {
        Ok(_) => "OK".to_owned(),
        Err(status) => format!("{:?}", status.code()),
    }
}

impl Row {
    pub(crate) fn new(spec: Spec, class: String, drive: HungDrive, node: Node) -> Self {
        let outcome = Outcome {
            place: format!("{:?}", spec.place),
            fault: format!("{:?}", spec.fault),
            used: format!("{:?}", spec.used),
            ..Outcome::default()
        };
        Self {
            spec,
            drive,
            node,
            outcome,
            class,
            troubled: None,
            beside: None,
            doomed: None,
            is_deleted: false,
        }
    }

    fn wrong(&mut self, what: impl Into<String>) {
        self.outcome.wrong.push(what.into());
    }

    async fn create(
        &self,
        name: &str,
        size: u64,
        how: &wire::VolumeCapability,
    ) -> Result<Placed, Status> {
        let name = format!("{}-{name}", self.class);
        let made = self.node.csi.create_with(wire::CreateVolumeRequest {
            name: name.clone(),
            capacity_range: Some(csi::bytes(size * MIB)),
            volume_capabilities: vec![how.clone()],
            parameters: [("class".to_owned(), self.class.clone())].into(),
            ..Default::default()
        });
        Ok(self.node.place(&made.await?, &name, how))
    }

    pub(crate) async fn prepare(mut self) -> Self {
        let how = csi::mount("ext4");
        for name in ["troubled", "beside"] {
            let volume = self.create(name, 64, &how).await.unwrap();
            self.node.use_volume(&volume).await;
            let letter = volume.target.join("letter");
            fs::write(&letter, LETTER).unwrap();
            fs::File::open(&letter).unwrap().sync_all().unwrap();
            if name == "beside" || self.spec.used == Use::Idle {
                self.node.leave_volume(&volume).await;
            }
            match name {
                "troubled" => self.troubled = Some(volume),
                _ => self.beside = Some(volume),
            }
        }
        self.doomed = Some(self.create("doomed", 16, &csi::block()).await.unwrap());
        self
    }

    /// Reads the contents of the drive in this process, without changes.
    fn contents(&self) -> Result<Contents, String> {
        let drive = self.drive.drive_ref().unwrap();
        layout::read_contents(&drive, false).map_err(|error| format!("{error:?}"))
    }

    /// Returns the offset of LVM's committed text; 0 without LVM.
    fn committed_text(&self) -> u64 {
        let dev = BlockDev::open(&self.drive.drive_ref().unwrap()).unwrap();
        match metadata::read(&dev).unwrap() {
            metadata::PvContents::Vg(group) => label::AREA.start + group.location.unwrap().offset,
            _ => 0,
        }
    }

    /// Injects the specified fault, and records its byte range in the outcome. The volumes of `prepare` must exist.
    pub(crate) async fn strike(mut self) -> Self {
        let contents = self.contents().unwrap();
        let troubled = self.troubled.as_ref().unwrap();
        let extent = contents
            .volumes
            .iter()
            .find(|of| troubled.id.starts_with(&of.record.uuid.to_string()))
            .unwrap()
            .lies_at()[0];
        let size = self.drive.drive_ref().unwrap().size_bytes;
        let (volume, text) = (extent.start..extent.end(), self.committed_text());
        let bytes = self.spec.place.bytes(size, volume, text);
        self.spec.fault.strike(&self.drive, bytes.clone());
        self.outcome.place = format!("{:?} {}", self.spec.place, shown(&bytes));
        self
    }

    async fn listed(&self) -> agent::Drive {
        let name = self.drive.drive_ref().unwrap().kernel_name;
        let drive = self.node.drive_where(|drive| drive.kernel_name == name);
        drive.await.expect("the drive is listed")
    }

    /// Makes every call that is permitted while the fault is present.
    pub(crate) async fn act(mut self) -> Self {
        let (troubled, beside) = (self.troubled.clone().unwrap(), self.beside.clone().unwrap());
        let doomed = self.doomed.clone().unwrap();
        let drive = self.listed().await;
        self.outcome.drive_state = match drive.all_notes().is_empty() {
            true => drive.state.clone(),
            false => format!("{}: {}", drive.state, drive.all_notes().join(", ")),
        };
        if drive.state != "claimed" {
            let rejects = &drive.rejects;
            self.wrong(format!("the drive is {}: {rejects:?}", drive.state));
        }
        self.all_are_listed(&[&troubled, &beside, &doomed]).await;

        // Before anything else is written: any change writes all copies.
        if self.spec.fault != Fault::WriteError {
            self.is_repaired().await;
        }

        let letter = self.read(&troubled).await;
        self.outcome.staged = code(&letter);
        match letter {
            Ok(letter) if letter == LETTER => {}
            // Its own fault, which is reported with a reason.
            Err(status) if self.spec.place.is_in_the_volume() && !status.message().is_empty() => {}
            other => self.wrong(format!("the volume in question: {other:?}")),
        }
        match self.read(&beside).await {
            Ok(letter) if letter == LETTER => {}
            other => self.wrong(format!("the volume beside it: {other:?}")),
        }

        let deleted = self.node.csi.delete(&doomed.id).await;
        self.outcome.deleted = code(&deleted);
        self.is_deleted = deleted.is_ok();
        if let Err(status) = deleted {
            let may = matches!(
                status.code(),
                Code::Unavailable
                    | Code::Aborted
                    | Code::DeadlineExceeded
                    | Code::FailedPrecondition
            );
            if !may || self.spec.fault != Fault::WriteError {
                self.wrong(format!("deleting answered {status}"));
            }
        }
        self
    }

    /// Waits until both copies of everything are intact.
    async fn is_repaired(&mut self) {
        let whole = wait::poll_async(REPAIRED, async || {
            let contents = self.contents().ok()?;
            contents.notes.is_empty().then_some(())
        });
        self.outcome.repaired = match whole.await {
            Some(()) => "whole".to_owned(),
            None => {
                let now = self.contents().map(|contents| contents.notes);
                self.wrong(format!("not repaired: {now:?}"));
                "NO".to_owned()
            }
        };
    }

    async fn all_are_listed(&mut self, volumes: &[&Placed]) {
        let ids = self.node.csi.ids().await.unwrap_or_default();
        for volume in volumes {
            if !ids.contains(&volume.id) {
                self.wrong(format!("{} is not listed", volume.id));
            }
        }
    }

    /// Stages and publishes the volume if necessary, reads its file, samples it, and restores its former state.
    async fn read(&self, volume: &Placed) -> Result<String, Status> {
        let csi = &self.node.csi;
        let (id, staging, how) = (&volume.id, &volume.staging, &volume.capability);
        // ABORTED is repeated, as the kubelet does: a busy guest's agent may work on the drive for long.
        let staged = wait::poll_async(REPAIRED, async || {
            let staged = csi.stage(id, staging, how).await;
            let busy = matches!(&staged, Err(status) if status.code() == Code::Aborted);
            (!busy).then_some(staged)
        });
        staged
            .await
            .unwrap_or_else(|| Err(Status::aborted("busy all along")))?;
        let published = csi.publish(id, staging, &volume.target, how, false).await;
        let letter = fs::read_to_string(volume.target.join("letter"));
        let sampled = csi.stats(id, &volume.target).await;
        let stays = self.spec.used == Use::Mounted
            && self.troubled.as_ref().is_some_and(|of| of.id == volume.id);
        if !stays {
            csi.unpublish(id, &volume.target).await?;
            csi.unstage(id, staging).await?;
        }
        published?;
        sampled?;
        letter.map_err(|error| Status::data_loss(error.to_string()))
    }

    /// Removes the fault, unless it persists on the drive.
    pub(crate) async fn mend(self) -> Self {
        self.drive.spoil(0..0);
        self.drive.refuse_writes(0..0);
        self
    }

    /// Verifies that everything is intact and agrees with the answers.
    pub(crate) async fn judge(mut self) -> Self {
        let (troubled, beside) = (self.troubled.clone().unwrap(), self.beside.clone().unwrap());
        let doomed = self.doomed.clone().unwrap();
        self.is_repaired().await;
        self.all_are_listed(&[&troubled, &beside]).await;
        let ids = self.node.csi.ids().await.unwrap_or_default();
        // A call that returned an error may have taken effect since: its intent was written before the error.
        if self.is_deleted && ids.contains(&doomed.id) {
            self.wrong("deleted with OK, and listed again");
        }
        if let Err(status) = self.node.csi.delete(&doomed.id).await {
            self.wrong(format!("deleting it again: {status}"));
        }
        for volume in [&beside, &troubled] {
            let letter = self.read(volume).await;
            let is_its_own = volume.id == troubled.id && self.spec.place.is_in_the_volume();
            match letter {
                Ok(letter) if letter == LETTER => {}
                Err(_) if is_its_own && self.spec.fault != Fault::ReadError => {}
                other => self.wrong(format!("in the end, {}: {other:?}", volume.id)),
            }
            let leave = async {
                self.node.csi.unpublish(&volume.id, &volume.target).await?;
                self.node.csi.unstage(&volume.id, &volume.staging).await?;
                self.node.csi.delete(&volume.id).await
            };
            if let Err(status) = leave.await {
                self.wrong(format!("leaving {}: {status}", volume.id));
            }
        }
        self
    }
}

fn shown(bytes: &Range<u64>) -> String {
    format!("{}+{}", bytes.start, bytes.end - bytes.start)
}
