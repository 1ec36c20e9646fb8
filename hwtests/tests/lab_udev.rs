//! Contents of raw volumes, and the host: with this repository's udev rule they are not activated, neither by hotplug nor by a reboot;
//! without the rule they are, and the volume cannot be deleted.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::path::Path;

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{
        DriveSpec, Guest, LabRig, Machine, MachineSpec,
        letters::{class_per_drive, persistently},
    },
    node::Placed,
};

const RULE: &str = include_str!("../../systemd/09-drivebay.rules");
const RULE_FILE: &str = "/etc/udev/rules.d/09-drivebay.rules";
const FINDING: &str = "HostReadsVolumes";
/// Name and layout; the last drive has sectors of 4096 bytes.
const DRIVES: [(&str, &str); 3] = [
    ("parts-drive", "partition"),
    ("lvs-drive", "lvm"),
    ("large-drive", "partition"),
];

/// Contents that a tenant writes to a raw volume.
#[derive(Clone, Copy)]
enum Inside {
    /// A PV with a VG and an LV.
    Pv,
    /// An md array of one device.
    Md,
    /// A filesystem with the label of the host's root.
    Label,
}

impl Inside {
    const ALL: [Self; 3] = [Self::Pv, Self::Md, Self::Label];

    fn name(self) -> &'static str {
        match self {
            Self::Pv => "pv",
            Self::Md => "md",
            Self::Label => "label",
        }
    }

    /// Writes the contents to the published device only, as from inside a container.
    fn write(self, guest: &Guest, device: &Path, group: &str) {
        let device = device.display();
        guest.run(&match self {
            Self::Pv => format!(
                "set -e; lvm() {{ command lvm \"$@\" --config 'devices {{ scan_lvs=1 use_devicesfile=0 }}'; }}; \
                 lvm pvcreate -q {device}; lvm vgcreate -q {group} {device}; \
                 lvm lvcreate -q -an -Zn -Wn -n inner -l 4 {group}"
            ),
            Self::Md => format!(
                "set -e; yes | mdadm --create /dev/md/{group} --run --level=1 --raid-devices=1 --force --metadata=1.2 {device}; \
                 mdadm --stop /dev/md/{group}"
            ),
            Self::Label => format!("mkfs.ext4 -q -L labroot {device}"),
        });
    }
}

fn install(guest: &Guest) {
    guest.write(Path::new(RULE_FILE), RULE.as_bytes());
    guest.run("udevadm control --reload");
}

/// Waits until udevd has processed its rules, and the programs started by them have had ten seconds.
fn settle(guest: &Guest) {
    guest.run("udevadm settle --timeout=60; sleep 10; udevadm settle --timeout=60");
}

/// Lists md arrays, and device-mapper devices that are not Drivebay's.
fn activated(guest: &Guest) -> Vec<String> {
    let output = guest.run(
        "sed -n 's/^\\(md[^ ]*\\) .*/\\1/p' /proc/mdstat; dmsetup ls | sed -n '/^No devices/!s/[[:space:]].*//p' | grep -v '^drivebay--' || true",
    );
    output.lines().map(str::to_owned).collect()
}

/// True if the label of the host's root refers to the root's device.
fn root_has_its_label(guest: &Guest) -> bool {
    guest.run("readlink -e /dev/disk/by-label/labroot").trim() == "/dev/vda"
}

fn properties(guest: &Guest, device: &Path) -> String {
    guest.run(&format!(
        "udevadm info --query=property {}",
        device.display()
    ))
}

async fn replug(lab: &mut LabRig) {
    for (name, _) in DRIVES {
        lab.machine.unplug(name);
        lab.drive_named_is(name, "missing").await;
        lab.machine.plug(name);
        lab.drive_named_is(name, "claimed").await;
    }
    settle(lab.guest());
}

