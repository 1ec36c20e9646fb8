//! Snapshots by the agent on one drive, alternating with snapshots by LVM's commands on the other.

use std::time::{Duration, Instant};

use drivebay_hwtests::{MIB, Rig, Trouble, csi, node::Placed, tools};
use drivebay_proto::csi::{Snapshot, VolumeGroupSnapshot};

use crate::{
    calls::table::{Pair, Table, clocked, timed},
    check::volume::{lvcreate, lvremove},
};

const VG: &str = "benchcalls";
/// The volume, and the second volume of its group.
const VOLUMES: [&str; 2] = ["volume", "other"];
/// Reserve of a snapshot, in hundredths of its volume's size: the agent's default.
const RESERVE: u64 = 20;
/// Pause after which a scan caused by a kernel event has ended, so that it is not measured with the next call.
const QUIET: Duration = Duration::from_millis(250);
/// Time limit for erasing the reserve of a deleted snapshot.
const ERASED: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
struct Figures {
    create: Pair,
    restore: Pair,
    /// Restore beside dd and cmp: a restore compares its copy as well.
    compared: Pair,
    delete: Pair,
    group: Pair,
    delete_group: Pair,
}

/// `plain`: device node of the drive for LVM's commands. `serial`: serial number of the agent's drive.
pub(super) async fn measure(
    [plain, serial]: [&str; 2],
    mib: u64,
    rounds: usize,
) -> Result<(), Trouble> {
    let rig = Rig::tuned(Vec::new(), |settings| {
        "lvm".clone_into(&mut settings.layout);
        "info".clone_into(&mut settings.log);
        settings.select = format!("drive = [\"*{serial}*\"]");
        "[moves]\nmax-bytes-per-second = \"unlimited\"\n".clone_into(&mut settings.more);
    })
    .await;
    let here = |drive: &drivebay_proto::agent::Drive| drive.serial == serial;
    rig.drive_where_is(serial, "available", here).await;
    let mut volumes = Vec::new();
    tools::run("vgcreate", &["--quiet", VG, plain])?;
    for name in VOLUMES {
        let made = rig.volume(name, mib * MIB, &csi::block()).await;
        rig.use_volume(&made).await;
        fill(&made.target.display().to_string(), mib)?;
        volumes.push(made);
        lvcreate(&["-L", &format!("{mib}m"), "-n", name, VG])?;
        fill(&format!("/dev/{VG}/{name}"), mib)?;
    }
    let [volume, other] = volumes.as_slice() else {
        return Err(Trouble::new("there are two volumes"));
    };
    let mut figures = Figures::default();
    // The first snapshot starts the workers and loads the kernel module.
    let chunk = chunk(&rig, volume).await?;
    let bench = Bench {
        rig: &rig,
        volumes: [volume, other],
        chunk: &chunk,
        mib,
    };
    for round in 0..rounds {
        bench.alone(&mut figures, round).await?;
        bench.together(&mut figures, round).await?;
        println!("round {}", round + 1);
    }
    for of in [volume, other] {
        rig.leave_volume(of).await;
    }
    tools::run("vgremove", &["--quiet", "--yes", VG])?;
    tools::run("pvremove", &["--quiet", "--yes", plain])?;
    let mut table = Table::begin(&[
        "Milliseconds. ratio: our median to that of the commands beside it, in turns on two drives."
            .to_owned(),
    ]);
    table.section(&format!(
        "Raw volumes of {mib} MiB in use, chunks of {chunk}, beside: lvcreate --snapshot, lvremove; lvcreate and dd"
    ));
    let size = &*format!("{mib} MiB");
    let Figures {
        create,
        restore,
        compared,
        delete,
        group,
        delete_group,
    } = &figures;
    for (what, size, pair) in [
        ("create", size, create),
        ("restore", size, restore),
        ("restore, beside: dd and cmp", size, compared),
        ("delete until answered", size, delete),
        ("create group", "2 volumes", group),
        ("delete group until answered", "2 volumes", delete_group),
    ] {
        table.pair(what, size, pair);
    }
    Ok(())
}

fn fill(node: &str, mib: u64) -> Result<(), Trouble> {
    let (of, count) = (format!("of={node}"), format!("count={mib}"));
    let how = ["bs=1M", "oflag=direct", "conv=notrunc", "status=none"];
    let args = [&["if=/dev/urandom", &of, &count][..], &how].concat();
    tools::run("dd", &args).map(drop)
}

/// Returns the chunk size of the agent's snapshots, as an argument of lvcreate.
async fn chunk(rig: &Rig, of: &Placed) -> Result<String, Trouble> {
    let taken = rig.csi.create_snapshot("first", &of.id, &[]).await?;
    let how = ["--noheadings", "--nosuffix", "--units", "k"];
    let args = [&how[..], &["-o", "lv_name,chunk_size"]].concat();
    let output = tools::run("lvs", &args)?;
    let of_line = |line: &str| {
        let (name, kib) = line.trim().split_once(char::is_whitespace)?;
        let kib: f64 = kib.trim().parse().ok()?;
        name.starts_with("drivebay-snap-")
            .then(|| format!("{kib}k"))
    };
    let chunk = output.lines().find_map(of_line);
    rig.csi.delete_snapshot(&taken.snapshot_id).await?;
    erased(rig).await?;
    chunk.ok_or_else(|| Trouble::new(format!("LVM lists no snapshot of the agent's: {output}")))
}

