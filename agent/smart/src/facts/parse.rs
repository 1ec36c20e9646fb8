//! Parses smartctl's output to `Facts`.

use serde_json::Value;

use super::{Ata, Detail, ExitStatus, Facts, Message, NAME, Nvme, Protocol, Scsi, Temperature};
use crate::json::{Node, tidy};
use drivebay_model::units::{human_size, size_beside};

/// Largest output that is read, bytes. Real ones are under 200 KiB.
pub const MAX_BYTES: usize = 1024 * 1024;
/// Maximum of positions that are tried for the start of the document.
const STARTS: usize = 32;
const MESSAGES: usize = 16;
const MESSAGE: usize = 200;
/// Longest quotation from text that is no JSON, characters.
const QUOTE: usize = 120;

/// Reason why an output cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// No bytes, or white space only.
    #[error("smartctl wrote nothing")]
    Empty,
    /// The output has more than `MAX_BYTES`, or was cut off there. None of it is parsed.
    #[error("smartctl wrote {}, more than the {} that are read", size_beside(*len as u64, MAX_BYTES as u64), size_beside(MAX_BYTES as u64, *len as u64))]
    TooLarge {
        /// Length of the output, bytes.
        len: usize,
    },
    /// The document begins but does not end.
    #[error("smartctl's JSON ends in the middle, after {}", human_size(*len as u64))]
    Truncated {
        /// Length of the output, bytes.
        len: usize,
    },
    /// There is no JSON of smartctl in it.
    #[error("smartctl wrote no JSON that can be read ({why}); it begins: {begins:?}")]
    NotJson {
        /// Reason, from the last attempt to parse it.
        why: String,
        /// First characters of the output.
        begins: String,
    },
}

/// Parses an output. Text before the JSON (smartctl 7.0 to 7.2 write some for SCSI drives) and after it is skipped.
pub fn parse(bytes: &[u8]) -> Result<Facts, ParseError> {
    if bytes.len() > MAX_BYTES {
        return Err(ParseError::TooLarge { len: bytes.len() });
    }
    let document = document(&String::from_utf8_lossy(bytes))?;
    Ok(facts(Node::new(&document)))
}

fn document(text: &str) -> Result<Value, ParseError> {
    if text.trim().is_empty() {
        return Err(ParseError::Empty);
    }
    // Control characters are white space outside of a string and forbidden inside, where names of drives have them nevertheless.
    let clean: String = text
        .chars()
        .map(|c| if c < ' ' { ' ' } else { c })
        .collect();
    let mut why = "there is no {".to_owned();
    for start in starts(text) {
        let Some(rest) = clean.get(start..) else {
            continue;
        };
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) if is_smartctl(&value) => return Ok(value),
            Some(Ok(_)) | None => "it is not smartctl's".clone_into(&mut why),
            Some(Err(error)) if error.is_eof() => {
                return Err(ParseError::Truncated { len: text.len() });
            }
            Some(Err(error)) => why = error.to_string(),
        }
    }
    Err(not_json(&why, text.as_bytes()))
}

pub(super) fn not_json(why: &str, bytes: &[u8]) -> ParseError {
    ParseError::NotJson {
        why: why.to_owned(),
        begins: tidy(&String::from_utf8_lossy(bytes), QUOTE),
    }
}

/// Returns the positions at which the document may begin: the first brace, and each one that begins a line.
fn starts(text: &str) -> impl Iterator<Item = usize> {
    let mut offset = 0;
    let lines = text.split_inclusive('\n').filter_map(move |line| {
        let begin = offset + (line.len() - line.trim_start().len());
        offset += line.len();
        line.trim_start().starts_with('{').then_some(begin)
    });
    text.find('{').into_iter().chain(lines).take(STARTS)
}

pub(super) fn is_smartctl(value: &Value) -> bool {
    ["smartctl", "json_format_version", "device", "smart_status"]
        .iter()
        .any(|key| {
            value
                .get(key)
                .is_some_and(|value| value.is_object() || value.is_array())
        })
}

fn facts(root: Node<'_>) -> Facts {
    let detail = match protocol(root) {
        Some(Protocol::Ata) => Detail::Ata(Ata::parse(root)),
        Some(Protocol::Scsi) => Detail::Scsi(Scsi::parse(root)),
        Some(Protocol::Nvme) => Detail::Nvme(Nvme::parse(root)),
        // smartctl does not support eMMC.
        Some(Protocol::Mmc) | None => Detail::Unknown,
    };
    let rotation_rate = root.get("rotation_rate").u64();
    let support = root.get("smart_support");
    let messages = messages(root);
    Facts {
        device_type: root.path(&["device", "type"]).text(NAME),
        model: model(root),
        serial: first(root, &["serial_number", "scsi_unit_serial_number"]),
        firmware: first(root, &["firmware_version", "scsi_revision", "revision"]),
        wwn: wwn(root),
        capacity_bytes: root
            .path(&["user_capacity"])
            .count("bytes")
            .or_else(|| root.count("nvme_total_capacity")),
        sector_bytes: (
            root.get("logical_block_size").u64(),
            root.get("physical_block_size").u64(),
        ),
        listed: root.get("in_smartctl_database").bool(),
        rotational: rotational(&detail, rotation_rate),
        rotation_rate,
        smart_available: support.get("available").bool(),
        smart_enabled: support.get("enabled").bool(),
        passed: root.path(&["smart_status", "passed"]).bool(),
        temperature: temperature(root),
        power_on_hours: root.path(&["power_on_time", "hours"]).u64().or_else(|| {
            root.path(&["nvme_smart_health_information_log", "power_on_hours"])
                .u64()
        }),
        power_cycles: root.get("power_cycle_count").u64().or_else(|| {
            root.path(&["nvme_smart_health_information_log", "power_cycles"])
                .u64()
        }),
        endurance_used: root.path(&["endurance_used", "current_percent"]).u64(),
        power_mode: power_mode(root, &messages),
        exit: ExitStatus::new(root.path(&["smartctl", "exit_status"]).u64().unwrap_or(0)),
        messages,
        not_running: None,
        counts_physical: false,
        detail,
    }
}

