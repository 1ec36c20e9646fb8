//! SMART findings: from the real smartctl if the emulated drive can report the attribute, otherwise from a replayed document.

use std::path::Path;

use drivebay_hwtests::{
    GIB, MIB, csi,
    faults::{About, Case},
    lab::{DriveSpec, LabRig, letters::LAB_LIMIT},
    long,
    rig::Placed,
    wait,
};
use serde_json::{Value, json};

const ATA: &str = include_str!("../../../agent/smart/src/fixtures/ata-hdd.json");
const SCSI: &str = include_str!("../../../agent/smart/src/fixtures/scsi-ssd.json");

/// Replaces smartctl: runs the script in /run/smart for its device, the last argument, or else the real program.
const WRAPPER: &str = r#"#!/bin/sh
for device; do :; done
answer=/run/smart/answer
[ -e "$answer.$(cat /run/smart/serial 2>/dev/null)" ] || exec /usr/sbin/smartctl "$@"
[ "$(lsblk -dno SERIAL "$device")" = "$(cat /run/smart/serial)" ] || exec /usr/sbin/smartctl "$@"
. "$answer.$(cat /run/smart/serial)"
"#;

struct Stand {
    lab: LabRig,
    volume: Placed,
    quiet: Placed,
}

impl Stand {
    /// Starts a machine with a drive whose SMART data will change, and a healthy one; each has a volume.
    async fn new(drive: DriveSpec) -> Self {
        let name = drive.name().to_owned();
        let other = DriveSpec::nvme("other", GIB);
        let lab = LabRig::with(vec![drive, other], "partition").await;
        // Too large for the other drive; the next one is too large for the remaining space.
        let volume = lab.volume("told", 1400 * MIB, &csi::block()).await;
        let quiet = lab.volume("quiet", 700 * MIB, &csi::block()).await;
        let on = lab.volume_of(&volume.id).await.unwrap().drive;
        let here = lab.drive_where(|drive| drive.serial == name).await.unwrap();
        assert_eq!(here.id, on);
        Self { lab, volume, quiet }
    }

    /// Has the agent's polls of this drive run the script instead of smartctl.
    fn answers(&self, serial: &str, script: &str) {
        let guest = self.lab.guest();
        guest.run("mkdir -p /run/smart");
        let answer = format!("/run/smart/answer.{serial}");
        guest.write(Path::new(&answer), script.as_bytes());
        guest.write(Path::new("/run/smart/serial"), serial.as_bytes());
        let tool = Path::new("/usr/local/sbin/smartctl");
        guest.write(tool, WRAPPER.as_bytes());
        guest.run("chmod 755 /usr/local/sbin/smartctl");
    }

    fn replays(&self, serial: &str, document: &Value, exit: u8) {
        let file = "/run/smart/replayed.json";
        self.lab.guest().run("mkdir -p /run/smart");
        let text = document.to_string();
        self.lab.guest().write(Path::new(file), text.as_bytes());
        self.answers(serial, &format!("cat {file}; exit {exit}\n"));
    }

    /// Waits until the drive has a finding with this code and its volume the matching condition; the other volume must have none.
    async fn has_finding(&self, case: &mut Case, drive: &str, verdict: &str, code: &str) {
        // A scan polls the drives immediately.
        self.lab.rescan().await;
        let volumes = [&self.volume];
        let about = About {
            drives: &[drive],
            volumes: &volumes,
        };
        case.of_drive(&self.lab, drive, verdict, code, about).await;
        let listed = self.lab.volume_of(&self.quiet.id).await.unwrap();
        assert_eq!(listed.conditions, [], "the other drive's volume");
    }

    /// Waits until the drive has been polled and has no findings.
    async fn is_well(&self, drive: &str) {
        self.lab.rescan().await;
        wait::until_async(LAB_LIMIT, "the drive is well", async || {
            let listed = self.lab.drive_named(drive).await?;
            listed.all_notes().is_empty().then_some(())
        })
        .await;
    }
}

