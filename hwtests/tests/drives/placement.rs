//! Choice of a drive for a volume: spread by default, also for concurrent creations; and the free space that each drive keeps.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    Csi, DriveSpec, MIB, Rig, csi,
    hang::{HungDrive, class_of},
    need, wait,
};
use drivebay_proto::csi as wire;
use tokio::task::JoinSet;
use tonic::{Code, Status};

/// Longest time until creations reach their first write, on a busy machine.
const BEGUN: Duration = Duration::from_secs(20);

/// Starts a rig whose class sets no placement.
async fn with(drives: Vec<DriveSpec>) -> Rig {
    Rig::tuned(drives, |settings| settings.placement.clear()).await
}

/// Returns blank drives of this size.
fn blank(count: usize, bytes: u64) -> Vec<DriveSpec> {
    (0..count)
        .map(|n| DriveSpec::blank(&format!("d{n:02}"), bytes))
        .collect()
}

/// Returns the number of volumes by drive, for drives that have some.
async fn by_drive(rig: &Rig) -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    for volume in rig.inventory().await.volumes {
        *count.entry(volume.drive).or_default() += 1;
    }
    count
}

/// Creates `count` volumes concurrently, and returns the answers.
async fn at_once(rig: &Rig, class: &str, count: usize, bytes: u64) -> Vec<Result<String, Status>> {
    let mut tasks = JoinSet::new();
    for n in 0..count {
        let (csi, class): (Csi, String) = (rig.csi.clone(), class.to_owned());
        tasks.spawn(async move {
            let request = wire::CreateVolumeRequest {
                name: format!("at-once-{n}"),
                capacity_range: Some(csi::bytes(bytes)),
                volume_capabilities: vec![csi::block()],
                parameters: [("class".to_owned(), class)].into(),
                ..Default::default()
            };
            csi.create_with(request).await.map(|made| made.volume_id)
        });
    }
    tasks.join_all().await
}

/// Returns how many times a drive refused a volume, by the agent's log.
fn refusals(rig: &Rig) -> usize {
    let log = fs::read_to_string(rig.agent.settings().log_file()).unwrap();
    log.matches("drive refused a volume").count()
}

#[tokio::test]
async fn eight_volumes_on_four_equal_drives_lie_two_on_each_and_each_can_be_doubled() {
    need!(root, loop);
    let rig = with(blank(4, 128 * MIB)).await;
    let mut volumes = Vec::new();
    for n in 0..8 {
        let name = format!("even-{n}");
        volumes.push(rig.volume(&name, 24 * MIB, &csi::block()).await);
    }
    let count = by_drive(&rig).await;
    assert_eq!(count.values().copied().collect::<Vec<_>>(), [2; 4]);
    for volume in &volumes {
        let grown = rig.csi.expand(&volume.id, 48 * MIB, &csi::block()).await;
        assert_eq!(grown.unwrap().0, 48 * MIB as i64, "{}", volume.id);
    }
}

#[tokio::test]
async fn a_class_that_packs_fills_one_drive_before_the_next() {
    need!(root, loop);
    let rig = Rig::tuned(blank(3, 128 * MIB), |settings| {
        settings.placement = "pack".to_owned();
    })
    .await;
    for n in 0..4 {
        rig.volume(&format!("packed-{n}"), 24 * MIB, &csi::block())
            .await;
    }
    assert_eq!(by_drive(&rig).await.into_values().collect::<Vec<_>>(), [4]);
    rig.volume("next", 48 * MIB, &csi::block()).await;
    assert_eq!(by_drive(&rig).await.len(), 2);
}

/// Each drive holds its first write until all drives have one: sequential creations would never finish.
#[tokio::test]
async fn creations_on_different_drives_run_at_the_same_time() {
    need!(root, loop, layout "partition");
    const DRIVES: usize = 4;
    let drives: Vec<HungDrive> = (0..DRIVES)
        .map(|_| HungDrive::new(128 * MIB).unwrap())
        .collect();
    let rig = Rig::tuned(blank(1, 128 * MIB), |settings| {
        settings.more = class_of("slow", "partition", &drives);
    })
    .await;
    drives.iter().for_each(HungDrive::hang_writes);
    let creating = at_once(&rig, "slow", DRIVES, 24 * MIB);
    let released = async {
        wait::until_async(BEGUN, "every drive holds a write", async || {
            let holding = drives.iter().filter(|drive| drive.hanging() > 0);
            (holding.count() == DRIVES).then_some(())
        })
        .await;
        drives.iter().for_each(HungDrive::resume);
    };
    let (made, ()) = tokio::join!(creating, released);
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    let count: Vec<usize> = by_drive(&rig).await.into_values().collect();
    assert_eq!(count, [1; DRIVES]);
    assert_eq!(refusals(&rig), 0);
}

/// Creates one volume more than there are drives, each of which has space for one.
async fn each_drive_gets_one_creation(drives: usize) {
    let rig = with(blank(drives, 64 * MIB)).await;
    let from = Instant::now();
    let answers = at_once(&rig, "demo", drives + 1, 40 * MIB).await;
    let took = from.elapsed().as_secs_f64();
    println!(
        "{drives} drives: answered in {took:.1} s; a drive refused {} times",
        refusals(&rig)
    );
    let (made, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!(made.len(), drives);
    let codes: Vec<Code> = refused
        .into_iter()
        .map(|of| of.unwrap_err().code())
        .collect();
    assert_eq!(codes, [Code::ResourceExhausted]);
    let count: Vec<usize> = by_drive(&rig).await.into_values().collect();
    assert_eq!(count, vec![1; drives]);
    assert_eq!(refusals(&rig), 0);
}

#[tokio::test]
async fn sixteen_creations_at_once_go_to_sixteen_drives_and_none_is_refused_by_a_drive() {
    need!(root, loop);
    each_drive_gets_one_creation(16).await;
}

#[tokio::test]
#[ignore = "64 loop devices: hwtests/all-tests --long"]
async fn sixty_four_creations_at_once_go_to_sixty_four_drives_and_none_is_refused_by_a_drive() {
    need!(root, loop);
    each_drive_gets_one_creation(64).await;
}
