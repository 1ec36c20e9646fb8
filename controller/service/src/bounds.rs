//! Bounds of what one node may make the controller hold and do. A node's certificate authorises it for its own node only:
//! exceeding a bound ends that node's session, and other nodes are not affected.
//!
//! A message's decoded size is computed before it is decoded, since two bytes of it may become a structure of hundreds of bytes.

use std::time::{Duration, Instant};

use drivebay_common::units::human_size;
use drivebay_proto::agent::{
    Class, Condition, Drive, DriveHealth, FilesystemCheck, Finding, InventoryUpdate, Overridden,
    Reading, Reject, SmartFinding, SmartReport, UnreadableRange, Volume, VolumeSnapshot,
};
use prost::Message;

/// Most volumes of one node, including deleted ones that are not erased yet. A node has tens of drives, and a GPT 128 entries.
pub const MAX_VOLUMES: usize = 20_000;
/// Most drives of one node, including partitions, loop and device-mapper devices, which are reported as rejected.
pub const MAX_DRIVES: usize = 4096;
/// Most classes of one node. Each is a time series, and usually a StorageClass.
pub const MAX_CLASSES: usize = 64;
/// Most bytes held of one node, in memory or in a file: 20,000 volumes of three times the usual size.
pub const MAX_NODE_BYTES: usize = 64 << 20;
/// Largest volume with its conditions and checks, bytes.
pub const MAX_VOLUME_BYTES: usize = 64 << 10;
/// Largest drive with its SMART report, bytes.
pub const MAX_DRIVE_BYTES: usize = 256 << 10;
/// Largest class, bytes, as counted by [`class_bytes`]; a larger one is [`Bound::Bytes`].
pub const MAX_CLASS_BYTES: usize = 4 << 10;
/// Most bytes of all findings about the host.
pub const MAX_FINDINGS_BYTES: usize = 64 << 10;
/// Largest message as received, bytes. Agents send volumes in parts of 7 KiB, and all drives in one message.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Largest message when decoded, bytes.
pub const MAX_MESSAGE_MEMORY: usize = 32 << 20;
/// Largest file of a node when decoded, bytes.
pub const MAX_FILE_MEMORY: usize = 2 * MAX_NODE_BYTES;
/// Longest instance of an agent in an update, bytes. Agents use a UUID.
const MAX_INSTANCE_BYTES: usize = 256;
/// Updates that a node may send at once: several snapshots of `MAX_VOLUMES` one after the other.
const BURST: f64 = 20_000.0;
/// Updates a node may send per second after such a burst. Further ones are read later, and the agent then combines changes.
const PER_SECOND: f64 = 1000.0;
/// Bytes that count as one update; a larger update counts as several.
const UPDATE_UNIT: usize = 4096;
/// Overhead of a volume, drive or class and its map entry, bytes.
const FIXED: usize = 512;
/// Overhead of one list entry in it besides its text, bytes.
const ENTRY: usize = 96;

/// The bound that a node has exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Bound {
    #[error("the node reports more than {MAX_VOLUMES} volumes")]
    Volumes,
    #[error("the node reports more than {MAX_DRIVES} drives and other block devices")]
    Drives,
    #[error("the node reports more than {MAX_CLASSES} classes")]
    Classes,
    #[error(
        "the node's inventory, or a volume, drive or class in it, is too large (at most {}, {}, {}, {})",
        human_size(MAX_NODE_BYTES as u64),
        human_size(MAX_VOLUME_BYTES as u64),
        human_size(MAX_DRIVE_BYTES as u64),
        human_size(MAX_CLASS_BYTES as u64)
    )]
    Bytes,
    #[error(
        "a message of the node is too large (at most {}, and {} when decoded)",
        human_size(MAX_MESSAGE_BYTES as u64),
        human_size(MAX_MESSAGE_MEMORY as u64)
    )]
    Message,
}

/// Amounts held of one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    pub volumes: usize,
    pub drives: usize,
    pub classes: usize,
    pub bytes: usize,
}

impl Held {
    /// Checks the amounts against the bounds of one node.
    pub fn check(&self) -> Result<(), Bound> {
        if self.volumes > MAX_VOLUMES {
            Err(Bound::Volumes)
        } else if self.drives > MAX_DRIVES {
            Err(Bound::Drives)
        } else if self.classes > MAX_CLASSES {
            Err(Bound::Classes)
        } else if self.bytes > MAX_NODE_BYTES {
            Err(Bound::Bytes)
        } else {
            Ok(())
        }
    }
}