fn attribute(document: &mut Value, id: u64, raw: u64) {
    let table = document["ata_smart_attributes"]["table"].as_array_mut();
    let row = table.unwrap().iter_mut().find(|row| row["id"] == id);
    let row = row.unwrap();
    row["raw"] = json!({"value": raw, "string": raw.to_string()});
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn an_nvme_drive_that_warns() {
    long!();
    let mut stand = Stand::new(DriveSpec::nvme("warns", 2 * GIB)).await;
    let made = "critical warning, emulated NVMe, real smartctl";

    let mut case = Case::new("NVMe overheating", made);
    stand.lab.machine.smart_warning("warns", 2);
    case.strikes();
    stand
        .has_finding(&mut case, "warns", "GOOD", "Overheating")
        .await;
    stand.lab.machine.smart_warning("warns", 0);
    drop(case);

    let mut case = Case::new("NVMe SUSPECT", made);
    stand.lab.machine.smart_warning("warns", 1);
    case.strikes();
    stand
        .has_finding(&mut case, "warns", "SUSPECT", "SpareLow")
        .await;
    case.stays("SUSPECT for 3 clean polls and 24 h");
    drop(case);

    let mut case = Case::new("NVMe BAD", made);
    stand.lab.machine.smart_warning("warns", 4);
    case.strikes();
    let code = "ReliabilityDegraded";
    stand.has_finding(&mut case, "warns", "BAD", code).await;
    case.stays("BAD until acknowledged");
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn an_ata_drive_that_fails_slowly() {
    long!();
    let stand = Stand::new(DriveSpec::sata("ages", 2 * GIB)).await;
    let well: Value = serde_json::from_str(ATA).unwrap();
    stand.replays("ages", &well, 0);

    let mut pending = well.clone();
    attribute(&mut pending, 197, 3);
    let mut case = Case::new("ATA SUSPECT", "replayed: 3 pending sectors, emulated SATA");
    stand.replays("ages", &pending, 0);
    case.strikes();
    stand
        .has_finding(&mut case, "ages", "SUSPECT", "PendingSectors")
        .await;
    case.stays("SUSPECT for 3 clean polls and 24 h");
    drop(case);

    let mut case = Case::new(
        "ATA BAD",
        "replayed: 50 pending physical sectors, emulated SATA",
    );
    // The drive has eight logical sectors in a physical one, and counts logical ones.
    attribute(&mut pending, 197, 400);
    stand.replays("ages", &pending, 0);
    case.strikes();
    let code = "PendingSectorsMany";
    stand.has_finding(&mut case, "ages", "BAD", code).await;
    case.stays("BAD until acknowledged");
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_scsi_drive_that_fails_wears_and_cannot_be_polled() {
    long!();
    let stand = Stand::new(DriveSpec::sata("tells", 2 * GIB)).await;
    let well: Value = serde_json::from_str(SCSI).unwrap();
    stand.replays("tells", &well, 0);

    let mut worn = well.clone();
    worn["scsi_percentage_used_endurance_indicator"] = json!(93);
    worn["endurance_used"] = json!({"current_percent": 93});
    let mut case = Case::new("worn", "replayed: endurance 93 % used, emulated SATA");
    stand.replays("tells", &worn, 0);
    case.strikes();
    stand.has_finding(&mut case, "tells", "", "Wear").await;
    drop(case);

    let guest = stand.lab.guest();
    let mut case = Case::new("smartctl missing", "its place is empty");
    guest.run("mv /usr/sbin/smartctl /root/; rm /usr/local/sbin/smartctl");
    case.strikes();
    stand
        .has_finding(&mut case, "tells", "", "SmartMissing")
        .await;
    case.stays("with the next poll that succeeds");
    drop(case);

    for (fault, script, code) in [
        (
            "smartctl answers garbage",
            "head -c 5000 /dev/urandom; exit 0\n",
            "SmartGarbage",
        ),
        ("smartctl hangs", "exec sleep 600\n", "SmartTimeout"),
    ] {
        let mut case = Case::new(fault, "replaced");
        stand.answers("tells", script);
        case.strikes();
        stand.has_finding(&mut case, "tells", "", code).await;
        case.stays("with the next poll that succeeds");
    }
    guest.run("mv /root/smartctl /usr/sbin/");

    // The first value of a counter must be recorded before an increase is detected.
    stand.replays("tells", &well, 0);
    stand.is_well("tells").await;
    let mut ill = well.clone();
    ill["scsi_grown_defect_list"] = json!(5);
    let mut case = Case::new(
        "SCSI SUSPECT",
        "replayed: 5 new grown defects, emulated SATA",
    );
    stand.replays("tells", &ill, 0);
    case.strikes();
    stand
        .has_finding(&mut case, "tells", "SUSPECT", "GrownDefectsGrew")
        .await;
    case.stays("SUSPECT for 3 clean polls and 24 h");
    drop(case);

    let mut case = Case::new(
        "SCSI BAD",
        "replayed: failure predicted (ASC 5D), emulated SATA",
    );
    ill["smart_status"] = json!({"passed": false, "scsi": {"asc": 0x5d, "ascq": 0x10, "ie_string": "FAILURE PREDICTION THRESHOLD EXCEEDED"}});
    stand.replays("tells", &ill, 8);
    case.strikes();
    let code = "FailurePredicted";
    stand.has_finding(&mut case, "tells", "BAD", code).await;
    case.stays("BAD until acknowledged");
}
