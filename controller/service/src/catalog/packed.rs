//! Compact form of a volume. Fields that are equal for many volumes (class, drive, mode, filesystem, state, parameters) are
//! stored once, apart from each volume's own fields; a name made by a provisioner is stored as the uuid in it.
//!
//! Both parts are encodings of one [`Volume`]. Concatenated, they are an encoding of the whole (Protocol Buffers encoding
//! guide, "last one wins"), so any message with a subset of its fields can be decoded from them.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use drivebay_proto::agent::Volume;
use prost::Message;
use uuid::Uuid;

/// Default prefix of external-provisioner before the claim's uid.
const PREFIX: &str = "pvc-";

/// Encoding of the fields that many volumes have in common. One pointer wide.
type Kind = Arc<Box<[u8]>>;

/// A volume without its id.
#[derive(Debug, Clone)]
pub(super) struct Packed {
    kind: Kind,
    /// A byte 1 and the uuid of the name, or a byte 0; then the encoding of the other fields.
    own: Arc<[u8]>,
}

impl Packed {
    pub(super) fn of(mut volume: Volume) -> Self {
        volume.id = String::new();
        let kind = kind(&mut volume);
        let mut own = Vec::new();
        match provisioned(&volume.name) {
            Some(uuid) => {
                own.push(1);
                own.extend(uuid.as_bytes());
                volume.name = String::new();
            }
            None => own.push(0),
        }
        own.extend(volume.encode_to_vec());
        Self {
            kind: Arc::new(kind.into()),
            own: own.into(),
        }
    }

    /// Decodes a message with a subset of the fields. It lacks the name if a provisioner made that.
    pub(super) fn part<M: Message + Default>(&self) -> M {
        let (_, rest) = self.name_and_rest();
        let mut part = M::default();
        for bytes in [&self.kind[..], rest] {
            // The bytes come from encoding a volume, so decoding does not fail.
            let _ = part.merge(bytes);
        }
        part
    }

    /// Decodes the volume, without its id.
    pub(super) fn volume(&self) -> Volume {
        let mut volume: Volume = self.part();
        if let Some(uuid) = self.name_and_rest().0 {
            volume.name = name(uuid);
        }
        volume
    }

    /// Returns the encoding of the whole volume with this id.
    pub(super) fn encode(&self, id: String) -> Vec<u8> {
        let (uuid, rest) = self.name_and_rest();
        let name = uuid.map(name).unwrap_or_default();
        let mut bytes = Volume {
            id,
            name,
            ..Volume::default()
        }
        .encode_to_vec();
        bytes.extend_from_slice(&self.kind);
        bytes.extend_from_slice(rest);
        bytes
    }

    fn name_and_rest(&self) -> (Option<Uuid>, &[u8]) {
        match self.own.split_first() {
            Some((1, rest)) => match rest.split_first_chunk() {
                Some((uuid, rest)) => (Some(Uuid::from_bytes(*uuid)), rest),
                None => (None, rest),
            },
            Some((_, rest)) => (None, rest),
            None => (None, &[]),
        }
    }
}

fn name(uuid: Uuid) -> String {
    format!("{PREFIX}{uuid}")
}

fn provisioned(name: &str) -> Option<Uuid> {
    let uuid = name.strip_prefix(PREFIX)?.parse::<Uuid>().ok()?;
    // Only the canonical form, which formatting the uuid restores.
    (name[PREFIX.len()..] == uuid.to_string()).then_some(uuid)
}

/// Moves the common fields out of a volume and encodes them. Equal fields have equal bytes.
fn kind(volume: &mut Volume) -> Vec<u8> {
    let common = Volume {
        class: std::mem::take(&mut volume.class),
        drive: std::mem::take(&mut volume.drive),
        mode: std::mem::take(&mut volume.mode),
        fs_type: std::mem::take(&mut volume.fs_type),
        state: std::mem::take(&mut volume.state),
        parameters: std::mem::take(&mut volume.parameters),
        ..Volume::default()
    };
    common.encode_to_vec()
}

