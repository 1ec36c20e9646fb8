//! Hand-written outputs for tests, and functions that change values in them.

use serde_json::{Map, Value};

use super::facts::{Facts, parse};

pub(super) const ATA_HDD: &str = include_str!("fixtures/ata-hdd.json");
pub(super) const ATA_SSD: &str = include_str!("fixtures/ata-ssd.json");
pub(super) const SCSI_HDD: &str = include_str!("fixtures/scsi-hdd-text-before.txt");
pub(super) const SCSI_SSD: &str = include_str!("fixtures/scsi-ssd.json");
pub(super) const NVME: &str = include_str!("fixtures/nvme.json");
/// All hand-written outputs, by name.
pub(super) const ALL: [(&str, &str); 13] = [
    ("ata-hdd", ATA_HDD),
    ("ata-ssd", ATA_SSD),
    ("ata-megaraid", include_str!("fixtures/ata-megaraid.json")),
    ("ata-smart-off", include_str!("fixtures/ata-smart-off.json")),
    ("scsi-hdd", SCSI_HDD),
    ("scsi-ssd", SCSI_SSD),
    ("scsi-virtual", include_str!("fixtures/scsi-virtual.json")),
    ("nvme", NVME),
    ("nvme-usb", include_str!("fixtures/nvme-usb.json")),
    (
        "standby-message",
        include_str!("fixtures/standby-message.json"),
    ),
    (
        "standby-power-mode",
        include_str!("fixtures/standby-power-mode.json"),
    ),
    ("open-failed", include_str!("fixtures/open-failed.json")),
    (
        "unknown-bridge",
        include_str!("fixtures/unknown-bridge.json"),
    ),
];

macro_rules! drives {
    ($($name:literal),+ $(,)?) => {
        /// Drives that earlier rules judged wrongly.
        pub(super) const DRIVES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("fixtures/drives/", $name, ".json")))),+];
    };
}

drives!(
    "ata-error-log",
    "ata-error-log-extended",
    "ata-gmts400",
    "ata-helium",
    "ata-helium-toshiba",
    "ata-kc400",
    "ata-mx500",
    "ata-sandforce-packed",
    "ata-sandforce-unlisted",
    "ata-statistics-255",
    "ata-statistics-errors",
    "ata-wd-blue",
    "ata-wd-green",
    "nvme-media-errors-2p96",
    "nvme-spare-threshold-255",
    "nvme-worn-out",
    "scsi-background-errors",
    "scsi-grown-defects",
    "scsi-hot",
    "scsi-prediction-test-mode",
    "scsi-self-test-failed",
    "scsi-self-test-outdated",
    "scsi-warning-temperature",
);

/// Returns the output of one of `DRIVES`.
pub(super) fn drive(name: &str) -> &'static str {
    DRIVES
        .iter()
        .find(|(candidate, _)| *candidate == name)
        .unwrap()
        .1
}

/// Returns the JSON document in an output.
pub(super) fn document(text: &str) -> Value {
    let start = text.find("{\n").or_else(|| text.find("{\"")).unwrap();
    serde_json::from_str(&text[start..]).unwrap()
}

/// Sets the value at a position: `a.b.0.c`, or `attr 197 raw` (also `value`, `worst`, `when_failed`, `name`) in the attribute table.
/// Missing members are added; null removes.
pub(super) fn set(document: &mut Value, place: &str, value: Value) {
    let path: Vec<String> = match place.strip_prefix("attr ") {
        None => place.split('.').map(str::to_owned).collect(),
        Some(rest) => {
            let (id, member) = rest.split_once(' ').unwrap();
            let id: u64 = id.parse().unwrap();
            let table = document["ata_smart_attributes"]["table"]
                .as_array()
                .unwrap();
            let row = table.iter().position(|row| row["id"] == id).unwrap();
            // The number alone, without a text that contradicts it.
            if member == "raw" {
                document["ata_smart_attributes"]["table"][row]["raw"]["string"] = Value::Null;
            }
            let member = if member == "raw" { "raw.value" } else { member };
            let path = format!("ata_smart_attributes.table.{row}.{member}");
            path.split('.').map(str::to_owned).collect()
        }
    };
    let (last, way) = path.split_last().unwrap();
    let mut at = document;
    for key in way {
        at = match at {
            Value::Array(items) => &mut items[key.parse::<usize>().unwrap()],
            other => {
                if !other.is_object() {
                    *other = Value::Object(Map::new());
                }
                other
                    .as_object_mut()
                    .unwrap()
                    .entry(key)
                    .or_insert(Value::Null)
            }
        };
    }
    match at {
        Value::Array(items) => items[last.parse::<usize>().unwrap()] = value,
        other => {
            if !other.is_object() {
                *other = Value::Object(Map::new());
            }
            let members = other.as_object_mut().unwrap();
            if value.is_null() {
                members.remove(last);
            } else {
                members.insert(last.clone(), value);
            }
        }
    }
}

/// Returns the facts in a document.
pub(super) fn facts(document: &Value) -> Facts {
    parse(&serde_json::to_vec(document).unwrap()).unwrap()
}

/// Returns the facts in an output after some changes.
pub(super) fn changed(text: &str, changes: &[(&str, Value)]) -> Facts {
    let mut document = document(text);
    for (place, value) in changes {
        set(&mut document, place, value.clone());
    }
    facts(&document)
}
