//! Ends of snapshots: by an overflow, which affects only the snapshot, and by deletion, with all stored data erased.

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{LabRig, letters::LAB_LIMIT},
    long,
    node::Placed,
    wait,
};
use tonic::Code;

use super::helpers::{delete, delete_snapshot, lab, nothing_is_left, snapshot, volume};

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshot_that_overflows_is_not_ready_and_not_restored_and_its_volume_is_untouched() {
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let how = csi::mount("ext4");
    let first = volume(lab, "overflowing", 128 * MIB, &how).await;
    lab.serve(&first).await;
    let letter = lab.put_letter(&first, 512);
    // The smallest possible reserve.
    let taken = snapshot(lab, "overflows", &first, &[("reserve", "1%")]).await;
    let big = first.target.join("big").display().to_string();
    let guest = lab.guest();
    guest.run(&format!(
        "dd if=/dev/urandom of={big} bs=1M count=48 conv=fsync status=none"
    ));
    let written = guest.run(&format!("sha256sum <{big}"));
    wait::until_async(LAB_LIMIT, "it is not ready", async || {
        lab.rescan().await;
        let listed = lab.csi.list_snapshots(&first.id).await.ok()?;
        let one = listed.into_iter().next()?;
        (!one.ready_to_use).then_some(())
    })
    .await;
    let current = lab.volume_of(&first.id).await.unwrap();
    let one = &current.snapshots[0];
    assert_eq!(one.state, "overflowed", "{one:?}");
    assert!(!one.message.is_empty(), "{one:?}");
    let source = csi::from_snapshot(&taken.snapshot_id);
    let refused = lab
        .csi
        .try_create_from("of-nothing", 128 * MIB, &how, &source);
    let refused = refused.await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let volumes = lab.inventory().await.volumes;
    let made = volumes.iter().find(|one| one.name == "of-nothing");
    assert!(made.is_none(), "{made:?}");

    // The volume is not affected.
    lab.leave_volume(&first).await;
    lab.serve(&first).await;
    assert_eq!(lab.letter(&first), letter);
    assert_eq!(guest.run(&format!("sha256sum <{big}")), written);
    lab.put_letter(&first, 512);
    delete_snapshot(lab, &taken.snapshot_id).await;
    delete(lab, &first).await;
    nothing_is_left(lab).await;
}

/// Checks that all free space of the volume's drive reads as zeros.
pub(crate) async fn free_space_is_zero(lab: &LabRig, of: &Placed) {
    let drive = lab.volume_of(&of.id).await.unwrap().drive;
    let drive = lab.drive_where(|one| one.id == drive).await.unwrap();
    let node = format!("/dev/{}", drive.kernel_name);
    let guest = lab.guest();
    // Free segments have no LV.
    let free = guest.run(&format!(
        "pvs --noheadings --segments --units b --nosuffix -o pvseg_start,pvseg_size,lv_name,vg_extent_size,pe_start {node} | awk 'NF==4 {{printf \"%.0f %.0f\\n\", $4+$1*$3, $2*$3}}'"
    ));
    let mut checked = 0;
    for row in free.lines() {
        let numbers: Vec<u64> = row
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        let [start, len] = numbers.as_slice() else {
            panic!("{row}")
        };
        checked += len;
        // In parts: the guest is slow.
        const PIECE: u64 = 128 * MIB;
        for at in (*start..start + len).step_by(PIECE as usize) {
            let bytes = PIECE.min(start + len - at);
            guest.run(&format!(
                "dd if={node} bs=1M skip={} count={} iflag=direct status=none | cmp -n {bytes} - /dev/zero",
                at / MIB,
                bytes / MIB
            ));
        }
    }
    assert!(checked >= GIB, "{free}");
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn nothing_of_what_a_deleted_snapshot_stored_is_on_the_drive() {
    long!();
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let first = volume(lab, "secretive", 256 * MIB, &csi::mount("ext4")).await;
    lab.serve(&first).await;
    let secret = first.target.join("secret").display().to_string();
    let guest = lab.guest();
    guest.run(&format!(
        "head -c 16M /dev/zero | tr '\\0' S >{secret}; sync -f {secret}"
    ));
    let taken = snapshot(lab, "secretive", &first, &[("reserve", "100%")]).await;
    // Data that is overwritten now is stored in the snapshot.
    guest.run(&format!(
        "dd if=/dev/zero of={secret} bs=1M count=16 conv=notrunc,fsync status=none"
    ));
    let device = "/dev/mapper/$(dmsetup ls | awk '/-cow/ { print $1 }')";
    let stored = guest.run(&format!(
        "dd if={device} bs=1M iflag=direct status=none | tr -dc S | wc -c"
    ));
    let stored: u64 = stored.trim().parse().unwrap();
    assert!(
        stored >= 16 * MIB,
        "{stored} bytes of the secret are stored"
    );
    delete_snapshot(lab, &taken.snapshot_id).await;
    nothing_is_left(lab).await;
    free_space_is_zero(lab, &first).await;
    delete(lab, &first).await;
    nothing_is_left(lab).await;
}
