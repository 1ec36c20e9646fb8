//! Observes a node after a step and compares it with the model: volumes and mounts at once; partition tables, the capacity computed from
//! them, the kernel's partitions and processes as soon as erasing has finished with them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use drivebay_hwtests::{agent, tree};
use drivebay_proto::{agent as wire, csi::GetCapacityRequest};

use super::{
    disk::{Disk, Part},
    states::{Access, State, Volume},
    steps::{Class, Kind, TARGETS},
    testbed::{Testbed, class_name, copy_of, kind_of, name_of, uuid_of},
};

/// Volumes and mounts of the node.
pub(crate) struct Observed {
    live: Vec<wire::Volume>,
    mounts: Vec<tree::Mount>,
}

impl Observed {
    /// Reads the volumes from ListVolumes and from the agent's inventory, which must agree, and every mount of the node's directory and
    /// drives.
    pub(crate) async fn of(bed: &Testbed) -> Result<Self, String> {
        let listed = bed.rig.csi.list().await;
        let listed = listed.map_err(|error| format!("ListVolumes: {error}"))?;
        let live: Vec<wire::Volume> = bed
            .rig
            .inventory()
            .await
            .volumes
            .into_iter()
            .filter(|volume| !matches!(volume.state.as_str(), "erasing" | "quarantined"))
            .collect();
        let mut shown: Vec<(String, u64)> = listed
            .into_iter()
            .filter_map(|entry| entry.volume)
            .map(|volume| {
                let bytes = u64::try_from(volume.capacity_bytes).unwrap_or(0);
                (volume.volume_id, bytes)
            })
            .collect();
        let mut expected: Vec<(String, u64)> = live
            .iter()
            .map(|volume| (volume.id.clone(), volume.size_bytes))
            .collect();
        shown.sort();
        expected.sort();
        if shown != expected {
            return Err(format!("ListVolumes has {shown:?}, the agent {expected:?}"));
        }
        Ok(Self {
            live,
            mounts: tree::mounts_of(bed.rig.dir()),
        })
    }

    /// Returns the possible states of a name that agree with the observation, completed with the observed id and drive.
    pub(crate) fn narrow(
        &self,
        bed: &Testbed,
        name: u8,
        states: &[State],
    ) -> Result<Vec<State>, String> {
        let live: Vec<&wire::Volume> = self
            .live
            .iter()
            .filter(|volume| volume.name == name_of(name))
            .collect();
        if live.len() > 1 {
            return Err(format!(
                "{} has {} volumes: {live:#?}",
                name_of(name),
                live.len()
            ));
        }
        let live = live.first().copied();
        let here = Here::of(self, bed, name)?;
        let mut left: Vec<State> = Vec::new();
        for state in states {
            let candidate = match (state, live) {
                (State::Absent, None) if here.is_none() => Some(State::Absent),
                (State::Present(volume), Some(observed)) if here.agrees(volume, observed) => {
                    learned(volume, observed).map(State::Present)
                }
                _ => None,
            };
            left.extend(candidate.filter(|state| !left.contains(state)));
        }
        if left.is_empty() {
            let live = live.map(|volume| {
                let wire::Volume {
                    id,
                    size_bytes,
                    fs_type,
                    mode,
                    drive,
                    state,
                    ..
                } = volume;
                format!("{id} of {size_bytes} bytes, {mode} {fs_type}, {state} on {drive}")
            });
            return Err(format!(
                "{}: observed {live:?}, {here:?}; possible are {states:#?}",
                name_of(name)
            ));
        }
        Ok(left)
    }

    /// Returns the mounts that belong to no name.
    pub(crate) fn strays(&self, bed: &Testbed) -> Vec<String> {
        let paths: BTreeSet<PathBuf> = bed.all_paths();
        self.mounts
            .iter()
            .filter(|mount| !paths.contains(&mount.point))
            .map(|mount| format!("{} is mounted at {}", mount.source, mount.point.display()))
            .collect()
    }
}

/// Mounts of one name.
#[derive(Debug)]
struct Here {
    staged: Option<String>,
    published: [Option<(Access, String)>; TARGETS as usize],
}

