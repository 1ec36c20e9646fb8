//! Contents of the drives of one simulated node: volumes and free space. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use drivebay_proto::agent::{CreateVolumeRequest, ExpandVolumeRequest};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::plan::Plan;
use crate::{GIB, MIB};

/// Class of every simulated drive.
pub const CLASS: &str = "nvme";
/// Filesystem of volumes whose request has none.
const FS_TYPE: &str = "ext4";
/// Usable size of a drive, bytes: 4 TB without label and alignment, in whole MiB.
pub const DRIVE_BYTES: u64 = 3_814_690 * MIB;

/// State of a volume of a simulated node; its uuid is the key in `Contents::volumes`. Serialized to the fleet's journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimVolume {
    /// CSI name; unique among the node's volumes that are not deleted.
    pub name: String,
    /// Which of the node's drives, from 0.
    pub drive: usize,
    /// Size, bytes.
    pub bytes: u64,
    /// Raw, without a filesystem.
    pub block: bool,
    /// Filesystem; of a block volume empty.
    pub fs_type: String,
    /// True if it is in use, staged or published; false for a deleted volume.
    pub published: bool,
    /// Deleted; its space is not free yet.
    pub erasing: bool,
    /// StorageClass parameters of the create request.
    pub parameters: BTreeMap<String, String>,
}

/// Reason for which a change was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refused {
    /// Another volume has this name.
    #[error("volume {name:?} exists and is different")]
    Different {
        /// Requested name. The existing volume has a size outside of the requested range or another mode, or the requested class does not
        /// exist.
        name: String,
    },
    /// The class does not exist: only one is simulated.
    #[error("there is no class {class:?} here, only {CLASS:?}")]
    NoClass {
        /// Requested class, another than `CLASS`.
        class: String,
    },
    /// No drive has enough free space.
    #[error("{needed} bytes needed, the largest free piece is {largest} bytes")]
    NoRoom {
        /// Bytes requested; for an expansion, those beyond the present size.
        needed: u64,
        /// Largest free space of a drive, bytes.
        largest: u64,
    },
    /// The volume does not exist, or was deleted.
    #[error("volume {id} does not exist")]
    NoVolume {
        /// Volume id of the request.
        id: String,
    },
    /// The volume is in use, or has another name.
    #[error("volume {id} may have been used, or has another name")]
    Used {
        /// Volume id of the request, which is a DeleteUnusedVolume.
        id: String,
    },
    /// The volume is larger than limit_bytes.
    #[error("limit_bytes {limit} is less than the volume has, {bytes}")]
    OverLimit {
        /// limit_bytes of the request.
        limit: u64,
        /// Size of the volume, bytes.
        bytes: u64,
    },
}

/// The drives of one node. Clones share the volumes.
#[derive(Debug, Clone, PartialEq)]
pub struct Contents {
    /// Number of drives, at least 1; drives are numbered from 0.
    pub drives: usize,
    /// All volumes, including deleted ones that are being erased.
    pub volumes: BTreeMap<Uuid, Arc<SimVolume>>,
    /// Drives with the verdict SUSPECT, from 0. The others are GOOD.
    pub suspect: BTreeSet<usize>,
}

impl Contents {
    /// Returns the initial contents of the `index`th node of a plan. Deterministic, so that a process that was killed restarts with the
    /// same volumes.
    pub fn planned(plan: &Plan, index: usize) -> Self {
        let mut rng = Rng::with_seed(plan.seed.wrapping_add(index as u64));
        let drives = plan.drives.max(1);
        let volumes = (0..plan.volumes)
            .map(|number| {
                (
                    random_uuid(&mut rng),
                    Arc::new(volume(&mut rng, number % drives)),
                )
            })
            .collect();
        Self {
            drives,
            volumes,
            suspect: BTreeSet::new(),
        }
    }

    /// Applies recorded changes: the current volume, or None for one that was erased.
    pub fn recall(&mut self, past: Vec<(Uuid, Option<SimVolume>)>) {
        for (uuid, volume) in past {
            match volume {
                Some(volume) => self.volumes.insert(uuid, Arc::new(volume)),
                None => self.volumes.remove(&uuid),
            };
        }
    }

