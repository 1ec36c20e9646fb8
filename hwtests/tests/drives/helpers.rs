//! Helpers that several of these tests use.

use std::{fs::File, os::unix::fs::FileExt, path::Path, process::Output};

use drivebay_hwtests::{MIB, Rig, csi, digest, rig::Placed};
use drivebay_proto::agent;

/// Returns the digest of a drive's file after all writes to its devices have reached it.
pub(crate) fn print(rig: &Rig, name: &str) -> u64 {
    rig.shelf.flush().unwrap();
    digest::of(&rig.shelf.file(name)).unwrap()
}

/// Overwrites bytes with zeros, durably.
pub(crate) fn zero(target: &Path, at: u64, len: u64) {
    let node = File::options().write(true).open(target).unwrap();
    let zeros = vec![0; usize::try_from(len).unwrap()];
    node.write_all_at(&zeros, at).unwrap();
    node.sync_all().unwrap();
}

/// Returns the codes of all reasons that reject a drive.
pub(crate) fn codes(drive: &agent::Drive) -> Vec<&str> {
    let codes = drive.rejects.iter();
    codes.map(|reject| reject.code.as_str()).collect()
}

/// Returns the message of a volume's abnormal condition in ListVolumes.
pub(crate) async fn abnormal(rig: &Rig, id: &str) -> String {
    let entries = rig.csi.list().await.unwrap();
    let entry = entries
        .into_iter()
        .find(|entry| entry.volume.as_ref().is_some_and(|of| of.volume_id == id))
        .unwrap_or_else(|| panic!("ListVolumes does not show {id}"));
    let condition = entry.status.and_then(|status| status.volume_condition);
    let condition = condition.unwrap_or_else(|| panic!("{id} has no condition"));
    assert!(condition.abnormal, "{id} is said to be well: {condition:?}");
    assert!(
        !condition.message.is_empty(),
        "{id} is abnormal without a message"
    );
    condition.message
}

/// Returns an unmounted ext4 volume with a file `letter`.
pub(crate) async fn letter(rig: &Rig, name: &str) -> Placed {
    let volume = rig.volume(name, 64 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&volume).await;
    std::fs::write(volume.target.join("letter"), name).unwrap();
    rig.leave_volume(&volume).await;
    volume
}

/// Verifies the file `letter` of a volume.
pub(crate) async fn read_letter(rig: &Rig, volume: &Placed, name: &str) {
    rig.use_volume(volume).await;
    let letter = std::fs::read_to_string(volume.target.join("letter")).unwrap();
    assert_eq!(letter, name);
    rig.leave_volume(volume).await;
}

/// Runs `drive wipe`, and returns its exit code and output.
pub(crate) fn wipe(rig: &Rig, args: &[&str]) -> (Option<i32>, String) {
    drive_command(rig, "wipe", args)
}

/// Runs a subcommand of `drive`, and returns its exit code and output.
pub(crate) fn drive_command(rig: &Rig, verb: &str, args: &[&str]) -> (Option<i32>, String) {
    let all: Vec<&str> = ["drive", verb].iter().chain(args).copied().collect();
    let Output {
        status,
        stdout,
        stderr,
    } = rig.agent.run_command(&all).unwrap();
    let printed = [stdout, stderr].concat();
    (status.code(), String::from_utf8(printed).unwrap())
}
