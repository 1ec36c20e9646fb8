//! The moments after an agent was killed: whatever calls come before its drives are scanned, nothing in use is deleted, detached or
//! reported as missing. Needs root and loop devices; one test FUSE as well.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests fail loudly"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    Csi, DriveSpec, GIB, MIB, Rig, Shelf, csi,
    each::each,
    hang::{Hang, HungDrive},
    need,
    node::Placed,
    pair::{Link, Pair},
    wait,
};
use drivebay_proto::csi::CreateVolumeRequest;
use tonic::{Code, Status};

/// A hung drive does not delay the others: their calls are answered before a scan continues without it.
const PROMPT: Duration = Duration::from_millis(2500);

/// Delay of a drive that appears after the agent, for example behind an expander with staggered spin-up.
const LATE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Staged,
    Published,
    /// Published, with files held open by a process.
    Busy,
}

const STATES: [State; 4] = [State::Idle, State::Staged, State::Published, State::Busy];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Delete,
    Unpublish,
    Unstage,
    Stats,
    Expand,
    NodeExpand,
    Stage,
    Publish,
}

const CALLS: [Call; 8] = [
    Call::Delete,
    Call::Unpublish,
    Call::Unstage,
    Call::Stats,
    Call::Expand,
    Call::NodeExpand,
    Call::Stage,
    Call::Publish,
];

struct Row {
    /// True if the drive hangs.
    hangs: bool,
    state: State,
    call: Call,
    volume: Placed,
    open: Vec<File>,
    /// Defect of the answer, and its duration.
    wrong: Option<String>,
    took: Duration,
}

fn mounts_at(path: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let path = path.to_str().unwrap();
    let at = |line: &&str| line.split(' ').nth(4) == Some(path);
    table.lines().filter(at).count()
}

/// Returns a volume of a class, in this state.
async fn row(rig: &Rig, class: &str, state: State, call: Call) -> Row {
    let name = format!("{class}-{state:?}-{call:?}").to_lowercase();
    let capability = csi::mount("ext4");
    let request = CreateVolumeRequest {
        name: name.clone(),
        capacity_range: Some(csi::bytes(32 * MIB)),
        volume_capabilities: vec![capability.clone()],
        parameters: [("class".to_owned(), class.to_owned())].into(),
        ..Default::default()
    };
    let volume = rig.csi.create_with(request).await.unwrap();
    let volume = rig.place(&volume, &name, &capability);
    let (id, staging) = (&volume.id, &volume.staging);
    if state != State::Idle {
        let staged = rig.csi.stage(id, staging, &volume.capability);
        staged.await.unwrap();
    }
    if matches!(state, State::Published | State::Busy) {
        rig.publish(&volume).await;
    }
    let mut open = Vec::new();
    if state == State::Busy {
        for (dir, name) in [(&volume.staging, "a"), (&volume.target, "b")] {
            open.push(File::create(dir.join(name)).unwrap());
        }
    }
    Row {
        hangs: class == HUNG,
        state,
        call,
        volume,
        open,
        wrong: None,
        took: Duration::ZERO,
    }
}

async fn make(csi: &Csi, row: &Row) -> Result<Vec<String>, Status> {
    let volume = &row.volume;
    let (id, capability) = (&volume.id, &volume.capability);
    match row.call {
        Call::Delete => csi.delete(id).await?,
        Call::Unpublish => csi.unpublish(id, &volume.target).await?,
        Call::Unstage => csi.unstage(id, &volume.staging).await?,
        Call::Stats => {
            let answer = csi.stats(id, &volume.target).await?;
            let condition = answer.volume_condition.unwrap_or_default();
            return Ok(vec![condition.message]);
        }
        Call::Expand => drop(csi.expand(id, 40 * MIB, capability).await?),
        Call::NodeExpand => drop(csi.node_expand(id, &volume.staging, 32 * MIB).await?),
        Call::Stage => csi.stage(id, &volume.staging, capability).await?,
        Call::Publish => {
            let (staging, target) = (&volume.staging, &volume.target);
            let published = csi.publish(id, staging, target, capability, false);
            published.await?;
        }
    }
    Ok(Vec::new())
}

