//! Shared by the tests of discovery: the booted machine with every kind of drive, and the selection of drives by name.

use std::time::Duration;

use drivebay_hwtests::{
    MIB, Settings, csi,
    lab::{DriveSpec, LabRig, Machine, MachineSpec, drives::TRUST_EUI},
    node::{Node, Placed},
    wait,
};
use drivebay_proto::{agent::Drive, csi::CreateVolumeRequest};
use tokio::sync::{Mutex, MutexGuard};

use super::{kinds, refused};

/// Time limit for an event to be in the inventory; shorter than the interval of the periodic scan, five minutes.
pub(crate) const EVENT_LIMIT: Duration = Duration::from_secs(60);

static BOOTED: Mutex<Option<LabRig>> = Mutex::const_new(None);

/// Returns the machine that was booted with every kind of drive, blank ones and drives in use, with an agent. It is shared by the program's
/// tests.
pub(crate) async fn booted() -> MutexGuard<'static, Option<LabRig>> {
    let mut held = BOOTED.lock().await;
    match held.as_mut() {
        // A connection belongs to the runtime of the test that made it.
        Some(lab) => lab.node.csi = lab.agent.csi().await.unwrap(),
        None => {
            let mut spec = MachineSpec::new("node1")
                .with(kinds::drives())
                .with(refused::drives());
            spec.args = refused::odd_drives();
            let machine = Machine::boot(spec).unwrap();
            machine.guest().run(TRUST_EUI);
            refused::prepare(&machine);
            *held = Some(LabRig::on(machine, "partition").await);
        }
    }
    held
}

/// Returns a predicate for the drive of this name, which is its serial number.
pub(crate) fn named(name: &str) -> impl Fn(&Drive) -> bool + Copy {
    move |drive: &Drive| drive.serial == name
}

/// Returns the codes of the reasons for which a drive is refused.
pub(crate) fn codes(drive: &Drive) -> Vec<&str> {
    drive
        .rejects
        .iter()
        .map(|reject| reject.code.as_str())
        .collect()
}

/// Adds a second class: drives whose names end with "-lv" get layout `lvm`, the others `partition`.
pub(crate) fn both_layouts(settings: &mut Settings) {
    settings.more = "\n[[class]]\nname = \"lv\"\nlayout = \"lvm\"\nfs = \"ext4\"\npriority = 1\n\n\
                     [class.select]\ndrive = [\"*-lv\"]\n"
        .to_owned();
}

/// Creates a volume of a class.
pub(crate) async fn volume(node: &Node, name: &str, class: &str, bytes: u64) -> Placed {
    let capability = csi::mount("ext4");
    let request = CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(csi::bytes(bytes)),
        volume_capabilities: vec![capability.clone()],
        parameters: [("class".to_owned(), class.to_owned())].into(),
        ..CreateVolumeRequest::default()
    };
    let volume = node.csi.create_with(request).await.unwrap();
    node.place(&volume, name, &capability)
}

/// Returns a restored machine with these drives, and an agent of both layouts that lists all of them as available.
pub(crate) async fn rig(drives: Vec<DriveSpec>) -> LabRig {
    let names: Vec<String> = drives.iter().map(|drive| drive.name().to_owned()).collect();
    let machine = Machine::restored(MachineSpec::new("node1").with(drives)).unwrap();
    let lab = LabRig::tuned(machine, "partition", |settings| {
        both_layouts(settings);
        // Each drive is probed every minute: with the default idle time, a minute, the worker of a claimed one would never end.
        settings.more.push_str("\n[workers]\nidle = \"3s\"\n");
    })
    .await;
    for name in &names {
        lab.drive_where_is(name, "available", named(name)).await;
    }
    lab
}

/// Stages and publishes a volume. Repeats staging while it fails, such as during a probe of the drive, as the kubelet does.
pub(crate) async fn use_volume(lab: &LabRig, volume: &Placed) {
    let csi = &lab.node.csi;
    wait::until_async(EVENT_LIMIT, "the volume is staged", async || {
        let staged = csi
            .stage(&volume.id, &volume.staging, &volume.capability)
            .await;
        staged.inspect_err(|why| println!("{why}")).ok()
    })
    .await;
    lab.publish(volume).await;
}

/// Class and name of a drive of each layout.
pub(crate) const BOTH: [(&str, &str); 2] = [("demo", "scsi-part"), ("lv", "scsi-in-lv")];

/// Plugs a drive in, and creates a volume on it.
pub(crate) async fn volume_on_new(lab: &mut LabRig, class: &str, name: &str) -> Placed {
    lab.machine.add(DriveSpec::scsi(name, 256 * MIB));
    lab.drive_where_is(name, "available", named(name)).await;
    volume(lab, name, class, 100 * MIB).await
}

/// Uses a volume, expands it, unplugs its drive and plugs it in again, deletes it, and waits until it is erased.
pub(crate) async fn is_used_to_its_end(lab: &mut LabRig, drive: &str, made: &Placed) {
    let guest = lab.guest().clone();
    use_volume(lab, made).await;
    let letter = made.target.join("letter");
    // Read and written in the host's mount namespace.
    guest.write(&letter, b"dear reader");
    lab.csi
        .expand(&made.id, 120 * MIB, &made.capability)
        .await
        .unwrap();
    lab.csi
        .node_expand(&made.id, &made.target, 120 * MIB)
        .await
        .unwrap();
    lab.leave_volume(made).await;

    let id = lab.drive_where(named(drive)).await.unwrap().id;
    lab.machine.unplug(drive);
    lab.drive_where_is(drive, "missing", |drive| drive.id == id)
        .await;
    lab.machine.plug(drive);
    lab.drive_where_is(drive, "claimed", named(drive)).await;

    use_volume(lab, made).await;
    assert_eq!(guest.read(&letter), b"dear reader");
    lab.leave_volume(made).await;
    lab.csi.delete(&made.id).await.unwrap();
    lab.erased().await;
}

/// Lists device-mapper devices, their names, and the number of kubelet mounts, which must be the same after volumes were deleted.
pub(crate) fn traces(lab: &LabRig) -> String {
    let all = "dmsetup ls; ls /dev/mapper; grep -c /kubelet/ /proc/self/mountinfo || true";
    lab.guest().run(all)
}

/// Plugs drives in, and uses a volume of each layout until it is deleted. Then no mount, mapped device or name of one is left.
pub(crate) async fn uses_both_layouts(lab: &mut LabRig) {
    let before = traces(lab);
    for (class, name) in BOTH {
        let made = volume_on_new(lab, class, name).await;
        is_used_to_its_end(lab, name, &made).await;
    }
    assert_eq!(traces(lab), before);
}
