//! Series of drives. Devices that can never be drives (loop, dm, partitions, …) have none.

use std::collections::BTreeMap;

use drivebay_common::metrics::{
    Def, Families,
    families::{counter, gauge, number, one, truth},
};
use drivebay_view::drives::is_nobodys;

use super::View;
use drivebay_model::{Contents, Drive, DriveId, DriveState, Transport, Verdict};
use drivebay_smart::Reading;

const DRIVE: &[&str] = &["drive"];

const INFO: Def = gauge(
    "drivebay_drive_info",
    "Identity of the drive, in labels; always 1. device is its kernel name, as in node_exporter's metrics of disks; empty while it is missing or not scanned.",
    &[
        "drive",
        "device",
        "model",
        "serial",
        "firmware",
        "path",
        "class",
        "media",
        "transport",
        "protocol",
        "bay",
    ],
);
const STATE: Def = gauge(
    "drivebay_drive_state",
    "1 for the drive's current state: claimed, available, rejected, missing, not-scanned (since the agent's start) or unprobed.",
    &["drive", "state"],
);
const VERDICT: Def = gauge(
    "drivebay_drive_verdict",
    "1 for the drive's current health verdict, 0 for the others: GOOD, SUSPECT, BAD, UNKNOWN. Before the first SMART poll since the agent started it is the last known one.",
    &["drive", "verdict"],
);
const FINDING: Def = gauge(
    "drivebay_drive_finding",
    "1 for each active finding or condition of the drive, by code; 0 for a finding that is acknowledged.",
    &["drive", "code"],
);
const ACKNOWLEDGED: Def = gauge(
    "drivebay_drive_acknowledged",
    "1 if the drive's verdict rests on acknowledged findings alone, else 0.",
    DRIVE,
);
const CORDONED: Def = gauge(
    "drivebay_drive_cordoned",
    "1 while the drive takes no new volumes by an operator's decision, else 0.",
    DRIVE,
);
const STUCK: Def = gauge(
    "drivebay_drive_stuck",
    "1 while an operation on the drive is unresponsive, else 0.",
    DRIVE,
);
const SIZE: Def = gauge("drivebay_drive_size_bytes", "Size of the drive.", DRIVE);
const FREE: Def = gauge(
    "drivebay_drive_free_bytes",
    "Bytes available for new volumes on a claimed or available drive.",
    DRIVE,
);
const ERASING: Def = gauge(
    "drivebay_drive_erase_remaining_bytes",
    "Bytes of deleted volumes and snapshots on the drive that are not erased yet.",
    DRIVE,
);
const UNZEROED: Def = gauge(
    "drivebay_drive_unzeroed_bytes",
    "Free bytes on the drive that raw volumes have to wait for: they are not zeroed yet.",
    DRIVE,
);
const REPORTED_AT: Def = gauge(
    "drivebay_drive_smart_last_success_timestamp_seconds",
    "Unix time of the last successful SMART poll; 0 if there was none since the agent started.",
    DRIVE,
);
const FAILURES: Def = counter(
    "drivebay_drive_smart_failures_total",
    "Failed SMART polls since the agent started, by reason.",
    &["drive", "reason"],
);
const ASLEEP: Def = gauge(
    "drivebay_drive_asleep",
    "1 if the drive was in standby at the last SMART poll and was therefore not polled, else 0.",
    DRIVE,
);
const PASSED: Def = gauge(
    "drivebay_drive_smart_passed",
    "SMART overall health self-assessment: 1 passed (no proof of health), 0 failure predicted.",
    DRIVE,
);
const EXIT: Def = gauge(
    "drivebay_drive_smartctl_exit_status",
    "Exit status of smartctl at the last successful poll: a bit mask, 0 if no bit is set.",
    DRIVE,
);
const ROTATION: Def = gauge(
    "drivebay_drive_rotation_rate_rpm",
    "Rotation rate in revolutions per minute; 0 for solid-state drives.",
    DRIVE,
);
const TEMPERATURE: Def = gauge(
    "drivebay_drive_temperature_celsius",
    "Drive temperature in degrees Celsius at the last SMART poll.",
    DRIVE,
);
const POWER_ON: Def = counter(
    "drivebay_drive_power_on_seconds_total",
    "Power-on time in seconds; drives count whole hours.",
    DRIVE,
);
const POWER_CYCLES: Def = counter(
    "drivebay_drive_power_cycles_total",
    "Power cycles over the drive's life.",
    DRIVE,
);
const WEAR: Def = gauge(
    "drivebay_drive_wear_ratio",
    "Rated endurance used as a ratio from 0 to 1; may exceed 1.",
    DRIVE,
);
const SPARE: Def = gauge(
    "drivebay_drive_available_spare_ratio",
    "Spare blocks that are left, as a ratio from 0 to 1 (NVMe, and ATA where an attribute has it).",
    DRIVE,
);
const SPARE_THRESHOLD: Def = gauge(
    "drivebay_drive_available_spare_threshold_ratio",
    "NVMe available spare threshold as a ratio from 0 to 1; below it the drive raises a critical warning.",
    DRIVE,
);
const WARNING: Def = gauge(
    "drivebay_drive_critical_warning",
    "NVMe critical warning byte; 0 means no warning.",
    DRIVE,
);
const MEDIA_ERRORS: Def = counter(
    "drivebay_drive_media_errors_total",
    "Uncorrectable errors over the drive's life: NVMe media errors, SCSI uncorrected errors, ATA attribute 187 or device statistics.",
    DRIVE,
);
const READ: Def = counter(
    "drivebay_drive_read_bytes_total",
    "Bytes read by hosts over the drive's life, as counted by the drive; polled once a day on ATA drives.",
    DRIVE,
);
const WRITTEN: Def = counter(
    "drivebay_drive_written_bytes_total",
    "Bytes written by hosts over the drive's life, as counted by the drive; polled once a day on ATA drives.",
    DRIVE,
);
const REALLOCATED: Def = gauge(
    "drivebay_drive_reallocated_sectors",
    "ATA reallocated sectors (attribute 5).",
    DRIVE,
);
const PENDING: Def = gauge(
    "drivebay_drive_pending_sectors",
    "ATA and SCSI pending sectors: unreadable sectors that wait to be rewritten.",
    DRIVE,
);
const UNCORRECTABLE: Def = gauge(
    "drivebay_drive_uncorrectable_sectors",
    "ATA offline uncorrectable sectors (attribute 198).",
    DRIVE,
);
const GROWN: Def = gauge(
    "drivebay_drive_grown_defects",
    "SCSI grown defect list length, in entries.",
    DRIVE,
);
const INTERFACE: Def = counter(
    "drivebay_drive_interface_errors_total",
    "ATA interface CRC errors over the drive's life (attribute 199 or device statistics).",
    DRIVE,
);
const UNSAFE_SHUTDOWNS: Def = counter(
    "drivebay_drive_unsafe_shutdowns_total",
    "Losses of power without notice over the drive's life (NVMe and ATA SSD).",
    DRIVE,
);
const TOO_HOT: Def = counter(
    "drivebay_drive_over_temperature_seconds_total",
    "Seconds above a temperature limit over the drive's life; limit=\"warning\" or \"critical\". Drives count minutes.",
    &["drive", "limit"],
);
const CAPACITOR: Def = gauge(
    "drivebay_drive_capacitor_test_passed",
    "1 if the drive's last test of its power loss capacitors passed, 0 if it failed.",
    DRIVE,
);
const PHY_ERRORS: Def = counter(
    "drivebay_drive_phy_errors_total",
    "Errors of all SAS phys of the drive: invalid dwords, disparity, lost synchronization, failed resets; polled once a day.",
    DRIVE,
);
const WRITES_PER_DAY: Def = gauge(
    "drivebay_drive_writes_per_day",
    "Capacities written per day of power-on time, over the drive's life.",
    DRIVE,
);
const RATED_WRITES_PER_DAY: Def = gauge(
    "drivebay_drive_rated_writes_per_day",
    "Capacities per day that the vendor rates the model for over five years, where it is known.",
    DRIVE,
);
const REALLOCATED_PER_MONTH: Def = gauge(
    "drivebay_drive_reallocated_per_month",
    "Sectors replaced (SCSI: grown defects) per month of power-on time, over the drive's life.",
    DRIVE,
);
const ERROR_LOG: Def = counter(
    "drivebay_drive_error_log_entries_total",
    "Entries ever written to the drive's error log; not a sign of failure by itself.",
    DRIVE,
);
const SELF_TESTS: Def = gauge(
    "drivebay_drive_self_tests",
    "Entries of the drive's self-test log.",
    DRIVE,
);
const SELF_TESTS_FAILED: Def = gauge(
    "drivebay_drive_self_tests_failed",
    "Failed entries of the drive's self-test log.",
    DRIVE,
);

