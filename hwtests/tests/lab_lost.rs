//! Unreadable sectors with data do not stop a move on either layout: they read as errors on the new drive, too, until they are written.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

use std::path::Path;

use drivebay_hwtests::{
    GIB, MIB, Settings, csi,
    lab::{
        DriveSpec, LabRig, Machine, MachineSpec,
        letters::{LAB_LIMIT, class_per_drive},
        nbd::BadSectors,
    },
    long,
    node::Placed,
    wait,
};
use drivebay_proto::agent::{MoveVolumesRequest, agent_client::AgentClient};

const LAYOUTS: [&str; 2] = ["lvm", "partition"];
/// Block of the file that does not read, of 4 KiB each.
const BAD: u64 = 128;
const SECRET: (&str, &str) = ("passphrase", "what opens the encrypted volume");
const RULE: &str = include_str!("../../systemd/09-drivebay.rules");

async fn stand() -> LabRig {
    let drives = LAYOUTS.iter().flat_map(|layout| {
        [
            DriveSpec::scsi(&format!("bad-{layout}"), GIB).served(),
            DriveSpec::scsi(&format!("well-{layout}"), GIB),
            DriveSpec::scsi(&format!("next-{layout}"), GIB),
        ]
    });
    let classes = LAYOUTS.map(|layout| (layout, layout, layout));
    let machine = Machine::restored(MachineSpec::new("node1").with(drives.collect())).unwrap();
    let classes = class_per_drive(&classes);
    let tune = |settings: &mut Settings| {
        classes(settings);
        settings.more += "[moves]\nold-place-delay = '1s'\n";
    };
    let lab = LabRig::tuned(machine, "lvm", tune).await;
    for layout in LAYOUTS {
        let names = ["bad", "well", "next"].map(|name| format!("{name}-{layout}"));
        lab.are_available(&names.each_ref().map(String::as_str))
            .await;
    }
    let file = Path::new("/etc/udev/rules.d/09-drivebay.rules");
    lab.guest().write(file, RULE.as_bytes());
    lab.guest().run("udevadm control --reload");
    lab
}

/// Checks that the host does not look for the contents of a volume on any device of ours over it.
fn is_left_alone_by_udev(lab: &LabRig) {
    let of = "for dm in /sys/class/block/dm-*; do \
                  if grep -q ^drivebay-lost- $dm/dm/uuid; then \
                      udevadm settle; udevadm info -q property $dm | grep ^ID_FS_; \
                  fi; done";
    assert_eq!(lab.guest().run(of), "ID_FS_TYPE=drivebay\n");
}

/// Moves a volume that is not in use, unless it is there already.
async fn move_to(lab: &LabRig, volume: &Placed, drive: &str) {
    let to = lab.drive_named(drive).await.unwrap().id;
    if lab.volume_of(&volume.id).await.unwrap().drive == to {
        return;
    }
    let client = AgentClient::new(csi::channel(&lab.agent_socket).await.unwrap());
    let request = MoveVolumesRequest {
        volume_id: volume.id.clone(),
        to: vec![to.clone()],
        by: "ann".into(),
        ..Default::default()
    };
    // Its old place of an earlier move is erased first.
    wait::until_async(LAB_LIMIT, "the move is accepted", async || {
        client.clone().move_volumes(request.clone()).await.ok()
    })
    .await;
    let what = format!("it lives on {drive}");
    wait::until_async(LAB_LIMIT, &what, async || {
        let now = lab.volume_of(&volume.id).await?;
        (now.drive == to && now.state == "ready").then_some(())
    })
    .await;
}

