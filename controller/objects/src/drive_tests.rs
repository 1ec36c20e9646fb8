use std::{fs, path::Path};

use super::*;

fn is_subdomain(name: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |label: &str| {
        label.starts_with(edge)
            && label.ends_with(edge)
            && label.chars().all(|c| edge(c) || c == '-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// After a change of the types: `DRIVEBAY_WRITE_GOLDEN=1 cargo test -p drivebay-objects definition`.
#[test]
fn the_definition_in_the_chart_matches_the_types() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart/drives.drivebay.io.yaml");
    let yaml = drivebay_view::document::yaml(&definition()).unwrap();
    let written = format!(
        "# Generated from controller/objects/src/drive.rs by its tests; do not edit.\n{yaml}"
    );
    if std::env::var_os("DRIVEBAY_WRITE_GOLDEN").is_some() {
        fs::write(&path, &written).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, committed, "{} differs", path.display());
}

#[test]
fn an_object_has_a_status_and_no_spec() {
    let mut drive = Drive::new("wwn-1", NoSpec {});
    drive.status = Some(DriveStatus::default());
    let json = serde_json::to_value(&drive).unwrap();
    assert!(
        json.get("spec").is_none() && json.get("status").is_some(),
        "{json}"
    );
    let read: Drive = serde_json::from_value(json).unwrap();
    assert_eq!(read, drive);
    let schema = serde_json::to_value(definition()).unwrap();
    let root = &schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    assert_eq!(root["properties"].as_object().unwrap().len(), 1, "{root}");
}

#[test]
fn every_identity_has_a_name_that_kubernetes_accepts() {
    for drive in [
        "wwn-0x5000c500a1b2c3d4",
        "eui-0025385b71b1d0c1",
        "nguid-3ab0e9",
        "serial-QEMU_HARDDISK_QM00001",
        "path-pci-0000:00:1f.2-ata-1",
        "loop-a.b:C_d",
        "",
        "_",
        "..",
        "ü",
        &"X".repeat(5000),
        "wwn-",
    ] {
        let name = name("n1", drive);
        assert!(is_subdomain(&name), "{drive:?}: {name:?}");
    }
}

#[test]
fn names_are_derived_from_identities_and_no_two_drives_share_one() {
    assert_eq!(name("n1", "wwn-0x5000c5"), "wwn-0x5000c5");
    let serial = name("n1", "serial-M_S");
    assert!(serial.starts_with("serial-m-s."), "{serial}");
    assert_eq!(serial, name("n2", "serial-M_S"));
    assert_ne!(serial, name("n1", "serial-m_S"));
    // An identity that equals the name of another drive's object does not take that name.
    assert_ne!(name("n2", &serial), serial);
    assert_ne!(name("n1", "wwn-A"), name("n1", "wwn-a"));
}

#[test]
fn path_and_loop_identities_have_a_name_for_each_node() {
    for drive in ["path-pci-0000:00:1f.2-ata-1", "loop-1"] {
        assert_ne!(name("n1", drive), name("n2", drive));
        assert_eq!(name("n1", drive), name("n1", drive));
    }
}