pub(super) const DEFINITIONS: &[Def] = &[
    INFO,
    STATE,
    VERDICT,
    FINDING,
    ACKNOWLEDGED,
    CORDONED,
    STUCK,
    SIZE,
    FREE,
    ERASING,
    UNZEROED,
    REPORTED_AT,
    FAILURES,
    ASLEEP,
    PASSED,
    EXIT,
    ROTATION,
    TEMPERATURE,
    POWER_ON,
    POWER_CYCLES,
    WEAR,
    SPARE,
    SPARE_THRESHOLD,
    WARNING,
    MEDIA_ERRORS,
    READ,
    WRITTEN,
    REALLOCATED,
    PENDING,
    UNCORRECTABLE,
    GROWN,
    INTERFACE,
    UNSAFE_SHUTDOWNS,
    TOO_HOT,
    CAPACITOR,
    PHY_ERRORS,
    WRITES_PER_DAY,
    RATED_WRITES_PER_DAY,
    REALLOCATED_PER_MONTH,
    ERROR_LOG,
    SELF_TESTS,
    SELF_TESTS_FAILED,
];

pub(super) fn put(view: &View, into: &mut Families) {
    let mut to_erase: BTreeMap<&DriveId, u64> = BTreeMap::new();
    for volume in view.snapshot.volumes.values() {
        if let Some(erasing) = volume.erasing {
            let bytes = volume.placed.record.extent.len;
            *to_erase.entry(&volume.drive).or_default() += bytes.saturating_sub(erasing.done_bytes);
        }
    }
    for (id, drive) in &view.snapshot.drives {
        if !is_noise(drive) {
            // The snapshot's key: two devices with the same identity have different keys.
            one_drive(view, id, drive, into);
            if drive.state == DriveState::Claimed {
                let volumes = to_erase.get(&drive.id).copied().unwrap_or(0);
                let stores = drive.contents.as_ref().map_or(0, Contents::to_erase_bytes);
                into.put(&ERASING, &[&id.0], number(volumes + stores));
                let unzeroed = drive.contents.iter().flat_map(Contents::unzeroed);
                let bytes = unzeroed.map(|run| run.len).sum();
                into.put(&UNZEROED, &[&id.0], number(bytes));
            }
        }
    }
}