fn protocol(root: Node<'_>) -> Option<Protocol> {
    match root
        .path(&["device", "protocol"])
        .text(NAME)
        .to_uppercase()
        .as_str()
    {
        "ATA" => return Some(Protocol::Ata),
        "SCSI" => return Some(Protocol::Scsi),
        "NVME" => return Some(Protocol::Nvme),
        _ => {}
    }
    // Sections that only one protocol has.
    let sections = [
        (Protocol::Nvme, "nvme_smart_health_information_log"),
        (Protocol::Ata, "ata_smart_attributes"),
        (Protocol::Ata, "ata_smart_data"),
        (Protocol::Scsi, "scsi_error_counter_log"),
        (Protocol::Scsi, "scsi_grown_defect_list"),
    ];
    sections
        .into_iter()
        .find(|(_, key)| root.get(key).exists())
        .map(|(protocol, _)| protocol)
}

fn first(root: Node<'_>, keys: &[&str]) -> String {
    keys.iter()
        .map(|key| root.get(key).text(NAME))
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

fn model(root: Node<'_>) -> String {
    let named = first(root, &["model_name", "scsi_model_name"]);
    if !named.is_empty() {
        return named;
    }
    let vendor = first(root, &["scsi_vendor", "vendor"]);
    let product = first(root, &["scsi_product", "product"]);
    format!("{vendor} {product}").trim().to_owned()
}

fn wwn(root: Node<'_>) -> String {
    let wwn = root.get("wwn");
    let part = |key| wwn.get(key).u64();
    if let (Some(naa), Some(oui), Some(id)) = (part("naa"), part("oui"), part("id")) {
        return format!("0x{naa:x}{oui:06x}{id:09x}");
    }
    first(root, &["logical_unit_id"])
}

fn temperature(root: Node<'_>) -> Temperature {
    let at = root.get("temperature");
    Temperature {
        current: [
            at.get("current"),
            root.path(&["nvme_smart_health_information_log", "temperature"]),
            root.path(&["scsi_temperature", "current"]),
        ]
        .into_iter()
        .filter_map(Node::i32)
        .find(|degrees| is_measured(*degrees)),
        operating_max: at.get("op_limit_max").i32(),
        critical_max: at
            .get("limit_max")
            .i32()
            .or_else(|| at.get("critical_limit_max").i32()),
        trip: at
            .get("drive_trip")
            .i32()
            .or_else(|| root.path(&["scsi_temperature", "drive_trip"]).i32()),
    }
}

/// True for a measured temperature. Drives and bridges that do not measure report 0, in degrees or in kelvin.
fn is_measured(degrees: i32) -> bool {
    degrees != 0 && (-50..=150).contains(&degrees)
}

/// Decides by the rotation rate, unless the attributes are those of flash memory: some solid state drives claim to rotate.
fn rotational(detail: &Detail, rate: Option<u64>) -> Option<bool> {
    let by_rate = rate.map(|rate| rate > 0);
    match detail {
        Detail::Nvme(_) | Detail::Mmc(_) => Some(false),
        Detail::Ata(ata) => match (by_rate, ata.medium()) {
            (Some(true) | None, (true, false)) | (None, (true, true)) => Some(false),
            (None, (false, true)) => Some(true),
            (by_rate, _) => by_rate,
        },
        Detail::Scsi(_) | Detail::Unknown => by_rate,
    }
}

fn messages(root: Node<'_>) -> Vec<Message> {
    let messages = root.path(&["smartctl", "messages"]);
    let texts = messages.items().map(|message| Message {
        severity: message.get("severity").text(NAME),
        text: message.get("string").text(MESSAGE),
    });
    texts.take(MESSAGES).collect()
}

/// Returns the power mode. smartctl 7.5 has a section for it; earlier versions report it in a message if they do not wake a drive.
fn power_mode(root: Node<'_>, messages: &[Message]) -> String {
    let mode = root.get("power_mode");
    let reported = [
        mode.get("ata_string"),
        mode.get("scsi_string"),
        mode.get("string"),
        mode.get("name"),
        mode,
    ]
    .map(|node| node.text(NAME))
    .into_iter()
    .find(|text| !text.is_empty());
    reported
        .or_else(|| messages.iter().find_map(|message| sleeping(&message.text)))
        .unwrap_or_default()
}

/// Returns the power mode in a message such as "Device is in STANDBY mode, exit(3)".
pub fn sleeping(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("Device is in ")?;
    let (mode, _) = rest.split_once(" mode, exit(")?;
    Some(tidy(mode, NAME))
}