/// Returns the sector of the drive, of 512 bytes, at which this block of 4 KiB of a file or directory begins.
fn sector_of(lab: &LabRig, file: &str, block: u64) -> u64 {
    // The table of dm-crypt has its offset three words further than the one of an LV.
    let output = lab.guest().run(&format!(
        "filefrag -v -b512 {file} | awk '$1 == \"0:\" {{ print $4, $6 }}' | tr -d '.:'; \
         name=$(basename $(readlink -f $(df --output=source {file} | tail -n 1))); at=0; \
         while [ -e /sys/class/block/$name/dm ]; do \
             at=$((at + $(dmsetup table /dev/$name | awk '{{ print $3 == \"crypt\" ? $8 : $5 }}'))); \
             name=$(ls /sys/class/block/$name/slaves); \
         done; \
         echo $((at + $(cat /sys/class/block/$name/start 2>/dev/null || echo 0)))"
    ));
    let numbers: Vec<u64> = output
        .split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect();
    let [in_volume, len, on_drive] = numbers[..] else {
        panic!("{output}");
    };
    assert!(len > block * 8, "the file is in pieces: {output}");
    on_drive + in_volume + block * 8
}

fn spoil(lab: &LabRig, drive: &str, sector: u64) {
    lab.machine.drive(drive).nbd().fail(BadSectors {
        sectors: sector..sector + 1,
        reads: true,
        writes: false,
    });
}

/// Waits until the volume has lost data in this file.
async fn loses(lab: &LabRig, volume: &Placed, file: &str) {
    wait::until_async(LAB_LIMIT, "its file is named", async || {
        let now = lab.volume_of(&volume.id).await?;
        let mut files = now.unreadable.iter().flat_map(|range| &range.files);
        files.any(|name| name == file).then_some(())
    })
    .await;
    let lost = lab.has_condition(volume, "SectorsLost").await;
    assert_eq!(lost.status, "DATA_LOSS");
    let what = "4 KiB of this volume could not be read on a drive that it has moved off";
    assert!(lost.message.starts_with(what), "{}", lost.message);
}