/// Waits until nothing is being erased, which would slow the next call.
async fn erased(rig: &Rig) -> Result<(), Trouble> {
    rig.erased().await;
    let begun = Instant::now();
    let is_left = |lvs: &str| lvs.contains("drivebay-check-") || lvs.contains("-erasing-snap-");
    while is_left(&tools::run("lvs", &["--noheadings", "-o", "lv_name"])?) {
        if begun.elapsed() > ERASED {
            return Err(Trouble::new("what snapshots stored is not erased"));
        }
        tokio::time::sleep(QUIET).await;
    }
    tokio::time::sleep(QUIET).await;
    Ok(())
}

#[derive(Debug)]
struct Bench<'a> {
    rig: &'a Rig,
    volumes: [&'a Placed; 2],
    chunk: &'a str,
    mib: u64,
}

impl Bench<'_> {
    /// Takes a snapshot of the volume `of` with lvcreate, without the agent.
    fn bare(&self, name: &str, of: &str) -> Result<(), Trouble> {
        let room = format!("{}m", (self.mib * RESERVE / 100).max(8));
        let origin = format!("{VG}/{of}");
        lvcreate(&["-s", "-c", self.chunk, "-L", &room, "-n", name, &origin])
    }

    /// Creates, restores and deletes one snapshot by the agent and one by LVM's commands. The order alternates between rounds.
    async fn alone(&self, figures: &mut Figures, round: usize) -> Result<(), Trouble> {
        let mut ours = None;
        let mut bare = None;
        for own in [round.is_multiple_of(2), !round.is_multiple_of(2)] {
            if own {
                ours = Some(self.ours(round).await?);
            } else {
                bare = Some(self.by_commands()?);
            }
            tokio::time::sleep(QUIET).await;
        }
        if let (Some([create, restore, delete]), Some([made, copied, compared, removed])) =
            (ours, bare)
        {
            figures.create.push(create, made);
            figures.restore.push(restore, copied);
            figures.compared.push(restore, copied + compared);
            figures.delete.push(delete, removed);
        }
        Ok(())
    }

    /// Returns the times of create, restore and delete by the agent.
    async fn ours(&self, round: usize) -> Result<[Duration; 3], Trouble> {
        let (csi, of) = (&self.rig.csi, self.volumes[0]);
        let (name, how) = (format!("alone-{round}"), csi::block());
        let (taken, create) = timed(csi.create_snapshot(&name, &of.id, &[])).await;
        let Snapshot { snapshot_id, .. } = taken?;
        let source = csi::from_snapshot(&snapshot_id);
        let (made, restore) = timed(csi.create_from(&name, of.bytes, &how, &source)).await;
        csi.delete(&made?.volume_id).await?;
        erased(self.rig).await?;
        let (deleted, delete) = timed(csi.delete_snapshot(&snapshot_id)).await;
        deleted?;
        erased(self.rig).await?;
        Ok([create, restore, delete])
    }

    /// Returns the times of lvcreate, dd to a new volume, cmp and lvremove.
    fn by_commands(&self) -> Result<[Duration; 4], Trouble> {
        let (done, create) = clocked(|| self.bare("snapshot", VOLUMES[0]));
        done?;
        let [from, to] = ["snapshot", "copy"].map(|name| format!("/dev/{VG}/{name}"));
        let (done, copy) = clocked(|| {
            let size = format!("{}m", self.mib);
            lvcreate(&["-L", &size, "-Wn", "-Zn", "-n", "copy", VG])?;
            let (input, output) = (format!("if={from}"), format!("of={to}"));
            let how = [
                "bs=1M",
                "iflag=direct",
                "oflag=direct",
                "conv=fsync,notrunc",
            ];
            let args = [&[input.as_str(), &output, "status=none"][..], &how].concat();
            tools::run("dd", &args)
        });
        done?;
        let (done, compare) = clocked(|| tools::run("cmp", &[&from, &to]));
        done?;
        lvremove(&format!("{VG}/copy"))?;
        let (done, remove) = clocked(|| lvremove(&format!("{VG}/snapshot")));
        done?;
        Ok([create, copy, compare, remove])
    }

    /// Measures a group of both volumes, beside one snapshot of each by LVM's commands.
    async fn together(&self, figures: &mut Figures, round: usize) -> Result<(), Trouble> {
        let name = format!("group-{round}");
        let (taken, create) = timed(self.take(&name)).await;
        let taken = taken?;
        let (deleted, delete) = timed(self.delete(&taken)).await;
        deleted?;
        erased(self.rig).await?;
        let each = |act: &dyn Fn(&str) -> Result<(), Trouble>| {
            clocked(|| VOLUMES.iter().try_for_each(|of| act(of)))
        };
        let (done, made) = each(&|of| self.bare(&format!("of-{of}"), of));
        done?;
        let (done, removed) = each(&|of| lvremove(&format!("{VG}/of-{of}")));
        done?;
        figures.group.push(create, made);
        figures.delete_group.push(delete, removed);
        Ok(())
    }

    async fn take(&self, name: &str) -> Result<VolumeGroupSnapshot, Trouble> {
        let ids: Vec<&str> = self.volumes.iter().map(|of| of.id.as_str()).collect();
        Ok(self.rig.csi.create_group_snapshot(name, &ids, &[]).await?)
    }

    async fn delete(&self, group: &VolumeGroupSnapshot) -> Result<(), Trouble> {
        Ok(self.rig.csi.delete_group_snapshot(group).await?)
    }
}