/// Checks the size of each part of an update by itself, regardless of what is held already.
pub fn check_parts(update: &InventoryUpdate) -> Result<(), Bound> {
    let too_large = update.instance.len() > MAX_INSTANCE_BYTES
        || update
            .volumes
            .iter()
            .any(|one| volume_bytes(one) > MAX_VOLUME_BYTES)
        || update
            .drives
            .iter()
            .any(|one| drive_bytes(one) > MAX_DRIVE_BYTES)
        || update
            .classes
            .iter()
            .any(|one| class_bytes(one) > MAX_CLASS_BYTES)
        || update.findings.iter().map(finding_bytes).sum::<usize>() > MAX_FINDINGS_BYTES;
    if too_large { Err(Bound::Bytes) } else { Ok(()) }
}

/// Returns the approximate memory that a volume takes, bytes.
pub fn volume_bytes(volume: &Volume) -> usize {
    let entries = volume.conditions.len()
        + volume.checks.len()
        + volume.mounts.len()
        + volume.unreadable.len()
        + volume.snapshots.len()
        + volume.parameters.len();
    FIXED + volume.encoded_len() + ENTRY * entries
}

/// Returns the approximate memory that a drive takes, bytes.
pub fn drive_bytes(drive: &Drive) -> usize {
    let health = drive.health.as_ref();
    let smart = health.and_then(|health| health.smart.as_ref());
    let entries = drive.rejects.len()
        + drive.notes.len()
        + health.map_or(0, |health| {
            health.findings.len() + health.conditions.len() + health.unreadable.len()
        })
        + smart.map_or(0, |smart| smart.findings.len() + smart.readings.len());
    FIXED + drive.encoded_len() + ENTRY * entries
}

fn finding_bytes(finding: &Finding) -> usize {
    ENTRY + finding.encoded_len()
}

/// Returns the approximate memory that a class takes, bytes.
pub fn class_bytes(class: &Class) -> usize {
    FIXED + class.encoded_len()
}

/// Size of a decoded message's structure, and its fields that are messages themselves, by field number.
struct Shape {
    size: usize,
    messages: &'static [(u32, &'static Shape)],
}

const fn leaf(size: usize) -> Shape {
    Shape {
        size,
        messages: &[],
    }
}

static FINDING: Shape = leaf(size_of::<Finding>());
static SMART: Shape = Shape {
    size: size_of::<SmartReport>(),
    messages: &[
        (6, &leaf(size_of::<SmartFinding>())),
        (7, &leaf(size_of::<Reading>())),
    ],
};
// Never sent to a controller by an agent.
static UNREADABLE: Shape = leaf(size_of::<UnreadableRange>());
static HEALTH: Shape = Shape {
    size: size_of::<DriveHealth>(),
    messages: &[
        (1, &FINDING),
        (2, &FINDING),
        (4, &leaf(size_of::<Overridden>())),
        (5, &SMART),
        (16, &UNREADABLE),
    ],
};
static DRIVE: Shape = Shape {
    size: size_of::<Drive>(),
    messages: &[(14, &leaf(size_of::<Reject>())), (20, &HEALTH)],
};
static VOLUME: Shape = Shape {
    size: size_of::<Volume>(),
    messages: &[
        (9, &leaf(size_of::<Condition>())),
        // A map's entry is a message of a key and a value.
        (13, &leaf(4 * size_of::<String>())),
        (16, &leaf(size_of::<FilesystemCheck>())),
        (20, &UNREADABLE),
        (28, &leaf(size_of::<VolumeSnapshot>())),
    ],
};
static UPDATE: Shape = Shape {
    size: size_of::<InventoryUpdate>(),
    messages: &[
        (4, &DRIVE),
        (5, &VOLUME),
        (6, &leaf(size_of::<Class>())),
        (12, &FINDING),
    ],
};
static LAST_KNOWN: Shape = Shape {
    size: 0,
    messages: &[(5, &UPDATE)],
};

/// Returns a lower bound of the bytes that an update takes when decoded. Malformed input counts up to where it can be parsed.
pub fn decoded_update_bytes(encoded: &[u8]) -> usize {
    decoded(encoded, &UPDATE)
}

/// Returns the same for a persisted file of a node.
pub fn decoded_file_bytes(encoded: &[u8]) -> usize {
    decoded(encoded, &LAST_KNOWN)
}

fn decoded(mut rest: &[u8], shape: &Shape) -> usize {
    let mut bytes = shape.size;
    while let Some(tag) = varint(&mut rest) {
        let skipped = match tag & 7 {
            0 => varint(&mut rest).map(|_| ()),
            1 => take(&mut rest, 8).map(|_| ()),
            5 => take(&mut rest, 4).map(|_| ()),
            2 => varint(&mut rest)
                .and_then(|len| take(&mut rest, usize::try_from(len).ok()?))
                .map(|content| {
                    let field = u32::try_from(tag >> 3).unwrap_or(0);
                    let inner = shape.messages.iter().find(|(number, _)| *number == field);
                    bytes += match inner {
                        Some((_, inner)) => decoded(content, inner),
                        None => content.len() + size_of::<String>(),
                    };
                }),
            // Groups: none of our messages has any, and decoding one gives nothing.
            _ => None,
        };
        if skipped.is_none() {
            break;
        }
    }
    bytes
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    prost::encoding::decode_varint(rest).ok()
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (content, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(content)
}

/// Token bucket that limits the rate at which a node's updates are read.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    left: f64,
    at: Instant,
}

