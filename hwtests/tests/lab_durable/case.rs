//! What is done to a drive when its power goes, as a table: what is there before, the call, and what must hold after.

use std::fmt;

use drivebay_hwtests::{MIB, csi, lab::progress::say, node::Placed};
use drivebay_proto::csi::VolumeCapability;

use super::bench::{Bench, Held, PATIENCE, insist, within};

/// A call that changes a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Op {
    /// CreateVolume on a blank drive.
    Claim,
    /// CreateVolume of a filesystem.
    Create,
    /// CreateVolume, block.
    CreateBlock,
    /// The first NodeStageVolume: mkfs, record, mount.
    Stage(&'static str),
    /// ControllerExpandVolume, not in use.
    Expand,
    /// ControllerExpandVolume and NodeExpandVolume while it is staged.
    Grow(&'static str),
    /// DeleteVolume.
    Delete,
    /// The erasing after it.
    Erase,
    /// CreateSnapshot.
    Snapshot,
    /// DeleteSnapshot.
    DropSnapshot,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stage(fs) => write!(f, "first stage, {fs}"),
            Self::Grow(fs) => write!(f, "growing online, {fs}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// One call on one drive.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) at: usize,
    pub(crate) op: Op,
    name: String,
    before: Option<Placed>,
    /// Of a volume that has a snapshot, or is to get one.
    digest: String,
    snapshot: Option<String>,
    /// Its filesystem's superblock was torn, and restored from a copy as the refusal says.
    pub(crate) restored: bool,
}

/// What is in a filesystem before it grows.
const BEFORE: &[u8] = b"written before it grew, and synced";

/// The command that a refusal names for a filesystem whose superblock is torn; the drive writes 512 bytes whole at most,
/// and btrfs' superblock has 4096. Without copies of it a filesystem is lost there, whoever mounts it.
fn restoring(why: &str) -> Option<&str> {
    let (_, behind) = why.split_once("keeps copies of its superblock")?;
    behind.split('`').nth(1)
}

const SMALL: u64 = 32 * MIB;
const GROWN: u64 = 96 * MIB;
/// xfs takes 300 MiB at least.
const FILESYSTEM: u64 = 320 * MIB;
const LARGER: u64 = 448 * MIB;

impl Case {
    /// Makes what must be there before. No two cases of a drive have the same number.
    pub(crate) async fn prepare(bench: &Bench, at: usize, op: Op, number: u64) -> Held<Self> {
        let mut case = Self {
            at,
            op,
            name: format!("{}-case-{number}", bench.bays[at].name),
            before: None,
            digest: String::new(),
            snapshot: None,
            restored: false,
        };
        if !matches!(op, Op::Claim | Op::Create | Op::CreateBlock) {
            let placed = insist(async || case.create(bench).await).await?;
            if case.of_snapshot() || matches!(op, Op::Expand | Op::Delete | Op::Erase) {
                bench.fill(&placed, 2).await;
            }
            if case.of_snapshot() {
                case.digest = bench.digest(&placed).await?;
            }
            case.before = Some(placed);
        }
        if op == Op::DropSnapshot {
            case.snapshot = Some(insist(async || case.take(bench).await).await?);
        }
        if op == Op::Erase {
            insist(async || case.delete(bench).await).await?;
        }
        if matches!(op, Op::Grow(_)) {
            case.stage(bench).await?;
            let letter = Bench::letter(case.placed()?);
            bench.lab.guest().write(&letter, BEFORE);
        }
        Ok(case)
    }

    fn capability(&self) -> VolumeCapability {
        match self.op {
            Op::Stage(fs) | Op::Grow(fs) => csi::mount(fs),
            Op::Claim | Op::Create => csi::mount("ext4"),
            _ => csi::block(),
        }
    }

    fn of_snapshot(&self) -> bool {
        matches!(self.op, Op::Snapshot | Op::DropSnapshot)
    }

    /// Takes the snapshot, or finds it; its id.
    async fn take(&self, bench: &Bench) -> Held<String> {
        let name = format!("{}-snapshot", self.name);
        let taken = bench.csi().create_snapshot(&name, &self.placed()?.id, &[]);
        let taken = taken
            .await
            .map_err(|status| format!("CreateSnapshot: {status}"))?;
        match taken.ready_to_use {
            true => Ok(taken.snapshot_id),
            false => Err(format!("the snapshot is not ready: {taken:?}")),
        }
    }

    async fn drop_snapshot(&self, bench: &Bench) -> Held<()> {
        let Some(id) = &self.snapshot else {
            return Ok(());
        };
        let done = bench.csi().delete_snapshot(id).await;
        done.map_err(|status| format!("DeleteSnapshot: {status}"))
    }

    fn is_mounted(&self) -> bool {
        matches!(self.op, Op::Stage(_) | Op::Grow(_))
    }

    async fn create(&self, bench: &Bench) -> Held<Placed> {
        let bytes = if self.is_mounted() { FILESYSTEM } else { SMALL };
        let capability = self.capability();
        bench.create(self.at, &self.name, bytes, &capability).await
    }

    fn placed(&self) -> Held<&Placed> {
        self.before
            .as_ref()
            .ok_or_else(|| "there is no volume".to_owned())
    }

    async fn delete(&self, bench: &Bench) -> Held<()> {
        let id = &self.placed()?.id;
        let done = bench.csi().delete(id).await;
        done.map_err(|status| format!("DeleteVolume: {status}"))
    }

    async fn stage(&self, bench: &Bench) -> Held<()> {
        let Placed {
            id,
            staging,
            capability,
            ..
        } = self.placed()?;
        let done = bench.csi().stage(id, staging, capability).await;
        done.map_err(|status| format!("NodeStageVolume: {status}"))
    }

    pub(crate) async fn unstage(&self, bench: &Bench) -> Held<()> {
        let (true, Ok(placed)) = (self.is_mounted(), self.placed()) else {
            return Ok(());
        };
        let done = bench.csi().unstage(&placed.id, &placed.staging).await;
        done.map_err(|status| format!("NodeUnstageVolume: {status}"))
    }

    /// The call; it may be repeated. Ok: acknowledged.
    pub(crate) async fn act(&mut self, bench: &Bench) -> Held<()> {
        match self.op {
            Op::Claim | Op::Create | Op::CreateBlock => {
                self.before = Some(self.create(bench).await?);
                Ok(())
            }
            Op::Stage(_) => self.stage(bench).await,
            Op::Expand => {
                let placed = self.placed()?;
                let grown = bench.csi().expand(&placed.id, GROWN, &placed.capability);
                let grown = grown.await.map_err(|status| format!("expand: {status}"))?;
                if grown.0 == GROWN as i64 {
                    return Ok(());
                }
                Err(format!("it grew to {} bytes", grown.0))
            }
            Op::Delete => self.delete(bench).await,
            Op::Grow(_) => {
                self.stage(bench).await?;
                let Placed {
                    id,
                    staging,
                    capability,
                    ..
                } = self.placed()?;
                let grown = bench.csi().expand(id, LARGER, capability).await;
                grown.map_err(|status| format!("ControllerExpandVolume: {status}"))?;
                let grown = bench.csi().node_expand(id, staging, LARGER).await;
                grown.map_err(|status| format!("NodeExpandVolume: {status}"))?;
                let script = format!("stat --file-system --format='%b %S' {}", staging.display());
                let said = bench.lab.guest().run(&script);
                let size = said
                    .split_whitespace()
                    .map(|word| word.parse::<u64>().unwrap_or(0));
                let size: u64 = size.product();
                if size > FILESYSTEM {
                    return Ok(());
                }
                Err(format!("the filesystem has {size} bytes"))
            }
            // The agent goes on by itself.
            Op::Erase => bench.gone(self.at, &self.name).await,
            Op::Snapshot => {
                self.snapshot = Some(self.take(bench).await?);
                Ok(())
            }
            Op::DropSnapshot => self.drop_snapshot(bench).await,
        }
    }

    /// The snapshot is whole or not there, and the volume holds what it held.
    async fn snapshots(&self, bench: &Bench, acknowledged: bool) -> Held<()> {
        let may_be: &[usize] = match (self.op, acknowledged) {
            (Op::Snapshot, true) => &[1],
            (Op::DropSnapshot, true) => &[0],
            _ => &[0, 1],
        };
        let mut last = Vec::new();
        let settled = within(PATIENCE, async || {
            let volume = bench.named(&self.name).await.pop()?;
            last = volume.snapshots;
            let is_ready = last.iter().all(|one| one.state == "ready");
            (is_ready && may_be.contains(&last.len())).then_some(())
        });
        let settled = settled.await;
        settled.ok_or_else(|| format!("it has the snapshots {last:?}"))?;
        match bench.digest(self.placed()?).await? == self.digest {
            true => Ok(()),
            false => Err("the volume holds something else".to_owned()),
        }
    }

    /// What is made of the snapshot is what its volume held.
    async fn restores(&self, bench: &Bench) -> Held<()> {
        let (true, Some(id)) = (self.op == Op::Snapshot, &self.snapshot) else {
            return Ok(());
        };
        let name = format!("{}-restored", self.name);
        let made = insist(async || bench.restore(self.at, &name, SMALL, id).await).await?;
        if bench.digest(&made).await? != self.digest {
            return Err("what was made of the snapshot holds something else".to_owned());
        }
        insist(async || {
            let done = bench.csi().delete(&made.id).await;
            done.map_err(|status| format!("DeleteVolume: {status}"))
        })
        .await
    }

    /// What must be there after the power is back: of what was acknowledged everything, of what was not
    /// all or nothing, and the same call completes it. Then the drive is cleaned up.
    pub(crate) async fn after(&mut self, bench: &Bench, acknowledged: bool) -> Held<()> {
        bench.kept(self.at).await?;
        bench.acknowledge(self.at).await?;
        let there = bench.named(&self.name).await;
        let live: Vec<_> = there.iter().filter(|of| of.state != "erasing").collect();
        if live.len() > 1 {
            return Err(format!("it is there more than once: {there:?}"));
        }
        let size = live.first().map(|of| of.size_bytes);
        let sizes: &[Option<u64>] = match (self.op, acknowledged) {
            (Op::Claim | Op::Create | Op::CreateBlock, true) => &[Some(SMALL)],
            (Op::Claim | Op::Create | Op::CreateBlock, false) => &[Some(SMALL), None],
            (Op::Stage(_), _) => &[Some(FILESYSTEM)],
            (Op::Grow(_), true) => &[Some(LARGER)],
            (Op::Grow(_), false) => &[Some(FILESYSTEM), Some(LARGER)],
            (Op::Expand, true) => &[Some(GROWN)],
            (Op::Expand, false) => &[Some(SMALL), Some(GROWN)],
            (Op::Delete, true) | (Op::Erase, _) => &[None],
            (Op::Delete, false) => &[Some(SMALL), None],
            (Op::Snapshot | Op::DropSnapshot, _) => &[Some(SMALL)],
        };
        if !sizes.contains(&size) {
            return Err(format!(
                "it has {size:?} bytes, not one of {sizes:?}: {there:?}"
            ));
        }
        if self.of_snapshot() {
            self.snapshots(bench, acknowledged).await?;
        }
        let mut again = insist(async || self.act(bench).await).await;
        if let Err(why) = &again
            && let Some(command) = restoring(why)
        {
            say(format!(
                "{}: {}: its superblock is torn; restoring it with `{command}`",
                bench.bays[self.at].name, self.op
            ));
            let ran = bench.lab.guest().ran(&format!("{command} -y"));
            again = insist(async || self.act(bench).await).await;
            again = again.map_err(|why| format!("{why}, after {ran:?}"));
            self.restored = true;
        }
        again.map_err(|why| format!("the same call again: {why}"))?;
        if matches!(self.op, Op::Grow(_)) {
            let letter = Bench::letter(self.placed()?);
            if bench.lab.guest().read(&letter) != BEFORE {
                return Err("what was written before it grew is another".to_owned());
            }
        }
        if self.is_mounted() {
            self.use_it(bench).await?;
        }
        if self.of_snapshot() {
            self.snapshots(bench, true).await?;
            self.restores(bench).await?;
        }
        self.end(bench).await
    }

    /// A filesystem takes a file, and gives it back when it is mounted anew.
    async fn use_it(&self, bench: &Bench) -> Held<()> {
        let letter = Bench::letter(self.placed()?);
        bench.lab.guest().write(&letter, b"dear reader");
        self.unstage(bench).await?;
        self.stage(bench).await?;
        if bench.lab.guest().read(&letter) != b"dear reader" {
            return Err("the file is another".to_owned());
        }
        self.unstage(bench).await
    }

    /// Deletes what is there, and sees all space come back.
    async fn end(&self, bench: &Bench) -> Held<()> {
        insist(async || self.drop_snapshot(bench).await).await?;
        insist(async || self.delete(bench).await).await?;
        bench.gone(self.at, &self.name).await?;
        if self.op == Op::Claim {
            bench.command(self.at, "wipe").await?;
        }
        bench.kept(self.at).await
    }
}
