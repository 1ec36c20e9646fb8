//! The lab's drives: each one appears as requested, and a standard tool detects each fault.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    fs,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    MIB,
    lab::{
        DriveError, DriveSpec, Guest, Held, Kind, LabDrive, Machine, MachineSpec, Qmp, drives,
        drives::TRUST_EUI,
        nbd::{BadSectors, Throttle},
        qmp::SOON,
        rundir::RunDir,
    },
    wait,
};
use serde_json::Value;

const SIZE: u64 = 64 * MIB;
const SCSI_WWN: u64 = 0x5000_c500_1234_5678;
const SATA_WWN: u64 = 0x5000_c500_8765_4321;
const EUI: u64 = 0x0025_38b1_0000_0042;
const EVENT_LIMIT: Duration = Duration::from_secs(60);

/// A machine, the drives with which it was booted, and the directory of their files.
struct Stand {
    machine: Machine,
    qmp: Qmp,
    drives: Vec<LabDrive>,
    run: RunDir,
}

static STAND: Mutex<Option<Stand>> = Mutex::new(None);

/// Returns the machine shared by this program's tests, with a drive of every kind.
fn stand() -> Held<MutexGuard<'static, Option<Stand>>> {
    let mut stand = Held(STAND.lock().unwrap_or_else(PoisonError::into_inner));
    if stand.is_none() {
        let run = RunDir::new("shelf").unwrap();
        let dir = run.file("");
        let drives = vec![
            DriveSpec::nvme("n1", SIZE).serial("NV-1").served(),
            DriveSpec::nvme("e1", SIZE)
                .eui64(EUI)
                .sector(4096, 4096)
                .slot(5),
            DriveSpec::scsi("s1", SIZE)
                .wwn(SCSI_WWN)
                .model("Disk 9000")
                .firmware("F1.2")
                .rotating(7200)
                .served(),
            DriveSpec::scsi("s4", SIZE).sector(4096, 4096),
            DriveSpec::sata("a1", SIZE)
                .wwn(SATA_WWN)
                .model("SATA model X")
                .firmware("FW7")
                .sector(512, 4096)
                .served(),
            DriveSpec::virtio("v1", SIZE).served(),
        ];
        let drives: Vec<LabDrive> = drives
            .into_iter()
            .map(|spec| spec.make(&dir).unwrap())
            .collect();
        let (machine, qmp) = boot("shelf", &drives.iter().collect::<Vec<_>>());
        *stand = Some(Stand {
            machine,
            qmp,
            drives,
            run,
        });
    }
    stand
}

fn boot(node: &str, drives: &[&LabDrive]) -> (Machine, Qmp) {
    let mut spec = MachineSpec::new(node);
    spec.args = drives::boot_args(drives).unwrap();
    let machine = Machine::boot(spec).unwrap();
    let qmp = Qmp::connect(&machine.qmp_socket(), SOON).unwrap();
    (machine, qmp)
}

impl Stand {
    fn drive(&self, name: &str) -> &LabDrive {
        self.drives
            .iter()
            .find(|drive| drive.name() == name)
            .unwrap()
    }

    /// Returns the served drives, one of each kind, with their devices in the guest.
    fn served(&self) -> Vec<(&LabDrive, String)> {
        [("n1", "NV-1"), ("s1", "s1"), ("a1", "a1"), ("v1", "v1")]
            .map(|(name, serial)| (self.drive(name), device(self.machine.guest(), serial)))
            .to_vec()
    }
}

/// Returns the properties that the guest reports of the drive with this serial number.
fn block_device(guest: &Guest, serial: &str) -> Option<Value> {
    let columns = "NAME,SIZE,SERIAL,WWN,MODEL,REV,ROTA,LOG-SEC,PHY-SEC,TRAN,TYPE";
    let listed = guest.run(&format!("lsblk --nodeps --bytes --json -o {columns}"));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let mut devices = listed["blockdevices"].as_array().unwrap().iter();
    devices.find(|device| device["serial"] == serial).cloned()
}