impl Budget {
    /// Returns a full bucket.
    pub fn new(now: Instant) -> Self {
        Self {
            left: BURST,
            at: now,
        }
    }

    /// Charges an update of this many bytes, and returns the time to wait before the next one is read.
    pub fn spend(&mut self, bytes: usize, now: Instant) -> Duration {
        let earned = now.saturating_duration_since(self.at).as_secs_f64() * PER_SECOND;
        self.at = now;
        let cost = (1 + bytes / UPDATE_UNIT) as f64;
        self.left = (self.left + earned).min(BURST) - cost;
        Duration::from_secs_f64((-self.left / PER_SECOND).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_measured_as_large_as_it_becomes() {
        // Two bytes each: a message without content.
        for (field, size) in [(4, size_of::<Drive>()), (5, size_of::<Volume>())] {
            let encoded = [(field << 3) | 2, 0].repeat(1000);
            let decoded = InventoryUpdate::decode(encoded.as_slice());
            assert!(decoded.is_ok_and(|update| update.drives.len() + update.volumes.len() == 1000));
            assert!(decoded_update_bytes(&encoded) >= 1000 * size, "{field}");
        }
        let volume = Volume {
            conditions: vec![Condition::default(); 500],
            mounts: vec![String::new(); 500],
            snapshots: vec![VolumeSnapshot::default(); 100],
            ..Volume::default()
        };
        let nested = InventoryUpdate {
            volumes: vec![volume],
            ..InventoryUpdate::default()
        };
        let least = 500 * (size_of::<Condition>() + size_of::<String>())
            + 100 * size_of::<VolumeSnapshot>();
        let encoded = nested.encode_to_vec();
        assert!(encoded.len() < 3000 && decoded_update_bytes(&encoded) > least);
        let file = drivebay_proto::controller::LastKnown {
            inventory: Some(nested),
            ..Default::default()
        };
        assert!(decoded_file_bytes(&file.encode_to_vec()) > least);
        for cut in 0..encoded.len() {
            decoded_update_bytes(&encoded[cut..]);
        }
    }

    #[test]
    fn a_node_with_all_that_may_be_is_within_the_bounds() {
        let text = |bytes| "x".repeat(bytes);
        let volume = Volume {
            id: text(100),
            name: text(64),
            drive: text(64),
            parameters: (0..6)
                .map(|n| (format!("parameter{n}"), text(16)))
                .collect(),
            mounts: vec![text(150); 2],
            conditions: vec![Condition {
                message: text(300),
                ..Condition::default()
            }],
            ..Volume::default()
        };
        assert!(volume_bytes(&volume) * MAX_VOLUMES < MAX_NODE_BYTES);
        let reading = Reading {
            name: text(30),
            value: i64::MAX,
        };
        let drive = Drive {
            id: text(60),
            model: text(40),
            health: Some(DriveHealth {
                findings: vec![
                    Finding {
                        message: text(300),
                        ..Finding::default()
                    };
                    4
                ],
                smart: Some(SmartReport {
                    readings: vec![reading; 40],
                    ..SmartReport::default()
                }),
                ..DriveHealth::default()
            }),
            ..Drive::default()
        };
        let update = InventoryUpdate {
            drives: vec![drive; 1024],
            ..InventoryUpdate::default()
        };
        let encoded = update.encode_to_vec();
        assert!(encoded.len() < MAX_MESSAGE_BYTES, "{}", encoded.len());
        assert!(decoded_update_bytes(&encoded) < MAX_MESSAGE_MEMORY);
        assert_eq!(check_parts(&update), Ok(()));
    }

    #[test]
    fn bursts_are_read_at_once_and_a_flood_as_fast_as_it_may_be() {
        let begun = Instant::now();
        let mut budget = Budget::new(begun);
        // A snapshot of as many volumes as may be, in parts.
        assert!((0..2000).all(|_| budget.spend(7 << 10, begun).is_zero()));
        let mut waited = Duration::ZERO;
        for _ in 0..100_000 {
            waited += budget.spend(10, begun + waited);
        }
        assert!(waited > Duration::from_secs(80), "{waited:?}");
        let later = begun + waited + Duration::from_secs(60);
        assert!((0..2000).all(|_| budget.spend(7 << 10, later).is_zero()));
    }
}
