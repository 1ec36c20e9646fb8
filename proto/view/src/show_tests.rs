//! Exact output for one volume and one drive.

use drivebay_proto::agent::{CreatedFor, VolumePlace, VolumeSnapshot};

use super::*;

#[test]
fn a_volume_of_nomads_is_called_as_its_user_calls_it() {
    let db = Volume {
        id: "7b1d5c1e-0000-4000-8000-000000000001@n1".into(),
        name: "nomad-8e1c7c0a-0b9d-4d52-9c3d-2f4a1b5c6d7e".into(),
        created_for: Some(CreatedFor {
            nomad_volume: "db".into(),
            nomad_namespace: "default".into(),
            ..CreatedFor::default()
        }),
        ..Volume::default()
    };
    let text = volume(None, &db, None, None, false, 0, Terminal::NONE);
    assert!(text.contains("\n  claim      default/db\n"), "{text}");
    let called = claim(&db);
    assert!(volume_names(&db, &called).others.contains(&"default/db"));
}

#[test]
fn a_volume_is_shown_with_its_snapshots_its_source_and_how_far_its_copying_is() {
    let snapshot = |name: &str, used_bytes| VolumeSnapshot {
        name: name.into(),
        created_at: 1000,
        size_bytes: 10 << 30,
        state: "ready".into(),
        reserve_bytes: 2 << 30,
        used_bytes,
        ..VolumeSnapshot::default()
    };
    let db = Volume {
        state: "copying".into(),
        source_snapshot: "a@n".into(),
        snapshots: vec![snapshot("one", Some(1 << 30)), snapshot("two", None)],
        ..Volume::default()
    };
    let copy = VolumeCopy {
        done_bytes: 1,
        total_bytes: 4,
        waits_for: "its turn".into(),
        ..VolumeCopy::default()
    };
    let text = volume(None, &db, None, Some(&copy), false, 4600, Terminal::NONE);
    let lines = "\
  copy of    snapshot a@n
  state      copying 25%
             its turn
";
    assert!(text.contains(lines), "{text}");
    let lines = "\
  snapshots  one (10 GiB, 1h old, never expires, 50% of 2 GiB reserve used): ready
             two (10 GiB, 1h old, never expires, reserve 2 GiB): ready
";
    assert!(text.contains(lines), "{text}");
    let text = volume(None, &db, None, None, false, 4600, Terminal::NONE);
    assert!(text.contains("  state      copying\n"), "{text}");
}

#[test]
fn a_volume_that_moved_is_shown_with_its_other_places_on_both_drives() {
    let place = |drive: &str, is: &str, generation| VolumePlace {
        drive: drive.into(),
        is: is.into(),
        generation,
    };
    let mut moved = Volume {
        name: "db".into(),
        drive: "wwn-b".into(),
        generation: 2,
        places: vec![place("wwn-a", "moved", 2), place("wwn-c", "incoming", 3)],
        ..Volume::default()
    };
    let text = volume(None, &moved, None, None, false, 0, Terminal::NONE);
    let places = "\
  generation 2
  also on    drive wwn-a: moved, generation 2
             drive wwn-c: incoming, generation 3
";
    assert!(text.contains(places), "{text}");
    let old = Drive {
        id: "wwn-a".into(),
        ..Drive::default()
    };
    let other = Volume::default();
    let volumes = [moved.clone(), other];
    let here = with_place_on(&volumes, "wwn-a");
    assert_eq!(here, [&moved]);
    let text = drive(None, &old, &here, false, 0, Terminal::NONE);
    assert!(
        text.ends_with(
            "\nOther places of volumes on it:\n  db: moved, generation 2; it is served from drive wwn-b\n"
        ),
        "{text}"
    );
    assert!(!text.contains("Volumes on it:"), "{text}");
    // A drive whose only known name is its identity.
    let text = volume(None, &moved, Some(&old), None, false, 0, Terminal::NONE);
    assert!(text.contains("  drive      wwn-a\n"), "{text}");
    moved.places.clear();
    moved.generation = 1;
    let text = volume(None, &moved, None, None, false, 0, Terminal::NONE);
    assert!(
        !text.contains("generation") && !text.contains("also on"),
        "{text}"
    );
}
