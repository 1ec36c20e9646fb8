//! Finds devices that are one drive, and assigns the identity of each drive. Pure.
//!
//! A WWN should be unique, and is not always: some manufacturers give one to a whole batch. If serial numbers distinguish such drives, each
//! is identified by both; but a known drive keeps its identity while it is attached, and afterwards if it was claimed, since otherwise
//! another drive that is attached and removed would rename it.

use std::collections::{BTreeMap, BTreeSet};

use drivebay_model::{DriveFacts, DriveId, identity::is_unique_serial};
use drivebay_sys::sysfs::identity::{alone, with_name, with_serial};

/// True if nothing distinguishes two devices: they have the same identity, and not two different serial numbers. These are two paths to one
/// drive, a copied image behind two loop devices, or drives with the same manufacturer-assigned name. An NVMe path that the kernel hides is
/// no device of its own.
pub(super) fn is_twin(one: &DriveFacts, other: &DriveFacts) -> bool {
    let serials = [one, other].map(|facts| facts.serial.as_str());
    let differ = serials[0] != serials[1] && serials.into_iter().all(is_unique_serial);
    one.kernel_name != other.kernel_name
        && !other.hidden
        && !other.is_partition
        && alone(one) == alone(other)
        && !differ
}

/// Assigns a unique identity to each device. `facts`: all devices, with the identity that each has if it is alone. `known_drives`: all
/// known drives, missing ones included, by identity.
pub(super) fn assign_identities(
    facts: &mut [DriveFacts],
    known_drives: &BTreeMap<DriveId, DriveFacts>,
) {
    let mut groups: BTreeMap<DriveId, Vec<usize>> = BTreeMap::new();
    for (at, one) in facts.iter().enumerate().filter(|(_, one)| !one.hidden) {
        groups.entry(one.id.clone()).or_default().push(at);
    }
    for (base, group) in groups {
        let names: Vec<Names> = group
            .iter()
            .map(|at| Names::of(&base, &facts[*at], known_drives))
            .collect();
        let mut taken: BTreeSet<DriveId> = BTreeSet::new();
        // Known drives first: a new one never takes the identity of a known one.
        let mut order: Vec<usize> = (0..group.len()).collect();
        order.sort_by_key(|at| names[*at].rank());
        for at in order {
            let id = names[at].choose(&base, group.len(), &taken);
            taken.insert(id.clone());
            facts[group[at]].id = id;
        }
    }
}

/// Possible identities of one device of a group.
#[derive(Debug)]
struct Names {
    /// Identity of the same device in the previous scan.
    before: Option<DriveId>,
    /// Identity under which a drive of this serial number is known.
    remembered: Option<DriveId>,
    /// True if a drive of another serial number is known under the group's identity: its history is not this drive's.
    is_another: bool,
    with_serial: Option<DriveId>,
    with_name: DriveId,
}

impl Names {
    fn of(
        base: &DriveId,
        facts: &DriveFacts,
        known_drives: &BTreeMap<DriveId, DriveFacts>,
    ) -> Self {
        let with_serial = with_serial(&facts.wwn, &facts.serial);
        let with_name = with_name(base, &facts.kernel_name);
        let own = [Some(base), with_serial.as_ref(), Some(&with_name)];
        let first = |fits: &dyn Fn(&DriveFacts) -> bool| {
            let mut own = own.into_iter().flatten();
            own.find(|id| known_drives.get(*id).is_some_and(fits))
                .cloned()
        };
        let before = first(&|drive| is_device(drive, facts));
        let remembered =
            first(&|drive| is_unique_serial(&drive.serial) && drive.serial == facts.serial);
        let of_base = known_drives.get(base).map(|drive| drive.serial.as_str());
        Self {
            before,
            remembered,
            is_another: of_base.is_some_and(|serial| {
                serial != facts.serial && [serial, &facts.serial].into_iter().all(is_unique_serial)
            }),
            with_serial,
            with_name,
        }
    }

    fn rank(&self) -> u8 {
        match (&self.before, &self.remembered) {
            (Some(_), _) => 0,
            (None, Some(_)) => 1,
            (None, None) => 2,
        }
    }

    fn choose(&self, base: &DriveId, devices: usize, taken: &BTreeSet<DriveId>) -> DriveId {
        let alone = devices == 1 && !self.is_another;
        let choices = [
            self.before.as_ref(),
            self.remembered.as_ref(),
            Some(base).filter(|_| alone),
            self.with_serial.as_ref(),
            // It is alone, differs from the previous drive, and has no unique WWN.
            Some(base).filter(|_| devices == 1),
        ];
        let mut free = choices.into_iter().flatten();
        let free = free.find(|id| !taken.contains(*id));
        free.unwrap_or(&self.with_name).clone()
    }
}