    /// Returns the free bytes of each drive.
    pub fn free(&self) -> Vec<u64> {
        let mut free = vec![DRIVE_BYTES; self.drives];
        for volume in self.volumes.values() {
            if let Some(left) = free.get_mut(volume.drive) {
                *left = left.saturating_sub(volume.bytes);
            }
        }
        free
    }

    /// Returns the volumes that are not deleted.
    pub fn living(&self) -> impl Iterator<Item = (&Uuid, &Arc<SimVolume>)> {
        self.volumes.iter().filter(|(_, volume)| !volume.erasing)
    }

    /// Creates a volume, or returns the existing one with this name.
    ///
    /// # Errors
    /// [`Refused`]; nothing was created.
    pub fn create(&mut self, request: &CreateVolumeRequest) -> Result<Uuid, Refused> {
        let block = request.mode == "block";
        let existing = self
            .living()
            .find(|(_, volume)| volume.name == request.name);
        if let Some((uuid, volume)) = existing {
            let fits = volume.bytes >= request.required_bytes
                && (request.limit_bytes == 0 || volume.bytes <= request.limit_bytes)
                && volume.block == block
                && request.class == CLASS;
            return if fits {
                Ok(*uuid)
            } else {
                let name = request.name.clone();
                Err(Refused::Different { name })
            };
        }
        if request.class != CLASS {
            let class = request.class.clone();
            return Err(Refused::NoClass { class });
        }
        let drive = self.roomiest(request.required_bytes)?;
        let fs_type = match (block, request.fs_type.as_str()) {
            (true, _) => "",
            (false, "") => FS_TYPE,
            (false, named) => named,
        };
        let volume = SimVolume {
            name: request.name.clone(),
            drive,
            bytes: request.required_bytes,
            block,
            fs_type: fs_type.to_owned(),
            published: false,
            erasing: false,
            parameters: request.parameters.clone().into_iter().collect(),
        };
        let uuid = Uuid::new_v4();
        self.volumes.insert(uuid, Arc::new(volume));
        Ok(uuid)
    }

    fn roomiest(&self, needed: u64) -> Result<usize, Refused> {
        let free = self.free();
        let best = free.iter().enumerate().max_by_key(|(_, free)| **free);
        match best {
            Some((drive, free)) if *free >= needed => Ok(drive),
            best => Err(Refused::NoRoom {
                needed,
                largest: best.map_or(0, |(_, free)| *free),
            }),
        }
    }

    /// Marks a volume as deleted; returns true if that changed anything.
    pub fn delete(&mut self, uuid: &Uuid) -> bool {
        match self.volumes.get_mut(uuid) {
            Some(volume) if !volume.erasing => {
                let volume = Arc::make_mut(volume);
                volume.erasing = true;
                volume.published = false;
                true
            }
            _ => false,
        }
    }

    /// Removes a deleted volume, which frees its space; returns true if that changed anything.
    pub fn erase(&mut self, uuid: &Uuid) -> bool {
        let erasing = self.volumes.get(uuid).is_some_and(|volume| volume.erasing);
        erasing && self.volumes.remove(uuid).is_some()
    }

    /// Expands a volume; returns true if that changed anything.
    ///
    /// # Errors
    /// [`Refused`]; nothing was changed.
    pub fn expand(&mut self, uuid: &Uuid, request: &ExpandVolumeRequest) -> Result<bool, Refused> {
        let free = self.free();
        let missing = || Refused::NoVolume {
            id: request.id.clone(),
        };
        let volume = self.volumes.get_mut(uuid).ok_or_else(missing)?;
        if volume.erasing {
            return Err(missing());
        }
        if request.limit_bytes != 0 && volume.bytes > request.limit_bytes {
            return Err(Refused::OverLimit {
                limit: request.limit_bytes,
                bytes: volume.bytes,
            });
        }
        let more = request.required_bytes.saturating_sub(volume.bytes);
        let largest = free.get(volume.drive).copied().unwrap_or(0);
        if more > largest {
            return Err(Refused::NoRoom {
                needed: more,
                largest,
            });
        }
        if more > 0 {
            Arc::make_mut(volume).bytes += more;
        }
        Ok(more > 0)
    }