fn is_noise(drive: &Drive) -> bool {
    let codes: Vec<&str> = drive
        .rejects
        .iter()
        .map(|reject| reject.code.as_str())
        .collect();
    let is_loop = drive.facts.transport == Transport::Loop;
    drive.state == DriveState::Rejected && is_nobodys(&codes, is_loop)
}

fn one_drive(view: &View, key: &DriveId, drive: &Drive, into: &mut Families) {
    let id = key.0.as_str();
    let poll = view.polls.get(key);
    let facts = &drive.facts;
    let labels = [id];
    let reading = poll.and_then(|poll| poll.reading.as_ref());
    // As in /proc/diskstats, which node_exporter reads.
    let (device, path) = if drive.state.is_present() {
        let device = facts.kernel_name.replace('!', "/");
        (device.clone(), format!("/dev/{device}"))
    } else {
        Default::default()
    };
    let info = [
        id,
        &device,
        &facts.model,
        &facts.serial,
        &facts.firmware,
        &path,
        drive.class.as_deref().unwrap_or_default(),
        &facts.media.to_string(),
        facts.transport.as_str(),
        reading
            .and_then(|reading| reading.protocol)
            .map_or("", |protocol| protocol.as_str()),
        &facts.bay.describe(),
    ];
    into.put(&INFO, &info, one());
    into.put(&STATE, &[id, &drive.state.to_string()], one());
    let is_known =
        drive.state != DriveState::NotScanned || drive.health.verdict != Verdict::Unknown;
    for verdict in Verdict::ALL.iter().copied().filter(|_| is_known) {
        let is = drive.health.verdict == verdict;
        into.put(&VERDICT, &[id, verdict.as_str()], truth(is));
    }
    for finding in drive.health.findings.iter().chain(&drive.health.conditions) {
        into.put(&FINDING, &[id, &finding.code], truth(!finding.acknowledged));
    }
    into.put(
        &ACKNOWLEDGED,
        &labels,
        truth(drive.health.is_acknowledged()),
    );
    into.put(&CORDONED, &labels, truth(drive.cordon().is_some()));
    let mut slots = view.slots.iter();
    let stuck = slots.any(|slot| slot.stuck && slot.key.drive().is_some_and(|drive| drive.0 == id));
    into.put(&STUCK, &labels, truth(stuck));
    into.put(&SIZE, &labels, number(facts.size_bytes));
    let free = match (drive.state, &drive.contents) {
        (DriveState::Claimed, Some(contents)) => Some(contents.free_bytes()),
        (DriveState::Available, _) => Some(drive.claimable_bytes),
        _ => None,
    };
    into.put_known(&FREE, &labels, free.map(number));
    let polled_at = poll.and_then(|poll| poll.polled_at).unwrap_or(0);
    into.put(&REPORTED_AT, &labels, number(polled_at));
    if let Some(poll) = poll {
        into.put(&ASLEEP, &labels, truth(poll.asleep));
        for (reason, count) in &poll.failures {
            into.put(&FAILURES, &[id, reason.as_str()], number(*count));
        }
    }
    if let Some(reading) = reading {
        numbers(&labels, reading, into);
    }
}

