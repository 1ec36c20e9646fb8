//! Space: every MiB can be used, none is allocated twice, and a refusal has the numbers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    os::unix::fs::FileExt,
    time::{Duration, Instant},
};

use drivebay_common::units::{human_sizes, size_beside};
use drivebay_hwtests::{Csi, DriveSpec, MIB, Rig, csi, need, settings, tools};
use drivebay_proto::csi::CreateVolumeRequest;
use tonic::{Code, Status};

#[tokio::test]
async fn the_last_mib_of_a_drive_can_be_used() {
    need!(root, loop);
    for sector in [512, 4096] {
        // The end of the drive is no multiple of a MiB.
        let bytes = 100 * MIB + 7 * u64::from(sector);
        fill_to_the_last_mib(DriveSpec::blank("a", bytes).sector(sector)).await;
    }
}

async fn fill_to_the_last_mib(drive: DriveSpec) {
    let rig = Rig::with(vec![drive]).await;
    let free = u64::try_from(rig.csi.capacity().await.unwrap()).unwrap();
    // LVM's metadata and its copy take 4 MiB each, and the drive's last MiB is left out.
    let least = if is_lvm() { 91 } else { 94 };
    assert!(free >= least * MIB, "{free} of 100 MiB can be used");
    let volume = rig.volume("all", free, &csi::block()).await;
    assert_eq!(volume.bytes, free);
    assert_eq!(rig.csi.capacity().await.unwrap(), 0);
    rig.use_volume(&volume).await;
    let node = File::options()
        .read(true)
        .write(true)
        .open(&volume.target)
        .unwrap();
    let full = vec![0x5a; usize::try_from(MIB).unwrap()];
    node.write_all_at(&full, free - MIB).unwrap();
    node.sync_all().unwrap();
    assert!(
        node.write_all_at(b"x", free).is_err(),
        "it is longer than it says"
    );
    drop(node);
    rig.leave_volume(&volume).await;
    rig.use_volume(&volume).await;
    let mut back = vec![0; full.len()];
    File::open(&volume.target)
        .unwrap()
        .read_exact_at(&mut back, free - MIB)
        .unwrap();
    assert!(back == full, "the last MiB does not read back");
    rig.leave_volume(&volume).await;
    rig.csi.delete(&volume.id).await.unwrap();
    rig.erased().await;
    rig.csi.capacity_is(free as i64).await;
}

#[tokio::test]
async fn no_room_names_what_was_needed_and_the_largest_piece_and_its_drive() {
    need!(root, loop);
    let drives = vec![
        DriveSpec::blank("a", 100 * MIB),
        DriveSpec::blank("b", 200 * MIB),
    ];
    let rig = Rig::with(drives).await;
    let first = rig.volume("first", 120 * MIB, &csi::block()).await;
    let b = rig.drive_is("b", "claimed").await;
    let a = rig.drive_is("a", "available").await;
    let largest = a.largest_free_bytes.max(b.largest_free_bytes);
    let place = if largest == a.largest_free_bytes {
        a.id
    } else {
        b.id
    };
    let refused = rig.csi.create("more", 150 * MIB, &csi::block()).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    let [needed, fits] = human_sizes([150 * MIB, largest]);
    for wanted in [needed, fits, place] {
        assert!(refused.message().contains(&wanted), "{wanted}: {refused:?}");
    }
    assert_eq!(rig.csi.ids().await.unwrap(), [first.id.as_str()]);
}

#[tokio::test]
async fn growing_is_refused_with_how_far_it_could_and_changes_nothing() {
    need!(root, loop);
    let rig = Rig::with(vec![DriveSpec::blank("a", 200 * MIB)]).await;
    let first = rig.volume("first", 32 * MIB, &csi::block()).await;
    let second = rig.volume("second", 32 * MIB, &csi::block()).await;
    let free = rig.drive_is("a", "claimed").await.largest_free_bytes;
    // The one with its neighbour behind it, which LVM grows in another place, and the one with the rest of the drive.
    let first_possible = if is_lvm() { 32 * MIB + free } else { 32 * MIB };
    for (volume, possible) in [(&first, first_possible), (&second, 32 * MIB + free)] {
        let requested = 32 * MIB + free + MIB;
        let refused = rig
            .csi
            .expand(&volume.id, requested, &volume.capability)
            .await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
        let could = format!("could grow to {}", size_beside(possible, requested));
        assert!(refused.message().contains(&could), "{could}: {refused:?}");
        let now = rig.volume_of(&volume.id).await.unwrap();
        assert_eq!(now.size_bytes, 32 * MIB);
    }
    let whole = 32 * MIB + free;
    let grown = rig.csi.expand(&second.id, whole, &second.capability).await;
    assert_eq!(u64::try_from(grown.unwrap().0), Ok(whole));
    assert_eq!(rig.csi.capacity().await.unwrap(), 0);
}

/// Creates a volume, repeating the call while its code is retryable.
async fn create(csi: Csi, name: String, size: u64) -> Result<String, Status> {
    let start = Instant::now();
    loop {
        match csi.create(&name, size, &csi::block()).await {
            Ok(volume) => return Ok(volume.volume_id),
            Err(status)
                if matches!(status.code(), Code::Aborted | Code::Unavailable)
                    && start.elapsed() < Duration::from_secs(120) =>
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(status) => return Err(status),
        }
    }
}

