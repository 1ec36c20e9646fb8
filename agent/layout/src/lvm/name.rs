//! Names of VGs and LVs: what LVM takes, and what ours mean.

use uuid::Uuid;

/// Names that begin like this mean something to us.
const OURS: &[&str] = &[ERASING, "drivebay-", "vol-"];
const ERASING: &str = "drivebay-erasing-";
const CHECK: &str = "drivebay-check-";
const SNAPSHOT: &str = "drivebay-snap-";
/// LVM takes them for names of its own making, wherever they stand in a name (LVM's
/// `apply_lvname_restrictions`; more than 2.03.16 refuses, so that a later LVM may refuse them).
const RESERVED_PARTS: &[&str] = &[
    "_cdata", "_cmeta", "_corig", "_cpool", "_cvol", "_imeta", "_iorig", "_mimage", "_mlog",
    "_pmspare", "_rimage", "_rmeta", "_tdata", "_tmeta", "_vdata", "_vorigin", "_wcorig",
];
const RESERVED_STARTS: &[&str] = &["pvmove", "snapshot"];
/// Bytes of a device-mapper name, without the zero that ends it. Hyphens within a name count twice there.
const MOST_DM: usize = 127;
/// Bytes of both names that LVM 2.03.16 takes: with one more, `lvcreate` ends with an internal error ("length 128 is not
/// supported").
const MOST_BOTH: usize = 124;

/// Name of the VG on a drive of this uuid.
pub fn of_vg(drive_uuid: Uuid) -> String {
    format!("drivebay-{}", drive_uuid.simple())
}

/// Name of the LV for a volume: the CSI name when LVM takes it and nobody here has it, else `vol-<uuid>`.
pub fn of_lv(vg: &str, csi_name: &str, uuid: Uuid, taken: impl Fn(&str) -> bool) -> String {
    let ours = OURS.iter().any(|prefix| csi_name.starts_with(prefix));
    if !ours && lvm_takes(vg, csi_name) && !taken(csi_name) {
        csi_name.to_owned()
    } else {
        format!("vol-{uuid}")
    }
}

/// Whether an LV of that VG may be called so.
pub fn lvm_takes(vg: &str, name: &str) -> bool {
    let doubled = |name: &str| name.len() + name.matches('-').count();
    !name.is_empty()
        && name
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b"_+.-".contains(&c))
        && !name.starts_with('-')
        && name != "."
        && name != ".."
        && !RESERVED_STARTS.iter().any(|start| name.starts_with(start))
        && !RESERVED_PARTS.iter().any(|part| name.contains(part))
        && vg.len() + name.len() <= MOST_BOTH
        && doubled(vg) + 1 + doubled(name) <= MOST_DM
}

/// Whether LVM can make a snapshot of an LV of that name: the device that then holds its bytes is called by it and `-real`.
pub fn takes_snapshots(vg: &str, name: &str) -> bool {
    let doubled = |name: &str| name.len() + name.matches('-').count();
    doubled(vg) + 1 + doubled(name) + "-real".len() <= MOST_DM
}

/// Name of an LV that is being erased.
pub fn erasing(erase_guid: Uuid) -> String {
    format!("{ERASING}{erase_guid}")
}

/// The erase guid in such a name.
pub fn erase_guid(name: &str) -> Option<Uuid> {
    let guid: Uuid = name.strip_prefix(ERASING)?.parse().ok()?;
    // Written as we write it, and not in one of the other ways that a UUID can be.
    (erasing(guid) == name).then_some(guid)
}

/// Name of the snapshot by which a volume is checked.
pub fn check(volume: Uuid) -> String {
    format!("{CHECK}{volume}")
}

/// The volume in such a name.
pub fn checked(name: &str) -> Option<Uuid> {
    let volume: Uuid = name.strip_prefix(CHECK)?.parse().ok()?;
    (check(volume) == name).then_some(volume)
}

/// Name of the LV that stores what a snapshot has and its volume no longer.
pub fn snapshot(snapshot: Uuid) -> String {
    format!("{SNAPSHOT}{snapshot}")
}

/// The snapshot in such a name.
pub fn snapshot_uuid(name: &str) -> Option<Uuid> {
    let uuid: Uuid = name.strip_prefix(SNAPSHOT)?.parse().ok()?;
    (snapshot(uuid) == name).then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VG: &str = "drivebay-0123456789abcdef0123456789abcdef";

    #[test]
    fn a_csi_name_is_kept_where_lvm_takes_it() {
        let uuid = Uuid::from_u128(5);
        let fallback = format!("vol-{uuid}");
        let longest = "a".repeat(124 - 41);
        let most_hyphens = format!("a{}", "-".repeat(41));
        for name in [
            "pvc-00000000-0000-0000-0000-000000000000",
            "a",
            "A+b_c.d-e",
            "data",
            "...",
            longest.as_str(),
            most_hyphens.as_str(),
        ] {
            assert_eq!(of_lv(VG, name, uuid, |_| false), name);
            assert_eq!(of_lv(VG, name, uuid, |taken| taken == name), fallback);
        }
        let hyphens = "-a".repeat(30);
        for name in [
            "",
            "-a",
            ".",
            "..",
            "a b",
            "ä",
            "a/b",
            "a@b",
            "a:b",
            "snapshot1",
            "pvmove0",
            "a_tdata",
            "a_rimage_0",
            "vol-1",
            "drivebay-x",
            "drivebay-erasing-x",
            &"a".repeat(124 - 40),
            &format!("a{hyphens}"),
        ] {
            assert_eq!(of_lv(VG, name, uuid, |_| false), fallback, "{name}");
        }
        assert!(lvm_takes(VG, &fallback) && lvm_takes(VG, &erasing(uuid)));
        assert_eq!(of_vg(uuid).len(), VG.len());
    }

    #[test]
    fn a_checks_name_gives_its_volume_back_and_fits() {
        let volume = Uuid::from_u128(77);
        let name = check(volume);
        assert_eq!(checked(&name), Some(volume));
        assert!(lvm_takes(VG, &name) && takes_snapshots(VG, &format!("pvc-{volume}")));
        assert!(!takes_snapshots(VG, &"a".repeat(127 - 42 - 4)));
        for name in [
            format!("{CHECK}{}", volume.simple()),
            format!("{CHECK}x"),
            erasing(volume),
        ] {
            assert_eq!(checked(&name), None, "{name}");
        }
    }

    #[test]
    fn a_snapshots_name_gives_it_back_and_fits() {
        let uuid = Uuid::from_u128(77);
        assert_eq!(snapshot_uuid(&snapshot(uuid)), Some(uuid));
        assert!(lvm_takes(VG, &snapshot(uuid)));
        for name in [check(uuid), format!("{SNAPSHOT}{}", uuid.simple())] {
            assert_eq!(snapshot_uuid(&name), None, "{name}");
        }
    }

    #[test]
    fn an_erasing_name_gives_its_guid_back() {
        let guid = Uuid::from_u128(77);
        assert_eq!(erase_guid(&erasing(guid)), Some(guid));
        for name in [
            format!("{ERASING}{}", guid.simple()),
            erasing(guid).to_uppercase(),
            format!("{}0", erasing(guid)),
            "drivebay-erasing-".into(),
            "pvc-1".into(),
        ] {
            assert_eq!(erase_guid(&name), None, "{name}");
        }
    }
}