/// Returns the first and the last byte, from 1, in which a file differs from its copy, read past the page cache by this many bytes; and
/// "error" if some of it did not read, which counts as zeros.
fn differs(lab: &LabRig, file: &str, piece: u64) -> String {
    lab.guest().run(&format!(
        "dd if={file} of=/root/read bs={piece} iflag=direct conv=noerror,sync 2>/root/errors; \
         cmp -l /root/read /root/whole | awk '{{ print $1 }}' | sed -n '1p;$p' | tr '\\n' ' '; \
         grep -o -m1 'Input/output error' /root/errors || echo whole"
    ))
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn what_a_failing_drive_does_not_read_is_an_error_on_the_next_one_until_it_is_written() {
    let mut lab = stand().await;
    let few = match std::env::var_os("DRIVEBAY_LAB_LONG") {
        Some(_) => LAYOUTS.len(),
        None => 1,
    };
    for layout in &LAYOUTS[..few] {
        let layout = *layout;
        let (bad, well) = (format!("bad-{layout}"), format!("well-{layout}"));
        let how = csi::mount("ext4");
        // The other one is encrypted as well: 4 KiB are then read and written at least.
        let is_plain = layout == "lvm";
        let (volume, piece, secrets) = match is_plain {
            true => (
                lab.volume_in(layout, layout, 64 * MIB, &how).await,
                1024,
                &[][..],
            ),
            false => {
                let volume = lab.encrypted_in(layout, layout, 64 * MIB, &how).await;
                (volume, 4096, &[SECRET][..])
            }
        };
        move_to(&lab, &volume, &bad).await;
        lab.serve_with(&volume, secrets).await;
        let letter = lab.put_letter(&volume, 512);
        let file = volume.target.join("affected").display().to_string();
        lab.guest().run(&format!(
            "head -c 1M /dev/urandom | tee /root/whole >{file} && sync -f {file}"
        ));
        let sector = sector_of(&lab, &file, BAD);
        lab.leave_volume(&volume).await;
        spoil(&lab, &bad, sector);

        move_to(&lab, &volume, &well).await;
        lab.serve_with(&volume, secrets).await;
        // The block of 4 KiB of the drive with that sector.
        let from = BAD * 4096 - sector * 512 % 4096;
        let block = format!("{} {} Input/output error\n", from + 1, from + 4096);
        assert_eq!(lab.letter(&volume), letter);
        assert_eq!(differs(&lab, &file, piece), block, "{layout}");
        loses(&lab, &volume, "/affected").await;
        // Errors of the volume are none of its drive.
        let drive = lab.drive_named(&well).await.unwrap();
        let verdict = drive.verdict.as_str();
        assert!(!["SUSPECT", "BAD"].contains(&verdict), "{drive:#?}");
        is_left_alone_by_udev(&lab);
        if is_plain {
            let refused = lab.csi.create_snapshot("now", &volume.id, &[]).await;
            let refused = refused.unwrap_err();
            assert!(refused.message().contains("were lost"), "{refused}");
        }
        lab.agent.kill9();
        lab.start_again().await;
        assert_eq!(differs(&lab, &file, piece), block, "{layout}");

        // A mark is no data for another move either.
        lab.leave_volume(&volume).await;
        lab.machine.drive(&bad).nbd().heal();
        move_to(&lab, &volume, &format!("next-{layout}")).await;
        lab.serve_with(&volume, secrets).await;
        assert_eq!(lab.letter(&volume), letter);
        assert_eq!(differs(&lab, &file, piece), block, "{layout}");
        loses(&lab, &volume, "/affected").await;

        // Growing keeps it, and writing ends it.
        let bytes = 96 * MIB;
        lab.csi.expand(&volume.id, bytes, &how).await.unwrap();
        let grown = lab.csi.node_expand(&volume.id, &volume.target, bytes);
        grown.await.unwrap();
        assert_eq!(differs(&lab, &file, piece), block, "{layout}");
        lab.guest().run(&format!(
            "dd if=/root/whole of={file} bs={piece} skip={0} seek={0} count={1} \
             oflag=direct conv=notrunc,fsync status=none",
            from / piece,
            4096 / piece
        ));
        wait::until_async(LAB_LIMIT, "what was written is read", async || {
            (differs(&lab, &file, piece) == "whole\n").then_some(())
        })
        .await;
        wait::until_async(LAB_LIMIT, "nothing is lost", async || {
            let now = lab.volume_of(&volume.id).await?;
            let mut conditions = now.conditions.iter();
            let has = conditions.any(|one| one.reason == "SectorsLost");
            (!has && now.unreadable.is_empty()).then_some(())
        })
        .await;
        lab.leave_volume(&volume).await;
        let devices = lab.guest().run("dmsetup ls");
        for kind in ["drivebay-lost", "drivebay-crypt"] {
            assert!(!devices.contains(kind), "{devices}");
        }
        lab.serve_with(&volume, secrets).await;
        assert_eq!(differs(&lab, &file, piece), "whole\n");
        assert_eq!(lab.letter(&volume), letter);
        lab.leave_volume(&volume).await;
        lab.csi.delete(&volume.id).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_directory_that_does_not_read_is_lost_with_the_move_and_everything_else_is_there() {
    long!();
    let lab = stand().await;
    let how = csi::mount("ext4");
    let volume = lab.volume_in("lvm", "names", 64 * MIB, &how).await;
    move_to(&lab, &volume, "bad-lvm").await;
    lab.serve(&volume).await;
    let letter = lab.put_letter(&volume, 512);
    let names = volume.target.join("names").display().to_string();
    lab.guest().run(&format!(
        "mkdir {names}; for n in $(seq 200); do : >{names}/a-file-with-a-long-name-$n; done; sync -f {names}"
    ));
    let sector = sector_of(&lab, &names, 0);
    lab.leave_volume(&volume).await;
    spoil(&lab, "bad-lvm", sector);
    move_to(&lab, &volume, "well-lvm").await;
    lab.serve(&volume).await;
    assert_eq!(lab.letter(&volume), letter);
    let listed = lab.guest().run(&format!("ls {names} 2>&1 | tail -1"));
    assert!(listed.contains("Input/output error"), "{listed}");
    loses(&lab, &volume, "/names").await;
    lab.leave_volume(&volume).await;
    lab.csi.delete(&volume.id).await.unwrap();
}