#[tokio::test]
async fn parallel_creates_never_overbook_and_each_volume_is_there_once() {
    need!(root, loop, tool "sfdisk", tool "lvs");
    const NAMES: usize = 20;
    let size = 20 * MIB;
    let rig = Rig::with(vec![
        DriveSpec::blank("a", 128 * MIB),
        DriveSpec::blank("b", 128 * MIB),
        DriveSpec::blank("c", 128 * MIB),
    ])
    .await;
    let fits: u64 = u64::try_from(rig.csi.capacity().await.unwrap()).unwrap() / 3 / size * 3;
    assert!(fits < NAMES as u64, "the test needs more names than room");
    let mut tasks = tokio::task::JoinSet::new();
    for at in 0..NAMES {
        // Each twice, as from a sidecar that lost its leader lease.
        for _ in 0..2 {
            let (csi, name) = (rig.csi.clone(), format!("many-{at}"));
            tasks.spawn(async move { (at, create(csi, name, size).await) });
        }
    }
    let mut made: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    while let Some(done) = tasks.join_next().await {
        match done.unwrap() {
            (at, Ok(id)) => drop(made.entry(at).or_default().insert(id)),
            (_, Err(status)) => assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}"),
        }
    }
    assert_eq!(made.len() as u64, fits, "{made:?}");
    assert!(made.values().all(|ids| ids.len() == 1), "{made:?}");
    let mut listed = rig.csi.ids().await.unwrap();
    listed.sort();
    let mut ids: Vec<String> = made.into_values().flatten().collect();
    ids.sort();
    assert_eq!(listed, ids);

    rig.shelf.flush().unwrap();
    let mut created = Vec::new();
    for name in ["a", "b", "c"] {
        let mut runs = if is_lvm() {
            runs_of_pv(&rig, name)
        } else {
            runs_of_table(&rig, name)
        };
        runs.sort();
        assert!(
            runs.windows(2).all(|pair| pair[0].1 <= pair[1].0),
            "{runs:?}"
        );
        assert!(runs.iter().all(|run| run.1 - run.0 == size), "{runs:?}");
        created.extend(runs.into_iter().map(|run| run.2));
    }
    created.sort();
    let uuids: Vec<&str> = ids.iter().filter_map(|id| id.split('@').next()).collect();
    assert_eq!(created, uuids);
}

fn is_lvm() -> bool {
    settings::layout() == "lvm"
}

/// Returns the volumes of a drive with a partition table: first byte, end, uuid.
fn runs_of_table(rig: &Rig, name: &str) -> Vec<(u64, u64, String)> {
    let file = rig.shelf.file(name).display().to_string();
    let text = tools::run("sfdisk", &["-J", &file]).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let table = &json["partitiontable"];
    let end = (table["lastlba"].as_u64().unwrap() + 1) * 512;
    let mut runs: Vec<(u64, u64, String)> = Vec::new();
    for part in table["partitions"].as_array().unwrap() {
        let start = part["start"].as_u64().unwrap() * 512;
        let len = part["size"].as_u64().unwrap() * 512;
        let uuid = part["uuid"].as_str().unwrap().to_lowercase();
        runs.push((start, start + len, uuid));
    }
    runs.sort();
    // The first one is the label's.
    let volumes = runs.split_off(1);
    assert!(volumes.iter().all(|run| runs[0].1 <= run.0 && run.1 <= end));
    volumes
}

/// Returns the volumes of a drive with a VG, as LVM reports them.
fn runs_of_pv(rig: &Rig, name: &str) -> Vec<(u64, u64, String)> {
    let drive = rig
        .shelf
        .drives()
        .iter()
        .find(|of| of.name == name)
        .unwrap();
    let columns = "pe_start,pvseg_start,pvseg_size,vg_extent_size,lv_tags";
    let args = [
        "--segments",
        "--reportformat=json",
        "--units=b",
        "--nosuffix",
        "-o",
        columns,
    ];
    let node = drive.device.display().to_string();
    let text = tools::run("pvs", &[&args[..], &[&node]].concat()).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut runs = Vec::new();
    for segment in json["report"][0]["pvseg"].as_array().unwrap() {
        let number = |key: &str| segment[key].as_str().unwrap().parse::<u64>().unwrap();
        let tags = segment["lv_tags"].as_str().unwrap();
        let mut tags = tags.split(',');
        let Some(uuid) = tags.find_map(|tag| tag.strip_prefix("drivebay.uuid=")) else {
            assert!(segment["lv_tags"] == "", "{segment}");
            continue;
        };
        let extent = number("vg_extent_size");
        let start = number("pe_start") + number("pvseg_start") * extent;
        let end = start + number("pvseg_size") * extent;
        assert!(end <= drive.bytes, "{segment}");
        runs.push((start, end, uuid.to_owned()));
    }
    runs
}

#[tokio::test]
async fn a_mistyped_parameter_is_refused_with_the_known_ones() {
    need!(root, loop);
    let rig = Rig::with(vec![DriveSpec::blank("a", 128 * MIB)]).await;
    let before = rig.shelf.digests().unwrap();
    for typo in ["fstype", "Class", "mkfsOption"] {
        let request = CreateVolumeRequest {
            name: "typo".to_owned(),
            capacity_range: Some(csi::bytes(32 * MIB)),
            volume_capabilities: vec![csi::mount("ext4")],
            parameters: [(typo.to_owned(), "ext4".to_owned())].into(),
            ..Default::default()
        };
        let refused = rig.csi.create_with(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        for parameter in [typo, "class", "fsType", "mkfsOptions", "mountOptions"] {
            assert!(
                refused.message().contains(parameter),
                "{parameter}: {refused:?}"
            );
        }
    }
    assert!(rig.csi.ids().await.unwrap().is_empty());
    assert_eq!(rig.shelf.digests().unwrap(), before);
}
