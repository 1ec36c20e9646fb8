//! Drives that fail, hang, are slow, are unplugged, return, and exchange kernel names.

use std::time::Duration;

use drivebay_hwtests::{
    GIB, MIB, csi,
    faults::{About, Case},
    lab::{
        DriveSpec, LabRig,
        nbd::{BadSectors, Throttle},
    },
    long,
    rig::Placed,
};

struct Stand {
    lab: LabRig,
    volume: Placed,
    quiet: Placed,
}

impl Stand {
    async fn new() -> Self {
        let drives = vec![
            DriveSpec::scsi("errs", 2 * GIB).served(),
            DriveSpec::scsi("other", GIB),
        ];
        let lab = LabRig::with(drives, "partition").await;
        let volume = lab.volume("told", 1400 * MIB, &csi::block()).await;
        let quiet = lab.volume("quiet", 700 * MIB, &csi::block()).await;
        lab.use_volume(&volume).await;
        lab.use_volume(&quiet).await;
        Self { lab, volume, quiet }
    }

    /// Sectors of the drive at which the second half of the volume begins.
    async fn middle(&self) -> std::ops::Range<u64> {
        let device = self.lab.device(&self.volume).await;
        let name = device.file_name().unwrap().to_str().unwrap().to_owned();
        let output = self
            .lab
            .guest()
            .run(&format!("cat /sys/class/block/{name}/start"));
        let start: u64 = output.trim().parse().unwrap();
        let at = start + self.volume.bytes / 1024;
        at..at + 8
    }

    fn dd(&self, words: &str) -> bool {
        let target = self.volume.target.display();
        let skip = self.volume.bytes / 2 / 4096;
        let script = match words {
            "read" => format!("dd if={target} of=/dev/null bs=4k skip={skip} count=1 iflag=direct"),
            _ => format!(
                "dd if=/dev/zero of={target} bs=4k seek={skip} count=1 oflag=direct conv=notrunc"
            ),
        };
        self.lab.guest().ran(&script).ok()
    }

    fn about<'a>(volumes: &'a [&'a Placed]) -> About<'a> {
        About {
            drives: &["errs"],
            volumes,
        }
    }
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn places_that_do_not_read_or_write() {
    long!();
    for way in ["read", "write"] {
        let stand = Stand::new().await;
        let mut case = Case::new(
            &format!("error on {way}"),
            "eight bad sectors, emulated SCSI",
        );
        let nbd = stand.lab.machine.drive("errs").nbd();
        nbd.fail(BadSectors {
            sectors: stand.middle().await,
            reads: way == "read",
            writes: way == "write",
        });
        case.strikes();
        assert!(!stand.dd(way), "nothing failed");
        let volumes = [&stand.volume];
        let about = Stand::about(&volumes);
        case.of_drive(&stand.lab, "errs", "SUSPECT", "Kernel", about)
            .await;
        let listed = stand.lab.volume_of(&stand.volume.id).await.unwrap();
        assert!(
            listed
                .conditions
                .iter()
                .any(|one| one.reason.ends_with("Errors")),
            "{listed:#?}"
        );
        nbd.heal();
        case.stays("SUSPECT for 24 h without another");
        stand.lab.leave_volume(&stand.volume).await;
        stand.lab.leave_volume(&stand.quiet).await;
    }
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_drive_that_hangs_and_one_that_is_slow() {
    long!();
    let stand = Stand::new().await;
    let mut case = Case::new("slow drive", "2 MiB/s, emulated SCSI");
    let nbd = stand.lab.machine.drive("errs").nbd();
    nbd.throttle(Some(Throttle {
        bytes_per_second: Some(2 * MIB),
        latency: Duration::from_millis(20),
        ..Throttle::default()
    }));
    case.strikes();
    let target = stand.volume.target.display();
    stand.lab.guest().run(&format!(
        "dd if={target} of=/dev/null bs=1M count=32 iflag=direct"
    ));
    case.is_quiet(&stand.lab, "slow is no fault").await;
    nbd.throttle(None);
    drop(case);

    let mut case = Case::new("drive hangs", "no request is answered, emulated SCSI");
    nbd.hang();
    case.strikes();
    let skip = stand.volume.bytes / 2 / 4096;
    stand.lab.guest().run(&format!(
        "systemd-run --quiet --collect dd if={target} of=/dev/null bs=4k skip={skip} count=1 iflag=direct"
    ));
    let volumes = [&stand.volume];
    let about = Stand::about(&volumes);
    case.of_volume(&stand.lab, &stand.volume, "DriveStalled", about)
        .await;
    nbd.resume();
    case.back(&stand.lab, &volumes).await;
    stand.lab.leave_volume(&stand.volume).await;
    stand.lab.leave_volume(&stand.quiet).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn drives_that_go_come_back_and_change_places() {
    long!();
    let mut stand = Stand::new().await;
    let mut case = Case::new("unplugged in use", "device_del, emulated SCSI");
    stand.lab.machine.unplug("errs");
    case.strikes();
    let volume = stand.volume.clone();
    let about = Stand::about(&[]);
    let about = About {
        volumes: &[&volume],
        ..about
    };
    case.of_volume(&stand.lab, &volume, "DriveMissing", about)
        .await;
    stand.lab.leave_volume(&volume).await;
    stand.lab.machine.plug("errs");
    case.back(&stand.lab, &[&volume]).await;
    stand.lab.use_volume(&volume).await;
    stand.lab.leave_volume(&volume).await;
    stand.lab.leave_volume(&stand.quiet).await;
    drop(case);

    // Each gets the kernel name of the other.
    let mut case = Case::new(
        "swapped",
        "two drives come back as each other's sdX, emulated SCSI",
    );
    let name = async |lab: &LabRig, serial: &str| {
        let drive = lab.drive_where(|drive| drive.serial == serial).await;
        drive.unwrap().kernel_name
    };
    let before = (
        name(&stand.lab, "errs").await,
        name(&stand.lab, "other").await,
    );
    for serial in ["errs", "other"] {
        stand.lab.machine.unplug(serial);
        stand
            .lab
            .drive_where_is(serial, "missing", |drive| drive.serial == serial)
            .await;
    }
    case.strikes();
    // The first gets the lower kernel name.
    let mut order = ["other", "errs"];
    if before.0 > before.1 {
        order.reverse();
    }
    for serial in order {
        stand.lab.machine.plug(serial);
        stand
            .lab
            .drive_where_is(serial, "claimed", |drive| drive.serial == serial)
            .await;
    }
    let after = (
        name(&stand.lab, "errs").await,
        name(&stand.lab, "other").await,
    );
    assert_ne!(before, after, "they have their old names");
    case.back(&stand.lab, &[&stand.volume, &stand.quiet]).await;
    stand.lab.use_volume(&stand.volume).await;
    case.is_quiet(&stand.lab, "found by identity, not by name")
        .await;
    stand.lab.leave_volume(&stand.volume).await;
}