impl Here {
    fn of(observed: &Observed, bed: &Testbed, name: u8) -> Result<Self, String> {
        let at = |path: &Path| {
            let mut all = observed.mounts.iter().filter(|mount| mount.point == path);
            let first = all.next();
            if all.next().is_some() {
                return Err(format!("mounts are stacked at {}", path.display()));
            }
            Ok(first.map(|mount| {
                let access = if mount.options.split(',').any(|option| option == "ro") {
                    Access::ReadOnly
                } else {
                    Access::Writable
                };
                // A bind of a device node has the node's name as its root.
                let device = if mount.root == "/" {
                    mount.source.trim_start_matches("/dev/").to_owned()
                } else {
                    mount.root.trim_start_matches('/').to_owned()
                };
                (access, device)
            }))
        };
        let mut published = [const { None }; TARGETS as usize];
        for (target, slot) in (0..TARGETS).zip(&mut published) {
            *slot = at(&bed.target(name, target))?;
        }
        Ok(Self {
            staged: at(&bed.staging(name))?.map(|(_, device)| device),
            published,
        })
    }

    fn is_none(&self) -> bool {
        self.staged.is_none() && self.published.iter().all(Option::is_none)
    }

    fn agrees(&self, volume: &Volume, observed: &wire::Volume) -> bool {
        let staged = volume.staged && volume.kind != Kind::Block;
        let accesses = |published: &Option<(Access, String)>| published.as_ref().map(|of| of.0);
        let mounted = self.published.each_ref().map(accesses);
        let devices = self.published.iter().flatten().map(|of| &of.1);
        self.staged.is_some() == staged
            && mounted == volume.published
            && devices
                .chain(&self.staged)
                .all(|device| *device == observed.device)
    }
}

fn learned(volume: &Volume, observed: &wire::Volume) -> Option<Volume> {
    let drive = observed
        .drive
        .strip_prefix("loop-")
        .and_then(|rest| rest.split(".img-").next())?;
    let right = volume.id.as_ref().is_none_or(|id| *id == observed.id)
        && volume.bytes == observed.size_bytes
        && kind_of(observed) == Some(volume.kind)
        && class_name(volume.class) == observed.class
        && volume
            .drive
            .as_deref()
            .is_none_or(|expected| expected == drive);
    right.then(|| Volume {
        id: Some(observed.id.clone()),
        drive: Some(drive.to_owned()),
        ..volume.clone()
    })
}

/// Allocation of the drives, and what the agent reports of it.
pub(crate) struct Counted {
    pub(crate) largest: BTreeMap<Class, u64>,
    pub(crate) growth: BTreeMap<String, u64>,
}

/// Counts the space of each plugged drive and compares it with the agent's reports; verifies partitions and processes, too.
pub(crate) async fn count(bed: &Testbed) -> Result<Counted, String> {
    let inventory = bed.rig.inventory().await;
    let mut free: BTreeMap<Class, u64> = BTreeMap::new();
    let mut counted = Counted {
        largest: BTreeMap::new(),
        growth: BTreeMap::new(),
    };
    for drive in bed.rig.shelf.drives() {
        let reported = inventory
            .drives
            .iter()
            .find(|reported| reported.kernel_name == drive.kernel_name)
            .ok_or_else(|| format!("drive {} is not listed", drive.name))?;
        let original = drive.name.strip_prefix(&copy_of(""));
        if bed.facts.copied.contains(original.unwrap_or(&drive.name)) {
            let mut codes = reported.rejects.iter().map(|reject| reject.code.as_str());
            let is_refused = codes.any(|code| code == "DuplicateIdentity");
            if is_refused && reported.state == "rejected" {
                continue;
            }
            return Err(format!("{} is not refused: {reported:?}", drive.name));
        }
        let disk = Disk::read(&drive.device, drive.bytes)?;
        let state = if disk.claimed { "claimed" } else { "available" };
        let figures = (disk.free_bytes(), disk.largest());
        if reported.state != state || (reported.free_bytes, reported.largest_free_bytes) != figures
        {
            return Err(format!(
                "drive {} is reported as {} with {} bytes free, {} in one piece; its partition table says {state}, {figures:?}: {disk:?}; {:?} {:?}",
                drive.name,
                reported.state,
                reported.free_bytes,
                reported.largest_free_bytes,
                reported.rejects,
                reported.trouble
            ));
        }
        let of_drive = |volume: &&wire::Volume| volume.drive == reported.id;
        let on_it: Vec<&wire::Volume> = inventory.volumes.iter().filter(of_drive).collect();
        entries(&disk, &on_it)?;
        partitions(&disk, &on_it, &drive.kernel_name)?;
        for part in &disk.parts {
            let volume = on_it.iter().find(|of| uuid_of(&of.id) == part.uuid);
            counted
                .growth
                .extend(volume.map(|of| (of.id.clone(), disk.growth(part))));
        }
        let class = bed.class_of(&drive.name);
        *free.entry(class).or_default() += figures.0;
        let largest = counted.largest.entry(class).or_default();
        *largest = figures.1.max(*largest);
    }
    for class in [Class::Small, Class::Large] {
        let request = GetCapacityRequest {
            parameters: [("class".to_owned(), class_name(class).to_owned())].into(),
            ..Default::default()
        };
        let reported = bed.rig.csi.controller().get_capacity(request).await;
        let reported = reported.map_err(|error| format!("GetCapacity: {error}"))?;
        let reported = reported.into_inner().available_capacity;
        let free = free.get(&class).copied().unwrap_or(0);
        if u64::try_from(reported) != Ok(free) {
            return Err(format!(
                "GetCapacity of {class:?} answers {reported}; the partition tables have {free} bytes free"
            ));
        }
    }
    processes(bed)?;
    Ok(counted)
}