fn device(guest: &Guest, serial: &str) -> String {
    let drive =
        block_device(guest, serial).unwrap_or_else(|| panic!("no drive {serial} in the guest"));
    format!("/dev/{}", drive["name"].as_str().unwrap())
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn each_kind_of_drive_appears_as_it_was_requested() {
    let stand = stand();
    let stand = stand.as_ref().unwrap();
    let guest = stand.machine.guest();
    guest.run(TRUST_EUI);
    let scsi = format!("0x{SCSI_WWN:016x}");
    let sata = format!("0x{SATA_WWN:016x}");
    let eui = format!("eui.{EUI:016x}");
    // Serial, WWN, model, firmware, rotational, logical and physical sector, transport.
    let nvme = "QEMU NVMe Ctrl";
    for (serial, wwn, model, firmware, turns, logical, physical, transport) in [
        (
            "NV-1",
            None,
            Some(nvme),
            None,
            false,
            512,
            512,
            Some("nvme"),
        ),
        (
            "e1",
            Some(eui),
            Some(nvme),
            None,
            false,
            4096,
            4096,
            Some("nvme"),
        ),
        (
            "s1",
            Some(scsi),
            Some("Disk 9000"),
            Some("F1.2"),
            true,
            512,
            512,
            None,
        ),
        ("s4", None, None, None, false, 4096, 4096, None),
        (
            "a1",
            Some(sata),
            Some("SATA model X"),
            Some("FW7"),
            false,
            512,
            4096,
            Some("sata"),
        ),
        ("v1", None, None, None, true, 512, 512, Some("virtio")),
    ] {
        let drive = wait::until(EVENT_LIMIT, serial, || block_device(guest, serial));
        let text = |key: &str| drive[key].as_str().map(str::trim);
        assert_eq!(drive["size"], SIZE, "{drive}");
        assert_eq!(drive["rota"], turns, "{drive}");
        assert_eq!(drive["log-sec"], logical, "{drive}");
        assert_eq!(drive["phy-sec"], physical, "{drive}");
        for (key, expected) in [("wwn", wwn.as_deref()), ("model", model), ("rev", firmware)] {
            if expected.is_some() {
                assert_eq!(text(key), expected, "{key} of {drive}");
            }
        }
        if let (Some(expected), Some(tran)) = (transport, text("tran")) {
            assert_eq!(tran, expected, "{drive}");
        }
    }
    let id = guest.run(&format!("nvme id-ctrl {} -o json", device(guest, "NV-1")));
    let id: Value = serde_json::from_str(&id).unwrap();
    assert_eq!(id["sn"].as_str().unwrap().trim(), "NV-1");
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn dd_reads_and_writes_fail_at_the_bad_sectors_and_nowhere_else() {
    let stand = stand();
    let stand = stand.as_ref().unwrap();
    let guest = stand.machine.guest();
    let failing = |how: &str| {
        let script =
            format!("for i in $(seq 2044 2055); do {how} 2>/dev/null || echo -n \"$i \"; done");
        guest
            .try_run(&script, Duration::from_secs(300))
            .unwrap()
            .stdout
    };
    for (drive, device) in stand.served() {
        drive.nbd().fail(BadSectors {
            sectors: 2048..2050,
            reads: true,
            writes: false,
        });
        drive.nbd().fail(BadSectors {
            sectors: 2052..2053,
            reads: false,
            writes: true,
        });
        let reads = failing(&format!(
            "dd if={device} of=/dev/null bs=512 count=1 skip=$i iflag=direct"
        ));
        let writes = failing(&format!(
            "dd if=/dev/zero of={device} bs=512 count=1 seek=$i oflag=direct"
        ));
        drive.nbd().heal();
        assert_eq!(reads, "2048 2049 ", "{}", drive.kind());
        assert_eq!(writes, "2052 ", "{}", drive.kind());
        guest.run(&format!(
            "dd if={device} of=/dev/null bs=1M count=4 iflag=direct"
        ));
    }
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn dd_takes_as_long_as_a_throttled_drive_must() {
    let stand = stand();
    let stand = stand.as_ref().unwrap();
    for (drive, device) in stand.served() {
        drive.nbd().throttle(Some(Throttle {
            bytes_per_second: Some(2 * MIB),
            ..Throttle::default()
        }));
        let start = Instant::now();
        stand.machine.guest().run(&format!(
            "dd if={device} of=/dev/null bs=64k count=128 iflag=direct"
        ));
        let took = start.elapsed();
        drive.nbd().throttle(None);
        assert!(took >= Duration::from_secs(4), "{}: {took:?}", drive.kind());
        assert!(took < Duration::from_secs(12), "{}: {took:?}", drive.kind());
    }
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn dd_on_a_hung_drive_stays_until_it_answers_again_and_the_machine_goes_on() {
    let stand = stand();
    let stand = stand.as_ref().unwrap();
    let guest = stand.machine.guest();
    for (drive, device) in stand.served() {
        if let Some(script) = drive.kind().patience(&device) {
            guest.run(&script);
        }
        drive.nbd().hang();
        let out = format!("/run/dd-{}", drive.name());
        guest.run(&format!(
            "(dd if={device} of=/dev/null bs=4096 count=1 skip=99 iflag=direct; echo $? >{out}) >/dev/null 2>&1 </dev/null &"
        ));
        assert!(drive.nbd().wait_pending(1, EVENT_LIMIT), "{}", drive.kind());
        for _ in 0..3 {
            guest.run(&format!("sleep 1; pgrep -x dd; test ! -e {out}"));
        }
        drive.nbd().resume();
        let code = wait::until(EVENT_LIMIT, "dd ends", || {
            let ran = guest.ran(&format!("cat {out}"));
            ran.ok().then_some(ran.stdout)
        });
        assert_eq!(code, "0\n", "{}", drive.kind());
    }
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn what_dd_wrote_is_unflushed_until_fsync() {
    let stand = stand();
    let stand = stand.as_ref().unwrap();
    let guest = stand.machine.guest();
    for (drive, device) in stand.served() {
        let unflushed = || drive.nbd().stats().unflushed_sectors;
        guest.run(&format!("sync {device}"));
        assert_eq!(unflushed(), 0, "{}", drive.kind());
        guest.run(&format!(
            "dd if=/dev/urandom of={device} bs=4096 count=10 seek=100 oflag=direct"
        ));
        assert_eq!(unflushed(), 80, "{}", drive.kind());
        guest.run(&format!("sync {device}"));
        assert_eq!(unflushed(), 0, "{}", drive.kind());
    }
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn smartctl_sees_an_nvme_drives_critical_warning() {
    let mut stand = stand();
    let stand = stand.as_mut().unwrap();
    let device = device(stand.machine.guest(), "NV-1");
    let qmp = &mut stand.qmp;
    let drive = |name: &str| {
        stand
            .drives
            .iter()
            .find(|drive| drive.name() == name)
            .unwrap()
    };
    let health = |machine: &Machine| machine.guest().ran(&format!("smartctl -H {device}"));
    assert!(health(&stand.machine).stdout.contains("PASSED"));
    drive("n1").set_smart_warning(qmp, 0x04).unwrap();
    let failed = health(&stand.machine);
    assert_eq!(failed.code & 8, 8, "{failed:?}");
    assert!(failed.stdout.contains("FAILED"), "{failed:?}");
    drive("n1").set_smart_warning(qmp, 0).unwrap();
    assert!(health(&stand.machine).stdout.contains("PASSED"));
    let refused = drive("s1").set_smart_warning(qmp, 4);
    assert!(matches!(refused, Err(DriveError::Unsupported { .. })));
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn drives_are_plugged_in_and_unplugged_while_it_runs() {
    let mut stand = stand();
    let stand = stand.as_mut().unwrap();
    let guest = stand.machine.guest().clone();
    let appears = |serial: &str| wait::until(EVENT_LIMIT, serial, || block_device(&guest, serial));
    let goes = |serial: &str| {
        wait::until(EVENT_LIMIT, serial, || {
            block_device(&guest, serial).is_none().then_some(())
        });
    };
    for kind in [Kind::Nvme, Kind::Scsi, Kind::Virtio] {
        let drive = DriveSpec::new(kind, &format!("plug-{kind}"), SIZE)
            .served()
            .make(&stand.run.file(""))
            .unwrap();
        for _ in 0..2 {
            drive.plug(&mut stand.qmp).unwrap();
            appears(drive.name());
            drive.nbd().hang();
            let silent = drive.unplug(&mut stand.qmp);
            assert!(
                matches!(silent, Err(DriveError::Silent { .. })),
                "{silent:?}"
            );
            drive.nbd().resume();
            drive.unplug(&mut stand.qmp).unwrap();
            goes(drive.name());
        }
    }
    let at_boot = |name: &str| {
        stand
            .drives
            .iter()
            .find(|drive| drive.name() == name)
            .unwrap()
    };
    at_boot("e1").unplug(&mut stand.qmp).unwrap();
    goes("e1");
    at_boot("e1").plug(&mut stand.qmp).unwrap();
    appears("e1");
    let refused = at_boot("a1").unplug(&mut stand.qmp);
    assert!(matches!(refused, Err(DriveError::NoHotplug { .. })));
    let late = DriveSpec::nvme("late", SIZE)
        .eui64(7)
        .make(&stand.run.file(""))
        .unwrap();
    let refused = late.plug(&mut stand.qmp);
    assert!(
        matches!(refused, Err(DriveError::EuiNotBooted { .. })),
        "{refused:?}"
    );
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn a_drive_that_dies_while_it_hangs_answers_with_errors_and_can_be_replaced() {
    let mut stand = stand();
    let stand = stand.as_mut().unwrap();
    let guest = stand.machine.guest().clone();
    for kind in [Kind::Nvme, Kind::Scsi, Kind::Virtio] {
        let name = format!("dies-{kind}");
        let drive = DriveSpec::new(kind, &name, SIZE)
            .served()
            .make(&stand.run.file(""))
            .unwrap();
        drive.plug(&mut stand.qmp).unwrap();
        wait::until(EVENT_LIMIT, &name, || block_device(&guest, &name));
        let device = device(&guest, &name);
        let read = format!("dd if={device} of=/dev/null bs=4096 count=1 skip=99 iflag=direct");
        guest.run(&read);
        drive.nbd().hang();
        guest.run(&format!(
            "({read}; echo $? >/run/{name}) >/dev/null 2>&1 </dev/null &"
        ));
        assert!(drive.nbd().wait_pending(1, EVENT_LIMIT), "{kind}");
        drive.nbd().die();
        let code = wait::until(EVENT_LIMIT, "dd ends", || {
            let ran = guest.ran(&format!("cat /run/{name}"));
            ran.ok().then_some(ran.stdout)
        });
        assert_eq!(code, "1\n", "{kind}");
        assert!(!guest.ran(&read).ok(), "{kind}: dead for good");
        drive.unplug(&mut stand.qmp).unwrap();
        wait::until(EVENT_LIMIT, &name, || {
            block_device(&guest, &name).is_none().then_some(())
        });
        drive.nbd().power_on();
        drive.plug(&mut stand.qmp).unwrap();
        wait::until(EVENT_LIMIT, &name, || block_device(&guest, &name));
        guest.run(&read);
        drive.unplug(&mut stand.qmp).unwrap();
    }
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn a_power_cut_loses_exactly_what_was_not_flushed_and_slots_can_be_swapped_between_boots() {
    let run = RunDir::new("cut").unwrap();
    let make = |spec: DriveSpec| spec.served().make(&run.file("")).unwrap();
    let drives = [
        make(DriveSpec::nvme("n1", SIZE)),
        make(DriveSpec::nvme("n2", SIZE)),
        make(DriveSpec::scsi("s1", SIZE)),
        make(DriveSpec::scsi("s2", SIZE)),
        make(DriveSpec::sata("a1", SIZE)),
        make(DriveSpec::virtio("v1", SIZE)),
    ];
    let [n1, n2, s1, s2, a1, v1] = &drives;
    let (mut machine, _qmp) = boot("cut", &[n1, n2, s1, s2, a1, v1]);
    let at =
        |machine: &Machine| ["n1", "n2", "s1", "s2"].map(|serial| device(machine.guest(), serial));
    let before = at(&machine);
    for drive in &drives {
        let device = device(machine.guest(), drive.name());
        machine.guest().run(&format!(
            "tr '\\0' A </dev/zero | dd of={device} bs=4096 count=4 iflag=fullblock oflag=direct && sync {device} && \
             tr '\\0' B </dev/zero | dd of={device} bs=4096 count=4 seek=2 iflag=fullblock oflag=direct"
        ));
        let cut = drive.nbd().cut(0.0, 1).unwrap();
        assert_eq!((cut.sectors, cut.kept), (32, 0), "{}", drive.name());
    }
    machine.power_off();
    drop(machine);
    for drive in &drives {
        let medium = read_start(drive.file());
        assert!(
            medium[..16384].iter().all(|&byte| byte == b'A'),
            "{}",
            drive.name()
        );
        assert!(
            medium[16384..].iter().all(|&byte| byte == 0),
            "{}",
            drive.name()
        );
        drive.nbd().power_on();
    }
    let (machine, _qmp) = boot("cut", &[n2, n1, s2, s1]);
    let [n1, n2, s1, s2] = at(&machine);
    assert_eq!([n2, n1, s2, s1], before);
}

fn read_start(file: &Path) -> Vec<u8> {
    let mut medium = fs::read(file).unwrap();
    medium.truncate(32 * 1024);
    medium
}
