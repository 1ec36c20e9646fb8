//! The machine of these tests, and steps that several of them share.

use std::path::Path;

use drivebay_hwtests::{
    Csi, GIB, MIB, Settings, csi,
    lab::{
        DriveSpec, Guest, Held, LabRig, Machine, MachineSpec, Writer,
        letters::{LAB_LIMIT, has_no_snapshots, persistently},
    },
    node::Placed,
};
use drivebay_proto::{
    agent::{ListCopiesRequest, VolumeCopy, agent_client::AgentClient},
    csi::{
        GetVolumeGroupSnapshotRequest, Snapshot, VolumeCapability, VolumeContentSource,
        VolumeGroupSnapshot,
    },
};
use tokio::sync::{Mutex, MutexGuard};
use tonic::{Code, Status, transport::Channel};

static LAB: Mutex<Option<LabRig>> = Mutex::const_new(None);

/// Returns the program's one node. Its two drives are in one class; a volume is placed on the emptier one. `other-drive` can be slowed.
pub(crate) async fn lab() -> Held<MutexGuard<'static, Option<LabRig>>> {
    let mut held = Held(LAB.lock().await);
    if let Some(lab) = held.as_mut() {
        lab.node.csi = lab.agent.csi().await.unwrap();
        return held;
    }
    let drives = vec![
        DriveSpec::nvme("first-drive", 3 * GIB),
        DriveSpec::scsi("other-drive", 3 * GIB).served(),
    ];
    let machine = Machine::restored(MachineSpec::new("node1").with(drives)).unwrap();
    let spread = |settings: &mut Settings| "spread".clone_into(&mut settings.placement);
    let lab = LabRig::tuned(machine, "lvm", spread).await;
    lab.are_available(&["first-drive", "other-drive"]).await;
    *held = Some(lab);
    held
}

/// Restarts the agent with further sections of its configuration.
pub(crate) async fn configured(lab: &mut LabRig, more: &str) {
    more.clone_into(&mut lab.agent.settings_mut().more);
    lab.agent.configure();
    lab.start_again().await;
}

pub(crate) async fn client(lab: &LabRig) -> AgentClient<Channel> {
    AgentClient::new(csi::channel(&lab.agent_socket).await.unwrap())
}

pub(crate) async fn volume(lab: &LabRig, name: &str, bytes: u64, how: &VolumeCapability) -> Placed {
    let made = persistently(async || lab.csi.create(name, bytes, how).await).await;
    lab.place(&made, name, how)
}

/// Creates a snapshot, and checks that it is ready when the call returns.
pub(crate) async fn snapshot(
    lab: &LabRig,
    name: &str,
    of: &Placed,
    parameters: &[(&str, &str)],
) -> Snapshot {
    let taken =
        persistently(async || lab.csi.create_snapshot(name, &of.id, parameters).await).await;
    assert!(
        taken.ready_to_use && taken.creation_time.is_some(),
        "{taken:?}"
    );
    assert_eq!(taken.source_volume_id, of.id);
    assert_eq!(u64::try_from(taken.size_bytes), Ok(of.bytes));
    taken
}

/// Creates a volume from a source, repeating the call until it is complete.
pub(crate) async fn copy(
    lab: &LabRig,
    name: &str,
    bytes: u64,
    how: &VolumeCapability,
    source: &VolumeContentSource,
) -> Placed {
    let made = persistently(async || lab.csi.try_create_from(name, bytes, how, source).await).await;
    assert_eq!(made.content_source.as_ref(), Some(source));
    lab.place(&made, name, how)
}

pub(crate) async fn copies(lab: &LabRig) -> Vec<VolumeCopy> {
    let listed = client(lab).await.list_copies(ListCopiesRequest {}).await;
    listed.unwrap().into_inner().copies
}

pub(crate) async fn delete_snapshot(lab: &LabRig, id: &str) {
    persistently(async || lab.csi.delete_snapshot(id).await).await;
}

/// Calls CreateVolumeGroupSnapshot for these volumes once: does not repeat a call that fails.
pub(crate) async fn try_group(
    client: &Csi,
    name: &str,
    of: &[&Placed],
    parameters: &[(&str, &str)],
) -> Result<VolumeGroupSnapshot, Status> {
    let ids: Vec<&str> = of.iter().map(|one| one.id.as_str()).collect();
    client.create_group_snapshot(name, &ids, parameters).await
}

/// Takes a group snapshot of volumes, and checks that all of it is ready when the call returns.
pub(crate) async fn group(
    lab: &LabRig,
    name: &str,
    of: &[&Placed],
    parameters: &[(&str, &str)],
) -> VolumeGroupSnapshot {
    let taken = persistently(async || try_group(&lab.csi, name, of, parameters).await).await;
    assert!(
        taken.ready_to_use && taken.creation_time.is_some(),
        "{taken:?}"
    );
    assert_eq!(taken.snapshots.len(), of.len(), "{taken:?}");
    for one in of {
        let snapshot = member(&taken, one);
        assert!(snapshot.ready_to_use, "{taken:?}");
        assert_eq!(snapshot.group_snapshot_id, taken.group_snapshot_id);
    }
    taken
}