/// Verifies that the table has each volume of the drive once, with its size, and otherwise only volumes that are being erased.
fn entries(disk: &Disk, on_it: &[&wire::Volume]) -> Result<(), String> {
    let erasing = on_it.iter().filter(|of| of.state == "erasing").count();
    let others = on_it.iter().filter(|of| of.state != "erasing");
    let mut unowned: Vec<&Part> = disk.parts.iter().collect();
    for volume in others {
        let uuid = uuid_of(&volume.id);
        let at = unowned
            .iter()
            .position(|part| part.uuid == uuid && part.len == volume.size_bytes);
        match at {
            Some(at) => drop(unowned.remove(at)),
            None => return Err(format!("{volume:?} is not in the table: {disk:?}")),
        }
    }
    if unowned.len() != erasing {
        return Err(format!(
            "{erasing} volumes are being erased, and these are in the table: {unowned:?}"
        ));
    }
    Ok(())
}

/// Verifies that the kernel has the partition of each volume as in the table, and otherwise only the label's.
fn partitions(disk: &Disk, on_it: &[&wire::Volume], kernel_name: &str) -> Result<(), String> {
    let number_in = |path: &Path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.trim().parse::<u64>().unwrap_or(0) * 512
    };
    let actual: Vec<Part> = tree::partitions(kernel_name)
        .into_iter()
        .filter(|(_, number)| *number != 1)
        .map(|(name, number)| {
            let of = Path::new("/sys/class/block").join(name);
            Part {
                number,
                start: number_in(&of.join("start")),
                len: number_in(&of.join("size")),
                uuid: String::new(),
            }
        })
        .collect();
    let kept = |part: &&Part| {
        // A quarantined volume is unchanged and can be restored.
        let live = |of: &&&wire::Volume| of.state != "erasing";
        on_it
            .iter()
            .filter(live)
            .any(|of| uuid_of(&of.id) == part.uuid)
    };
    let mut wanted: Vec<Part> = disk
        .parts
        .iter()
        .filter(kept)
        .map(|part| Part {
            uuid: String::new(),
            ..part.clone()
        })
        .collect();
    wanted.sort_by_key(|part| part.number);
    if actual != wanted {
        return Err(format!(
            "the kernel has {actual:?} of {kernel_name}, the table {wanted:?}"
        ));
    }
    Ok(())
}

/// Verifies that without an agent there is no worker and no tool on the drives, and that there is never a zombie.
pub(crate) fn processes(bed: &Testbed) -> Result<(), String> {
    let ours = agent::descendants(bed.rig.agent.pid());
    let program = bed.rig.agent.program();
    let nodes: Vec<String> = bed
        .rig
        .shelf
        .drives()
        .iter()
        .map(|drive| drive.device.display().to_string())
        .collect();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        if pid == bed.rig.agent.pid() || pid == std::process::id() {
            continue;
        }
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if ours.contains(&pid) {
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            if stat
                .rsplit(')')
                .next()
                .is_some_and(|rest| rest.starts_with(" Z"))
            {
                return Err(format!("process {pid} is a zombie"));
            }
            continue;
        }
        let is_program = fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program)
            && bed.rig.agent.is_of(pid);
        let at_drive = |word: &str| {
            nodes
                .iter()
                .any(|node| word == node || word.starts_with(&format!("{node}p")))
        };
        if is_program || line.split(' ').any(at_drive) {
            return Err(format!("process {pid} belongs to no agent: {line}"));
        }
    }
    Ok(())
}
