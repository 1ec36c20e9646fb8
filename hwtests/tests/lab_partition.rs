//! Layout `partition` on real kinds of drives: names with a `p`, sectors of 4096 bytes, udevd running, and sixty volumes on one drive, some
//! of which are created and deleted while others are written to.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    GIB, MIB, csi, digest,
    lab::{
        DriveSpec, Events, Held, LabRig, Machine, MachineSpec, Writer,
        letters::{class_per_drive, persistently},
    },
    node::Placed,
};
use tokio::sync::{Mutex, MutexGuard};
use tonic::Code;

/// Class and drive, pattern of its partitions' names, and filesystem.
const KINDS: [(&str, &str, &str); 4] = [
    ("nvme-512", "^nvme[0-9]+n1p[0-9]+$", "ext4"),
    ("sata-512e", "^sd[a-z]+[0-9]+$", "xfs"),
    ("scsi-4k", "^sd[a-z]+[0-9]+$", "ext4"),
    ("nvme-4k", "^nvme[0-9]+n1p[0-9]+$", "btrfs"),
];
/// Drive of the sixty volumes.
const MANY: &str = "nvme-many";

/// Machine shared by this program's tests; each uses separate drives.
static LAB: Mutex<Option<LabRig>> = Mutex::const_new(None);

async fn lab() -> Held<MutexGuard<'static, Option<LabRig>>> {
    let mut held = Held(LAB.lock().await);
    if let Some(lab) = held.as_mut() {
        // Each test has a separate runtime, and a connection ends with its runtime.
        lab.node.csi = lab.agent.csi().await.unwrap();
        return held;
    }
    let drives = vec![
        DriveSpec::nvme("nvme-512", GIB),
        DriveSpec::sata("sata-512e", 2 * GIB).sector(512, 4096),
        DriveSpec::scsi("scsi-4k", GIB).sector(4096, 4096),
        DriveSpec::nvme("nvme-4k", 2 * GIB).sector(4096, 4096),
        DriveSpec::nvme(MANY, 4 * GIB),
    ];
    let mut classes = KINDS.map(|(name, ..)| (name, "partition", name)).to_vec();
    classes.push((MANY, "partition", MANY));
    let machine = Machine::boot(MachineSpec::new("node1").with(drives)).unwrap();
    let lab = LabRig::tuned(machine, "partition", class_per_drive(&classes)).await;
    let names: Vec<&str> = classes.iter().map(|(name, ..)| *name).collect();
    lab.are_available(&names).await;
    *held = Some(lab);
    held
}

/// Limit for udevd's queue: each write to a disk's table is an event of every partition, and the emulated host handles a few in a second.
const QUEUE_LIMIT: Duration = Duration::from_secs(1800);

