//! Names that smartctl uses for readings of drives, whose names in JSON and metrics are stable, with their units. Pure.

use crate::units::{human_seconds, human_size};

#[derive(Clone, Copy)]
enum Unit {
    Count,
    Bits,
    Bytes,
    Celsius,
    Hours,
    Passed,
    Percent,
    Seconds,
    Thousandths,
}

use Unit::{Bits, Bytes, Celsius, Count, Hours, Passed, Percent, Seconds, Thousandths};

/// Stable name, smartctl's name, unit. ATA attributes have their number appended, since other programs show that.
const NAMES: [(&str, &str, Unit); 44] = [
    ("temperature-celsius", "Temperature", Celsius),
    ("wear-percent", "Percentage Used", Percent),
    ("available-spare-percent", "Available Spare", Percent),
    ("power-on-hours", "Power_On_Hours", Hours),
    ("power-cycles", "Power_Cycle_Count", Count),
    ("written-bytes", "Data Units Written", Bytes),
    ("read-bytes", "Data Units Read", Bytes),
    (
        "drive-writes-per-day-thousandths",
        "Drive Writes Per Day",
        Thousandths,
    ),
    (
        "rated-drive-writes-per-day-thousandths",
        "Rated Drive Writes Per Day",
        Thousandths,
    ),
    ("unsafe-shutdowns", "Unsafe Shutdowns", Count),
    (
        "seconds-above-warning-temperature",
        "Warning Comp. Temperature Time",
        Seconds,
    ),
    (
        "seconds-above-critical-temperature",
        "Critical Comp. Temperature Time",
        Seconds,
    ),
    ("capacitor-test-passed", "Power_Loss_Cap_Test", Passed),
    (
        "reallocated-per-month-thousandths",
        "Reallocated Sectors Per Month",
        Thousandths,
    ),
    ("logged-unrecovered-reads", "Unrecovered Read Errors", Count),
    ("interface-crc-errors", "UDMA_CRC_Error_Count", Count),
    ("phy-errors", "SAS Phy Errors", Count),
    ("manufactured-year", "Year Of Manufacture", Count),
    ("manufactured-week", "Week Of Manufacture", Count),
    ("ata-5", "Reallocated_Sector_Ct (5)", Count),
    ("ata-10", "Spin_Retry_Count (10)", Count),
    ("ata-184", "End-to-End_Error (184)", Count),
    ("ata-187", "Reported_Uncorrect (187)", Count),
    ("ata-188", "Command_Timeout (188)", Count),
    ("ata-197", "Current_Pending_Sector (197)", Count),
    ("ata-198", "Offline_Uncorrectable (198)", Count),
    ("ata-199", "UDMA_CRC_Error_Count (199)", Count),
    (
        "ata-statistics-3-32",
        "Number of Reallocated Logical Sectors",
        Count,
    ),
    (
        "ata-statistics-4-8",
        "Number of Reported Uncorrectable Errors",
        Count,
    ),
    (
        "ata-statistics-6-24",
        "Number of Interface CRC Errors",
        Count,
    ),
    ("ata-pending-defects", "Pending Defects log", Count),
    ("rotation-rate", "Rotation Rate", Count),
    (
        "scsi-read-uncorrected",
        "Total uncorrected errors (read)",
        Count,
    ),
    (
        "scsi-write-uncorrected",
        "Total uncorrected errors (write)",
        Count,
    ),
    (
        "scsi-verify-uncorrected",
        "Total uncorrected errors (verify)",
        Count,
    ),
    ("scsi-uncorrected", "Total uncorrected errors", Count),
    ("scsi-grown-defects", "Elements in grown defect list", Count),
    ("scsi-pending-defects", "Pending defect count", Count),
    ("nvme-critical-warning", "Critical Warning", Bits),
    (
        "nvme-endurance-groups",
        "Endurance Group Critical Warning",
        Bits,
    ),
    ("nvme-spare", "Available Spare", Percent),
    ("nvme-spare-threshold", "Available Spare Threshold", Percent),
    ("nvme-percentage-used", "Percentage Used", Percent),
    (
        "nvme-media-errors",
        "Media and Data Integrity Errors",
        Count,
    ),
];

fn lookup(name: &str) -> Option<(&'static str, Unit)> {
    let row = NAMES.iter().find(|(stable, ..)| *stable == name)?;
    Some((row.1, row.2))
}

/// Returns smartctl's name; the stable name if there is none.
pub fn label(name: &str) -> &str {
    lookup(name).map_or(name, |(label, _)| label)
}

/// Returns a value with its unit.
pub fn value(name: &str, value: i64) -> String {
    let unit = lookup(name).map_or(Count, |(_, unit)| unit);
    let number = value.unsigned_abs();
    match unit {
        Count => value.to_string(),
        Bits => format!("0x{number:02x}"),
        Bytes => human_size(number),
        Celsius => format!("{value} °C"),
        Hours => format!("{value} h ({})", age(number)),
        Passed => if number == 1 { "passed" } else { "failed" }.to_owned(),
        Percent => format!("{value}%"),
        Seconds => human_seconds(number),
        Thousandths => format!("{}.{:03}", number / 1000, number % 1000),
    }
}

/// Returns name and value, as "Temperature 31 °C".
pub fn shown(name: &str, number: i64) -> String {
    format!("{} {}", label(name), value(name, number))
}

/// Returns hours as years and months, since days are too precise for a drive's age.
fn age(hours: u64) -> String {
    // A twelfth of a mean year has 730.5 hours.
    let months = hours.saturating_mul(2) / 1461;
    match (months / 12, months % 12) {
        (0, 0) => human_seconds(hours.saturating_mul(3600)),
        (0, months) => format!("{months}mo"),
        (years, 0) => format!("{years}y"),
        (years, months) => format!("{years}y{months}mo"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_shown_by_smartctls_name_with_its_unit() {
        for (name, number, text) in [
            ("temperature-celsius", 31, "Temperature 31 °C"),
            ("temperature-celsius", -5, "Temperature -5 °C"),
            ("wear-percent", 103, "Percentage Used 103%"),
            ("power-on-hours", 40, "Power_On_Hours 40 h (1d16h)"),
            ("power-on-hours", 5000, "Power_On_Hours 5000 h (6mo)"),
            ("power-on-hours", 8766, "Power_On_Hours 8766 h (1y)"),
            ("power-on-hours", 12_345, "Power_On_Hours 12345 h (1y4mo)"),
            (
                "written-bytes",
                127_551_260_000_000,
                "Data Units Written 116 TiB",
            ),
            (
                "drive-writes-per-day-thousandths",
                412,
                "Drive Writes Per Day 0.412",
            ),
            (
                "seconds-above-warning-temperature",
                840,
                "Warning Comp. Temperature Time 14m",
            ),
            ("capacitor-test-passed", 0, "Power_Loss_Cap_Test failed"),
            ("ata-197", 12, "Current_Pending_Sector (197) 12"),
            ("nvme-critical-warning", 4, "Critical Warning 0x04"),
            ("of-a-newer-agent", 3, "of-a-newer-agent 3"),
        ] {
            assert_eq!(shown(name, number), text);
        }
    }
}