/// All kinds of volumes, with the number of volumes of each.
#[derive(Debug, Default)]
pub(super) struct Kinds(BTreeMap<Kind, usize>);

impl Kinds {
    /// Counts a volume, and replaces its kind by the shared copy.
    pub(super) fn take_in(&mut self, volume: &mut Packed) {
        match self.0.entry(volume.kind.clone()) {
            Entry::Occupied(mut occupied) => {
                volume.kind = occupied.key().clone();
                *occupied.get_mut() += 1;
            }
            Entry::Vacant(free) => {
                free.insert(1);
            }
        }
    }

    /// Removes a volume from the count. It must have been added by [`take_in`](Self::take_in).
    pub(super) fn release(&mut self, volume: &Packed) {
        if let Some(count) = self.0.get_mut(&volume.kind) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&volume.kind);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use drivebay_proto::agent::Condition;
    use proptest::prelude::*;

    use super::*;

    fn name() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<u128>().prop_map(|n| format!("pvc-{}", Uuid::from_u128(n))),
            any::<u128>().prop_map(|n| format!("pvc-{}", Uuid::from_u128(n).simple())),
            "(pvc-)?[a-zA-Z0-9-]{0,40}",
        ]
    }

    proptest! {
        #[test]
        fn a_volume_comes_back_as_it_was(
            name in name(), class in ".{0,3}", drive: String, size_bytes: u64, published: bool,
            parameters in prop::collection::btree_map(".{0,3}", ".{0,3}", 0..4),
            mounts in prop::collection::vec(".{0,3}", 0..3), ill: bool,
        ) {
            let volume = Volume {
                name, class, drive, size_bytes, published, parameters, mounts,
                conditions: vec![Condition::default(); usize::from(ill)],
                ..Volume::default()
            };
            let with_id = Volume { id: "v@n".into(), ..volume.clone() };
            let packed = Packed::of(with_id.clone());
            prop_assert_eq!(packed.volume(), volume);
            let encoded = packed.encode("v@n".into());
            prop_assert_eq!(Volume::decode(&encoded[..]).unwrap(), with_id);
        }
    }

    #[test]
    fn volumes_alike_share_what_they_have_in_common_until_the_last_is_gone() {
        let of = |name: &str, drive: &str| {
            let parameters =
                [("a", "1"), ("b", "2"), ("c", "3")].map(|(n, v)| (n.into(), v.into()));
            Packed::of(Volume {
                name: name.into(),
                drive: drive.into(),
                parameters: parameters.into(),
                ..Volume::default()
            })
        };
        let mut kinds = Kinds::default();
        let mut volumes = [of("v", "a"), of("w", "a"), of("x", "b")];
        for volume in &mut volumes {
            kinds.take_in(volume);
        }
        assert!(Arc::ptr_eq(&volumes[0].kind, &volumes[1].kind));
        assert_eq!(kinds.len(), 2);
        let [v, w, x] = volumes;
        kinds.release(&v);
        kinds.release(&x);
        assert_eq!(kinds.len(), 1);
        kinds.release(&w);
        assert_eq!(kinds.len(), 0);
    }

    #[test]
    fn a_provisioners_volume_takes_few_bytes_of_its_own() {
        let packed = Packed::of(Volume {
            name: format!("pvc-{}", Uuid::from_u128(7)),
            class: "bulk".into(),
            drive: "wwn-0x5000c500a1b2c3d4".into(),
            size_bytes: 20 << 30,
            mode: "mount".into(),
            fs_type: "ext4".into(),
            state: "ready".into(),
            published: true,
            device: "nvme0n1p2".into(),
            ..Volume::default()
        });
        // The marker and the name, the size, the published flag, and the device.
        assert_eq!(packed.own.len(), 1 + 16 + 6 + 2 + 11);
    }
}
