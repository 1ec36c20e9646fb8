//! Checks of mounted volumes on snapshots, in a guest with real LVM: no false alarm under load, no snapshot, loop device or mount left,
//! also after the agent was killed; and their cost to the workload.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::time::{Duration, Instant};

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{
        self, DriveSpec, Guest, LabRig, Machine, MachineSpec,
        letters::{has_no_snapshots, snapshots_listed},
    },
    long,
    rig::Placed,
};
use drivebay_proto::agent::{CheckVolumeRequest, CheckVolumeResponse, agent_client::AgentClient};
use tokio::task::JoinHandle;
use tonic::Status;

/// Time limit of a check, which takes a few LVM commands, in a busy emulated machine.
const CHECK: Duration = Duration::from_secs(300);
/// Time limit for removing and erasing a snapshot.
const GONE: Duration = Duration::from_secs(180);

async fn rig(layout: &str, drives: usize, class: &str) -> LabRig {
    let drives = (0..drives).map(|n| DriveSpec::nvme(&format!("d{n}"), 3 * GIB));
    let machine = Machine::restored(MachineSpec::new("node1").with(drives.collect())).unwrap();
    let class = class.to_owned();
    LabRig::tuned(machine, layout, |settings| settings.class = class).await
}

/// Has a volume checked, and returns the result. Panics if the call fails.
async fn check(lab: &LabRig, volume: &Placed) -> CheckVolumeResponse {
    let channel = csi::channel_within(&lab.agent_socket, CHECK).await.unwrap();
    let mut client = AgentClient::new(channel);
    let request = CheckVolumeRequest {
        volume_id: volume.id.clone(),
    };
    let answer = client.check_volume(request).await;
    answer.expect("a check ends").into_inner()
}

/// Starts a check that runs while the test continues.
async fn start_check(
    lab: &LabRig,
    volume: &Placed,
) -> JoinHandle<Result<CheckVolumeResponse, Status>> {
    let channel = csi::channel_within(&lab.agent_socket, CHECK).await.unwrap();
    let request = CheckVolumeRequest {
        volume_id: volume.id.clone(),
    };
    tokio::spawn(async move {
        let answer = AgentClient::new(channel).check_volume(request).await;
        answer.map(tonic::Response::into_inner)
    })
}

/// Waits until no snapshot, loop device or mount of a check is left.
fn nothing_is_left(guest: &Guest) {
    has_no_snapshots(guest);
    let script = "losetup --noheadings --list && cat /proc/mounts";
    guest.wait_until(
        GONE,
        "loop devices and mounts of checks are gone",
        |guest| {
            let listed = guest.run(script).to_lowercase();
            (!listed.contains("check")).then_some(())
        },
    );
}

/// Starts a process in the guest that creates, syncs, renames and removes files in this directory until the file `stop` exists. It is one
/// process, so that its cost is that of writing and not that of starting tools.
fn load(guest: &Guest, unit: &str, dir: &std::path::Path) {
    let script = r#"use IO::Handle; use File::Path qw(remove_tree); my ($dir, $n) = ($ARGV[0], 0);
        chdir $dir or die; mkdir "churn"; chdir "churn" or die;
        until (-e "../stop") {
            $n++; my $d = $n % 40; mkdir $d; my $name = "$d/f" . $n % 60;
            for my $i (1 .. 8) {
                open(my $out, ">", "$name.$i") or die "$name.$i: $!";
                print $out "x" x ($n % 9 * 3000 + 100) or die "print: $!";
                if ($n % 4 == 0 && $i == 8) { $out->flush; $out->sync or die "fsync: $!"; }
                close($out) or die "close: $!";
            }
            rename "$name.1", "$d/g$n";
            remove_tree(($n + 20) % 40) if $n % 3 == 0;
            open(my $count, ">", "../count.new") or die "count: $!"; print $count $n; close($count);
            rename "../count.new", "../count";
            select(undef, undef, undef, 0.01);
        }"#;
    guest.write(std::path::Path::new("/run/load.pl"), script.as_bytes());
    guest.run(&format!(
        "systemd-run --quiet --unit={unit} --property=RemainAfterExit=no perl /run/load.pl {}",
        dir.display()
    ));
}

/// Returns the number of completed rounds of the load; 0 if it cannot be read.
fn rounds(guest: &Guest, dir: &std::path::Path) -> u64 {
    let ran = guest.ran(&format!("cat {}/count", dir.display()));
    ran.stdout.trim().parse().unwrap_or(0)
}