    /// Publishes or unpublishes a volume, the most frequent change on a node; returns true if it exists.
    pub fn toggle_published(&mut self, uuid: &Uuid) -> bool {
        match self.volumes.get_mut(uuid) {
            Some(volume) if !volume.erasing => {
                let volume = Arc::make_mut(volume);
                volume.published = !volume.published;
                true
            }
            _ => false,
        }
    }
}

/// Returns a version 4 uuid from these random numbers.
fn random_uuid(rng: &mut Rng) -> Uuid {
    uuid::Builder::from_random_bytes(rng.u128(..).to_ne_bytes()).into_uuid()
}

/// Returns a random volume as the provisioner creates them.
pub fn volume(rng: &mut Rng, drive: usize) -> SimVolume {
    SimVolume {
        name: format!("pvc-{}", random_uuid(rng)),
        drive,
        bytes: rng.u64(1..=20) * GIB,
        block: false,
        fs_type: FS_TYPE.to_owned(),
        published: rng.u8(..10) < 8,
        erasing: false,
        parameters: [("class".to_owned(), CLASS.to_owned())].into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str, bytes: u64) -> CreateVolumeRequest {
        CreateVolumeRequest {
            name: name.into(),
            class: CLASS.into(),
            required_bytes: bytes,
            mode: "mount".into(),
            ..CreateVolumeRequest::default()
        }
    }

    #[test]
    fn a_plan_gives_the_same_volumes_again_and_each_node_others() {
        let plan = Plan {
            volumes: 5,
            ..Plan::default()
        };
        let (one, again) = (Contents::planned(&plan, 1), Contents::planned(&plan, 1));
        let other = Contents::planned(&plan, 2);
        assert_eq!(one, again);
        assert_eq!(one.volumes.len(), 5);
        assert!(
            other
                .volumes
                .keys()
                .all(|uuid| !one.volumes.contains_key(uuid))
        );
    }

    #[test]
    fn a_name_is_made_once_and_free_again_after_its_deletion() {
        let mut contents = Contents::planned(&Plan::default(), 0);
        let first = contents.create(&request("a", GIB)).unwrap();
        assert_eq!(contents.create(&request("a", GIB)), Ok(first));
        let refused = contents.create(&request("a", 2 * GIB)).unwrap_err();
        assert!(matches!(refused, Refused::Different { .. }), "{refused}");
        assert!(contents.delete(&first));
        assert!(!contents.delete(&first));
        let second = contents.create(&request("a", GIB)).unwrap();
        assert_ne!(first, second);
    }

    #[test]
    fn there_is_no_more_room_than_there_is_and_erased_space_is_free_again() {
        let mut contents = Contents::planned(&Plan::default(), 0);
        let free: u64 = contents.free().iter().sum();
        let all = contents.create(&request("a", DRIVE_BYTES)).unwrap();
        assert_eq!(contents.free().iter().sum::<u64>(), free - DRIVE_BYTES);
        let refused = contents.create(&request("b", DRIVE_BYTES + 1)).unwrap_err();
        assert!(matches!(refused, Refused::NoRoom { .. }), "{refused}");
        assert!(!contents.erase(&all));
        contents.delete(&all);
        assert!(contents.erase(&all));
        assert_eq!(contents.free().iter().sum::<u64>(), free);
    }

    #[test]
    fn a_volume_grows_as_far_as_its_drive_goes() {
        let mut contents = Contents::planned(&Plan::default(), 0);
        let uuid = contents.create(&request("a", GIB)).unwrap();
        let to = |required_bytes| ExpandVolumeRequest {
            required_bytes,
            ..ExpandVolumeRequest::default()
        };
        assert_eq!(contents.expand(&uuid, &to(2 * GIB)), Ok(true));
        assert_eq!(contents.expand(&uuid, &to(GIB)), Ok(false));
        assert!(contents.expand(&uuid, &to(DRIVE_BYTES + 1)).is_err());
        assert_eq!(contents.expand(&uuid, &to(DRIVE_BYTES)), Ok(true));
        contents.delete(&uuid);
        assert!(contents.expand(&uuid, &to(DRIVE_BYTES)).is_err());
    }
}
