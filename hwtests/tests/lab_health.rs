//! Health on emulated hardware: SMART data, read with the real smartctl, determines the placement of new volumes and the conditions of
//! those on the drive.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::time::Duration;

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{DriveSpec, LabRig},
    wait,
};
use drivebay_proto::agent::Drive;

/// Time limit of a poll: smartctl takes a few seconds in an emulated machine, and more in a busy one.
const EVENT_LIMIT: Duration = Duration::from_secs(180);
/// Critical warning, bit 2: reliability degraded (NVMe base specification, SMART / Health Information).
const UNRELIABLE: u8 = 4;

async fn has_verdict(lab: &LabRig, serial: &str, verdict: &str) -> Drive {
    wait::until_async(EVENT_LIMIT, &format!("{serial} is {verdict}"), async || {
        lab.rescan().await;
        let drive = lab.drive_where(|drive| drive.serial == serial).await?;
        (drive.verdict == verdict).then_some(drive)
    })
    .await
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_drive_that_reports_a_failure_gets_no_new_volumes_and_its_volumes_report_why() {
    let drives = vec![
        DriveSpec::nvme("fails", 2 * GIB),
        DriveSpec::scsi("other", GIB),
    ];
    let mut lab = LabRig::with(drives, "partition").await;
    has_verdict(&lab, "fails", "GOOD").await;
    // Larger than the other drive.
    let volume = lab.volume("on-it", 1200 * MIB, &csi::block()).await;
    lab.use_volume(&volume).await;
    assert_eq!(lab.volume_of(&volume.id).await.unwrap().conditions, []);

    lab.machine.smart_warning("fails", UNRELIABLE);
    let drive = has_verdict(&lab, "fails", "BAD").await;
    assert!(
        drive.all_notes().iter().any(|note| note.contains("eliab")),
        "{drive:#?}"
    );
    let listed = lab.volume_of(&volume.id).await.unwrap();
    let reasons: Vec<_> = listed.conditions.iter().map(|one| &one.reason).collect();
    assert_eq!(reasons, ["DriveFailing"], "{listed:#?}");
    let placed = lab.volume("new", 512 * MIB, &csi::block()).await;
    let on = lab.volume_of(&placed.id).await.unwrap().drive;
    assert_ne!(on, drive.id, "a new volume goes to the drive that is well");

    // A BAD verdict remains until an operator acknowledges it, also if the drive reports no critical warning any more and the agent
    // restarts.
    lab.machine.smart_warning("fails", 0);
    lab.agent.kill9();
    lab.start_again().await;
    let drive = has_verdict(&lab, "fails", "BAD").await;
    assert_eq!(drive.state, "claimed");
    lab.leave_volume(&volume).await;
}