fn health(lab: &LabRig) -> String {
    lab.agent.run_command(&["health"]).stdout
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn with_the_rule_nothing_inside_volumes_is_activated_by_hotplug_or_reboot_and_without_it_is()
{
    let drives = vec![
        DriveSpec::nvme(DRIVES[0].0, GIB),
        DriveSpec::nvme(DRIVES[1].0, GIB),
        DriveSpec::nvme(DRIVES[2].0, GIB).sector(4096, 4096),
    ];
    let classes = DRIVES.map(|(name, layout)| (name, layout, name));
    let machine = Machine::restored(MachineSpec::new("node1").with(drives)).unwrap();
    let mut lab = LabRig::tuned(machine, "partition", class_per_drive(&classes)).await;
    lab.are_available(&DRIVES.map(|(name, _)| name)).await;
    let guest = lab.guest().clone();
    let findings = health(&lab);
    assert!(findings.contains(FINDING), "{findings}");

    // The rule is installed with volumes mounted, and does not affect them.
    let mut mounted = Vec::new();
    for (name, _) in DRIVES {
        let kept = format!("kept-{name}");
        let volume = lab
            .volume_in(name, &kept, 64 * MIB, &csi::mount("ext4"))
            .await;
        lab.serve(&volume).await;
        let mount = format!("findmnt --task 1 -no ID {}", volume.target.display());
        let (letter, id) = (lab.put_letter(&volume, 64), guest.run(&mount));
        mounted.push((volume, letter, mount, id));
    }
    install(&guest);
    for action in ["change", "add"] {
        guest.run(&format!(
            "udevadm trigger --subsystem-match=block --action={action}"
        ));
        settle(&guest);
    }
    guest.run("systemctl daemon-reload");
    for (volume, letter, mount, id) in &mounted {
        assert_eq!(&guest.run(mount), id, "it was mounted anew");
        assert_eq!(&lab.letter(volume), letter);
        lab.leave_volume(volume).await;
    }
    lab.rescan().await;
    let findings = health(&lab);
    assert!(!findings.contains(FINDING), "{findings}");

    // Raw volumes with each kind of contents.
    let mut volumes: Vec<(Inside, &str, Placed)> = Vec::new();
    for (number, (name, _)) in DRIVES.into_iter().enumerate() {
        for inside in Inside::ALL {
            let what = format!("{}-{name}", inside.name());
            let volume = lab.volume_in(name, &what, 64 * MIB, &csi::block()).await;
            lab.serve(&volume).await;
            let device = lab.device(&volume).await;
            inside.write(&guest, &device, &format!("tenant{number}"));
            let output = properties(&guest, &device);
            assert!(output.contains("ID_FS_TYPE=drivebay"), "{output}");
            lab.leave_volume(&volume).await;
            volumes.push((inside, name, volume));
        }
    }
    for (name, layout) in DRIVES {
        let drive = lab.drive_named(name).await.unwrap();
        let output = properties(&guest, &Path::new("/dev").join(drive.kernel_name));
        let mark = format!("DRIVEBAY_DRIVE={layout}");
        assert!(
            output.contains(&mark) && output.contains("ID_SERIAL"),
            "{output}"
        );
    }
    settle(&guest);
    assert_eq!(activated(&guest), Vec::<String>::new(), "by writing it");
    replug(&mut lab).await;
    assert_eq!(activated(&guest), Vec::<String>::new(), "by hotplug");
    assert!(root_has_its_label(&guest));
    lab.agent.stop();
    lab.machine.reboot().unwrap();
    lab.start_again().await;
    for (name, _) in DRIVES {
        lab.drive_named_is(name, "claimed").await;
    }
    settle(&guest);
    assert_eq!(activated(&guest), Vec::<String>::new(), "by a reboot");
    assert!(root_has_its_label(&guest));
    for (volume, letter, ..) in &mounted {
        lab.serve(volume).await;
        assert_eq!(&lab.letter(volume), letter);
        lab.leave_volume(volume).await;
    }

    // Control: without the rule, all of this happens.
    guest.run(&format!("rm {RULE_FILE} && udevadm control --reload"));
    replug(&mut lab).await;
    let active = activated(&guest);
    eprintln!("activated without the rule: {active:?}");
    let arrays = active.iter().filter(|name| name.starts_with("md")).count();
    let groups = active.iter().filter(|name| name.starts_with("tenant"));
    assert_eq!((arrays, groups.count()), (3, 2), "{active:?}");
    let md = |(inside, name, _): &&(Inside, &str, Placed)| {
        matches!(inside, Inside::Md) && *name == DRIVES[0].0
    };
    let held = &volumes.iter().find(md).unwrap().2;
    let refused = lab.csi.delete(&held.id).await.unwrap_err();
    eprintln!("deleting it is refused: {refused:?}");
    lab.rescan().await;
    let findings = health(&lab);
    assert!(findings.contains(FINDING), "{findings}");

    // With the rule again, and after deactivating those contents, all volumes can be deleted.
    install(&guest);
    guest.run("mdadm --stop --scan; for vg in tenant0 tenant2; do vgchange -an $vg; done");
    replug(&mut lab).await;
    assert_eq!(activated(&guest), Vec::<String>::new());
    let all = volumes.iter().map(|(_, _, volume)| volume);
    for volume in all.chain(mounted.iter().map(|(volume, ..)| volume)) {
        persistently(async || lab.csi.delete(&volume.id).await).await;
    }
    lab.all_erased().await;
}
