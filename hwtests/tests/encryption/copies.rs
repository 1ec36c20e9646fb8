//! Clones and snapshots of encrypted volumes.

use std::{fs::File, io::Write};

use drivebay_hwtests::{DriveSpec, GIB, MIB, Rig, csi, need, node::Placed, settings::layout, wait};
use drivebay_proto::csi::{self as wire, VolumeContentSource};
use tonic::Code;

use crate::{
    KEY, LIMIT, WRONG, encrypted, headers_in, holds, is_block, mapped, put, request, stage, use_it,
};

/// Creates a copy as large as requested; a call that is put off is repeated.
pub(crate) async fn copied(
    rig: &Rig,
    name: &str,
    of: &Placed,
    bytes: u64,
    from: &VolumeContentSource,
) -> Placed {
    let what = format!("copy {name} is created");
    let made = wait::until_async(LIMIT, &what, async || {
        let request = wire::CreateVolumeRequest {
            volume_content_source: Some(from.clone()),
            ..request(name, bytes, &of.capability)
        };
        match rig.csi.create_with(request).await {
            Err(status) if status.code() == Code::Aborted => None,
            answer => Some(answer.unwrap()),
        }
    });
    rig.place(&made.await, name, &of.capability)
}

#[tokio::test]
async fn a_clone_is_opened_by_its_sources_secret_and_has_a_header_of_its_own() {
    need!(root, loop, crypt, tool "cryptsetup", tool "mkfs.xfs", fs "ext4", fs "xfs");
    let rig = Rig::with(vec![DriveSpec::blank("a", 3 * GIB)]).await;
    for (name, bytes, capability) in [
        ("ext4", 64 * MIB, csi::mount("ext4")),
        ("xfs", 320 * MIB, csi::mount("xfs")),
        ("block", 64 * MIB, csi::block()),
    ] {
        let volume = encrypted(&rig, name, bytes, &capability).await;
        let of = csi::from_volume(&volume.id);
        // A source without a header: the copy gets its own, as a new volume does.
        let empty = copied(&rig, &format!("{name}-empty"), &volume, bytes, &of).await;
        use_it(&rig, &empty).await;
        rig.leave_volume(&empty).await;

        use_it(&rig, &volume).await;
        put(&volume);
        // Layout partition copies a volume only while it is not staged.
        if layout() == "partition" {
            rig.leave_volume(&volume).await;
        }
        let clone = copied(&rig, &format!("{name}-clone"), &volume, 2 * bytes, &of).await;
        // A copy of a copy that was never staged: its header still has the first one's UUID.
        let from = csi::from_volume(&clone.id);
        let second = copied(&rig, &format!("{name}-second"), &clone, 2 * bytes, &from).await;
        let refused = stage(&rig, &clone, &[(KEY, WRONG)]).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
        if layout() == "partition" {
            use_it(&rig, &volume).await;
        }
        for copy in [&clone, &second] {
            use_it(&rig, copy).await;
            assert!(holds(copy), "{name}");
            if !is_block(copy) {
                let stats = rig.csi.stats(&copy.id, &copy.target).await.unwrap();
                assert!(stats.usage[0].total.unsigned_abs() > bytes, "{name}");
            }
        }
        assert_eq!(mapped().len(), 3, "side by side: {:?}", mapped());
        put(&clone);
        assert!(holds(&volume) && holds(&second), "{name}");
        for one in [volume, clone, second, empty] {
            rig.leave_volume(&one).await;
            rig.csi.delete(&one.id).await.unwrap();
        }
        rig.shelf.flush().unwrap();
        assert_eq!(headers_in(&rig.shelf.file("a")), 0, "{name}");
        rig.erased().await;
    }
}

#[tokio::test]
async fn a_snapshot_of_an_encrypted_volume_is_restored_and_outlives_what_is_written_since() {
    need!(root, loop, crypt, layout "lvm", tool "cryptsetup", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    for (name, capability) in [("files", csi::mount("ext4")), ("raw", csi::block())] {
        let volume = encrypted(&rig, name, 64 * MIB, &capability).await;
        if is_block(&volume) {
            let early = rig.csi.create_snapshot("early", &volume.id, &[]).await;
            let early = early.unwrap_err();
            assert_eq!(early.code(), Code::FailedPrecondition, "{early:?}");
            assert!(early.message().contains("first stage"), "{early:?}");
        }
        use_it(&rig, &volume).await;
        put(&volume);
        let taken = rig
            .csi
            .create_snapshot(name, &volume.id, &[])
            .await
            .unwrap();
        assert_eq!(taken.size_bytes, 64 << 20, "the header is not its user's");
        overwrite(&volume);
        assert!(!holds(&volume));

        let from = csi::from_snapshot(&taken.snapshot_id);
        let restored = format!("{name}-restored");
        let copy = copied(&rig, &restored, &volume, 64 * MIB, &from).await;
        let refused = rig.csi.delete(&volume.id).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
        rig.csi.delete_snapshot(&taken.snapshot_id).await.unwrap();
        // Also without its source.
        rig.leave_volume(&volume).await;
        rig.csi.delete(&volume.id).await.unwrap();
        use_it(&rig, &copy).await;
        assert!(holds(&copy), "{name}");
        rig.leave_volume(&copy).await;
        rig.csi.delete(&copy.id).await.unwrap();
        rig.erased().await;
    }
}

/// Replaces the words in a published volume, durably.
fn overwrite(volume: &Placed) {
    let at = match is_block(volume) {
        true => volume.target.clone(),
        false => volume.target.join("letter"),
    };
    let mut file = File::options().write(true).open(at).unwrap();
    file.write_all(&[7; 4096]).unwrap();
    file.sync_all().unwrap();
}

#[tokio::test]
async fn neither_an_encrypted_copy_of_a_plain_volume_nor_the_reverse_is_created() {
    need!(root, loop, crypt, tool "cryptsetup", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    let capability = csi::mount("ext4");
    let cipher = encrypted(&rig, "cipher", 64 * MIB, &capability).await;
    let plain = rig.volume("plain", 64 * MIB, &capability).await;
    let mut decrypting = wire::CreateVolumeRequest {
        volume_content_source: Some(csi::from_volume(&cipher.id)),
        ..request("copy", 64 * MIB, &capability)
    };
    decrypting.parameters.clear();
    let encrypting = wire::CreateVolumeRequest {
        volume_content_source: Some(csi::from_volume(&plain.id)),
        ..request("copy", 64 * MIB, &capability)
    };
    for (request, why) in [
        (decrypting, "what is copied is encrypted"),
        (encrypting, "what is copied is not encrypted"),
    ] {
        let refused = rig.csi.create_with(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().contains(why), "{refused:?}");
    }
}
