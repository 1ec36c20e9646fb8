//! Calls that change a drive while its power is cut, as a table: the state before, the call, and the expected state after.

use std::fmt;

use drivebay_hwtests::{MIB, csi, lab::progress::print_progress, node::Placed};
use drivebay_proto::csi::{VolumeCapability, VolumeGroupSnapshot};

use super::bench::{Bench, Held, PATIENCE, insist, is_put_off, within};

/// A call that changes a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Op {
    /// CreateVolume on a blank drive.
    Claim,
    /// CreateVolume of a filesystem.
    Create,
    /// CreateVolume of a raw block volume.
    CreateBlock,
    /// The first NodeStageVolume: mkfs, record, mount.
    Stage(&'static str),
    /// ControllerExpandVolume, not in use.
    Expand,
    /// ControllerExpandVolume and NodeExpandVolume while it is staged.
    Grow(&'static str),
    /// DeleteVolume of a raw block volume that has data.
    Delete,
    /// The erasing after it.
    Erase,
    /// CreateSnapshot of a raw block volume that has data.
    Snapshot,
    /// CreateVolumeGroupSnapshot, of one volume.
    Group,
    /// DeleteSnapshot of the only snapshot of a volume.
    DropSnapshot,
    /// CreateVolume, block, of a snapshot whose volume was written to since.
    Restore,
    /// The first NodeStageVolume of an encrypted volume: header, key slots, mkfs, records, mount.
    Encrypt,
    /// NodeStageVolume of an encrypted volume with another secret and the previous one.
    Rekey,
    /// DeleteVolume of an encrypted volume, which destroys its header.
    Destroy,
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
    /// Digest of the volume that has a snapshot or gets one.
    digest: String,
    /// Digest of the snapshot's contents.
    held: String,
    snapshot: Option<String>,
    group: Option<VolumeGroupSnapshot>,
    /// Volume that was created from the snapshot.
    copy: Option<Placed>,
    /// True if the superblock of its filesystem was torn, and was restored with the command in the refusal.
    pub(crate) restored: bool,
}

/// Contents of a filesystem before the call.
const BEFORE: &[u8] = b"written before the call, and synced";
/// Secrets of an encrypted volume.
const OLD: (&str, &str) = ("passphrase", "quiet-Swordfish-of-1987");
const PREVIOUS: (&str, &str) = ("previousPassphrase", OLD.1);
const NEW: (&str, &str) = ("passphrase", "silent-Salmon-of-1990");

/// Returns the command in a refusal that restores a torn superblock. The drive writes at most 512 bytes atomically, and the superblock of
/// btrfs has 4096. Without copies of it the filesystem is lost after such a cut, also without Drivebay.
fn restoring(why: &str) -> Option<&str> {
    let (_, behind) = why.split_once("keeps copies of its superblock")?;
    behind.split('`').nth(1)
}

const SMALL: u64 = 32 * MIB;
const GROWN: u64 = 96 * MIB;
/// XFS needs at least 300 MiB.
const FILESYSTEM: u64 = 320 * MIB;
const LARGER: u64 = 448 * MIB;

impl Case {
    /// Creates the state before the call. `number` must differ from those of other cases of the drive.
    pub(crate) async fn prepare(bench: &Bench, at: usize, op: Op, number: u64) -> Held<Self> {
        let mut case = Self {
            at,
            op,
            name: format!("{}-case-{number}", bench.bays[at].name),
            before: None,
            digest: String::new(),
            held: String::new(),
            snapshot: None,
            group: None,
            copy: None,
            restored: false,
        };
        if !matches!(op, Op::Claim | Op::Create | Op::CreateBlock) {
            let placed = insist(async || case.create(bench).await).await?;
            if case.of_snapshot() || matches!(op, Op::Expand | Op::Delete | Op::Erase) {
                bench.fill(&placed, 2).await;
            }
            if case.of_snapshot() {
                case.digest = bench.digest(&placed).await?;
                case.held = case.digest.clone();
            }
            case.before = Some(placed);
        }
        if matches!(op, Op::DropSnapshot | Op::Restore) {
            case.snapshot = Some(insist(async || case.take(bench).await).await?);
        }
        if op == Op::Restore {
            let placed = case.placed()?;
            bench.fill(placed, 2).await;
            case.digest = bench.digest(placed).await?;
        }
        if op == Op::Erase {
            insist(async || case.delete(bench).await).await?;
        }
        if case.has_letter() {
            case.stage(bench).await?;
            let letter = Bench::letter(case.placed()?);
            bench.lab.guest().write(&letter, BEFORE);
        }
        if matches!(op, Op::Rekey | Op::Destroy) {
            case.unstage(bench).await?;
        }
        Ok(case)
    }

    fn capability(&self) -> VolumeCapability {
        match self.op {
            Op::Stage(fs) | Op::Grow(fs) => csi::mount(fs),
            Op::Claim | Op::Create | Op::Encrypt | Op::Rekey | Op::Destroy => csi::mount("ext4"),
            _ => csi::block(),
        }
    }

    fn of_snapshot(&self) -> bool {
        matches!(
            self.op,
            Op::Snapshot | Op::Group | Op::DropSnapshot | Op::Restore
        )
    }

    fn is_encrypted(&self) -> bool {
        matches!(self.op, Op::Encrypt | Op::Rekey | Op::Destroy)
    }

    /// True if a file is written before the call.
    fn has_letter(&self) -> bool {
        matches!(self.op, Op::Grow(_) | Op::Rekey | Op::Destroy)
    }

    /// Creates the snapshot, or finds the existing one. Returns its id.
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

    /// Creates the group, or returns the existing one; with the id of its snapshot.
    async fn take_group(&self, bench: &Bench) -> Held<(VolumeGroupSnapshot, String)> {
        let (name, ids) = (format!("{}-group", self.name), [&*self.placed()?.id]);
        let taken = bench.csi().create_group_snapshot(&name, &ids, &[]).await;
        let taken = taken.map_err(|status| format!("CreateVolumeGroupSnapshot: {status}"))?;
        match taken.snapshots.as_slice() {
            [one] if taken.ready_to_use && one.ready_to_use => {
                let id = one.snapshot_id.clone();
                Ok((taken, id))
            }
            _ => Err(format!("the group is not ready: {taken:?}")),
        }
    }

    async fn drop_snapshot(&self, bench: &Bench) -> Held<()> {
        let Some(id) = &self.snapshot else {
            return Ok(());
        };
        if let Some(group) = &self.group {
            let done = bench.csi().delete_group_snapshot(group).await;
            return done.map_err(|status| format!("DeleteVolumeGroupSnapshot: {status}"));
        }
        let done = bench.csi().delete_snapshot(id).await;
        done.map_err(|status| format!("DeleteSnapshot: {status}"))
    }

    fn copy_name(&self) -> String {
        format!("{}-restored", self.name)
    }

    /// Creates a volume from the snapshot, or returns the existing one. Does not wait for a drive without power.
    async fn restore(&self, bench: &Bench) -> Held<Placed> {
        let id = self.snapshot.as_ref().ok_or("there is no snapshot")?;
        let (name, nbd) = (self.copy_name(), bench.nbd(self.at));
        let mut last = String::new();
        let made = within(PATIENCE, async || {
            match bench.restore(self.at, &name, SMALL, id).await {
                Err(why) if is_put_off(&why) && !nbd.is_cut() => {
                    last = why;
                    None
                }
                done => Some(done),
            }
        });
        made.await
            .unwrap_or_else(|| Err(format!("put off for too long: {last}")))
    }

    fn is_mounted(&self) -> bool {
        matches!(self.op, Op::Stage(_) | Op::Grow(_)) || self.is_encrypted()
    }

    async fn create(&self, bench: &Bench) -> Held<Placed> {
        let bytes = if self.is_mounted() { FILESYSTEM } else { SMALL };
        let capability = self.capability();
        let parameters: &[_] = match self.is_encrypted() {
            true => &[("encryption", "luks2")],
            false => &[],
        };
        let made = bench.create_with(self.at, &self.name, bytes, &capability, parameters);
        made.await
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
        match self.is_encrypted() {
            true => self.stage_with(bench, &[OLD]).await,
            false => self.stage_with(bench, &[]).await,
        }
    }

    async fn stage_with(&self, bench: &Bench, secrets: &[(&str, &str)]) -> Held<()> {
        let Placed {
            id,
            staging,
            capability,
            ..
        } = self.placed()?;
        let done = bench.csi().stage_with(id, staging, capability, secrets);
        done.await
            .map_err(|status| format!("NodeStageVolume: {status}"))
    }

    pub(crate) async fn unstage(&self, bench: &Bench) -> Held<()> {
        let (true, Ok(placed)) = (self.is_mounted(), self.placed()) else {
            return Ok(());
        };
        let done = bench.csi().unstage(&placed.id, &placed.staging).await;
        done.map_err(|status| format!("NodeUnstageVolume: {status}"))
    }

    /// Makes the call, which may be repeated. Ok: it was acknowledged.
    pub(crate) async fn act(&mut self, bench: &Bench) -> Held<()> {
        match self.op {
            Op::Claim | Op::Create | Op::CreateBlock => {
                self.before = Some(self.create(bench).await?);
                Ok(())
            }
            Op::Stage(_) | Op::Encrypt => self.stage(bench).await,
            Op::Rekey => self.stage_with(bench, &[NEW, PREVIOUS]).await,
            Op::Expand => {
                let placed = self.placed()?;
                let grown = bench.csi().expand(&placed.id, GROWN, &placed.capability);
                let grown = grown.await.map_err(|status| format!("expand: {status}"))?;
                if grown.0 == GROWN as i64 {
                    return Ok(());
                }
                Err(format!("it grew to {} bytes", grown.0))
            }
            Op::Delete | Op::Destroy => self.delete(bench).await,
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
                let output = bench.lab.guest().run(&script);
                let size = output
                    .split_whitespace()
                    .map(|word| word.parse::<u64>().unwrap_or(0));
                let size: u64 = size.product();
                if size > FILESYSTEM {
                    return Ok(());
                }
                Err(format!("the filesystem has {size} bytes"))
            }
            // The agent continues the erase without a call.
            Op::Erase => bench.gone(self.at, &self.name).await,
            Op::Snapshot => {
                self.snapshot = Some(self.take(bench).await?);
                Ok(())
            }
            Op::Group => {
                let (group, snapshot) = self.take_group(bench).await?;
                (self.group, self.snapshot) = (Some(group), Some(snapshot));
                Ok(())
            }
            Op::Restore => {
                self.copy = Some(self.restore(bench).await?);
                Ok(())
            }
            Op::DropSnapshot => self.drop_snapshot(bench).await,
        }
    }

    /// Checks that the snapshot is complete or absent, and that the contents of the volume are unchanged.
    async fn snapshots(&self, bench: &Bench, acknowledged: bool) -> Held<()> {
        let may_be: &[usize] = match (self.op, acknowledged) {
            (Op::Snapshot | Op::Group, true) | (Op::Restore, _) => &[1],
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

    /// Checks that a volume restored from the snapshot has the contents that the source had.
    async fn restores(&mut self, bench: &Bench) -> Held<()> {
        if self.op == Op::DropSnapshot {
            return Ok(());
        }
        let made = self.restore(bench).await?;
        if bench.digest(&made).await? != self.held {
            return Err("what was made of the snapshot holds something else".to_owned());
        }
        self.copy = Some(made);
        Ok(())
    }

    async fn delete_copy(&self, bench: &Bench) -> Held<()> {
        let Some(copy) = &self.copy else {
            return Ok(());
        };
        let done = bench.csi().delete(&copy.id).await;
        done.map_err(|status| format!("DeleteVolume: {status}"))
    }

    /// Checks the state after the power failure: an acknowledged call has its full effect, another one all or none, and the same call
    /// completes it. Then cleans the drive up.
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
            (Op::Stage(_) | Op::Encrypt | Op::Rekey, _) => &[Some(FILESYSTEM)],
            (Op::Destroy, true) => &[None],
            (Op::Destroy, false) => &[Some(FILESYSTEM), None],
            (Op::Grow(_), true) => &[Some(LARGER)],
            (Op::Grow(_), false) => &[Some(FILESYSTEM), Some(LARGER)],
            (Op::Expand, true) => &[Some(GROWN)],
            (Op::Expand, false) => &[Some(SMALL), Some(GROWN)],
            (Op::Delete, true) | (Op::Erase, _) => &[None],
            (Op::Delete, false) => &[Some(SMALL), None],
            (Op::Snapshot | Op::Group | Op::DropSnapshot | Op::Restore, _) => &[Some(SMALL)],
        };
        if !sizes.contains(&size) {
            return Err(format!(
                "it has {size:?} bytes, not one of {sizes:?}: {there:?}"
            ));
        }
        if self.of_snapshot() {
            self.snapshots(bench, acknowledged).await?;
        }
        if self.op == Op::Restore && acknowledged {
            let copies = bench.named(&self.copy_name()).await;
            let states: Vec<&str> = copies.iter().map(|of| of.state.as_str()).collect();
            if !matches!(states.as_slice(), ["new" | "ready"]) {
                return Err(format!("what was made of the snapshot is {copies:?}"));
            }
        }
        if self.op == Op::Destroy && !live.is_empty() {
            // Nothing of it was destroyed.
            insist(async || self.stage(bench).await).await?;
            self.reads_letter(bench)?;
            self.unstage(bench).await?;
        }
        let mut again = insist(async || self.act(bench).await).await;
        // An agent that has detected the failure of the drive refuses one call.
        if self.op == Op::Restore && !acknowledged && again.is_err() {
            again = insist(async || self.act(bench).await).await;
        }
        if let Err(why) = &again
            && let Some(command) = restoring(why)
        {
            print_progress(format!(
                "{}: {}: its superblock is torn; restoring it with `{command}`",
                bench.bays[self.at].name, self.op
            ));
            let ran = bench.lab.guest().ran(&format!("{command} -y"));
            again = insist(async || self.act(bench).await).await;
            again = again.map_err(|why| format!("{why}, after {ran:?}"));
            self.restored = true;
        }
        again.map_err(|why| format!("the same call again: {why}"))?;
        if matches!(self.op, Op::Grow(_) | Op::Rekey) {
            self.reads_letter(bench)?;
        }
        match self.op {
            Op::Rekey => {
                self.unstage(bench).await?;
                insist(async || self.stage_with(bench, &[NEW]).await).await?;
                self.unstage(bench).await?;
                match self.stage(bench).await {
                    Err(why) if why.contains("does not open volume") => {}
                    other => return Err(format!("with the old secret: {other:?}")),
                }
            }
            Op::Destroy => {}
            _ if self.is_mounted() => self.use_it(bench).await?,
            _ => {}
        }
        if self.of_snapshot() {
            self.snapshots(bench, true).await?;
            self.restores(bench).await?;
        }
        self.end(bench).await
    }

    fn reads_letter(&self, bench: &Bench) -> Held<()> {
        let letter = Bench::letter(self.placed()?);
        match bench.lab.guest().read(&letter) == BEFORE {
            true => Ok(()),
            false => Err("what was written before is another".to_owned()),
        }
    }

    /// Checks that a filesystem accepts a file, and has it when it is mounted again.
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

    /// Deletes the case's volumes, and waits until all space is free again.
    async fn end(&self, bench: &Bench) -> Held<()> {
        insist(async || self.delete_copy(bench).await).await?;
        insist(async || self.drop_snapshot(bench).await).await?;
        insist(async || self.delete(bench).await).await?;
        bench.gone(self.at, &self.copy_name()).await?;
        bench.gone(self.at, &self.name).await?;
        if self.op == Op::Claim {
            bench.command(self.at, "wipe").await?;
        }
        bench.kept(self.at).await
    }
}
