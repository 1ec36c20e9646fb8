//! Create, stage, publish and delete a volume of each filesystem, on a drive with few other volumes and with many.

use std::time::Duration;

use drivebay_hwtests::{DriveSpec, GIB, MIB, Rig, Trouble, csi, memory::Tree, node::Placed};

use super::{
    admin::Admin,
    admin_drive::Layout,
    lvmd::Lvmd,
    table::{Pair, Table, clocked, timed},
};

const FILESYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];
/// Numbers of other volumes on the drive: the table of layout partition has 128 entries.
const OTHERS: [usize; 2] = [0, 60];
const OTHERS_FULL: [usize; 3] = [0, 60, 100];
const OTHER_MIB: u64 = 16;
const VOLUME_MIB: u64 = 512;
/// Time for the scan that follows a kernel event, so that it is not part of the next call.
const QUIET: Duration = Duration::from_millis(250);

/// Results for one size.
#[derive(Debug, Default)]
struct Figures {
    create: Pair,
    publish: Pair,
    delete: Pair,
    /// One entry for each of `FILESYSTEMS`, in that order, as in `all`; a single one while one filesystem is measured.
    stage: Vec<Pair>,
    all: Vec<Pair>,
    /// Create, beside sgdisk; empty unless the layout is partition.
    sgdisk: Pair,
    /// For layout lvm, if lvmd is available.
    lvmd_create: Pair,
    lvmd_delete: Pair,
    /// KiB of lvmd, and of the agent with its descendants, at the end.
    memory: Option<(u64, u64)>,
}

pub(super) async fn measure(
    table: &mut Table,
    layout: Layout,
    rounds: usize,
    full: bool,
) -> Result<(), Trouble> {
    let all: &[usize] = match full {
        true => &OTHERS_FULL,
        false => &OTHERS,
    };
    let mut sizes = Vec::new();
    for others in all {
        sizes.push((
            format!("{others} others"),
            of(layout, *others, rounds).await?,
        ));
    }
    table.section(&format!(
        "A volume of 512 MiB, beside: {}; mkfs and mount; mount --bind. By other volumes of the drive",
        layout.tools()
    ));
    let mut lines = |what: &str, figure: &dyn Fn(&Figures) -> Pair| {
        for (size, figures) in &sizes {
            table.pair(what, size, &figure(figures));
        }
    };
    lines("create", &|of| of.create.clone());
    for (at, fs_type) in FILESYSTEMS.iter().enumerate() {
        lines(&format!("stage {fs_type}"), &|of| of.stage[at].clone());
    }
    lines("publish", &|of| of.publish.clone());
    for (at, fs_type) in FILESYSTEMS.iter().enumerate() {
        let what = format!("create+stage+publish {fs_type}");
        lines(&what, &|of| of.all[at].clone());
    }
    lines("delete until answered", &|of| of.delete.clone());
    match layout {
        Layout::Partition => lines("create, beside: sgdisk", &|of| of.sgdisk.clone()),
        Layout::Lvm if sizes.iter().any(|(_, of)| of.memory.is_some()) => {
            lines("create, beside: lvmd", &|of| of.lvmd_create.clone());
            lines("delete, beside: lvmd", &|of| of.lvmd_delete.clone());
        }
        Layout::Lvm => table.note("without lvmd: hwtests/bench lab builds it"),
    }
    for (size, figures) in &sizes {
        if let Some((lvmd, own)) = figures.memory {
            table.note(&format!(
                "memory, {size}: agent and all below it {own} KiB, lvmd alone {lvmd} KiB (PSS)"
            ));
        }
    }
    Ok(())
}

async fn of(layout: Layout, others: usize, rounds: usize) -> Result<Figures, Trouble> {
    let bytes = 8 * GIB;
    let rig = Rig::tuned(vec![DriveSpec::blank("a", bytes)], |settings| {
        layout.name().clone_into(&mut settings.layout);
        "info".clone_into(&mut settings.log);
    })
    .await;
    let admin = Admin::new(&rig.shelf, layout, bytes, others, OTHER_MIB)?;
    let lvmd = match layout {
        Layout::Partition => None,
        Layout::Lvm => Lvmd::start(&rig.shelf, bytes, others, OTHER_MIB).await?,
    };
    for number in 0..others {
        let (name, size) = (format!("other-{number}"), OTHER_MIB * MIB);
        rig.csi.create(&name, size, &csi::block()).await?;
    }
    // The first volume claims the drive and starts its workers; the first of its type makes the kernel load its module.
    let mut figures = Figures::default();
    for fs_type in FILESYSTEMS {
        round(&rig, &admin, fs_type, &mut Figures::new(1), 0).await?;
    }
    for fs_type in FILESYSTEMS {
        let mut of_type = Figures::new(1);
        for number in 0..rounds {
            round(&rig, &admin, fs_type, &mut of_type, number).await?;
        }
        figures.create.extend(of_type.create);
        figures.publish.extend(of_type.publish);
        figures.delete.extend(of_type.delete);
        figures.stage.extend(of_type.stage);
        figures.all.extend(of_type.all);
    }
    if layout == Layout::Partition {
        for _ in 0..3 {
            tokio::time::sleep(QUIET).await;
            let (created, bare) = clocked(|| admin.admin_drive.create_by_sgdisk(VOLUME_MIB));
            created?;
            admin.admin_drive.delete()?;
            figures.sgdisk.bare.push(bare);
        }
        figures.sgdisk.ours = figures.create.ours.clone();
    }
    if let Some(lvmd) = lvmd {
        for number in 0..rounds {
            beside_lvmd(&rig, &lvmd, &mut figures, number).await?;
        }
        let own = Tree::of(rig.agent.pid());
        figures.memory = Some((lvmd.memory()?.pss, own.all().pss));
    }
    Ok(figures)
}