/// True if both are the same attachment of a device: kernel name, disk sequence number and serial number are equal.
fn is_device(previous: &DriveFacts, facts: &DriveFacts) -> bool {
    let device = |facts: &DriveFacts| {
        (
            facts.kernel_name.clone(),
            facts.diskseq,
            facts.serial.clone(),
        )
    };
    device(previous) == device(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{DriveState, samples};

    const WWN: &str = "naa.5000c500a1b2c3d4";
    const BASE: &str = "wwn-0x5000c500a1b2c3d4";

    fn drive(name: &str, serial: &str, diskseq: u64) -> DriveFacts {
        DriveFacts {
            id: DriveId(BASE.into()),
            kernel_name: name.into(),
            wwn: WWN.into(),
            serial: serial.into(),
            diskseq,
            ..samples::drive("sda", DriveState::Claimed, None).facts
        }
    }

    /// Returns the identities after a scan of these drives, and updates `known_drives`.
    fn scan(
        drives: &[DriveFacts],
        known_drives: &mut BTreeMap<DriveId, DriveFacts>,
    ) -> Vec<String> {
        let mut facts = drives.to_vec();
        assign_identities(&mut facts, known_drives);
        let ids: BTreeSet<&DriveId> = facts.iter().map(|one| &one.id).collect();
        assert_eq!(ids.len(), facts.len(), "each has its own: {facts:?}");
        known_drives.extend(facts.iter().map(|one| (one.id.clone(), one.clone())));
        facts.into_iter().map(|one| one.id.0).collect()
    }

    #[test]
    fn two_drives_of_one_wwn_are_distinguished_by_their_serial_numbers() {
        let (a, b) = (drive("sda", "A1B2", 1), drive("sdb", "C3D4", 2));
        let ids = scan(&[a.clone(), b.clone()], &mut BTreeMap::new());
        assert_eq!(ids, [format!("{BASE}_A1B2"), format!("{BASE}_C3D4")]);
        assert!(!is_twin(&a, &b));
        assert_eq!(scan(&[a], &mut BTreeMap::new()), [BASE]);
    }

    #[test]
    fn a_drive_keeps_its_identity_when_another_of_its_wwn_comes_goes_and_after_a_restart() {
        let mut known_drives = BTreeMap::new();
        let (a, b) = (drive("sda", "A1B2", 1), drive("sdb", "C3D4", 2));
        let other = format!("{BASE}_C3D4");
        assert_eq!(scan(std::slice::from_ref(&a), &mut known_drives), [BASE]);
        assert_eq!(
            scan(&[b.clone(), a.clone()], &mut known_drives),
            [other.as_str(), BASE]
        );
        assert_eq!(scan(std::slice::from_ref(&a), &mut known_drives), [BASE]);
        // Each one is known; after a reboot they have other names and numbers.
        let (a, b) = (drive("sdb", "A1B2", 11), drive("sda", "C3D4", 12));
        assert_eq!(
            scan(&[b.clone(), a], &mut known_drives.clone()),
            [other.as_str(), BASE]
        );
        assert_eq!(scan(&[b], &mut known_drives), [other]);
    }

    #[test]
    fn a_replacement_of_the_same_wwn_is_not_identified_as_the_drive_before_it() {
        let mut known_drives = BTreeMap::new();
        scan(&[drive("sda", "A1B2", 1)], &mut known_drives);
        let ids = scan(&[drive("sda", "C3D4", 5)], &mut known_drives);
        assert_eq!(ids, [format!("{BASE}_C3D4")]);
    }

    #[test]
    fn drives_that_nothing_distinguishes_are_twins_and_the_known_one_keeps_its_identity() {
        for serials in [["", ""], ["A1B2", "A1B2"], ["00000000", "00000000"]] {
            let (a, b) = (drive("sda", serials[0], 1), drive("sdb", serials[1], 2));
            assert!(is_twin(&a, &b) && is_twin(&b, &a), "{serials:?}");
            let mut known_drives = BTreeMap::new();
            scan(std::slice::from_ref(&a), &mut known_drives);
            let ids = scan(&[b.clone(), a.clone()], &mut known_drives);
            assert_eq!(ids[1], BASE, "{serials:?}");
            let mut assigned = [b, a];
            assign_identities(&mut assigned, &known_drives);
            assert!(is_twin(&assigned[0], &assigned[1]), "told apart or not");
        }
        assert!(is_twin(&drive("sda", "A1B2", 1), &drive("sdb", "", 2)));
    }

    #[test]
    fn a_path_that_the_kernel_hides_is_left_alone() {
        let hidden = DriveFacts {
            hidden: true,
            ..drive("nvme0c0n1", "A1B2", 0)
        };
        let mut facts = [drive("nvme0n1", "A1B2", 1), hidden];
        assign_identities(&mut facts, &BTreeMap::new());
        assert!(facts.iter().all(|one| one.id.0 == BASE));
        assert!(!is_twin(&facts[0], &facts[1]));
    }
}