/// Returns the defect of the answer and of the volume's mounts, or None.
fn judge(row: &Row, answer: &Result<Vec<String>, Status>) -> Option<String> {
    use Call::{Delete, Publish, Stats, Unpublish, Unstage};
    use State::{Busy, Idle, Published, Staged};
    let ok = answer.is_ok();
    let code = answer.as_ref().err().map(Status::code);
    let again = matches!(code, Some(Code::Unavailable | Code::Aborted));
    let allowed = match (row.call, row.state) {
        (Delete, Idle) => ok || again,
        (Delete, _) => again || code == Some(Code::FailedPrecondition),
        (Unpublish | Unstage, Busy) => again,
        // Unpublishing and unstaging never wait for a scan.
        (Unpublish | Unstage, _) => ok,
        (Stats, Published | Busy) => ok,
        (Stats, Idle | Staged) => again || code == Some(Code::NotFound),
        (Publish, Idle) => !ok,
        (Call::NodeExpand, Idle) => !ok,
        _ => ok || again,
    };
    let text = answer
        .as_ref()
        .map(|text| text.concat())
        .unwrap_or_default();
    let missing = text.contains("not found on this node");
    let volume = &row.volume;
    // On a hung drive nothing is changed, and nothing is detached without a request.
    let allowed = if row.hangs {
        !ok || row.call == Stats
    } else {
        allowed
    };
    let lost =
        row.state == Busy && (mounts_at(&volume.staging) == 0 || mounts_at(&volume.target) == 0);
    (!allowed || missing || lost).then(|| {
        format!(
            "{:?} of a volume that is {:?}: {answer:?}, missing: {missing}, unmounted: {lost}",
            row.call, row.state
        )
    })
}

/// Kills the agent, and makes every call as soon as its successor has a socket. Returns the defects of the answers, and the longest
/// duration.
async fn right_after_kill(rig: &mut Rig, rows: Vec<Row>) -> (Vec<String>, Duration, Vec<Row>) {
    rig.agent.kill9();
    let settings = rig.agent.settings().clone();
    let (socket, agent_socket) = (settings.csi_socket(), settings.agent_socket());
    // A socket file left by the killed agent accepts no calls.
    for left in [&socket, &agent_socket] {
        let _ = fs::remove_file(left);
    }
    let calls = async {
        let csi = wait::until_async(Duration::from_secs(20), "the socket answers", async || {
            Csi::connect(&socket).await.ok()
        })
        .await;
        each(rows, |row| {
            let csi = csi.clone();
            async move {
                let begun = Instant::now();
                let answer = make(&csi, &row).await;
                let wrong = judge(&row, &answer);
                let took = begun.elapsed();
                Row { wrong, took, ..row }
            }
        })
        .await
    };
    let watch = async {
        let end = Instant::now() + Duration::from_secs(6);
        let mut wrong = Vec::new();
        while Instant::now() < end {
            if let Ok(inventory) = csi::inventory(&agent_socket).await {
                let missing = inventory
                    .drives
                    .iter()
                    .filter(|drive| drive.state == "missing");
                wrong.extend(missing.map(|drive| format!("drive {} is missing", drive.id)));
                let conditions = inventory.volumes.iter().flat_map(|of| &of.conditions);
                let missing = conditions.filter(|of| of.reason == "DriveMissing");
                wrong.extend(missing.map(|of| of.message.clone()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        wrong.truncate(3);
        wrong
    };
    let (started, rows, missing) = tokio::join!(rig.agent.start_again(), calls, watch);
    started.unwrap();
    rig.csi = rig.agent.csi().await.unwrap();
    let defects = rows.iter().filter_map(|row| row.wrong.clone());
    let wrong = missing.into_iter().chain(defects).collect();
    let answering = rows.iter().filter(|row| !row.hangs);
    let longest = answering.map(|row| row.took).max();
    (wrong, longest.unwrap_or_default(), rows)
}

async fn rows_of(rig: &Rig) -> Vec<Row> {
    let mut rows = Vec::new();
    for state in STATES {
        for call in CALLS {
            rows.push(row(rig, "demo", state, call).await);
        }
    }
    rows
}

/// Class of the hung drive.
const HUNG: &str = "hung";

/// Verifies that everything in use still is, whatever the first calls returned, and that nothing was quarantined.
async fn nothing_was_lost(rig: &Rig, rows: Vec<Row>) {
    for row in rows {
        let volume = rig.volume_of(&row.volume.id).await;
        if row.state == State::Busy {
            let volume = volume.expect("a volume in use is listed");
            assert!(volume.published, "{volume:?}");
        } else if let Some(volume) = volume {
            assert_ne!(volume.state, "quarantined", "{volume:?}");
        }
        drop(row.open);
    }
}

#[tokio::test]
async fn every_call_right_after_a_kill_takes_nothing_that_is_in_use() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 4 * GIB)]).await;
    let rows = rows_of(&rig).await;
    // Mounts are persisted within two seconds.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (wrong, _, rows) = right_after_kill(&mut rig, rows).await;
    assert!(wrong.is_empty(), "{wrong:#?}");
    nothing_was_lost(&rig, rows).await;
}