/// Checks a volume `times` times under load. None may be reported corrupt, and at most a quarter may be without a clean result.
async fn no_false_alarm(fs_type: &str, times: u32) {
    let lab = rig("lvm", 1, "check-reserve = \"512MiB\"\n").await;
    let volume = lab.volume("busy", GIB, &csi::mount(fs_type)).await;
    lab.use_volume(&volume).await;
    let guest = lab.guest();
    load(guest, "load", &volume.target);
    let count = || rounds(guest, &volume.target);
    guest.wait_until(Duration::from_secs(60), "the load runs", |_| {
        (count() > 20).then_some(())
    });
    let (from, at) = (count(), Instant::now());
    // The rate alone is only printed.
    let alone = if times > 4 { 20 } else { 5 };
    tokio::time::sleep(Duration::from_secs(alone)).await;
    let alone = (count() - from) as f64 / at.elapsed().as_secs_f64();
    let (mut results, mut took) = (Vec::new(), 0);
    let (from, at) = (count(), Instant::now());
    for _ in 0..times {
        let answer = check(&lab, &volume).await;
        took += answer.took_ms;
        results.push((answer.outcome, answer.method, answer.detail));
        if results.len() % 50 == 0 {
            lab::progress::print_progress(format!(
                "{fs_type}: {} of {times} checks",
                results.len()
            ));
        }
    }
    let checked = (count() - from) as f64 / at.elapsed().as_secs_f64();
    let method = if fs_type == "btrfs" {
        "scrub"
    } else {
        "snapshot"
    };
    let odd: Vec<_> = results
        .iter()
        .filter(|(outcome, how, _)| outcome != "clean" || how != method)
        .collect();
    lab::progress::print_progress(format!(
        "{fs_type}: {times} checks by {method} under load, {} not clean; {:.1} s each; rounds of the load a second: {alone:.1} alone, {checked:.1} while it is checked again and again",
        odd.len(),
        f64::from(u32::try_from(took / u64::from(times)).unwrap()) / 1000.0,
    ));
    // An overflow of the snapshot is reported as such: it is no alarm, and no result either.
    let alarms: Vec<_> = odd
        .iter()
        .filter(|(outcome, ..)| outcome == "corrupt")
        .collect();
    assert!(alarms.is_empty(), "{alarms:#?}");
    let silent = odd.len();
    assert!(
        silent * 4 <= results.len(),
        "most checks say something: {odd:#?}"
    );
    assert_eq!(lab.volume_of(&volume.id).await.unwrap().conditions, []);
    guest.run(&format!("touch {}/stop", volume.target.display()));
    let ended = guest.wait_until(GONE, "the load ends", |guest| {
        let state = guest.run("systemctl is-active load || true");
        (!state.starts_with("active")).then_some(state)
    });
    assert_eq!(ended.trim(), "inactive", "the load met an error");
    nothing_is_left(guest);
    lab.leave_volume(&volume).await;
    nothing_is_left(guest);
}

