//! Runs the layout jobs in a drive's worker: each opens the drive, verifies its identity, takes its
//! flock, reads it, plans, executes, and reads the drive again for its answer.

use super::{
    copy, erase,
    jobs::{
        Adopt, Advance, Changed, CompleteSnapshots, CopyError, CopyProgress, CopyStep, Create,
        Delete, DropPlace, DropSnapshot, EraseProgress, EraseStep, Expand, LayoutError,
        MakeSnapshot, ReadDrive, ReadUsage, Release, Released, ResumeLeft, SetCordon, SetPlace,
        SnapshotUsage, TakeSnapshot, TakeTogether, TakenTogether, WipeProgress, WipeStep,
        ZeroProgress, ZeroStep,
    },
    layout,
    lvm::{left, together},
    release, wipe, zero_free,
};
use drivebay_model::{Contents, Label};
use drivebay_sys::dm::{self, SnapshotStatus};
use drivebay_worker::{Context, Job};
use uuid::Uuid;

impl Job for ReadDrive {
    const NAME: &'static str = "look";
    type Answer = Contents;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Contents, LayoutError> {
        context.step("look");
        layout::read_contents(&self.drive, self.repair)
    }
}

impl Job for Create {
    const NAME: &'static str = "create";
    type Answer = Changed;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Changed, LayoutError> {
        context.step("create");
        layout::create(&self, context)
    }
}

impl Job for Expand {
    const NAME: &'static str = "expand";
    type Answer = Changed;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Changed, LayoutError> {
        context.step("expand");
        layout::change(&self.drive, |drive| {
            drive.expand(self.uuid, self.size_bytes, self.raw_space)
        })
    }
}

impl Job for Delete {
    const NAME: &'static str = "delete";
    type Answer = Changed;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Changed, LayoutError> {
        context.step("delete");
        layout::change(&self.drive, |drive| match self.only_unused {
            true => drive.delete_unused(self.uuid),
            false => drive.delete(self.uuid),
        })
    }
}

impl Job for EraseStep {
    const NAME: &'static str = "erase-step";
    type Answer = EraseProgress;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<EraseProgress, LayoutError> {
        erase::step(
            &self.drive,
            self.uuid,
            self.from_bytes,
            self.budget_ms,
            context,
        )
    }
}

impl Job for ZeroStep {
    const NAME: &'static str = "zero-step";
    type Answer = ZeroProgress;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<ZeroProgress, LayoutError> {
        zero_free::step(&self, context)
    }
}

impl Job for WipeStep {
    const NAME: &'static str = "wipe-step";
    type Answer = WipeProgress;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<WipeProgress, LayoutError> {
        wipe::step(&self, context)
    }
}

impl Job for Release {
    const NAME: &'static str = "release";
    type Answer = Released;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Released, LayoutError> {
        release::release(&self, context)
    }
}

impl Job for MakeSnapshot {
    const NAME: &'static str = "make-snapshot";
    type Answer = Contents;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Contents, LayoutError> {
        layout::make_snapshot(&self.drive, self.uuid, self.bytes, context)
    }
}

impl Job for TakeSnapshot {
    const NAME: &'static str = "take-snapshot";
    type Answer = Changed;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Changed, LayoutError> {
        context.step("take snapshot");
        layout::take_snapshot(&self, context)
    }
}

impl Job for TakeTogether {
    const NAME: &'static str = "take-together";
    type Answer = TakenTogether;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<TakenTogether, LayoutError> {
        together::take(&self, context)
    }
}

impl Job for CompleteSnapshots {
    const NAME: &'static str = "complete-snapshots";
    type Answer = Changed;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Changed, LayoutError> {
        context.step("complete snapshots");
        layout::complete_snapshots(&self)
    }
}

impl Job for ResumeLeft {
    const NAME: &'static str = "resume-left";
    /// Device-mapper names of the resumed devices.
    type Answer = Vec<String>;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Vec<String>, LayoutError> {
        context.step("resume suspended volumes");
        left::resume(&self)
    }
}

impl Job for DropSnapshot {
    const NAME: &'static str = "drop-snapshot";
    type Answer = Changed;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Changed, LayoutError> {
        context.step("drop snapshot");
        layout::drop_snapshot(&self)
    }
}

impl Job for ReadUsage {
    const NAME: &'static str = "read-usage";
    const READ_ONLY: bool = true;
    const COMES_AGAIN: bool = true;
    /// Usage of the snapshots that the kernel has.
    type Answer = Vec<SnapshotUsage>;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Vec<SnapshotUsage>, LayoutError> {
        context.step("read usage of snapshots");
        let status = |(uuid, dm_uuid): (Uuid, String)| {
            // A snapshot whose status cannot be read is skipped; the others are still returned.
            let status = dm::snapshot_status(&dm_uuid).ok()??;
            let used_bytes = match status {
                SnapshotStatus::Valid { used_bytes, .. } => Some(used_bytes),
                SnapshotStatus::Lost => None,
            };
            Some(SnapshotUsage { uuid, used_bytes })
        };
        Ok(self.snapshots.into_iter().filter_map(status).collect())
    }
}

impl Job for Advance {
    const NAME: &'static str = "advance";
    type Answer = Changed;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Changed, LayoutError> {
        context.step("advance");
        layout::advance(&self.drive, self.uuid, &self.to)
    }
}

impl Job for SetCordon {
    const NAME: &'static str = "set-cordon";
    type Answer = Changed;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Changed, LayoutError> {
        context.step("set-cordon");
        layout::set_cordon(&self)
    }
}

impl Job for SetPlace {
    const NAME: &'static str = "set-place";
    type Answer = Changed;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Changed, LayoutError> {
        context.step("set-place");
        layout::change(&self.drive, |drive| {
            drive.set_place(self.uuid, &self.from, &self.to, self.state.as_ref())
        })
    }
}

impl Job for DropPlace {
    const NAME: &'static str = "drop-place";
    type Answer = Changed;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Changed, LayoutError> {
        context.step("drop-place");
        layout::change(&self.drive, |drive| {
            drive.drop_place(self.uuid, &self.place)
        })
    }
}

impl Job for CopyStep {
    const NAME: &'static str = "copy-step";
    type Answer = CopyProgress;
    type Error = CopyError;
    fn run(self, context: &mut Context) -> Result<CopyProgress, CopyError> {
        copy::step(&self, context)
    }
}

impl Job for Adopt {
    const NAME: &'static str = "adopt";
    type Answer = Changed;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Changed, LayoutError> {
        context.step("adopt");
        let to = Label {
            cluster: self.cluster,
            node: self.node,
            ..self.from.clone()
        };
        layout::adopt(&self.drive, &self.from, &to)
    }
}