#[tokio::test]
async fn every_call_right_after_a_kill_is_answered_while_another_drive_hangs() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", fs "ext4");
    let hung = HungDrive::new(2 * GIB).unwrap();
    let mut rig = Rig::tuned(vec![DriveSpec::blank("a", 4 * GIB)], |settings| {
        settings.more = hung.class(HUNG, "partition");
    })
    .await;
    rig.is_available(&hung).await;
    let mut rows = rows_of(&rig).await;
    for state in STATES {
        for call in [Call::Delete, Call::Stats, Call::Expand] {
            rows.push(row(&rig, HUNG, state, call).await);
        }
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    hung.hang_on(Hang::All);
    let (wrong, longest, rows) = right_after_kill(&mut rig, rows).await;
    hung.resume();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(longest < PROMPT, "a call took {longest:?}");
    nothing_was_lost(&rig, rows).await;
}

#[tokio::test]
async fn a_deletion_through_the_controller_right_after_a_kill_takes_nothing_that_is_in_use() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut shelf = Shelf::new().unwrap();
    shelf.add(DriveSpec::blank("a", GIB)).unwrap();
    let mut pair = Pair::start(Link::Socket, shelf, |_| ()).await;
    let mut used = Vec::new();
    for name in ["staged", "published", "busy"] {
        let capability = csi::mount("ext4");
        let volume = pair.csi.create(name, 32 * MIB, &capability).await.unwrap();
        let volume = pair.node.place(&volume, name, &capability);
        let staged = pair
            .node
            .csi
            .stage(&volume.id, &volume.staging, &capability);
        staged.await.unwrap();
        if name != "staged" {
            pair.node.publish(&volume).await;
        }
        used.push(volume);
    }
    let _open = File::create(used[2].target.join("open")).unwrap();
    let ids: BTreeSet<String> = used.iter().map(|volume| volume.id.clone()).collect();
    for _ in 0..if need::is_long() { 4 } else { 2 } {
        pair.agent.kill9();
        let (csi, volumes) = (pair.csi.clone(), used.clone());
        let deleting = tokio::spawn(async move {
            let end = Instant::now() + Duration::from_secs(6);
            let mut codes = BTreeMap::<String, u32>::new();
            while Instant::now() < end {
                for volume in &volumes {
                    let answer = csi.delete(&volume.id).await;
                    let code = answer.map_or_else(|refused| refused.code(), |()| Code::Ok);
                    *codes.entry(format!("{code:?}")).or_default() += 1;
                }
            }
            codes
        });
        pair.start_agent_again().await;
        let codes = deleting.await.unwrap();
        assert!(!codes.contains_key("Ok"), "{codes:?}");
        // Refused by the agent itself, not only by a controller without a connection to it.
        assert!(codes.contains_key("FailedPrecondition"), "{codes:?}");
        let listed: BTreeSet<String> = pair.csi.ids().await.unwrap().into_iter().collect();
        assert_eq!(listed, ids);
    }
    for volume in &used {
        assert!(mounts_at(&volume.staging) == 1, "{volume:?}");
    }
}

