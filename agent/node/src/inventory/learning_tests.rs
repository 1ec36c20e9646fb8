//! Persisted state of drives while some of them have not been scanned yet.

use std::time::Duration;

use super::*;
use crate::state::LastKnown as Remembered;
use drivebay_model::{DriveState, RecordState, VolumeState, samples};

#[test]
fn a_volume_deleted_and_erased_before_the_first_scan_is_complete_did_not_vanish() {
    let with = |states: Vec<RecordState>| {
        let placed = states.into_iter().map(|state| samples::placed(7, state));
        samples::contents(1, 1, placed.collect(), 0)
    };
    let drive = |states| samples::drive("sda", DriveState::Claimed, Some(with(states)));
    // State written by an earlier agent.
    let earlier = Inventory::new(Vec::new(), Duration::ZERO);
    earlier.update(|inventory_state| {
        let drive = drive(vec![RecordState::New]);
        inventory_state
            .drives
            .insert(drive.id.clone(), drive.into());
    });
    let remembered: Remembered = earlier.remembered().0;
    assert_eq!(remembered.drives.len(), 1);

    let inventory = Inventory::new(Vec::new(), Duration::ZERO);
    inventory.update(|inventory_state| inventory_state.recall(remembered));
    let id = drive(Vec::new()).id;
    let erasing = RecordState::Erasing {
        done_bytes: 0,
        erase_guid: uuid::Uuid::from_u128(9),
    };
    for states in [vec![RecordState::New], vec![erasing], Vec::new()] {
        inventory.update(|inventory_state| {
            inventory_state.unscanned.remove(&id);
            inventory_state
                .drives
                .insert(id.clone(), drive(states).into());
        });
    }
    let shown = inventory.current();
    assert!(!shown.ready);
    let missing = |volume: &&drivebay_model::Volume| volume.state == VolumeState::Missing;
    assert_eq!(shown.volumes.values().find(missing), None);
}

#[test]
fn earlier_contents_of_one_drive_are_not_published_with_the_current_ones_of_another() {
    let inventory = Inventory::new(Vec::new(), Duration::ZERO);
    let contents = |label, sequence, volumes: &[u128]| {
        let placed = volumes.iter();
        let placed = placed.map(|number| samples::placed(*number, RecordState::New));
        samples::contents(label, sequence, placed.collect(), 0)
    };
    let drives = [("sda", 1), ("sdb", 2)].map(|(name, label)| {
        let contents = contents(label, 5, &[label]);
        samples::drive(name, DriveState::Claimed, Some(contents))
    });
    inventory.update(|inventory_state| {
        for drive in &drives {
            let id = drive.id.clone();
            inventory_state.drives.insert(id, drive.clone().into());
        }
    });
    let [first, second] = drives.map(|drive| drive.id);
    inventory.put_all_contents([
        (&first, contents(1, 4, &[])),
        (&second, contents(2, 6, &[2, 3])),
    ]);
    let shown = inventory.current();
    let volumes = shown.volumes.values();
    let states: Vec<_> = volumes
        .map(|volume| (volume.uuid.as_u128(), volume.state))
        .collect();
    let new = [1, 2, 3].map(|number| (number, VolumeState::New));
    assert_eq!(states, new);
}
