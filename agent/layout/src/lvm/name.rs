//! Names of VGs and LVs: LVM's rules, and the meaning of Drivebay's names.

use uuid::Uuid;

/// Beginnings of names that have a meaning for Drivebay.
const OURS: &[&str] = &[ERASING, "drivebay-", "vol-"];
const ERASING: &str = "drivebay-erasing-";
/// Begins with `ERASING`, and what follows is no guid: no store is taken for a volume.
const ERASING_STORE: &str = "drivebay-erasing-snap-";
const CHECK: &str = "drivebay-check-";
const SNAPSHOT: &str = "drivebay-snap-";
/// Reserved by LVM for internal LVs, anywhere in a name (LVM's `apply_lvname_restrictions`). The
/// list has more than LVM 2.03.16 refuses, because a later version may refuse them.
const RESERVED_PARTS: &[&str] = &[
    "_cdata", "_cmeta", "_corig", "_cpool", "_cvol", "_imeta", "_iorig", "_mimage", "_mlog",
    "_pmspare", "_rimage", "_rmeta", "_tdata", "_tmeta", "_vdata", "_vorigin", "_wcorig",
];
const RESERVED_STARTS: &[&str] = &["pvmove", "snapshot"];
/// Bytes of a device-mapper name, without the zero that ends it. Hyphens within the names of VG and
/// LV count twice there.
const MOST_DM: usize = 127;
/// Bytes of both names that LVM 2.03.16 accepts: with one more, `lvcreate` ends with an internal
/// error ("length 128 is not supported").
const MOST_BOTH: usize = 124;

/// Returns the name of the VG on a drive of this uuid.
pub fn of_vg(drive_uuid: Uuid) -> String {
    format!("drivebay-{}", drive_uuid.simple())
}

/// Splits the device-mapper name of a device of Drivebay into the drive's uuid and what follows the
/// VG's name; hyphens within names are doubled there. None: the device is of another VG.
pub fn of_device(dm_name: &str) -> Option<(Uuid, &str)> {
    let (drive, rest) = dm_name.strip_prefix("drivebay--")?.split_at_checked(32)?;
    let lv = rest.strip_prefix('-').filter(|lv| !lv.is_empty());
    // A single hyphen separates the two names; a second one would belong to the VG's name.
    let lv = lv.filter(|lv| !lv.starts_with('-'))?;
    let drive_uuid: Uuid = drive.parse().ok()?;
    (drive_uuid.simple().to_string() == drive).then_some((drive_uuid, lv))
}

/// Returns the name of a volume's LV: the CSI name if LVM accepts it and no LV of the VG has it,
/// else `vol-<uuid>`.
pub fn of_lv(vg: &str, csi_name: &str, uuid: Uuid, taken: impl Fn(&str) -> bool) -> String {
    let ours = OURS.iter().any(|prefix| csi_name.starts_with(prefix));
    if !ours && lvm_takes(vg, csi_name) && !taken(csi_name) {
        csi_name.to_owned()
    } else {
        format!("vol-{uuid}")
    }
}

/// True if LVM accepts this name for an LV of that VG.
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

/// True if LVM can create a snapshot of an LV of this name: the device that then holds the LV's
/// bytes has the suffix `-real`.
pub fn takes_snapshots(vg: &str, name: &str) -> bool {
    let doubled = |name: &str| name.len() + name.matches('-').count();
    doubled(vg) + 1 + doubled(name) + "-real".len() <= MOST_DM
}

/// Returns the name of an LV that is being erased.
pub fn erasing(erase_guid: Uuid) -> String {
    format!("{ERASING}{erase_guid}")
}

/// Returns the erase guid in the name of an LV that is being erased.
pub fn erase_guid(name: &str) -> Option<Uuid> {
    let guid: Uuid = name.strip_prefix(ERASING)?.parse().ok()?;
    // Only in the notation that `erasing` writes, not in another one of a UUID.
    (erasing(guid) == name).then_some(guid)
}

/// Returns the name of an LV that stored a deleted snapshot and is being erased.
pub fn erasing_store(erase_guid: Uuid) -> String {
    format!("{ERASING_STORE}{erase_guid}")
}

/// Returns the erase guid in the name of such an LV.
pub fn store_guid(name: &str) -> Option<Uuid> {
    let guid: Uuid = name.strip_prefix(ERASING_STORE)?.parse().ok()?;
    (erasing_store(guid) == name).then_some(guid)
}

/// Returns the name of the snapshot for checking a volume.
pub fn check(volume: Uuid) -> String {
    format!("{CHECK}{volume}")
}

/// Returns the volume in the name of a snapshot for checking.
pub fn checked(name: &str) -> Option<Uuid> {
    let volume: Uuid = name.strip_prefix(CHECK)?.parse().ok()?;
    (check(volume) == name).then_some(volume)
}

/// Returns the name of the LV that stores the earlier contents of blocks that changed since a
/// snapshot.
pub fn snapshot(snapshot: Uuid) -> String {
    format!("{SNAPSHOT}{snapshot}")
}

/// Returns the snapshot in the name of such an LV.
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
    fn a_device_of_a_vg_of_ours_is_known_by_its_name() {
        let drive = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        let vg = of_vg(drive).replace('-', "--");
        for lv in ["pvc--1", "drivebay--snap--x-cow", "a-real"] {
            assert_eq!(of_device(&format!("{vg}-{lv}")), Some((drive, lv)));
        }
        for other in [
            vg.clone(),
            format!("{vg}-"),
            format!("{vg}--x-lv"),
            format!("{}-lv", vg.to_uppercase()),
            "drivebay--0123-lv".to_owned(),
            "drivebay-0123456789abcdef0123456789abcdef-lv".to_owned(),
            "vg-lv".to_owned(),
            "drivebay--ä".to_owned(),
        ] {
            assert_eq!(of_device(&other), None, "{other}");
        }
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
            erasing_store(guid),
        ] {
            assert_eq!(erase_guid(&name), None, "{name}");
        }
    }

    #[test]
    fn the_name_of_a_deleted_store_gives_its_guid_back_and_is_that_of_nothing_else() {
        let guid = Uuid::from_u128(77);
        let name = erasing_store(guid);
        assert_eq!(store_guid(&name), Some(guid));
        assert!(lvm_takes(VG, &name));
        assert_eq!((checked(&name), snapshot_uuid(&name)), (None, None));
        for name in [erasing(guid), check(guid), snapshot(guid)] {
            assert_eq!(store_guid(&name), None, "{name}");
        }
        assert_eq!(of_lv(VG, &name, guid, |_| false), format!("vol-{guid}"));
    }
}