fn tune(rig: &mut Rig, grace: &str) {
    let class = |toml: &mut drivebay_hwtests::Settings| grace.clone_into(&mut toml.boot_grace);
    rig.agent.retune(class).unwrap();
}

#[tokio::test]
async fn a_drive_that_appears_after_the_agent_is_waited_for_and_never_missing() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 512 * MIB)]).await;
    let volume = rig.volume("kept", 64 * MIB, &csi::mount("ext4")).await;
    rig.agent.stop().unwrap();
    rig.shelf.pull("a");
    // The test's host booted long ago.
    tune(&mut rig, "99999h");
    rig.start_again().await;
    let waited_for = async {
        let end = Instant::now() + if need::is_long() { LATE } else { LATE / 4 };
        while Instant::now() < end {
            rig.drive_is("a", "not-scanned").await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    // Each of these calls waits some seconds for the drive.
    let refused = async {
        let deleted = rig.csi.delete(&volume.id).await.unwrap_err();
        assert_eq!(deleted.code(), Code::Unavailable, "{deleted}");
        let (id, staging) = (&volume.id, &volume.staging);
        let staged = rig.csi.stage(id, staging, &volume.capability).await;
        assert_eq!(staged.unwrap_err().code(), Code::Unavailable);
    };
    let refused_unknown = async {
        let unknown = volume.id.replace(&volume.id[..8], "00000000");
        let unknown = rig.csi.delete(&unknown).await.unwrap_err();
        assert_eq!(unknown.code(), Code::Unavailable, "{unknown}");
    };
    tokio::join!(waited_for, refused, refused_unknown);
    rig.drive_is("a", "not-scanned").await;
    assert_eq!(rig.csi.ids().await.unwrap(), [volume.id.as_str()]);
    assert_eq!(rig.reasons(&volume).await, Vec::<String>::new());
    let stats: PathBuf = volume.target.clone();
    let stats = rig.csi.stats(&volume.id, &stats).await.unwrap_err();
    assert_eq!(stats.code(), Code::NotFound, "{stats}");
    // A waiting call is answered as soon as the drive is present.
    let (csi, id) = (rig.csi.clone(), volume.id.clone());
    let waiting = tokio::spawn(async move { csi.delete(&id).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.shelf.plug("a").unwrap();
    waiting.await.unwrap().unwrap();
    rig.drive_is("a", "claimed").await;
    rig.erased().await;
    // A drive that this agent has observed is reported as missing when it disappears.
    rig.shelf.pull("a");
    rig.drive_is("a", "missing").await;
}

#[tokio::test]
async fn a_drive_that_is_gone_at_the_start_is_missing_when_every_drive_has_appeared() {
    need!(root, loop);
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 512 * MIB)]).await;
    let volume = rig.volume("kept", 64 * MIB, &csi::block()).await;
    rig.agent.stop().unwrap();
    rig.shelf.pull("a");
    tune(&mut rig, "0s");
    rig.start_again().await;
    rig.drive_is("a", "missing").await;
    assert_eq!(rig.reasons(&volume).await, ["DriveMissing"]);
    rig.csi.delete(&volume.id).await.unwrap();
    assert_eq!(rig.csi.ids().await.unwrap(), Vec::<String>::new());
    rig.shelf.plug("a").unwrap();
    rig.volume_is(&volume.id, "quarantined").await;
}
