//! Direct encoding of a ListVolumes entry of a healthy volume. A list of a million consists mostly of these, and would
//! otherwise allocate messages with maps and strings for each.

use drivebay_proto::names;
use prost::encoding::encode_varint;

use crate::csi::volumes::signed;
use drivebay_csi::{health, topology::TopologyKey};

/// Contents of such an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Healthy<'a> {
    pub(super) id: &'a str,
    pub(super) node: &'a str,
    pub(super) class: &'a str,
    pub(super) size_bytes: u64,
    /// Id of the snapshot it is a copy of, or in `source_volume` that of a volume; both are empty if it is no copy.
    pub(super) source_snapshot: &'a str,
    pub(super) source_volume: &'a str,
    /// True if it is published on its node.
    pub(super) published: bool,
    /// True if the entry includes a condition.
    pub(super) condition: bool,
}

impl Healthy<'_> {
    /// Appends the encoding of the `list_volumes_response::Entry`. Field numbers are those of csi.proto.
    pub(super) fn encode(&self, key: &TopologyKey, into: &mut Vec<u8>) {
        message(into, 1, |volume| {
            let capacity = signed(self.size_bytes).unsigned_abs();
            if capacity != 0 {
                volume.push(tag(1, VARINT));
                encode_varint(capacity, volume);
            }
            text(volume, 2, self.id);
            pair(volume, 3, names::PARAM_CLASS, self.class);
            match (self.source_snapshot, self.source_volume) {
                ("", "") => {}
                ("", id) => message(volume, 4, |source| message(source, 2, |of| text(of, 1, id))),
                (id, _) => message(volume, 4, |source| message(source, 1, |of| text(of, 1, id))),
            }
            message(volume, 5, |topology| {
                pair(topology, 1, key.as_str(), self.node);
            });
        });
        message(into, 2, |status| {
            if self.published {
                bytes(status, 1, self.node.as_bytes());
            }
            if self.condition {
                message(status, 2, |condition| text(condition, 2, health::HEALTHY));
            }
        });
    }
}

const VARINT: u8 = 0;
const LENGTH_DELIMITED: u8 = 2;
/// Largest length that is encoded in one byte.
const SHORT: usize = 0x7f;

// Valid for fields up to 15, whose tags have one byte.
const fn tag(field: u8, wire_type: u8) -> u8 {
    (field << 3) | wire_type
}

fn bytes(into: &mut Vec<u8>, field: u8, value: &[u8]) {
    into.push(tag(field, LENGTH_DELIMITED));
    encode_varint(value.len() as u64, into);
    into.extend_from_slice(value);
}

// Omits an empty value.
fn text(into: &mut Vec<u8>, field: u8, value: &str) {
    if !value.is_empty() {
        bytes(into, field, value.as_bytes());
    }
}

// Appends one entry of a map.
fn pair(into: &mut Vec<u8>, field: u8, name: &str, value: &str) {
    message(into, field, |pair| {
        text(pair, 1, name);
        text(pair, 2, value);
    });
}

fn message(into: &mut Vec<u8>, field: u8, write: impl FnOnce(&mut Vec<u8>)) {
    into.push(tag(field, LENGTH_DELIMITED));
    let at = into.len();
    into.push(0);
    write(into);
    let length = into.len() - at - 1;
    if length <= SHORT {
        into[at] = length as u8;
    } else {
        let mut longer = Vec::with_capacity(4);
        encode_varint(length as u64, &mut longer);
        into.splice(at..=at, longer);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use drivebay_proto::{
        agent,
        csi::list_volumes_response::{Entry, VolumeStatus},
    };
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::csi::{attach::Attached, volumes};
    use drivebay_csi::{health::HealthApi, health::Whereabouts};

    proptest! {
        #[test]
        fn the_bytes_are_those_of_the_message(
            id in "[0-9a-f@-]{0,200}", node in "[a-z]{1,150}", class in ".{0,80}", size_bytes: u64, published: bool,
            all_apis: bool, source_snapshot in "([0-9a-f@-]{1,200})?", source_volume in "([0-9a-f@-]{1,200})?",
        ) {
            let api = if all_apis { HealthApi::Both } else { HealthApi::V1_13 };
            let volume = agent::Volume {
                id: id.clone(), class: class.clone(), size_bytes, published,
                source_snapshot: source_snapshot.clone(), source_volume: source_volume.clone(),
                ..agent::Volume::default()
            };
            let key = TopologyKey::new("drivebay.example");
            let (published_node_ids, volume_condition) =
                volumes::status(&volume, &node, Whereabouts::Here, &Attached::default(), api);
            let expected = Entry {
                volume: Some(volumes::volume(volume, &node, &key)),
                status: Some(VolumeStatus { published_node_ids, volume_condition }),
            };
            let mut bytes = b"before".to_vec();
            let healthy = Healthy {
                id: &id, node: &node, class: &class, size_bytes, published, condition: api.legacy(),
                source_snapshot: &source_snapshot, source_volume: &source_volume,
            };
            healthy.encode(&key, &mut bytes);
            prop_assert_eq!(&bytes[6..], expected.encode_to_vec());
        }
    }
}