fn numbers(labels: &[&str], reading: &Reading, into: &mut Families) {
    let ratio = |percent: Option<u64>| percent.map(|percent| number(percent) / 100.0);
    let thousandths = |rate: Option<u64>| rate.map(|rate| number(rate) / 1000.0);
    let (tests, failed) = reading.self_tests.unzip();
    for (limit, seconds) in [
        ("warning", reading.warning_temperature_seconds),
        ("critical", reading.critical_temperature_seconds),
    ] {
        let labels: Vec<&str> = labels.iter().copied().chain([limit]).collect();
        into.put_known(&TOO_HOT, &labels, seconds.map(number));
    }
    into.put(&EXIT, labels, f64::from(reading.exit.bits()));
    for (def, value) in [
        (&PASSED, reading.passed.map(truth)),
        (&ROTATION, reading.rotations_per_minute.map(number)),
        (&TEMPERATURE, reading.temperature.map(f64::from)),
        (&POWER_ON, reading.power_on_seconds.map(number)),
        (&POWER_CYCLES, reading.power_cycles.map(number)),
        (&WEAR, ratio(reading.wear_percent)),
        (&SPARE, ratio(reading.spare_percent)),
        (&SPARE_THRESHOLD, ratio(reading.spare_threshold_percent)),
        (&WARNING, reading.critical_warning.map(f64::from)),
        (&MEDIA_ERRORS, reading.media_errors.map(number)),
        (&READ, reading.read_bytes.map(number)),
        (&WRITTEN, reading.written_bytes.map(number)),
        (&REALLOCATED, reading.reallocated.map(number)),
        (&PENDING, reading.pending.map(number)),
        (&UNCORRECTABLE, reading.uncorrectable.map(number)),
        (&GROWN, reading.grown_defects.map(number)),
        (&INTERFACE, reading.interface_errors.map(number)),
        (&UNSAFE_SHUTDOWNS, reading.unsafe_shutdowns.map(number)),
        (&CAPACITOR, reading.capacitor_passed.map(truth)),
        (&PHY_ERRORS, reading.phy_errors.map(number)),
        (&WRITES_PER_DAY, thousandths(reading.writes_per_day)),
        (
            &RATED_WRITES_PER_DAY,
            thousandths(reading.rated_writes_per_day),
        ),
        (
            &REALLOCATED_PER_MONTH,
            thousandths(reading.reallocated_per_month),
        ),
        (&ERROR_LOG, reading.error_log_entries.map(number)),
        (&SELF_TESTS, tests.map(number)),
        (&SELF_TESTS_FAILED, failed.map(number)),
    ] {
        into.put_known(def, labels, value);
    }
}