/// Returns the kernel name of a volume's partition, to which udevd's link of its PARTUUID refers after all events.
async fn linked(lab: &LabRig, volume: &Placed) -> String {
    let device = lab.device(volume).await;
    let uuid = volume.id.split('@').next().unwrap();
    let link = format!("readlink -e /dev/disk/by-partuuid/{uuid}");
    let settle = format!("udevadm settle --timeout={}", QUEUE_LIMIT.as_secs());
    let limit = QUEUE_LIMIT + Duration::from_secs(60);
    let settled = lab.guest().try_run(&settle, limit).unwrap();
    assert!(settled.ok(), "udevd's queue: {settled:?}");
    // A missed link is one that no event will make.
    assert_eq!(lab.guest().run(&link).trim(), device.to_str().unwrap());
    device.file_name().unwrap().to_str().unwrap().to_owned()
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_volume_on_each_kind_of_drive_is_created_used_grown_online_and_erased() {
    let lab = lab().await;
    let lab = lab.as_ref().unwrap();
    let guest = lab.guest();
    for (class, pattern, fs) in KINDS {
        let start = if fs == "ext4" { 64 } else { 400 };
        let (small, large) = (start * MIB, (start + 128) * MIB);
        let volume = lab
            .volume_in(class, &format!("grows-{class}"), small, &csi::mount(fs))
            .await;
        lab.serve(&volume).await;
        let name = linked(lab, &volume).await;
        guest.run(&format!("echo {name} | grep -Eq '{pattern}'"));
        let mark = format!("secret-of-{class}");
        let secret = volume.target.join("secret");
        guest.write(&secret, mark.repeat(4096).as_bytes());
        let written = lab.put_letter(&volume, 8192);

        let (bytes, _) = lab
            .csi
            .expand(&volume.id, large, &volume.capability)
            .await
            .unwrap();
        assert_eq!(u64::try_from(bytes), Ok(large));
        lab.csi
            .node_expand(&volume.id, &volume.target, large)
            .await
            .unwrap();
        let target = volume.target.display();
        let size: u64 = guest
            .run(&format!(
                "df --block-size=1 --output=size {target} | tail -1"
            ))
            .trim()
            .parse()
            .unwrap();
        assert!(
            size > small && size > large * 8 / 10,
            "{fs} on {class} has {size} bytes"
        );
        assert_eq!(lab.letter(&volume), written, "{class}");
        // The end of the filesystem can be written.
        guest.run(&format!(
            "head -c {}M /dev/zero >{target}/full && sync -f {target}/full",
            start * 9 / 10
        ));
        lab.leave_volume(&volume).await;

        let medium = lab.machine.drive(class).file().to_owned();
        let offsets = digest::find(&medium, mark.as_bytes()).unwrap();
        assert!(
            !offsets.is_empty(),
            "the mark is not on {class}: the test proves nothing"
        );
        let took = Instant::now();
        lab.csi.delete(&volume.id).await.unwrap();
        lab.all_erased().await;
        eprintln!(
            "{class}: {fs}, deleted and erased in {:.1} s",
            took.elapsed().as_secs_f64()
        );
        let left = digest::find(&medium, mark.as_bytes()).unwrap();
        assert!(left.is_empty(), "{class} still holds the mark at {left:?}");
        let disk = lab.drive_named(class).await.unwrap().kernel_name;
        let output = guest.run(&format!("sgdisk --verify /dev/{disk}"));
        assert!(output.contains("No problems found"), "{class}: {output}");
    }
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn the_last_mib_of_a_drive_of_4096_byte_sectors_can_be_used() {
    let lab = lab().await;
    let lab = lab.as_ref().unwrap();
    let free = lab.drive_named("scsi-4k").await.unwrap().largest_free_bytes;
    assert!(free >= GIB - 8 * MIB, "{free}");
    let volume = lab.volume_in("scsi-4k", "all", free, &csi::block()).await;
    assert_eq!(volume.bytes, free);
    let more = lab
        .try_volume_in("scsi-4k", "more", 4 * MIB, &csi::block())
        .await;
    assert_eq!(more.unwrap_err().code(), Code::ResourceExhausted);
    lab.serve(&volume).await;
    let (target, last) = (volume.target.display(), free / MIB - 1);
    let guest = lab.guest();
    guest.run(&format!(
        "head -c 1M /dev/urandom >/run/last && dd if=/run/last of={target} bs=1M seek={last} oflag=direct conv=notrunc status=none && \
         sync {target} && dd if={target} bs=1M skip={last} iflag=direct status=none | cmp - /run/last"
    ));
    assert!(
        !guest
            .ran(&format!(
                "dd if=/run/last of={target} bs=4096 count=1 seek={} oflag=direct",
                free / 4096
            ))
            .ok()
    );
    lab.leave_volume(&volume).await;
    lab.csi.delete(&volume.id).await.unwrap();
    lab.all_erased().await;
    assert_eq!(
        lab.drive_named("scsi-4k").await.unwrap().largest_free_bytes,
        free
    );
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn sixty_volumes_are_on_one_drive_and_come_and_go_while_others_are_written() {
    const COUNT: usize = 60;
    let lab = lab().await;
    let lab = lab.as_ref().unwrap();
    let guest = lab.guest();
    let block = csi::block();
    let begun = Instant::now();
    let mut written = Vec::new();
    let mut letters = Vec::new();
    for at in 0..3 {
        let volume = lab
            .volume_in(
                MANY,
                &format!("written-{at}"),
                64 * MIB,
                &csi::mount("ext4"),
            )
            .await;
        lab.serve(&volume).await;
        letters.push(lab.put_letter(&volume, 2048));
        written.push(volume);
    }
    let unaffected: BTreeSet<String> = {
        let mut names = BTreeSet::new();
        for volume in &written {
            names.insert(linked(lab, volume).await);
        }
        names
    };
    let disk = lab.drive_named(MANY).await.unwrap().kernel_name;
    let label = format!("{disk}p1");
    let events = Events::listen(guest, "events-many");
    let writers: Vec<Writer> = written
        .iter()
        .enumerate()
        .map(|(at, volume)| Writer::start(guest, &format!("writer-{at}"), &volume.target))
        .collect();

    let from = Instant::now();
    let mut others = Vec::new();
    for at in written.len()..COUNT {
        others.push(
            lab.volume_in(MANY, &format!("many-{at}"), 16 * MIB, &block)
                .await,
        );
    }
    let each = from.elapsed() / u32::try_from(others.len()).unwrap();
    // Each is served: data written to one is in that one only.
    for volume in &others {
        lab.serve(volume).await;
    }
    let targets: Vec<String> = others
        .iter()
        .map(|of| of.target.display().to_string())
        .collect();
    // In groups: each write waits for the drive, on which three others sync line by line.
    let marks = |script: &dyn Fn(&str, usize) -> String| {
        for (group, targets) in targets.chunks(8).enumerate() {
            let each = targets.iter().enumerate();
            let each = each.map(|(at, target)| script(target, group * 8 + at));
            guest.run(&each.collect::<Vec<_>>().join(" && "));
        }
    };
    marks(&|target, n| {
        format!("printf 'volume {n}.' | dd of={target} bs=512 conv=notrunc,fsync status=none")
    });
    marks(&|target, n| {
        format!(
            "dd if={target} bs=4096 count=1 iflag=direct status=none | grep -aq '^volume {n}[.]'"
        )
    });
    let mut listed = lab.csi.ids().await.unwrap();
    let mut ids: Vec<String> = written
        .iter()
        .chain(&others)
        .map(|of| of.id.clone())
        .collect();
    listed.sort();
    ids.sort();
    assert_eq!(listed, ids);
    let partitions = guest.run(&format!("lsblk -nro NAME /dev/{disk}"));
    // The label is among them only if udevd had the kernel reread the table before a volume was in use: the agent reads it from the disk.
    let names = partitions.lines();
    let names = names.filter(|name| *name != disk && *name != label);
    assert_eq!(names.count(), COUNT, "{partitions}");
    for volume in others.iter().step_by(10) {
        linked(lab, volume).await;
    }

    // Every second one is deleted, one is expanded, and as many are created.
    let mut rounds = Vec::new();
    let mut stay = Vec::new();
    for (at, volume) in others.into_iter().enumerate() {
        lab.leave_volume(&volume).await;
        if at % 2 == 0 {
            persistently(async || lab.csi.delete(&volume.id).await).await;
            rounds.push(volume);
        } else {
            stay.push(volume);
        }
    }
    // Expands into the space of the deleted one after it.
    lab.all_erased().await;
    let grows = &stay.last().unwrap().id;
    persistently(async || lab.csi.expand(grows, 32 * MIB, &block).await).await;
    for at in 0..rounds.len() {
        stay.push(
            lab.volume_in(MANY, &format!("again-{at}"), 16 * MIB, &block)
                .await,
        );
    }
    for volume in stay.iter().step_by(10) {
        linked(lab, volume).await;
    }
    let lines: Vec<usize> = writers.into_iter().map(Writer::finish).collect();

    // Only the partitions of deleted volumes were removed from the kernel.
    let quiet = |device: &str| unaffected.contains(device) || device == label || device == disk;
    assert_eq!(events.count("remove", quiet), 0, "{:?}", events.list());
    assert_eq!(events.count("add", quiet), 0, "{:?}", events.list());
    let removed = events.count("remove", |device| device.starts_with(&disk));
    let added = events.count("add", |device| device.starts_with(&disk));
    let changed = events.count("change", |device| device.starts_with(&disk));
    let on_written = events.count("change", quiet);
    events.end("events-many");
    eprintln!(
        "{COUNT} volumes: {:.2} s for each create; kernel events: {added} add, {removed} remove, {changed} change \
         ({on_written} of the disk and the volumes written to); lines synced meanwhile: {lines:?}; {:.0} s in all",
        each.as_secs_f64(),
        begun.elapsed().as_secs_f64()
    );
    assert_eq!(
        removed,
        rounds.len(),
        "one for each that was deleted, when it was"
    );
    for (volume, letter) in written.iter().zip(&letters) {
        assert_eq!(&lab.letter(volume), letter);
        lab.leave_volume(volume).await;
    }

    // A table has 128 entries, including the label: the 128th volume is refused, though there is free space.
    let mut all = written;
    all.extend(stay);
    while all.len() < 127 {
        let name = format!("fills-{}", all.len());
        all.push(lab.volume_in(MANY, &name, MIB, &block).await);
    }
    let full = lab.drive_named(MANY).await.unwrap();
    let free = full.free_bytes;
    assert!(free > GIB, "{free}");
    assert_eq!(full.largest_free_bytes, 0);
    let refused = lab.try_volume_in(MANY, "one-too-many", MIB, &block).await;
    let refused = refused.unwrap_err();
    eprintln!("with 127 volumes and {free} bytes free: {refused:?}");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    assert!(refused.message().contains("128"), "{refused:?}");
    assert_eq!(lab.csi.ids().await.unwrap().len(), 127);
}
