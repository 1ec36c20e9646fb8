//! Tests of `keeper`: what is settled is on disk, and no drive delays it.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::{
    context::NodeContext,
    inventory::wire::Sender,
    state::KnownDrive,
    volumes::{VolumeError, Volumes},
};
use drivebay_config::{HostFacts, parse};
use drivebay_model::{Drive, DriveState, Layout, RecordState, samples};
use drivebay_worker::{Pool, PoolConfig};

pub struct Rig {
    _dir: tempfile::TempDir,
    pub inventory: Arc<Inventory>,
    pub volumes: Volumes,
    pool: Pool,
    keeper: Keeper,
    store: Store,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

impl Rig {
    /// Adds drives that are scanned; there are no others.
    pub fn scanned(&self, drives: impl IntoIterator<Item = Drive>) {
        self.inventory.update(|state| {
            for drive in drives {
                state.drives.insert(drive.id.clone(), drive.into());
            }
            state.ready = true;
        });
    }

    pub async fn saved_tombstones(&self) -> BTreeSet<Uuid> {
        let volumes = self.store.load().await.tombstones.volumes;
        volumes.into_keys().collect()
    }

    pub async fn end(self) {
        self.stop.cancel();
        self.running.await.unwrap();
        self.pool.shutdown(Duration::ZERO).await;
    }
}

/// Returns a script of a worker that answers its first job so, whatever it is. `dir`: a directory for the answer.
pub fn answers(
    dir: &std::path::Path,
    outcome: &Result<impl serde::Serialize, impl serde::Serialize>,
) -> String {
    let done = serde_json::json!({ "id": 1, "outcome": outcome, "retire": false });
    let body = serde_json::to_vec(&serde_json::json!({ "Done": done })).unwrap();
    let mut frame = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
    frame.extend(body);
    let path = dir.join(format!("answer-{}", Uuid::new_v4()));
    std::fs::write(&path, frame).unwrap();
    format!(
        "dd bs=65536 count=1 of=/dev/null 2>/dev/null; cat {} >&0; exec cat >/dev/null",
        path.display()
    )
}

/// `worker`: a script that is started as each drive's worker.
pub async fn rig(worker: &str) -> Rig {
    rig_with(worker, true).await
}

/// Like [`rig`]; with `deletes`, the keeper deletes quarantined volumes that are due, else only the test does.
pub async fn rig_with(worker: &str, deletes: bool) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let host = HostFacts {
        hostname: "node7".into(),
        has_dir: |_| false,
        check_mount_options: |_, _| drivebay_fs::kernel_options::OptionsCheck::Accepted,
    };
    let text = "[[class]]\nname = 'bulk'\n[class.select]\nmedia = 'hdd'\n";
    let mut config = parse(text, &host).unwrap().config;
    config.state_dir = dir.path().to_owned();
    config.runtime_dir = dir.path().to_owned();
    let program = dir.path().join("worker");
    std::fs::write(&program, format!("#!/bin/sh\n{worker}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let pool = PoolConfig {
        program,
        notes_dir: dir.path().join("workers"),
        fork: false,
        idle: Duration::from_secs(1),
        spare: 1,
        stuck_after: Duration::from_secs(60),
        queue: 1,
    };
    let pool = Pool::new(pool).await.unwrap();
    let inventory = Arc::new(Inventory::new(config.classes.clone(), config.quarantine));
    let sender = Sender {
        node: config.node_id.clone(),
        instance: "boot".into(),
        classes: config.classes.clone(),
    };
    let (keeper, requests) = Keeper::new();
    let node = NodeContext::new(config, pool.clone(), inventory.clone(), sender);
    let volumes = Volumes::new(node, keeper.clone());
    let store = Store::new(volumes.node().state_dir());
    let stop = CancellationToken::new();
    let delete = {
        let volumes = volumes.clone();
        move |drive, uuid| {
            let volumes = volumes.clone();
            async move {
                if deletes {
                    volumes.delete_quarantined(&drive, uuid).await;
                }
            }
        }
    };
    let running = run(
        inventory.clone(),
        volumes.node().config().quarantine,
        delete,
        Store::new(volumes.node().state_dir()),
        Default::default(),
        requests,
        stop.clone(),
    );
    Rig {
        _dir: dir,
        inventory,
        volumes,
        pool,
        keeper,
        store,
        stop,
        running: tokio::spawn(running),
    }
}

#[tokio::test]
async fn the_current_state_is_on_disk_when_settling_returns() {
    let rig = rig("exit 1").await;
    // The task receives a change and a request to settle at once, in either order.
    for count in 1..=20 {
        let facts = samples::facts(&format!("d{count}"));
        rig.inventory.update(|state| {
            state.remembered.drives.insert(
                facts.id.clone(),
                KnownDrive {
                    facts,
                    class: "bulk".into(),
                    usable_bytes: 0,
                    layout: Layout::Partition,
                    drive_uuid: Uuid::nil(),
                    vanished: Vec::new(),
                    volumes: Vec::new(),
                    retired: false,
                    last_seen: 0,
                },
            );
        });
        rig.keeper.settle().await;
        assert_eq!(rig.store.load().await.known.drives.len(), count);
    }
    rig.stop.cancel();
    rig.running.await.unwrap();
    // A stopping agent delays no caller.
    rig.keeper.settle().await;
}

#[tokio::test]
async fn a_drive_that_hangs_while_its_quarantined_volume_is_deleted_delays_no_write() {
    let rig = rig("exec sleep 600").await;
    let volume = samples::placed(1, RecordState::New);
    let (uuid, contents) = (volume.record.uuid, samples::contents(1, 1, vec![volume], 0));
    let drive = samples::drive("hangs", DriveState::Claimed, Some(contents));
    let tombstone = Tombstone {
        drives: [drive.id.clone()].into(),
        name: "pvc-1".into(),
        deleted_at: 0,
        quarantined_seconds: 0,
        released: true,
    };
    rig.inventory
        .update(|state| state.tombstones.volumes.insert(uuid, tombstone));
    rig.scanned([drive]);
    let waits = async {
        while !rig.pool.status().iter().any(|slot| slot.step.is_some()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waits)
        .await
        .unwrap();
    tokio::time::timeout(Duration::from_secs(5), rig.keeper.settle())
        .await
        .unwrap();
    assert!(
        rig.store
            .load()
            .await
            .tombstones
            .volumes
            .contains_key(&uuid)
    );
    rig.end().await;
}

/// A doubt that outlived what was acknowledged since, e.g. because its note could not be removed.
#[tokio::test]
async fn an_old_doubt_buries_no_volume_that_was_acknowledged_while_its_drive_is_away() {
    let rig = rig("exit 1").await;
    let record = samples::placed(1, RecordState::New).record;
    let (uuid, name) = (record.uuid, record.name.clone());
    let facts = samples::facts("away");
    let doubt = crate::state::Doubt {
        drive: facts.id.clone(),
        uuid,
    };
    rig.inventory.update(|state| {
        state.ready = true;
        state.remembered.in_doubt.insert(name.clone(), doubt);
        let away = KnownDrive {
            class: "bulk".into(),
            usable_bytes: 0,
            layout: Layout::Partition,
            drive_uuid: Uuid::nil(),
            vanished: Vec::new(),
            volumes: vec![record],
            retired: false,
            last_seen: 0,
            facts: facts.clone(),
        };
        state.remembered.drives.insert(facts.id, away);
    });
    let request = drivebay_csi::NewVolume {
        name: name.clone(),
        class: Some("bulk".into()),
        content: drivebay_csi::Content::Block,
        range: drivebay_csi::validate::SizeRange {
            required: 1 << 30,
            limit: None,
        },
        parameters: BTreeMap::new(),
        created_for: Default::default(),
        manual: false,
        source: None,
    };
    let refused = rig.volumes.create(request).await;
    assert!(
        matches!(refused, Err(VolumeError::ExistsAway { .. })),
        "{refused:?}"
    );
    let written = rig.store.load().await;
    assert!(written.tombstones.volumes.is_empty());
    assert!(written.known.in_doubt.is_empty());
    assert!(rig.inventory.deleted().is_empty());
}

#[tokio::test]
async fn files_that_could_not_be_read_at_the_start_are_taken_up_before_they_are_written() {
    let rig = rig("exit 1").await;
    let (facts, uuid) = (samples::facts("away"), Uuid::from_u128(5));
    let drive = KnownDrive {
        facts: facts.clone(),
        class: "bulk".into(),
        usable_bytes: 0,
        layout: Layout::Partition,
        drive_uuid: Uuid::nil(),
        vanished: Vec::new(),
        volumes: Vec::new(),
        retired: false,
        last_seen: 0,
    };
    let earlier = LastKnown {
        drives: [(facts.id.clone(), drive.clone())].into(),
        ..LastKnown::default()
    };
    let deleted = Tombstones {
        volumes: [(
            uuid,
            Tombstone {
                drives: [facts.id.clone()].into(),
                name: "v".into(),
                deleted_at: 1,
                quarantined_seconds: 0,
                released: false,
            },
        )]
        .into(),
    };
    rig.store.save_known(earlier.clone()).await.unwrap();
    rig.store.save_tombstones(deleted.clone()).await.unwrap();
    // Another agent on the same directory, for which they cannot be read.
    let names = ["known.json", "tombstones.json"].map(|name| rig._dir.path().join(name));
    for path in &names {
        std::fs::rename(path, path.with_extension("away")).unwrap();
        std::fs::create_dir(path).unwrap();
    }
    let store = Store::new(rig.volumes.node().state_dir());
    let mut on_disk = <(LastKnown, Tombstones)>::default();
    store.load().await;
    let inventory = Inventory::new(rig.volumes.node().config().classes.clone(), Duration::ZERO);
    let mut here = drive.clone();
    here.facts = samples::facts("here");
    let id = here.facts.id.clone();
    inventory.update(|state| {
        state.remembered.drives.insert(id.clone(), here);
    });
    write(&inventory, &store, &mut on_disk.0, &mut on_disk.1).await;
    for path in &names {
        std::fs::remove_dir(path).unwrap();
        std::fs::rename(path.with_extension("away"), path).unwrap();
    }
    store.make_due();
    read_again(&inventory, &store, &mut on_disk.0, &mut on_disk.1).await;
    assert_eq!(on_disk, (earlier, deleted));
    write(&inventory, &store, &mut on_disk.0, &mut on_disk.1).await;
    let next = Store::new(rig.volumes.node().state_dir()).load().await;
    let drives: Vec<&DriveId> = next.known.drives.keys().collect();
    assert_eq!(drives, [&facts.id, &id]);
    assert!(next.tombstones.volumes.contains_key(&uuid));
    rig.end().await;
}