/// Creates and deletes a volume of each side; Drivebay's is first in every other round.
async fn beside_lvmd(
    rig: &Rig,
    lvmd: &Lvmd,
    figures: &mut Figures,
    number: usize,
) -> Result<(), Trouble> {
    let (name, size) = (format!("lvmd-{number}"), VOLUME_MIB * MIB);
    let mut own = None;
    let mut peer = None;
    for ours in [number.is_multiple_of(2), !number.is_multiple_of(2)] {
        tokio::time::sleep(QUIET).await;
        if ours {
            let (volume, time) = timed(rig.csi.create(&name, size, &csi::block())).await;
            own = Some((volume?, time));
        } else {
            let (created, time) = timed(lvmd.create(&name, size)).await;
            created?;
            peer = Some(time);
        }
    }
    let Some((volume, time)) = own else {
        return Ok(());
    };
    figures.lvmd_create.push(time, peer.unwrap_or_default());
    tokio::time::sleep(QUIET).await;
    let (deleted, own) = timed(rig.csi.delete(&volume.volume_id)).await;
    deleted?;
    rig.erased().await;
    tokio::time::sleep(QUIET).await;
    let (removed, peer) = timed(lvmd.remove(&name)).await;
    removed?;
    figures.lvmd_delete.push(own, peer);
    Ok(())
}

impl Figures {
    fn new(filesystems: usize) -> Self {
        Self {
            stage: vec![Pair::default(); filesystems],
            all: vec![Pair::default(); filesystems],
            ..Self::default()
        }
    }
}

/// One volume of each side; Drivebay's is first in every other round.
async fn round(
    rig: &Rig,
    admin: &Admin,
    fs_type: &str,
    figures: &mut Figures,
    number: usize,
) -> Result<(), Trouble> {
    let name = format!("{fs_type}-{number}");
    let ours_first = number.is_multiple_of(2);
    let early = match ours_first {
        true => Some(ours(rig, &name, fs_type).await?),
        false => None,
    };
    tokio::time::sleep(QUIET).await;
    let bare = bare(admin, fs_type)?;
    let (volume, own) = match early {
        Some(done) => done,
        None => {
            tokio::time::sleep(QUIET).await;
            ours(rig, &name, fs_type).await?
        }
    };
    figures.create.push(own[0], bare[0]);
    figures.stage[0].push(own[1], bare[1]);
    figures.publish.push(own[2], bare[2]);
    figures.all[0].push(own.iter().sum(), bare.iter().sum());

    rig.leave_volume(&volume).await;
    admin.leave()?;
    tokio::time::sleep(QUIET).await;
    let (deleted, own) = timed(rig.csi.delete(&volume.id)).await;
    deleted?;
    rig.erased().await;
    tokio::time::sleep(QUIET).await;
    let (deleted, bare) = clocked(|| admin.admin_drive.delete());
    deleted?;
    figures.delete.push(own, bare);
    tokio::time::sleep(QUIET).await;
    Ok(())
}

async fn ours(rig: &Rig, name: &str, fs_type: &str) -> Result<(Placed, [Duration; 3]), Trouble> {
    let capability = csi::mount(fs_type);
    let size = VOLUME_MIB * MIB;
    let (volume, create) = timed(rig.csi.create(name, size, &capability)).await;
    let volume = rig.place(&volume?, name, &capability);
    let (staged, stage) = timed(rig.csi.stage(&volume.id, &volume.staging, &capability)).await;
    staged?;
    let (_, publish) = timed(rig.publish(&volume)).await;
    Ok((volume, [create, stage, publish]))
}

fn bare(admin: &Admin, fs_type: &str) -> Result<[Duration; 3], Trouble> {
    let (created, create) = clocked(|| admin.admin_drive.create(VOLUME_MIB));
    created?;
    let (staged, stage) = clocked(|| admin.stage(fs_type));
    staged?;
    let (published, publish) = clocked(|| admin.publish());
    published?;
    Ok([create, stage, publish])
}