fn times() -> u32 {
    if std::env::var_os("DRIVEBAY_LAB_LONG").is_some() {
        500
    } else {
        4
    }
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_busy_ext4_is_never_called_damaged() {
    no_false_alarm("ext4", times()).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_busy_xfs_is_never_called_damaged() {
    long!();
    no_false_alarm("xfs", times()).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_busy_btrfs_is_never_called_damaged() {
    long!();
    no_false_alarm("btrfs", times()).await;
}

/// Damage in a mounted volume's metadata is found on its snapshot, and a snapshot that becomes full is no damage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the lab: hwtests/lab"]
async fn damage_under_a_mounted_ext4_is_found_and_a_full_snapshot_is_no_damage() {
    long!();
    let lab = rig("lvm", 1, "check-reserve = \"64MiB\"\n").await;
    let volume = lab.volume("v", GIB, &csi::mount("ext4")).await;
    lab.use_volume(&volume).await;
    let guest = lab.guest();
    let target = volume.target.display().to_string();
    guest.run(&format!(
        "cd {target}; mkdir a b; for i in $(seq 50); do echo $i >a/$i; done; sync"
    ));
    assert_eq!(check(&lab, &volume).await.outcome, "clean");
    nothing_is_left(guest);

    // Twice the capacity of the snapshot, while the check is slowed down.
    let device = lab.device(&volume).await.display().to_string();
    guest.run("mv /usr/sbin/e2fsck /usr/sbin/e2fsck.real; printf '#!/bin/sh\\n[ \"$1\" = -fn ] && while [ ! -e /run/go-on ]; do sleep 0.2; done\\nexec /usr/sbin/e2fsck.real \"$@\"\\n' >/usr/sbin/e2fsck; chmod +x /usr/sbin/e2fsck");
    let pending = start_check(&lab, &volume).await;
    {
        guest.wait_until(GONE, "the snapshot is there", |guest| {
            guest.ran("pgrep -f '[e]2fsck -fn'").ok().then_some(())
        });
        guest.run(&format!("dd if=/dev/urandom of={target}/big bs=1M count=128 conv=fsync status=none; touch /run/go-on"));
    }
    let answer = pending.await.unwrap().unwrap();
    assert_eq!(answer.outcome, "inconclusive", "{answer:?}");
    assert!(answer.detail.contains("SnapshotFull"), "{answer:?}");
    assert_eq!(lab.volume_of(&volume.id).await.unwrap().conditions, []);
    nothing_is_left(guest);

    guest.run(&format!(
        "debugfs -w -R 'clri b' {device}; sync; blockdev --flushbufs {device}"
    ));
    let answer = check(&lab, &volume).await;
    assert_eq!(
        (answer.outcome.as_str(), answer.method.as_str()),
        ("corrupt", "snapshot"),
        "{answer:?}"
    );
    lab::progress::print_progress(&answer.detail);
    let listed = lab.volume_of(&volume.id).await.unwrap();
    let reasons: Vec<_> = listed.conditions.iter().map(|one| &one.reason).collect();
    assert!(
        reasons
            .iter()
            .any(|reason| *reason == "FilesystemCorrupted"),
        "{listed:#?}"
    );
    nothing_is_left(guest);
}

/// The agent is killed while a snapshot exists; the next one removes it, and what it stored is erased.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_killed_agents_snapshot_is_removed_and_erased_and_the_volume_works_on() {
    long!();
    let mut lab = rig("lvm", 1, "check-reserve = \"64MiB\"\n").await;
    let volume = lab.volume("v", GIB, &csi::mount("ext4")).await;
    lab.use_volume(&volume).await;
    let guest = lab.guest().clone();
    let target = volume.target.display().to_string();
    guest.run("mv /usr/sbin/e2fsck /usr/sbin/e2fsck.real; printf '#!/bin/sh\\n[ \"$1\" = -fn ] && sleep 1000\\nexec /usr/sbin/e2fsck.real \"$@\"\\n' >/usr/sbin/e2fsck; chmod +x /usr/sbin/e2fsck");
    guest.run(&format!(
        "head -c 16M /dev/zero | tr '\\0' S >{target}/secret; sync"
    ));
    let pending = start_check(&lab, &volume).await;
    {
        guest.wait_until(GONE, "the check is under way", |guest| {
            guest.ran("pgrep -f '[e]2fsck -fn'").ok().then_some(())
        });
        // Data that is overwritten now is stored in the snapshot.
        guest.run(&format!(
            "dd if=/dev/zero of={target}/secret bs=1M count=16 conv=notrunc,fsync status=none"
        ));
    }
    let listed = snapshots_listed(&guest).unwrap();
    assert!(!listed.is_empty(), "no snapshot is there");
    lab.agent.kill9();
    let answer = pending.await.unwrap();
    assert!(answer.is_err(), "{answer:?}");
    guest.run(&format!("echo alive >{target}/x; sync -f {target}/x"));
    lab.start_again().await;
    nothing_is_left(&guest);
    assert!(
        !guest.ran("pgrep -f '[e]2fsck -fn'").ok(),
        "nothing of the check lives"
    );
    guest.run(&format!("echo alive >{target}/y; sync -f {target}/y; rm {target}/secret; sync; fstrim {target} || true"));

    // All free space of the drive reads as zeros.
    let free = guest.run("pv=$(pvs --noheadings -o pv_name | tr -d ' '); pvs --noheadings --segments --units b --nosuffix -o pvseg_start,pvseg_size,lv_name,vg_extent_size,pe_start $pv | awk -v pv=$pv 'NF==4 {print pv, $4+$1*$3, $2*$3}'");
    let mut total = 0;
    for row in free.lines() {
        let words: Vec<&str> = row.split_whitespace().collect();
        let [node, start, len] = words.as_slice() else {
            panic!("{row}")
        };
        let (start, len): (u64, u64) = (start.parse().unwrap(), len.parse().unwrap());
        total += len;
        let other = guest.run_pipes(&format!(
            "dd if={node} bs=1M skip={} count={} iflag=direct status=none | tr -d '\\0' | wc -c",
            start / MIB,
            len / MIB
        ));
        assert_eq!(other.trim(), "0", "{row}");
    }
    assert!(total >= GIB, "{free}");
}

/// A volume with a snapshot is expanded and deleted: the check is cancelled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_volume_is_grown_and_deleted_while_its_snapshot_is_checked() {
    long!();
    let lab = rig("lvm", 1, "check-reserve = \"64MiB\"\n").await;
    let volume = lab.volume("v", 512 * MIB, &csi::mount("ext4")).await;
    lab.use_volume(&volume).await;
    let guest = lab.guest();
    guest.run("mv /usr/sbin/e2fsck /usr/sbin/e2fsck.real; printf '#!/bin/sh\\n[ \"$1\" = -fn ] && sleep 1000\\nexec /usr/sbin/e2fsck.real \"$@\"\\n' >/usr/sbin/e2fsck; chmod +x /usr/sbin/e2fsck");
    for size in [640, 768] {
        let pending = start_check(&lab, &volume).await;
        guest.wait_until(GONE, "the check is under way", |guest| {
            guest.ran("pgrep -f '[e]2fsck -fn'").ok().then_some(())
        });
        lab.csi
            .expand(&volume.id, size * MIB, &volume.capability)
            .await
            .unwrap();
        assert!(pending.await.unwrap().is_err(), "it was called off");
    }
    nothing_is_left(guest);
    lab.leave_volume(&volume).await;
    lab.csi.delete(&volume.id).await.unwrap();
    lab.erased().await;
    nothing_is_left(guest);
}
