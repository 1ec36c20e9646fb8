//! What was answered is durable: on drives that forget what was not flushed when their power goes.
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
        progress::say,
    },
    long,
};
use lab_durable::{
    answered,
    bench::{Bench, Held, together},
    case::Op,
    counting::{Counted, counted, sectors},
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

fn said<T>(answer: Result<T, Status>) -> Held<()> {
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
    let found = format!("test -b {device}");
    guest.wait_until(
        lab_durable::bench::PATIENCE,
        "the drive is there",
        |guest| guest.ran(&found).ok().then_some(()),
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
    // What flushes nothing leaves nothing when it writes nothing; these must have written.
    let idle = |row: &&Counted| row.writes == 0 && !row.call.to_lowercase().contains("publish");
    let idle: Vec<&Counted> = rows.iter().filter(idle).collect();
    assert!(idle.is_empty(), "{idle:#?}");
}

/// Everything that a drive lives through on one node, counted.
async fn life(bench: &Bench, at: usize) -> Vec<Counted> {
    let (csi, name) = (bench.csi(), &bench.bays[at].name);
    let mut rows = Vec::new();
    let mut volumes = Vec::new();
    // What a filesystem writes last when it is unmounted, that it is clean, it does not flush on every drive. Without
    // it the next mount replays an empty journal; unmounting must need nothing from the drive, so nobody waits for it.
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
        // Each filesystem on one drive of each layout; minutes are saved.
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
        // Grown before the next one is made: a partition grows where it is.
        let (kind, of) = (&kind, &made.unwrap());
        let call = |what: &str| format!("{what}, {kind}");
        let stage = async || said(csi.stage(&of.id, &of.staging, &of.capability).await);
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
            let unstage = async { said(csi.unstage(&of.id, &of.staging).await) };
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
            said(
                csi.publish(&of.id, &of.staging, &of.target, &of.capability, false)
                    .await,
            )
        };
        rows.push(counted(bench, at, &again, &[], &mounted, publish).await);
        let larger = of.bytes + 64 * MIB;
        let expand = async { said(csi.expand(&of.id, larger, &of.capability).await) };
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
            let grow = async { said(csi.node_expand(&of.id, &of.target, larger).await) };
            rows.push(counted(bench, at, &call("NodeExpandVolume"), &[], &mounted, grow).await);
        }
        let leave = async {
            said(csi.unpublish(&of.id, &of.target).await)?;
            said(csi.unstage(&of.id, &of.staging).await)
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
    for (kind, of) in &volumes {
        let theirs = sectors(bench, of).await;
        let delete = async { said(csi.delete(&of.id).await) };
        let call = format!("DeleteVolume, {kind}");
        rows.push(counted(bench, at, &call, &theirs, &[], delete).await);
        let name = format!("{name}-{kind}");
        let erased = async { bench.gone(at, &name).await };
        rows.push(counted(bench, at, &format!("erased, {kind}"), &[], &[], erased).await);
    }
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

/// Calls of both layouts, each on a drive of its own; the blank drives are the last ones.
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
    let mut next = [0, 0];
    for &cut in rounds {
        let mut round = Vec::new();
        for (at, bay) in bench.bays.iter().enumerate() {
            if bay.kept.is_none() {
                round.push((at, Op::Claim));
                continue;
            }
            let next = &mut next[usize::from(bay.layout == "lvm")];
            round.push((at, calls[*next % calls.len()]));
            *next += 1;
        }
        answered::round(&mut bench, &tenants, &round, cut, &mut tally).await;
    }
    say(format!(
        "{:?}; {} torn superblocks restored from a copy",
        tally.cuts, tally.restored
    ));
    assert!(tally.failures.is_empty(), "{:#?}", tally.failures);
}

/// Every call but growing online: its writes are the filesystem's.
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
    // As many as there are drives: all in one round.
    let mut plans = vec![
        plan("lvm", Op::Claim, 4, 1),
        plan("partition", Op::Claim, 3, 1),
    ];
    for op in [Op::Create, Op::Expand, Op::Delete] {
        plans.push(plan("lvm", op, 3, 7));
        plans.push(plan("partition", op, 3, 7));
    }
    let tally = midway::work(&mut bench, plans).await;
    say(format!("{tally:?}"));
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
    // In the order of writes, so that all calls have been cut early when time is short.
    for write in (1..=12).chain([14, 17, 20, 25, 30, 40, 60, 100]) {
        for op in CALLS {
            // mkfs writes more than is worth cutting one by one.
            let keeps: &[f64] = if write <= 6 { &[0.5, 0.0, 1.0] } else { &[0.5] };
            for (layout, keep) in LAYOUTS
                .iter()
                .flat_map(|layout| keeps.iter().map(move |keep| (*layout, *keep)))
            {
                let moment = Moment {
                    write,
                    keep,
                    seed: write * 10 + plans.len() as u64,
                };
                plans.push(Plan { layout, op, moment });
            }
        }
    }
    let tally = midway::work(&mut bench, plans).await;
    say(format!("{} cuts: {:?}", tally.total(), tally.cuts));
    say(format!(
        "over after: {:?}; restored: {}",
        tally.over, tally.restores
    ));
    assert!(tally.failures.is_empty(), "{:#?}", tally.failures);
    assert!(tally.restores > 0, "no cut tore LVM's metadata");
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshot_that_is_cut_at_any_write_is_whole_or_gone_and_its_volume_is_as_it_was() {
    long!();
    let drives = [Nvme, Scsi].map(|kind| ("lvm", kind));
    let drives: Vec<_> = drives.into_iter().cycle().take(8).collect();
    let mut bench = Bench::new("node1", &drives, 0).await;
    let mut plans = Vec::new();
    for write in (1..=16).chain([18, 20, 23, 26, 30, 40, 60]) {
        for op in [Op::Snapshot, Op::DropSnapshot] {
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
    let tally = midway::work(&mut bench, plans).await;
    say(format!("{} cuts: {:?}", tally.total(), tally.cuts));
    say(format!(
        "over after: {:?}; restored: {}",
        tally.over, tally.restores
    ));
    assert!(tally.failures.is_empty(), "{:#?}", tally.failures);
    assert_eq!(tally.cuts.len(), 2, "{:?}", tally.cuts);
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
    say(format!(
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
