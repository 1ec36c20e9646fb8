//! One machine for these tests, and what several of them do.

use std::path::Path;

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{
        DriveSpec, Guest, Held, LabRig, Machine, MachineSpec, Writer,
        letters::{LAB_LIMIT, persistently},
    },
    node::Placed,
};
use drivebay_proto::{
    agent::{ListCopiesRequest, VolumeCopy, agent_client::AgentClient},
    csi::{Snapshot, VolumeCapability, VolumeContentSource},
};
use tokio::sync::{Mutex, MutexGuard};
use tonic::transport::Channel;

static LAB: Mutex<Option<LabRig>> = Mutex::const_new(None);

/// The program's one node, with two drives of one class.
pub(crate) async fn lab() -> Held<MutexGuard<'static, Option<LabRig>>> {
    let mut held = Held(LAB.lock().await);
    if let Some(lab) = held.as_mut() {
        lab.node.csi = lab.agent.csi().await.unwrap();
        return held;
    }
    let drives = ["first-drive", "other-drive"].map(|name| DriveSpec::nvme(name, 3 * GIB));
    let machine = Machine::restored(MachineSpec::new("node1").with(drives.into())).unwrap();
    let lab = LabRig::on(machine, "lvm").await;
    lab.are_available(&["first-drive", "other-drive"]).await;
    *held = Some(lab);
    held
}

/// Starts the agent anew with further sections of its configuration.
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

/// Takes a snapshot, which is ready when it is answered.
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

/// Makes a volume of a source, as often as it takes.
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

/// Deletes a volume, in use or not.
pub(crate) async fn delete(lab: &LabRig, of: &Placed) {
    let (csi, id) = (&lab.csi, &of.id);
    persistently(async || csi.unpublish(id, &of.target).await).await;
    persistently(async || csi.unstage(id, &of.staging).await).await;
    persistently(async || csi.delete(id).await).await;
}

/// Whatever LVM and the kernel have of snapshots, also of those that are being taken away.
fn litter(guest: &Guest) -> String {
    guest.run(
        "{ lvs --noheadings -a -o lv_name; dmsetup ls; } | grep -e snap -e check -e '-real' -e '-cow' || true",
    )
}

/// Waits until nothing of any snapshot is left, and nothing is being erased.
pub(crate) async fn nothing_is_left(lab: &LabRig) {
    let guest = lab.guest();
    guest.wait_until(LAB_LIMIT, "snapshots are gone", |guest| {
        litter(guest).trim().is_empty().then_some(())
    });
    lab.all_erased().await;
}

pub(crate) async fn fs_uuid(lab: &LabRig, of: &Placed) -> String {
    let device = lab.device(of).await;
    let script = format!("blkid -p -s UUID -o value {}", device.display());
    lab.guest().run(&script).trim().to_owned()
}

/// How many bytes its filesystem has.
pub(crate) async fn total(lab: &LabRig, of: &Placed) -> i64 {
    let stats = lab.csi.stats(&of.id, &of.target).await.unwrap();
    stats.usage[0].total
}

/// The digest of what a published raw volume holds, read from the drive.
pub(crate) fn digest(lab: &LabRig, of: &Placed, bytes: u64) -> String {
    let (target, count) = (of.target.display(), bytes / MIB);
    let script = format!("dd if={target} bs=1M count={count} iflag=direct status=none | sha256sum");
    lab.guest().run(&script).trim().to_owned()
}

/// Lines that the writer has synced by now: what comes later is in a snapshot or not.
pub(crate) fn synced(writer: &Writer) -> usize {
    writer.lines().saturating_sub(1)
}

/// A copy's lines begin with the first, none is missing, the last may be cut, and as many are there as had been synced. Answers with
/// how many are whole.
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
