//! SMART data of a drive is reported everywhere, can be acknowledged, and can be overruled: a program in smartctl's place replays answers
//! to the real agent.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use drivebay_hwtests::{DriveSpec, GIB, MIB, Rig, csi, need, replay, wait};
use drivebay_proto::{agent as wire, csi as api};

/// Time limit: a drive is polled within seconds of a rescan.
const POLL_LIMIT: Duration = Duration::from_secs(60);

/// Starts a rig with one drive, whose SMART answers are replayed.
async fn rig(pending: u64) -> (Rig, PathBuf) {
    let mut place = PathBuf::new();
    let rig = Rig::tuned(vec![DriveSpec::blank("a", 4 * GIB)], |settings| {
        place = settings.dir.join("bin");
        settings.more = replay::smartctl(&place, pending);
    })
    .await;
    (rig, place)
}

async fn has_verdict(rig: &Rig, verdict: &str) -> wire::Drive {
    wait::until_async(POLL_LIMIT, &format!("the drive is {verdict}"), async || {
        rig.agent.run_command(&["rescan"]).unwrap();
        let drive = rig.drive("a").await?;
        (drive.verdict == verdict).then_some(drive)
    })
    .await
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

async fn storage(rig: &Rig) -> Vec<String> {
    let request = api::NodeGetStorageHealthRequest::default();
    let answer = rig.csi.node().node_get_storage_health(request).await;
    let all = answer.unwrap().into_inner().backend_health;
    all.into_iter().map(|entry| entry.reason).collect()
}

async fn volume_reasons(rig: &Rig, id: &str, path: &Path) -> Vec<String> {
    let request = api::NodeGetVolumeHealthRequest {
        volume_id: id.to_owned(),
        volume_publish_path: path.to_str().unwrap().to_owned(),
        ..Default::default()
    };
    let answer = rig.csi.node().node_get_volume_health(request).await;
    let health = answer.unwrap().into_inner().volume_health.unwrap();
    let all = health.health_statuses.into_iter();
    all.map(|entry| entry.reason).collect()
}

#[tokio::test]
async fn a_failing_drive_is_reported_everywhere_until_it_is_acknowledged_and_again_when_it_gets_worse()
 {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let (mut rig, place) = rig(0).await;
    has_verdict(&rig, "GOOD").await;
    let volume = rig.volume("v", 512 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&volume).await;
    let well = rig.agent.run_command(&["health"]).unwrap();
    assert_eq!(well.status.code(), Some(0), "{}", printed(&well));
    assert!(
        printed(&well).contains("is well: 1 drive and 1 volume"),
        "{}",
        printed(&well)
    );

    replay::pending_sectors(&place, 48);
    let drive = has_verdict(&rig, "BAD").await;
    let report = drive.health.clone().unwrap().smart.unwrap();
    assert_eq!(
        (report.findings[0].value, report.findings[0].threshold),
        (48, 40)
    );
    assert!(report.answered_at > 0);
    let channel = csi::channel(&rig.agent_socket).await.unwrap();
    let request = wire::DriveHistoryRequest {
        drive: drive.id.clone(),
    };
    let history = wire::agent_client::AgentClient::new(channel)
        .drive_history(request)
        .await
        .unwrap()
        .into_inner();
    let counters = history.counters.iter();
    let mut pending = counters.filter(|one| one.name == "ata-197");
    let values = &pending.next().unwrap().points;
    let ends = (values.first().unwrap().value, values.last().unwrap().value);
    assert_eq!(ends, (0, 48), "{history:?}");
    assert_eq!(storage(&rig).await, ["DriveFailing"]);
    assert_eq!(
        volume_reasons(&rig, &volume.id, &volume.target).await,
        ["DriveFailing"]
    );
    // Where it is not mounted nothing is concluded, whatever is queried.
    assert_eq!(
        volume_reasons(&rig, &volume.id, Path::new("/nowhere")).await,
        ["DriveFailing"]
    );
    let stats = rig.csi.stats(&volume.id, &volume.target).await.unwrap();
    assert!(!stats.usage.is_empty());
    let condition = stats.volume_condition.unwrap();
    assert!(
        condition.abnormal && condition.message.starts_with("DriveFailing: "),
        "{condition:?}"
    );

    let wrong = rig.agent.run_command(&["health"]).unwrap();
    assert_eq!(wrong.status.code(), Some(1), "{}", printed(&wrong));
    let text = printed(&wrong);
    assert!(
        text.contains("BAD  drive ") && text.contains("volumes on it: v"),
        "{text}"
    );
    let shown = printed(
        &rig.agent
            .run_command(&["drive", "show", &drive.kernel_name])
            .unwrap(),
    );
    for part in [
        "BAD",
        "Current_Pending_Sector (197): 48, +48 since yesterday, limit 40",
        "Temperature 31 °C",
        "v (512 MiB, ready, in use): DriveFailing",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = printed(&rig.agent.run_command(&["volume", "show", "v"]).unwrap());
    assert!(
        shown.contains(volume.target.to_str().unwrap()),
        "where it is mounted: {shown}"
    );
    assert_eq!(
        rig.agent
            .log()
            .lines()
            .filter(|line| line.contains("drive verdict changed") && line.contains("status=\"BAD\""))
            .count(),
        1
    );

    // The verdict is kept, though the answers are good again.
    replay::pending_sectors(&place, 0);
    let text = wait::until_async(POLL_LIMIT, "the drive has answered again", async || {
        rig.agent.run_command(&["rescan"]).unwrap();
        let drive = rig.drive("a").await?;
        let report = drive.health?.smart?;
        report.findings.is_empty().then_some(drive.verdict)
    })
    .await;
    assert_eq!(text, "BAD");

    let unknown = rig.agent.run_command(&["drive", "ack", "no-such"]).unwrap();
    assert_eq!(unknown.status.code(), Some(6), "{}", printed(&unknown));
    // The verdict is BAD: nothing happens before the identity is confirmed.
    let ack = ["drive", "ack", &drive.id, "--note", "seen", "--by", "ann"];
    let shown = rig.agent.run_command(&ack).unwrap();
    assert_eq!(shown.status.code(), Some(2), "{}", printed(&shown));
    assert_eq!(storage(&rig).await, ["DriveFailing"]);
    let confirmed = [&ack[..], &["--confirm", &drive.id]].concat();
    let acked = rig.agent.run_command(&confirmed).unwrap();
    assert!(
        printed(&acked)
            .contains("acknowledged: PendingSectorsMany (Current_Pending_Sector (197): 48)"),
        "{}",
        printed(&acked)
    );
    let outcome = "is BAD, acknowledged and takes no new volumes";
    assert!(printed(&acked).contains(outcome), "{}", printed(&acked));
    // Reported nowhere, and BAD.
    assert!(
        volume_reasons(&rig, &volume.id, &volume.target)
            .await
            .is_empty()
    );
    assert!(storage(&rig).await.is_empty());
    let health = rig.agent.run_command(&["health"]).unwrap();
    assert_eq!(health.status.code(), Some(0), "{}", printed(&health));
    let note = "is BAD, acknowledged by ann: PendingSectorsMany";
    assert!(printed(&health).contains(note), "{}", printed(&health));
    let listed = printed(&rig.agent.run_command(&["drives"]).unwrap());
    assert!(listed.contains("BAD (ack)"), "{listed}");
    let refused = rig.csi.create("w", 64 * MIB, &csi::block()).await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::ResourceExhausted);

    // Repeated, with nothing left: the note of the first one stays.
    let twice = [
        "drive",
        "ack",
        &drive.id,
        "--note",
        "typed twice",
        "--by",
        "bob",
    ];
    let twice = [&twice[..], &["--confirm", &drive.id]].concat();
    let again = rig.agent.run_command(&twice).unwrap();
    assert_eq!(again.status.code(), Some(0), "{}", printed(&again));
    assert!(
        printed(&again).contains("nothing to acknowledge; nothing was changed"),
        "{}",
        printed(&again)
    );

    // Persisted before the call returned.
    rig.agent.kill9();
    rig.start_again().await;
    let drive = has_verdict(&rig, "BAD").await;
    assert!(drive.is_acknowledged());
    let given = drive.health.unwrap().acknowledged.unwrap();
    assert_eq!((&*given.by, &*given.note), ("ann", "seen"));
    assert!(storage(&rig).await.is_empty());

    // Accepting volumes is a separate choice, and ends with the acknowledgement.
    let used = [&confirmed[..], &["--use"]].concat();
    let used = rig.agent.run_command(&used).unwrap();
    let outcome = "is BAD, acknowledged and takes new volumes";
    assert!(printed(&used).contains(outcome), "{}", printed(&used));
    rig.csi.create("w", 64 * MIB, &csi::block()).await.unwrap();
    let withdrawn = rig
        .agent
        .run_command(&["drive", "unack", &drive.id, "--by", "bob"]);
    let withdrawn = printed(&withdrawn.unwrap());
    assert!(
        withdrawn.contains("is BAD and takes no new volumes"),
        "{withdrawn}"
    );
    assert_eq!(storage(&rig).await, ["DriveFailing"]);
    let refused = rig.csi.create("x", 64 * MIB, &csi::block()).await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::ResourceExhausted);

    // Further findings count, though they are no worse.
    assert!(rig.agent.run_command(&confirmed).unwrap().status.success());
    assert!(storage(&rig).await.is_empty());
    replay::pending_sectors(&place, 1);
    wait::until_async(POLL_LIMIT, "the new finding counts", async || {
        rig.agent.run_command(&["rescan"]).unwrap();
        (storage(&rig).await == ["DriveFailing"]).then_some(())
    })
    .await;
    let log = rig.agent.log();
    for part in [
        "drive findings acknowledged by operator",
        "by=\"ann\"",
        "drive acknowledgement withdrawn by operator",
        "by=\"bob\"",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    rig.leave_volume(&volume).await;
}

#[tokio::test]
async fn an_operators_verdict_counts_and_is_shown_with_what_it_hides() {
    need!(root, loop);
    let (mut rig, _) = rig(48).await;
    let drive = has_verdict(&rig, "BAD").await;
    rig.agent.stop().unwrap();
    let config = rig.agent.settings().config();
    let mut file = fs::OpenOptions::new().append(true).open(config).unwrap();
    writeln!(
        file,
        "\n[[health.override]]\ndrive = \"{}\"\nverdict = \"good\"\nreason = \"a known batch\"\nuntil = \"2999-12-31\"",
        drive.id
    )
    .unwrap();
    rig.start_again().await;
    let drive = wait::until_async(POLL_LIMIT, "the override is reported", async || {
        rig.agent.run_command(&["rescan"]).unwrap();
        let drive = rig.drive("a").await?;
        let otherwise = drive
            .health
            .as_ref()?
            .overridden
            .as_ref()?
            .otherwise
            .clone();
        (otherwise == "BAD" && polls(&drive) == ("GOOD", "polled")).then_some(drive)
    })
    .await;
    assert_eq!(drive.verdict, "GOOD");
    assert!(
        drive
            .all_notes()
            .iter()
            .any(|note| note.starts_with("overridden by the operator: a known batch")),
        "{drive:#?}"
    );
    // The drive accepts volumes again.
    rig.volume("v", 64 * MIB, &csi::block()).await;
    let health = rig.agent.run_command(&["health"]).unwrap();
    assert_eq!(health.status.code(), Some(0), "{}", printed(&health));
    assert!(
        printed(&health)
            .contains("overridden by the operator: a known batch (the evidence alone says BAD)"),
        "{}",
        printed(&health)
    );
    assert!(storage(&rig).await.is_empty());
}

fn polls(drive: &wire::Drive) -> (&str, &str) {
    (&drive.verdict, &drive.health.as_ref().unwrap().poll)
}

#[tokio::test]
async fn a_failing_drive_is_refused_right_after_a_restart_and_its_findings_keep_their_age() {
    need!(root, loop);
    let (mut rig, place) = rig(48).await;
    let before = has_verdict(&rig, "BAD").await.health.unwrap();
    // The state is written within seconds.
    tokio::time::sleep(Duration::from_secs(3)).await;
    for _ in 0..if need::is_long() { 2 } else { 1 } {
        rig.agent.kill9();
        replay::hold(&place);
        let log = rig.agent.log().len();
        rig.start_again().await;
        let refused = rig.csi.create("v", 64 * MIB, &csi::block()).await;
        assert_eq!(refused.unwrap_err().code(), tonic::Code::ResourceExhausted);
        let drive = rig.drive("a").await.unwrap();
        assert_eq!(polls(&drive), ("BAD", "last-known"));
        let health = drive.health.clone().unwrap();
        assert_eq!(health.findings, before.findings, "with their beginnings");
        assert_eq!(
            health.smart.unwrap().verdict_since,
            before.smart.as_ref().unwrap().verdict_since
        );
        let wrong = rig.agent.run_command(&["health"]).unwrap();
        assert_eq!(wrong.status.code(), Some(1), "{}", printed(&wrong));
        assert!(
            printed(&wrong).contains("1 of 1 drive not polled"),
            "{}",
            printed(&wrong)
        );
        replay::release(&place);
        wait::until_async(POLL_LIMIT, "the drive was polled", async || {
            rig.agent.run_command(&["rescan"]).unwrap();
            let drive = rig.drive("a").await?;
            (polls(&drive) == ("BAD", "polled")).then_some(())
        })
        .await;
        let log = rig.agent.log().split_off(log);
        assert!(!log.contains("drive verdict changed"), "{log}");
        assert!(!log.contains("drive finding raised"), "{log}");
        assert!(log.contains("last known drive verdict restored"), "{log}");
    }
}

#[tokio::test]
async fn health_lists_drives_that_were_not_polled_and_does_not_report_all_well() {
    need!(root, loop);
    let (mut rig, place) = rig(0).await;
    has_verdict(&rig, "GOOD").await;
    rig.agent.stop().unwrap();
    replay::hold(&place);
    rig.start_again().await;
    assert_eq!(
        polls(&rig.drive("a").await.unwrap()),
        ("GOOD", "last-known")
    );
    let health = rig.agent.run_command(&["health"]).unwrap();
    assert_eq!(health.status.code(), Some(7), "{}", printed(&health));
    assert!(!printed(&health).contains("well"), "{}", printed(&health));
    let json = rig.agent.run_command(&["health", "-o", "json"]).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&json["well"], &json["not_polled"]),
        (&false.into(), &1.into())
    );
    // The last known verdict is good: the drive accepts volumes.
    rig.csi.create("v", 64 * MIB, &csi::block()).await.unwrap();
    replay::release(&place);
    wait::until_async(POLL_LIMIT, "the drive was polled", async || {
        rig.agent.run_command(&["rescan"]).unwrap();
        let health = rig.agent.run_command(&["health"]).unwrap();
        (health.status.code() == Some(0)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_drive_of_which_nothing_is_known_takes_no_volume_before_its_first_poll() {
    need!(root, loop);
    let mut place = PathBuf::new();
    let rig = Rig::tuned(vec![DriveSpec::blank("a", 4 * GIB)], |settings| {
        place = settings.dir.join("bin");
        settings.more = replay::smartctl(&place, 48);
        replay::hold(&place);
    })
    .await;
    assert_eq!(
        polls(&rig.drive("a").await.unwrap()),
        ("UNKNOWN", "awaited")
    );
    let block = csi::block();
    let (created, ()) = tokio::join!(rig.csi.create("v", 64 * MIB, &block), async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        replay::release(&place);
    });
    // The poll failed: the volume that waited for it is refused.
    assert_eq!(created.unwrap_err().code(), tonic::Code::ResourceExhausted);
    // That a poll that never returns leaves the verdict unchanged takes half a minute to test.
    if !need::is_long() {
        return;
    }
    let mut place = PathBuf::new();
    let hangs = Rig::tuned(vec![DriveSpec::blank("b", 4 * GIB)], |settings| {
        place = settings.dir.join("bin");
        settings.more = replay::smartctl(&place, 0);
        replay::hold(&place);
    })
    .await;
    wait::until_async(POLL_LIMIT, "it is not waited for any more", async || {
        let drive = hangs.drive("b").await?;
        (polls(&drive) == ("UNKNOWN", "last-known")).then_some(())
    })
    .await;
    hangs
        .csi
        .create("v", 64 * MIB, &csi::block())
        .await
        .unwrap();
    replay::release(&place);
}

#[tokio::test]
async fn findings_that_are_named_are_acknowledged_unless_one_got_worse_since() {
    need!(root, loop);
    let (mut rig, place) = rig(48).await;
    let drive = has_verdict(&rig, "BAD").await;
    let named = drive.nameable_findings();
    let [pending] = named.as_slice() else {
        panic!("{named:?}");
    };
    assert_eq!(
        (pending.code.as_str(), pending.value),
        ("PendingSectorsMany", 48)
    );
    let socket = rig.agent.settings().agent_socket();
    let channel = csi::channel(&socket).await.unwrap();
    let mut agent = wire::agent_client::AgentClient::new(channel);
    let request = wire::AcknowledgeDriveRequest {
        drive: drive.id.clone(),
        confirm: drive.id.clone(),
        by: "ann".into(),
        named,
        ..Default::default()
    };
    // The drive is polled again between the operator's view and the request.
    replay::pending_sectors(&place, 50);
    wait::until_async(POLL_LIMIT, "the drive has 50 pending sectors", async || {
        rig.agent.run_command(&["rescan"]).unwrap();
        let now = rig.drive("a").await?.nameable_findings();
        now.iter().any(|one| one.value == 50).then_some(())
    })
    .await;
    let refused = agent.acknowledge_drive(request.clone()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused}");
    assert!(
        refused.message().contains("is 50, and 48 is named"),
        "{refused}"
    );
    assert_eq!(storage(&rig).await, ["DriveFailing"]);
    let now = rig.drive("a").await.unwrap();
    let request = wire::AcknowledgeDriveRequest {
        named: now.nameable_findings(),
        ..request
    };
    let done = agent.acknowledge_drive(request).await.unwrap().into_inner();
    assert_eq!(done.verdict, "BAD, acknowledged");
    assert!(rig.drive("a").await.unwrap().nameable_findings().is_empty());
    rig.agent.stop().unwrap();
}
