//! Typical changes in a fleet: mostly publish and unpublish, some expansions, creations and deletions.

use drivebay_proto::agent::{CreateVolumeRequest, ExpandVolumeRequest};
use fastrand::Rng;
use uuid::Uuid;

use super::{
    contents::{CLASS, Contents},
    node::SimNode,
};
use crate::GIB;

/// Changes one of the node's volumes: in 16 of 20 cases publishes or unpublishes it, in two expands it, and in two replaces it by another
/// one.
pub fn one(node: &SimNode, rng: &mut Rng) {
    let mut deleted = None;
    node.publish(|contents| {
        let Some(uuid) = some(contents, rng) else {
            return false;
        };
        match rng.u8(..20) {
            0 | 1 => {
                contents.delete(&uuid);
                deleted = Some(uuid);
                // Without enough free space, there is one volume less.
                let _ = contents.create(&CreateVolumeRequest {
                    name: format!("pvc-{}", Uuid::new_v4()),
                    class: CLASS.to_owned(),
                    required_bytes: rng.u64(1..=20) * GIB,
                    mode: "mount".to_owned(),
                    ..CreateVolumeRequest::default()
                });
                true
            }
            2 | 3 => {
                let bytes = contents.volumes.get(&uuid).map_or(0, |volume| volume.bytes);
                let grown = contents.expand(
                    &uuid,
                    &ExpandVolumeRequest {
                        required_bytes: bytes + GIB,
                        ..ExpandVolumeRequest::default()
                    },
                );
                grown.unwrap_or(false)
            }
            _ => contents.toggle_published(&uuid),
        }
    });
    if let Some(uuid) = deleted {
        node.erase_later(uuid);
    }
}

/// Returns a random volume that is not deleted.
fn some(contents: &Contents, rng: &mut Rng) -> Option<Uuid> {
    let count = contents.living().count();
    let number = (count > 0).then(|| rng.usize(..count))?;
    contents.living().nth(number).map(|(uuid, _)| *uuid)
}
