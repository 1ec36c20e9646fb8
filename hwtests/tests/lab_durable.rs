//! An acknowledged operation survives a power failure, on drives that lose unflushed writes.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

mod lab_durable {
    pub(crate) mod answered;
    pub(crate) mod bench;
    pub(crate) mod case;
    pub(crate) mod counting;
    pub(crate) mod midway;
    pub(crate) mod moves;
}

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{
        DriveSpec,
        Kind::{Nvme, Scsi},
        Machine, MachineSpec,
        progress::print_progress,
    },
    long,
    node::Placed,
};
use lab_durable::{
    answered,
    bench::{Bench, Held, insist, together},
    case::Op,
    counting::{Counted, counted, no_store, sectors, stores},
    midway::{self, Moment, Plan},
    moves::{self, Side},
};
use tonic::Status;

const ALL: [(&str, drivebay_hwtests::lab::Kind); 4] = [
    ("lvm", Nvme),
    ("partition", Scsi),
    ("lvm", Scsi),
    ("partition", Nvme),
];
const LAYOUTS: [&str; 2] = ["lvm", "partition"];

fn outcome<T>(answer: Result<T, Status>) -> Held<()> {
    answer.map(drop).map_err(|status| status.to_string())
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn the_counting_sees_what_lvm_and_dd_leave_unflushed() {
    let machine = Machine::restored(
        MachineSpec::new("control").with(vec![DriveSpec::scsi("control-01", GIB).served()]),
    )
    .unwrap();
    let guest = machine.guest();
    let device = "/dev/$(lsblk --nodeps --noheadings --output NAME,SERIAL | awk '$2 == \"control-01\" { print $1 }')";
    let is_present = format!("test -b {device}");
    guest.wait_until(
        lab_durable::bench::PATIENCE,
        "the drive is there",
        |guest| guest.ran(&is_present).ok().then_some(()),
    );
    let unflushed = |script: String| {
        guest.run(&format!("sync {device}"));
        assert_eq!(machine.drive("control-01").nbd().unflushed(), []);
        guest.run(&script);
        let left = machine.drive("control-01").nbd().unflushed();
        assert!(!left.is_empty(), "{script}");
        left
    };
    unflushed(format!("vgcreate --yes control {device}"));
    unflushed(
        "lvcreate --yes --wipesignatures n --zero n --extents 4 --name volume control".into(),
    );
    unflushed("lvremove --yes control/volume".into());
    let dd = unflushed(format!(
        "dd if=/dev/urandom of={device} bs=4096 count=2 seek=1000 oflag=direct"
    ));
    assert_eq!(
        dd.as_slice(),
        std::slice::from_ref(&(8000..8016)),
        "and says where"
    );
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn no_call_is_answered_before_the_drive_has_flushed_what_it_wrote() {
    long!();
    let mut bench = Bench::new("node1", &ALL, 4).await;
    let mut rows = Vec::new();
    let lives = together((0..bench.bays.len()).map(|at| life(&bench, at))).await;
    rows.extend(lives.into_iter().flatten());
    bench.lab.agent.stop();
    bench.lab.agent.settings_mut().node = "node2".to_owned();
    bench.lab.agent.configure();
    bench.lab.start_again().await;
    for at in 0..bench.bays.len() {
        let there = lab_durable::bench::within(lab_durable::bench::PATIENCE, async || {
            bench.drive(at).await
        });
        assert!(there.await.is_some(), "the drive is seen again");
        let none = (&[][..], &[][..]);
        for (call, verb) in [("drive adopt", "adopt"), ("drive wipe", "wipe")] {
            if verb == "wipe" {
                bench.back(at).await.unwrap();
            }
            rows.push(counted(&bench, at, call, none.0, none.1, bench.command(at, verb)).await);
        }
    }
    let late: Vec<&Counted> = rows.iter().filter(|row| row.own > 0).collect();
    assert!(late.is_empty(), "unflushed when answered: {late:#?}");
    // A call without flushes is durable only if it writes nothing; these must have written.
    let idle = |row: &&Counted| row.writes == 0 && !row.call.to_lowercase().contains("publish");
    let idle: Vec<&Counted> = rows.iter().filter(idle).collect();
    assert!(idle.is_empty(), "{idle:#?}");
}

/// Counts the writes of each call in the life of volumes on one node.
async fn life(bench: &Bench, at: usize) -> Vec<Counted> {
    let (csi, name) = (bench.csi(), &bench.bays[at].name);
    let mut rows = Vec::new();
    let mut volumes = Vec::new();
    // On some drives a filesystem does not flush its last write of an unmount, the clean flag. Without it the next mount replays an empty
    // journal; the acknowledgement of an unmount does not depend on the drive, so that it does not wait for it.
    for (call, kind, bytes, capability) in [
        (
            "CreateVolume, claiming",
            "ext4",
            64 * MIB,
            csi::mount("ext4"),
        ),
        ("CreateVolume", "xfs", 320 * MIB, csi::mount("xfs")),
        ("CreateVolume", "btrfs", 160 * MIB, csi::mount("btrfs")),
        ("CreateVolume, block", "block", 32 * MIB, csi::block()),
    ] {
        // Each filesystem on one drive of each layout, to save minutes.
        let other = if at < 2 { "btrfs" } else { "xfs" };
        if kind == other {
            continue;
        }
        let mut made = None;
        let create = async {
            let placed = bench
                .create(at, &format!("{name}-{kind}"), bytes, &capability)
                .await?;
            made = Some(placed);
            Ok(())
        };
        rows.push(counted(bench, at, call, &[], &[], create).await);
        // Expanded before the next one is created: a partition expands in place.
        let (kind, of) = (&kind, &made.unwrap());
        let call = |what: &str| format!("{what}, {kind}");
        let stage = async || outcome(csi.stage(&of.id, &of.staging, &of.capability).await);
        let mounted = if *kind == "block" { vec![] } else { vec![of] };
        if *kind != "block" {
            rows.push(
                counted(
                    bench,
                    at,
                    &call("first NodeStageVolume"),
                    &[],
                    &mounted,
                    stage(),
                )
                .await,
            );
            let unstage = async { outcome(csi.unstage(&of.id, &of.staging).await) };
            let own = sectors(bench, of).await;
            rows.push(counted(bench, at, &call("NodeUnstageVolume"), &own, &[], unstage).await);
        } else {
            stage().await.unwrap();
            let unstage = csi.unstage(&of.id, &of.staging);
            unstage.await.unwrap();
        }
        let again = call("NodePublishVolume after staging again");
        let publish = async {
            stage().await?;
            outcome(
                csi.publish(&of.id, &of.staging, &of.target, &of.capability, false)
                    .await,
            )
        };
        rows.push(counted(bench, at, &again, &[], &mounted, publish).await);
        let larger = of.bytes + 64 * MIB;
        let expand = async { outcome(csi.expand(&of.id, larger, &of.capability).await) };
        rows.push(
            counted(
                bench,
                at,
                &call("ControllerExpandVolume"),
                &[],
                &mounted,
                expand,
            )
            .await,
        );
        if *kind != "block" {
            let grow = async { outcome(csi.node_expand(&of.id, &of.target, larger).await) };
            rows.push(counted(bench, at, &call("NodeExpandVolume"), &[], &mounted, grow).await);
        }
        let leave = async {
            outcome(csi.unpublish(&of.id, &of.target).await)?;
            outcome(csi.unstage(&of.id, &of.staging).await)
        };
        let both = call("NodeUnpublishVolume and unstage");
        let own = if *kind == "block" {
            vec![]
        } else {
            sectors(bench, of).await
        };
        rows.push(counted(bench, at, &both, &own, &[], leave).await);
        volumes.push((*kind, of.clone()));
    }
    if let (Some((_, of)), "lvm") = (volumes.last(), bench.bays[at].layout) {
        rows.extend(life_of_snapshots(bench, at, of).await);
    }
    for (kind, of) in &volumes {
        let theirs = sectors(bench, of).await;
        let delete = async { outcome(csi.delete(&of.id).await) };
        let call = format!("DeleteVolume, {kind}");
        rows.push(counted(bench, at, &call, &theirs, &[], delete).await);
        let name = format!("{name}-{kind}");
        let erased = async { bench.gone(at, &name).await };
        rows.push(counted(bench, at, &format!("erased, {kind}"), &[], &[], erased).await);
    }
    rows
}

/// Counts the writes of creating, restoring and deleting a snapshot of a raw volume, and of a group.
async fn life_of_snapshots(bench: &Bench, at: usize, of: &Placed) -> Vec<Counted> {
    let (csi, name) = (bench.csi(), &bench.bays[at].name);
    let mut rows = Vec::new();
    let called = format!("{name}-snapshot");
    let mut taken = None;
    let take = async {
        let answer = csi.create_snapshot(&called, &of.id, &[]).await;
        taken = Some(answer.map_err(|status| status.to_string())?);
        Ok(())
    };
    rows.push(counted(bench, at, "CreateSnapshot", &[], &[], take).await);
    let taken = taken.unwrap();
    let (id, bytes) = (&taken.snapshot_id, taken.size_bytes as u64);
    let copied = format!("{name}-copy");
    let mut made = None;
    let restore = async {
        let copy = insist(async || bench.restore(at, &copied, bytes, id).await);
        made = Some(copy.await?);
        Ok(())
    };
    rows.push(counted(bench, at, "CreateVolume of a snapshot", &[], &[], restore).await);
    let made = made.unwrap();
    let deleted = insist(async || outcome(csi.delete(&made.id).await));
    deleted.await.unwrap();
    bench.gone(at, &copied).await.unwrap();
    let theirs = stores(bench, at).await;
    let delete = async { outcome(csi.delete_snapshot(id).await) };
    rows.push(counted(bench, at, "DeleteSnapshot", &theirs, &[], delete).await);
    no_store(bench, at).await;

    let called = format!("{name}-group");
    let mut group = None;
    let take = async {
        let answer = csi.create_group_snapshot(&called, &[&of.id], &[]).await;
        group = Some(answer.map_err(|status| status.to_string())?);
        Ok(())
    };
    rows.push(counted(bench, at, "CreateVolumeGroupSnapshot", &[], &[], take).await);
    let group = group.unwrap();
    let theirs = stores(bench, at).await;
    let delete = async { outcome(csi.delete_group_snapshot(&group).await) };
    rows.push(counted(bench, at, "DeleteVolumeGroupSnapshot", &theirs, &[], delete).await);
    no_store(bench, at).await;
    rows
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn what_was_answered_is_there_after_a_power_cut() {
    long!();
    answered_cuts(&[(0.0, 1)]).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn what_was_answered_is_there_after_a_hundred_power_cuts() {
    long!();
    let rounds: Vec<(f64, u64)> = (2..15)
        .map(|seed| ([0.0, 0.5][seed as usize % 2], seed))
        .collect();
    answered_cuts(&rounds).await;
}

/// Cuts the power when calls of both layouts are acknowledged, each on a separate drive; the last drives are blank and are claimed.
async fn answered_cuts(rounds: &[(f64, u64)]) {
    let drives: Vec<_> = ALL.iter().cycle().take(8).copied().collect();
    let mut bench = Bench::new("node1", &drives, 2).await;
    let tenants = answered::tenants(&bench).await;
    let mut tally = answered::Tally::default();
    let calls = [
        Op::Create,
        Op::Stage("ext4"),
        Op::Stage("xfs"),
        Op::Stage("btrfs"),
        Op::Expand,
        Op::Grow("ext4"),
        Op::Grow("xfs"),
        Op::Delete,
        Op::Erase,
        Op::CreateBlock,
        Op::Grow("btrfs"),
    ];
    // The power is cut right after the acknowledgement, before anything else is flushed.
    let of_snapshots = [Op::Snapshot, Op::Group, Op::Restore, Op::DropSnapshot];
    let of_lvm: Vec<Op> = calls.iter().chain(&of_snapshots).copied().collect();
    let mut next = [0, 0];
    for &cut in rounds {
        let mut round = Vec::new();
        for (at, bay) in bench.bays.iter().enumerate() {
            if bay.kept.is_none() {
                round.push((at, Op::Claim));
                continue;
            }
            let is_lvm = bay.layout == "lvm";
            let calls = if is_lvm { of_lvm.as_slice() } else { &calls };
            let next = &mut next[usize::from(is_lvm)];
            round.push((at, calls[*next % calls.len()]));
            *next += 1;
        }
        answered::round(&mut bench, &tenants, &round, cut, &mut tally).await;
    }
    print_progress(format!(
        "{:?}; {} torn superblocks restored from a copy",
        tally.cuts, tally.restored
    ));
    assert!(tally.failures.is_empty(), "{:#?}", tally.failures);
}

/// Every call except online expansion, whose writes are the filesystem's.
const CALLS: [Op; 9] = [
    Op::Create,
    Op::CreateBlock,
    Op::Stage("ext4"),
    Op::Stage("xfs"),
    Op::Stage("btrfs"),
    Op::Expand,
    Op::Delete,
    Op::Erase,
    Op::Claim,
];

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_call_that_is_cut_in_the_middle_happened_or_did_not_and_torn_metadata_is_put_back() {
    let drives: Vec<_> = ALL.iter().cycle().take(8).copied().collect();
    let mut bench = Bench::new("node1", &drives, 2).await;
    let plan = |layout, op, write, seed| Plan {
        layout,
        op,
        moment: Moment {
            write,
            keep: 0.5,
            seed,
        },
    };
    // As many as there are drives, so that all of them fit one round.
    // By then LVM has written the header of its metadata area, and no label.
    let claim = Moment {
        write: 3,
        keep: 1.0,
        seed: 1,
    };
    let mut plans = vec![
        Plan {
            layout: "lvm",
            op: Op::Claim,
            moment: claim,
        },
        plan("partition", Op::Claim, 3, 1),
    ];
    // After the agent's own writes, LVM writes its text, then the header twice, and flushes: after the second header the medium can have the
    // new header with a torn text. Whether the header survives depends on the seed.
    let cuts = [(Op::Create, 5, 7), (Op::Expand, 5, 8), (Op::Delete, 4, 9)];
    for (op, write, seed) in cuts {
        plans.push(plan("lvm", op, write, seed));
        plans.push(plan("partition", op, 3, seed));
    }
    let mut tally = midway::Tally::default();
    midway::work(&mut bench, &mut tally, plans).await;
    for round in 1..=5 {
        if tally.restores > 0 || !tally.failures.is_empty() {
            break;
        }
        print_progress(format!("no cut tore LVM's metadata yet: {tally:?}"));
        let plans = cuts.map(|(op, write, seed)| plan("lvm", op, write, seed + 3 * round));
        midway::work(&mut bench, &mut tally, plans.to_vec()).await;
    }
    print_progress(format!("{tally:?}"));
    assert!(tally.failures.is_empty(), "{:#?}", tally.failures);
    assert!(tally.restores > 0, "no cut tore LVM's metadata: {tally:?}");
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_call_that_is_cut_at_any_of_its_writes_happened_or_did_not() {
    long!();
    let drives: Vec<_> = ALL.iter().cycle().take(12).copied().collect();
    let mut bench = Bench::new("node1", &drives, 4).await;
    let mut plans = Vec::new();
    // In the order of writes, so that all calls were cut at their early writes when time is short. mkfs makes too many writes to be cut at
    // each of them. The share of unflushed writes that is kept alternates from cut to cut: each of three shares at each write would take
    // three hours.
    for write in (1..=6).chain([8, 12, 20]) {
        for op in CALLS {
            for layout in LAYOUTS {
                let seed = plans.len() as u64;
                let moment = Moment {
                    write,
                    keep: [0.5, 0.0, 1.0][(seed / 2 + write) as usize % 3],
                    seed: write * 10 + seed,
                };
                plans.push(Plan { layout, op, moment });
            }
        }
    }
    let mut tally = midway::Tally::default();
    midway::work(&mut bench, &mut tally, plans).await;
    print_progress(format!("{} cuts: {:?}", tally.total(), tally.cuts));
    print_progress(format!(
        "over after: {:?}; restored: {}",
        tally.over, tally.restores
    ));
    assert!(tally.failures.is_empty(), "{:#?}", tally.failures);
    assert!(tally.restores > 0, "no cut tore LVM's metadata");
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_key_that_is_cut_while_it_is_made_changed_or_destroyed_opens_its_volume_or_there_is_none()
{
    long!();
    // Making and destroying a header writes all of its 16 MiB, mostly zeros.
    let writes = (1..=6).chain([8, 11, 15, 20, 28, 40]);
    cut_everywhere(&[Op::Encrypt, Op::Rekey, Op::Destroy], writes).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshot_that_is_cut_at_any_write_is_whole_or_gone_and_its_volume_is_as_it_was() {
    long!();
    cut_everywhere(
        &[Op::Snapshot, Op::DropSnapshot, Op::Group],
        (1..=16).chain([18, 20, 23, 26, 30, 40, 60]),
    )
    .await;
}

/// The drive whose power is cut has the snapshot, its volume, and another volume.
#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_restore_that_is_cut_at_any_write_makes_the_volume_when_it_is_repeated() {
    long!();
    let writes = (1..=20).chain([24, 28, 32, 36, 40, 48, 56, 64, 80, 100]);
    cut_everywhere(&[Op::Restore], writes).await;
}

/// Cuts the power in each of these calls, at each of these writes.
async fn cut_everywhere(ops: &[Op], writes: impl Iterator<Item = u64>) {
    let drives = [Nvme, Scsi].map(|kind| ("lvm", kind));
    let drives: Vec<_> = drives.into_iter().cycle().take(8).collect();
    let mut bench = Bench::new("node1", &drives, 0).await;
    let mut plans = Vec::new();
    for write in writes {
        for &op in ops {
            for keep in [0.5, 0.0, 1.0] {
                let moment = Moment {
                    write,
                    keep,
                    seed: write * 10 + plans.len() as u64,
                };
                let layout = "lvm";
                plans.push(Plan { layout, op, moment });
            }
        }
    }
    let mut tally = midway::Tally::default();
    midway::work(&mut bench, &mut tally, plans).await;
    print_progress(format!("{} cuts: {:?}", tally.total(), tally.cuts));
    print_progress(format!(
        "over after: {:?}; restored: {}",
        tally.over, tally.restores
    ));
    assert!(tally.failures.is_empty(), "{:#?}", tally.failures);
    assert_eq!(tally.cuts.len(), ops.len(), "{:?}", tally.cuts);
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_move_that_is_cut_at_any_write_of_either_drive_or_of_both_serves_one_place_with_the_latest_data()
 {
    long!();
    let drives: Vec<_> = ALL.iter().flat_map(|one| [*one; 2]).collect();
    let mut bench =
        Bench::sharing("node1", &drives, 2, "[moves]\nold-place-delay = \"0s\"\n").await;
    let mut plans = Vec::new();
    for write in 1..=80 {
        for side in [Side::Target, Side::Source] {
            for both in [false, true] {
                for layout in LAYOUTS {
                    let seed = plans.len() as u64 / 2 + write;
                    let keep = [0.5, 0.0, 1.0][seed as usize % 3];
                    plans.push(moves::Plan {
                        layout,
                        side,
                        both,
                        write,
                        keep,
                        seed,
                    });
                }
            }
        }
    }
    let tally = moves::work(&mut bench, plans).await;
    print_progress(format!(
        "{} cuts: {:?}; over after: {:?}; written anew while a drive was away: {}, in doubt: {}",
        tally.total(),
        tally.cuts,
        tally.over,
        tally.served,
        tally.in_doubt
    ));
    assert!(tally.failures.is_empty(), "{:#?}", tally.failures);
    assert!(
        tally.over.len() == 4,
        "moves never ended before their cut: {tally:?}"
    );
}