/// Returns the snapshot of a volume in a group.
pub(crate) fn member<'a>(group: &'a VolumeGroupSnapshot, of: &Placed) -> &'a Snapshot {
    let mut all = group.snapshots.iter();
    all.find(|one| one.source_volume_id == of.id)
        .unwrap_or_else(|| panic!("no snapshot of {} in {group:?}", of.id))
}

/// Calls GetVolumeGroupSnapshot; None if the group does not exist.
pub(crate) async fn find_group(
    lab: &LabRig,
    taken: &VolumeGroupSnapshot,
) -> Option<VolumeGroupSnapshot> {
    let members = taken.snapshots.iter().map(|one| one.snapshot_id.clone());
    let request = GetVolumeGroupSnapshotRequest {
        group_snapshot_id: taken.group_snapshot_id.clone(),
        snapshot_ids: members.collect(),
        ..Default::default()
    };
    let mut groups = lab.csi.group_controller();
    match groups.get_volume_group_snapshot(request).await {
        Ok(answer) => answer.into_inner().group_snapshot,
        Err(status) if status.code() == Code::NotFound => None,
        Err(status) => panic!("GetVolumeGroupSnapshot: {status:?}"),
    }
}

pub(crate) async fn delete_group(lab: &LabRig, group: &VolumeGroupSnapshot) {
    persistently(async || lab.csi.delete_group_snapshot(group).await).await;
}

/// Returns the path of a snapshot's device.
pub(crate) fn snapshot_device(guest: &Guest, id: &str) -> String {
    let uuid = id.split('@').next().unwrap_or_default().replace('-', "--");
    let nodes = guest.run(&format!(
        "for dm in /sys/block/dm-*; do case $(cat $dm/dm/name) in *-drivebay--snap--{uuid}) echo /dev/${{dm##*/}};; esac; done"
    ));
    assert_eq!(
        nodes.lines().count(),
        1,
        "devices of snapshot {id}: {nodes:?}"
    );
    nodes.trim().to_owned()
}

/// Returns the names of the suspended device-mapper devices.
pub(crate) fn suspended(guest: &Guest) -> Vec<String> {
    // A device that was removed meanwhile is not suspended. For any other one a failed read is an error.
    let output = guest.run(
        "for dm in /sys/block/dm-*/dm; do if state=$(cat $dm/suspended); then [ $state = 0 ] || cat $dm/name; \
         elif [ -d $dm ]; then exit 1; fi; done",
    );
    output.lines().map(str::to_owned).collect()
}

/// Waits until no device is suspended.
pub(crate) fn nothing_is_suspended(guest: &Guest) {
    guest.wait_until(LAB_LIMIT, "no device is suspended", |guest| {
        suspended(guest).is_empty().then_some(())
    });
}

/// Unpublishes, unstages and deletes a volume.
pub(crate) async fn delete(lab: &LabRig, of: &Placed) {
    let (csi, id) = (&lab.csi, &of.id);
    persistently(async || csi.unpublish(id, &of.target).await).await;
    persistently(async || csi.unstage(id, &of.staging).await).await;
    persistently(async || csi.delete(id).await).await;
}

/// Waits until no snapshot is left, and nothing is being erased.
pub(crate) async fn nothing_is_left(lab: &LabRig) {
    has_no_snapshots(lab.guest());
    lab.all_erased().await;
}

pub(crate) async fn fs_uuid(lab: &LabRig, of: &Placed) -> String {
    let device = lab.device(of).await;
    let script = format!("blkid -p -s UUID -o value {}", device.display());
    lab.guest().run(&script).trim().to_owned()
}

/// Returns the size of a published volume's filesystem, bytes.
pub(crate) async fn total(lab: &LabRig, of: &Placed) -> i64 {
    let stats = lab.csi.stats(&of.id, &of.target).await.unwrap();
    stats.usage[0].total
}

/// Returns the digest of the first `bytes` of a published raw volume, read with O_DIRECT.
pub(crate) fn digest(lab: &LabRig, of: &Placed, bytes: u64) -> String {
    let (target, count) = (of.target.display(), bytes / MIB);
    let script = format!("dd if={target} bs=1M count={count} iflag=direct status=none | sha256sum");
    lab.guest().run_pipes(&script).trim().to_owned()
}

/// Returns the number of lines that the writer has synced. Later lines may be in a snapshot or not.
pub(crate) fn synced(writer: &Writer) -> usize {
    writer.lines().saturating_sub(1)
}

/// Checks the lines of a copy: they begin with the first, none is missing, only the last may be incomplete, and at least `synced` are
/// complete. Returns the number of complete lines.
pub(crate) fn lines(lab: &LabRig, dir: &Path, synced: usize) -> usize {
    let text = lab.guest().read(&dir.join("lines"));
    let text = String::from_utf8_lossy(&text);
    let (whole, rest) = text.rsplit_once('\n').unwrap_or(("", &*text));
    let whole: Vec<&str> = whole.lines().collect();
    for (line, number) in whole.iter().zip(1..) {
        assert_eq!(*line, format!("line {number}"));
    }
    let next = format!("line {}", whole.len() + 1);
    assert!(next.starts_with(rest), "behind the last line is {rest:?}");
    assert!(
        whole.len() >= synced,
        "{} lines, and {synced} were synced before",
        whole.len()
    );
    whole.len()
}
