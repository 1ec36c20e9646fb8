#![allow(clippy::unwrap_used)]

use super::*;
use crate::keeper::tests::rig;
use drivebay_model::{Cause, DriveState, FsType, samples};

fn placed(mounted: bool) -> Placed {
    let state = RecordState::Fs {
        fs_type: FsType::Ext4,
        fs_uuid: Uuid::from_u128(9),
        mounted,
    };
    samples::placed(7, state)
}

fn gone() -> FsError {
    FsError::FilesystemGone {
        uuid: Uuid::from_u128(7),
        fs_type: FsType::Ext4,
        device: "sda2".into(),
        advice: "Look at it".into(),
    }
}

fn mount_failed(errno: i32) -> FsError {
    FsError::Mount {
        device: "sda2".into(),
        path: "/staging".into(),
        has_options: false,
        hint: "hint".into(),
        damage: None,
        source: Cause::from(std::io::Error::from_raw_os_error(errno)),
    }
}

#[test]
fn what_a_failed_stage_shows_is_a_condition_and_what_the_caller_requested_is_none() {
    let is = |error: &FsError, mounted| {
        let condition = of_failed_stage(error, &placed(mounted))?;
        Some((condition.reason, condition.status))
    };
    let replaced = FsError::Unexpected {
        uuid: Uuid::from_u128(7),
        device: "sda2".into(),
        found: "xfs".into(),
        expected: "ext4".into(),
    };
    for error in [gone(), replaced] {
        let lost = Some((Reason::FilesystemNotFound, Status::DataLoss));
        assert_eq!(is(&error, true), lost);
        let never_used = Some((Reason::FilesystemNotFound, Status::Inaccessible));
        assert_eq!(is(&error, false), never_used);
    }
    let damaged = Some((Reason::FilesystemCorrupted, Status::DataLoss));
    assert_eq!(is(&mount_failed(libc::EUCLEAN), true), damaged);
    let unreadable = Some((Reason::Unreadable, Status::Inaccessible));
    assert_eq!(is(&mount_failed(libc::EIO), true), unreadable);
    // Options that it does not take, a path that is not there, a kernel that does not know a feature.
    for errno in [libc::EINVAL, libc::ENOENT, libc::EBUSY, libc::EPERM] {
        assert_eq!(is(&mount_failed(errno), true), None, "{errno}");
    }
    let mut refused = mount_failed(libc::EINVAL);
    if let FsError::Mount { damage, .. } = &mut refused {
        *damage = Some("XFS (sda2): SB validate failed with error -22.".into());
    }
    assert_eq!(is(&refused, true), damaged);
    let option = FsError::Option {
        option: "foo".into(),
        why: "unknown".into(),
    };
    assert_eq!(is(&option, true), None);
}

#[tokio::test]
async fn a_volume_has_what_calls_found_until_a_call_finds_otherwise() {
    let rig = rig("exit 1").await;
    let on_it = samples::contents(1, 1, vec![placed(true)], 0);
    let drive = samples::drive("sda", DriveState::Claimed, Some(on_it));
    rig.scanned([drive]);
    let uuid = Uuid::from_u128(7);
    let reasons = || {
        let snapshot = rig.inventory.current();
        let conditions = snapshot.volumes[&uuid].conditions.iter();
        conditions.map(|one| one.reason).collect::<Vec<_>>()
    };
    let volumes = &rig.volumes;
    volumes.learn_from_failed_stage(&placed(true), &gone());
    assert_eq!(reasons(), [Reason::FilesystemNotFound]);
    // Options that the kernel refuses are no evidence about the volume.
    volumes.learn_from_failed_stage(&placed(true), &mount_failed(libc::EINVAL));
    assert_eq!(reasons(), [Reason::FilesystemNotFound]);
    let failed = Growth::Failed {
        why: "resize2fs: no".into(),
    };
    volumes.learn_from_stage(uuid, &failed);
    assert_eq!(reasons(), [Reason::FilesystemNotGrown]);
    // Repeated while it is mounted, and not compared with its device.
    volumes.learn_from_stage(uuid, &Growth::NotTried);
    assert_eq!(reasons(), [Reason::FilesystemNotGrown]);
    volumes.learn_from_growing(uuid, None);
    assert_eq!(reasons(), []);
    volumes.learn_from_growing(uuid, Some("xfs_growfs: no"));
    assert_eq!(reasons(), [Reason::FilesystemNotGrown]);
    volumes.learn_from_stage(uuid, &Growth::Fits);
    assert_eq!(reasons(), []);
    rig.end().await;
}
