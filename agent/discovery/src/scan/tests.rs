//! Drives that respond, fail, are unresponsive and are busy, read by a test `DriveReader`.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use super::{
    probes::{DriveReader, LATE_MAX},
    *,
};
use drivebay_layout::{
    jobs::{LayoutError, ReadDrive},
    probe::Probe,
};
use drivebay_model::{Cause, Contents, DriveId, Label, Media, Transport};
use drivebay_worker::{JobTarget, RunError};

fn facts(name: &str) -> DriveFacts {
    DriveFacts {
        id: DriveId(format!("wwn-{name}")),
        identity_is_stable: true,
        kernel_name: name.into(),
        major: 8,
        minor: 0,
        diskseq: 1,
        model: String::new(),
        serial: String::new(),
        wwn: String::new(),
        firmware: String::new(),
        size_bytes: 1 << 40,
        logical_sector: 512,
        physical_sector: 512,
        media: Media::Ssd,
        transport: Transport::Sata,
        read_only: false,
        removable: false,
        hidden: false,
        zoned: false,
        is_partition: false,
        virtual_kind: None,
        not_running: None,
        holders: Vec::new(),
        partitions: Vec::new(),
        sysfs_path: String::new(),
        backing_file: None,
        bay: Default::default(),
    }
}

fn probed(ours: bool) -> Probed {
    Probed {
        size_bytes: 1 << 40,
        read_only: false,
        busy: false,
        signatures: Signatures::Empty,
        gpt: GptState::None,
        ours: ours.then_some(drivebay_model::Layout::Partition),
        written_sector: None,
        traces: None,
        gpt_types: Vec::new(),
        blankness: Blankness::Blank,
    }
}

fn contents(note: &str) -> Contents {
    Contents {
        layout: drivebay_model::Layout::Partition,
        sequence: 1,
        read_at: Default::default(),
        label: Label {
            drive_uuid: uuid::Uuid::nil(),
            cluster: "c".into(),
            node: "n".into(),
            class: "k".into(),
            drive_id: DriveId("wwn-ours".into()),
            cordon: None,
        },
        volumes: Vec::new(),
        free: Vec::new(),
        space: Default::default(),
        usable_bytes: 0,
        extent_bytes: 1,
        table_full: false,
        unmarked_bytes: 0,
        deleted_stores: Vec::new(),
        strangers: Vec::new(),
        notes: vec![note.into()],
    }
}

/// Responds by kernel name; records the queries.
#[derive(Clone, Default)]
struct Fake {
    queries: Arc<Mutex<Vec<String>>>,
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

fn stuck<E: std::error::Error>(drive: DriveId) -> RunError<E> {
    RunError::Stuck {
        target: JobTarget::Drive(drive),
        step: "open".into(),
        age_s: 31,
    }
}

impl DriveReader for Fake {
    async fn probe(&self, job: Probe, limit: Duration) -> Result<Probed, RunError<ProbeError>> {
        let name = job.drive.kernel_name.clone();
        self.queries.lock().unwrap().push(name.clone());
        self.most.fetch_max(
            self.now.fetch_add(1, Ordering::SeqCst) + 1,
            Ordering::SeqCst,
        );
        let hangs = name.starts_with("slow");
        tokio::time::sleep(match name.as_str() {
            _ if hangs => limit,
            "late" => Duration::from_secs(4),
            _ => Duration::from_millis(10),
        })
        .await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        let drive = job.drive.id;
        match name.as_str() {
            "ours" | "ours-locked" | "ours-damaged" | "ours-host" | "ours-flock" => {
                Ok(probed(true))
            }
            "eio" => Err(RunError::Job(ProbeError::Read {
                kernel_name: name,
                offset: 0,
                source: Cause::text("EIO"),
            })),
            "stuck" => Err(stuck(drive)),
            "busy" => Err(RunError::Busy {
                target: JobTarget::Drive(drive),
                step: "mkfs".into(),
            }),
            "panics" => panic!("a bug"),
            _ if hangs => Err(RunError::Deadline {
                target: JobTarget::Drive(drive),
                job: "probe",
                limit_ms: 10_000,
                step: "read".into(),
            }),
            _ => Ok(probed(false)),
        }
    }

    async fn read_contents(
        &self,
        job: ReadDrive,
        _limit: Duration,
    ) -> Result<Contents, RunError<LayoutError>> {
        let drive = job.drive.id.clone();
        assert!(!job.repair, "a scan writes nothing");
        match job.drive.kernel_name.as_str() {
            "ours-locked" => Err(RunError::Busy {
                target: JobTarget::Drive(drive),
                step: "erase".into(),
            }),
            "ours-host" => Err(RunError::Job(LayoutError::Host {
                drive: drive.0,
                what: "asking the kernel for its device-mapper devices".into(),
                source: Cause::text("ENODEV"),
            })),
            "ours-flock" => Err(RunError::Job(LayoutError::Locked {
                drive: drive.0,
                waited_ms: 10_000,
            })),
            "ours-damaged" => Err(RunError::Job(LayoutError::Damaged {
                drive: drive.0,
                reason: "both slots".into(),
            })),
            _ => Ok(contents("read")),
        }
    }
}

/// Runs a scan that waits for every drive.
async fn gather(
    fake: &Fake,
    targets: Vec<Target>,
    only: Option<&BTreeSet<String>>,
    previous: Vec<Scanned>,
    settings: &Settings,
) -> Vec<ProbeResults> {
    let mut questions = Questions::default();
    probes::gather(
        fake,
        targets,
        only,
        previous,
        settings,
        &mut questions,
        mpsc::unbounded_channel().0,
    )
    .await
}

fn settings() -> Settings {
    Settings::here("/var/lib/kubelet".into())
}

fn targets(names: &[&str]) -> Vec<Target> {
    names
        .iter()
        .map(|name| Target {
            drive: DriveRef::from(&facts(name)),
            probe: Some(Some(ClaimPolicy::Blank)),
        })
        .collect()
}

fn before(name: &str, entry: ProbeResults) -> Scanned {
    Scanned {
        facts: facts(name),
        seen: ProbeResults {
            unfinished: false,
            begun: None,
            ..entry
        },
        judgement: Judgement::Claimed,
    }
}

fn well_entry() -> ProbeResults {
    ProbeResults {
        probed: Some(Ok(probed(true))),
        contents: Some(contents("old")),
        ..ProbeResults::default()
    }
}

#[tokio::test(start_paused = true)]
async fn drives_that_hang_cost_their_own_entry_and_nothing_else() {
    let fake = Fake::default();
    let started = tokio::time::Instant::now();
    let names = ["slow1", "a", "slow2", "ours", "eio", "stuck", "panics", "z"];
    let entries = gather(&fake, targets(&names), None, Vec::new(), &settings()).await;
    assert_eq!(
        started.elapsed(),
        Duration::from_secs(10),
        "one deadline, not one per drive"
    );
    let trouble: Vec<Option<&str>> = entries
        .iter()
        .map(|entry| entry.trouble.as_deref())
        .collect();
    assert_eq!(
        trouble,
        [
            Some("probe on drive wwn-slow1 did not end within 10s (at read)"),
            None,
            Some("probe on drive wwn-slow2 did not end within 10s (at read)"),
            None,
            None,
            Some(
                "it is stuck: open has not returned; check the drive (dmesg), it may need to be replaced"
            ),
            Some("it was not scanned"),
            None,
        ]
    );
    assert!(entries[5].stuck && !entries[0].stuck);
    assert_eq!(entries[3].contents, Some(contents("read")));
    assert!(matches!(
        entries[4].probed,
        Some(Err(ProbeError::Read { .. }))
    ));
    assert!(entries[6].probed.is_none());
}

fn patient() -> Settings {
    Settings {
        patience: Some(Duration::from_secs(3)),
        ..settings()
    }
}

#[tokio::test(start_paused = true)]
async fn drives_that_hang_delay_no_scan_and_their_answers_come_to_later_ones() {
    let fake = Fake::default();
    let mut questions = Questions::default();
    let hung: Vec<String> = (0..20).map(|n| format!("slow{n:02}")).collect();
    let names: Vec<&str> = hung.iter().map(String::as_str).chain(["ours"]).collect();
    let settings = patient();
    let started = tokio::time::Instant::now();
    let scan_once = async |only: Option<&BTreeSet<String>>, previous, questions: &mut Questions| {
        probes::gather(
            &fake,
            targets(&names),
            only,
            previous,
            &settings,
            questions,
            mpsc::unbounded_channel().0,
        )
        .await
    };
    let entries = scan_once(None, Vec::new(), &mut questions).await;
    // Three rounds of eight, none as long as the limit.
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(entries[20].contents, Some(contents("read")));
    for entry in &entries[..20] {
        let why = entry.trouble.as_deref();
        assert_eq!(why, Some("it has not answered the first scan yet"));
    }

    // No drive is queried twice at a time, also after an event.
    let now = tokio::time::Instant::now();
    let previous = |entries: Vec<ProbeResults>| -> Vec<Scanned> {
        let drives = names.iter().zip(entries);
        drives.map(|(name, entry)| before(name, entry)).collect()
    };
    let only = ["slow00".to_owned()].into();
    let entries = scan_once(Some(&only), previous(entries), &mut questions).await;
    assert_eq!(now.elapsed(), Duration::ZERO);
    assert_eq!(fake.queries.lock().unwrap().len(), names.len());

    // The first round has its results.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let answered = questions.answered().await;
    assert!(answered.contains("slow00"), "{answered:?}");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let none = BTreeSet::new();
    let entries = scan_once(Some(&none), previous(entries), &mut questions).await;
    // A drive with an event is queried once more; this scan did not wait for it.
    let queried = fake.queries.lock().unwrap().clone();
    assert_eq!(queried.len(), names.len() + 1);
    assert_eq!(queried.last().unwrap(), "slow00");
    for entry in &entries[..20] {
        let trouble = entry.trouble.as_deref().unwrap();
        assert!(trouble.contains("did not end within 10s"), "{trouble}");
    }
    // Failed drives are not queried again only to report a result.
    tokio::time::sleep(Duration::from_secs(10)).await;
    questions.answered().await;
    scan_once(Some(&none), previous(entries), &mut questions).await;
    assert_eq!(fake.queries.lock().unwrap().len(), names.len() + 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_while_a_scan_waits_for_others_is_shown_by_the_next_one() {
    let fake = Fake::default();
    let mut questions = Questions::default();
    // The ninth is queried when the first has exceeded the patience.
    let hung: Vec<String> = (0..8).map(|n| format!("slow{n}")).collect();
    let names: Vec<&str> = ["late"]
        .into_iter()
        .chain(hung.iter().map(String::as_str))
        .collect();
    let started = tokio::time::Instant::now();
    let scan_once = async |only: Option<&BTreeSet<String>>, previous, questions: &mut Questions| {
        probes::gather(
            &fake,
            targets(&names),
            only,
            previous,
            &patient(),
            questions,
            mpsc::unbounded_channel().0,
        )
        .await
    };
    let entries = scan_once(None, Vec::new(), &mut questions).await;
    assert_eq!(started.elapsed(), Duration::from_secs(6));
    assert!(entries[0].trouble.is_some());
    assert!(questions.answered().await.contains("late"));
    assert_eq!(started.elapsed(), Duration::from_secs(6));
    let previous = names.iter().zip(entries);
    let previous = previous.map(|(name, entry)| before(name, entry)).collect();
    let none = BTreeSet::new();
    let entries = scan_once(Some(&none), previous, &mut questions).await;
    assert!(entries[0].trouble.is_none() && entries[0].probed.is_some());
    assert_eq!(fake.queries.lock().unwrap().len(), names.len());
    // Reported once.
    assert!(!questions.answered().await.contains("late"));
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_was_well_stays_so_while_it_does_not_answer() {
    let fake = Fake::default();
    let mut questions = Questions::default();
    let previous = vec![before("slow1", well_entry())];
    let settings = patient();
    let entries = probes::gather(
        &fake,
        targets(&["slow1"]),
        None,
        previous,
        &settings,
        &mut questions,
        mpsc::unbounded_channel().0,
    )
    .await;
    assert_eq!(entries[0].trouble, None);
    assert_eq!(entries[0].contents, Some(contents("old")));
    questions.answered().await;
    // Another device of the same name has not been queried.
    let mut other = targets(&["slow1"]);
    other[0].drive.diskseq += 1;
    let queried = fake.queries.lock().unwrap().len();
    let none = BTreeSet::new();
    probes::gather(
        &fake,
        other,
        Some(&none),
        Vec::new(),
        &settings,
        &mut questions,
        mpsc::unbounded_channel().0,
    )
    .await;
    assert_eq!(fake.queries.lock().unwrap().len(), queried + 1);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_every_drive_has_the_answers_of_now() {
    let fake = Fake::default();
    let mut questions = Questions::default();
    let names = ["slow1", "ours"];
    probes::gather(
        &fake,
        targets(&names),
        None,
        Vec::new(),
        &patient(),
        &mut questions,
        mpsc::unbounded_channel().0,
    )
    .await;
    let entries = probes::gather(
        &fake,
        targets(&names),
        None,
        Vec::new(),
        &settings(),
        &mut questions,
        mpsc::unbounded_channel().0,
    )
    .await;
    let trouble = entries[0].trouble.as_deref().unwrap();
    assert!(trouble.contains("did not end within 10s"), "{trouble}");
    assert_eq!(fake.queries.lock().unwrap().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn only_so_many_drives_at_a_time() {
    let fake = Fake::default();
    let names: Vec<String> = (0..40).map(|n| format!("d{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    gather(&fake, targets(&names), None, Vec::new(), &settings()).await;
    assert_eq!(fake.most.load(Ordering::SeqCst), 8);
    assert_eq!(fake.queries.lock().unwrap().len(), 40);
}

#[tokio::test(start_paused = true)]
async fn drives_that_nothing_happened_to_are_not_probed_again() {
    let fake = Fake::default();
    let mut moved = before("moved", well_entry());
    moved.facts.diskseq = 0;
    moved.facts.minor = 99;
    let unwell = ProbeResults {
        trouble: Some("stuck".into()),
        ..well_entry()
    };
    let previous = vec![
        before("same", well_entry()),
        before("asked", well_entry()),
        before("unwell", unwell),
        moved,
    ];
    let only = ["asked".to_owned()].into();
    let entries = gather(
        &fake,
        targets(&["same", "asked", "unwell", "moved", "new"]),
        Some(&only),
        previous,
        &settings(),
    )
    .await;
    let mut queried = fake.queries.lock().unwrap().clone();
    queried.sort();
    assert_eq!(queried, ["asked", "moved", "new", "unwell"]);
    assert_eq!(entries[0].contents, Some(contents("old")));
    assert!(entries.iter().all(|entry| entry.trouble.is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_busy_drive_stays_what_it_was_and_a_stuck_one_keeps_its_volumes() {
    let fake = Fake::default();
    let previous = ["busy", "ours-locked", "stuck"]
        .map(|name| before(name, well_entry()))
        .into();
    let entries = gather(
        &fake,
        targets(&["busy", "ours-locked", "stuck"]),
        None,
        previous,
        &settings(),
    )
    .await;
    for entry in &entries[..2] {
        assert_eq!(
            (&entry.trouble, &entry.contents),
            (&None, &Some(contents("old")))
        );
    }
    assert!(entries[2].trouble.is_some() && entries[2].probed.is_none());
    assert_eq!(entries[2].contents, Some(contents("old")));
    // Without a previous result, busy is a reason not to use the drive.
    let entries = gather(
        &fake,
        targets(&["busy", "ours-locked"]),
        None,
        Vec::new(),
        &settings(),
    )
    .await;
    assert!(entries.iter().all(|entry| entry.trouble.is_some()));
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_was_well_may_be_too_slow_for_a_few_scans() {
    let fake = Fake::default();
    let mut entry = well_entry();
    for late in 1..=LATE_MAX + 1 {
        let previous = vec![before("slow1", entry)];
        let mut entries = gather(&fake, targets(&["slow1"]), None, previous, &settings()).await;
        entry = entries.remove(0);
        assert_eq!(entry.contents, Some(contents("old")));
        assert_eq!(entry.trouble.is_none(), late <= LATE_MAX, "{late}");
        assert_eq!(entry.late, if late <= LATE_MAX { late } else { 0 });
    }
    // Only a successful scan makes the drive responsive again.
    let previous = vec![before("slow1", entry)];
    let entries = gather(&fake, targets(&["slow1"]), None, previous, &settings()).await;
    assert!(entries[0].trouble.is_some());
    // After one scan in time it may be late again.
    let once_late = ProbeResults {
        late: LATE_MAX,
        ..well_entry()
    };
    let previous = vec![before("ours", once_late)];
    let entries = gather(&fake, targets(&["ours"]), None, previous, &settings()).await;
    assert_eq!((entries[0].late, &entries[0].trouble), (0, &None));
}

#[tokio::test(start_paused = true)]
async fn a_label_that_cannot_be_read_is_reported() {
    let entries = gather(
        &Fake::default(),
        targets(&["ours-damaged"]),
        None,
        Vec::new(),
        &settings(),
    )
    .await;
    assert!(
        entries[0]
            .label_trouble
            .as_deref()
            .unwrap()
            .contains("both slots")
    );
    assert_eq!(entries[0].contents, None);
}

#[tokio::test(start_paused = true)]
async fn scans_that_fail_in_a_row_are_counted() {
    for (name, counted) in [("eio", true), ("ours-damaged", true), ("ours", false)] {
        let mut previous = Vec::new();
        for times in 1..=3 {
            let fake = Fake::default();
            let entries = gather(&fake, targets(&[name]), None, previous, &settings()).await;
            assert_eq!(entries[0].unread, if counted { times } else { 0 }, "{name}");
            previous = vec![before(name, entries[0].clone())];
        }
        // Other drives were scanned, not this one.
        let others = BTreeSet::new();
        let fake = Fake::default();
        let entries = gather(
            &fake,
            targets(&[name]),
            Some(&others),
            previous,
            &settings(),
        )
        .await;
        assert_eq!(entries[0].unread, if counted { 3 } else { 0 }, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_facts_refuse_is_not_opened() {
    let fake = Fake::default();
    let mut targets = targets(&["ram0"]);
    targets[0].probe = None;
    let entries = gather(&fake, targets, None, Vec::new(), &settings()).await;
    assert!(fake.queries.lock().unwrap().is_empty());
    assert!(entries[0].probed.is_none() && entries[0].trouble.is_none());
}

#[test]
fn without_a_probe_that_succeeded_no_verdict_is_good() {
    let good = || Judgement::Available { class: "k".into() };
    let failed = ProbeError::Open {
        kernel_name: "sda".into(),
        source: Cause::text("no"),
    };
    let trouble = |text: &str| ProbeResults {
        trouble: Some(text.into()),
        ..well_entry()
    };
    for (entry, detail) in [
        (ProbeResults::default(), "it was not probed"),
        (
            ProbeResults {
                probed: Some(Err(failed.clone())),
                ..ProbeResults::default()
            },
            "cannot open /dev/sda: no",
        ),
        (trouble("it is stuck"), "it is stuck"),
    ] {
        for judgement in [good(), Judgement::Claimed] {
            let Judgement::Rejected { reasons, .. } = closed(judgement, &entry) else {
                panic!("{entry:?}")
            };
            let [reason] = reasons.as_slice() else {
                panic!("{reasons:?}")
            };
            assert_eq!(
                (reason.code, reason.detail.as_str()),
                (RejectCode::ProbeFailed, detail)
            );
        }
    }
    assert_eq!(closed(good(), &well_entry()), good());
    assert_eq!(
        closed(Judgement::Claimed, &well_entry()),
        Judgement::Claimed
    );
}

#[test]
fn other_reasons_stay_and_the_trouble_joins_them() {
    let rejected = |codes: &[RejectCode]| Judgement::Rejected {
        class: None,
        reasons: codes
            .iter()
            .map(|&code| Reject {
                code,
                detail: "x".into(),
            })
            .collect(),
    };
    let codes = |judgement: Judgement| match judgement {
        Judgement::Rejected { reasons, .. } => reasons
            .into_iter()
            .map(|reject| reject.code)
            .collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let trouble = ProbeResults {
        trouble: Some("stuck".into()),
        ..ProbeResults::default()
    };
    use RejectCode::{NotADisk, NotSelected, ProbeFailed, Unreadable};
    assert_eq!(
        codes(closed(rejected(&[NotSelected]), &trouble)),
        [NotSelected, ProbeFailed]
    );
    assert_eq!(
        codes(closed(rejected(&[NotSelected, ProbeFailed]), &trouble)),
        [NotSelected, ProbeFailed]
    );
    // Not probed because its facts refuse it: no second reason.
    assert_eq!(
        codes(closed(rejected(&[NotADisk]), &ProbeResults::default())),
        [NotADisk]
    );
    // The rules chose a better code for the probe's error.
    let failed = ProbeResults {
        probed: Some(Err(ProbeError::Open {
            kernel_name: "sda".into(),
            source: Cause::text("no"),
        })),
        ..ProbeResults::default()
    };
    assert_eq!(
        codes(closed(rejected(&[Unreadable]), &failed)),
        [Unreadable]
    );
}

#[tokio::test]
async fn an_error_of_the_host_or_of_the_moment_is_no_trouble_of_the_label_and_keeps_what_was_known()
{
    let well = || ProbeResults {
        probed: Some(Ok(probed(true))),
        contents: Some(contents("before")),
        ..ProbeResults::default()
    };
    for (name, of_host) in [("ours-host", true), ("ours-flock", false)] {
        let (fake, settings) = (Fake::default(), settings());
        let previous = vec![before(name, well())];
        let entry = gather(&fake, targets(&[name]), None, previous, &settings);
        let entry = entry.await.remove(0);
        assert_eq!(entry.label_trouble, None, "{name}");
        assert_eq!(entry.contents, Some(contents("before")), "{name}");
        assert_eq!(entry.trouble, None, "{name}");
        assert_eq!(entry.host_trouble.is_some(), of_host, "{name}");

        let new = gather(&fake, targets(&[name]), None, Vec::new(), &settings);
        let new = new.await.remove(0);
        assert_eq!(new.label_trouble, None, "{name}");
        assert!(new.trouble.is_some(), "{name}");
        assert_eq!(new.host_trouble.is_some(), of_host, "{name}");
    }
}

/// Failures of the host are no evidence about the drive, in any number. Another process's lock is, after a while.
#[tokio::test]
async fn a_drive_that_the_host_cannot_read_stays_as_last_known_for_ever() {
    for (name, troubled) in [("ours-host", false), ("ours-flock", true)] {
        let mut entry = ProbeResults {
            probed: Some(Ok(probed(true))),
            contents: Some(contents("before")),
            ..ProbeResults::default()
        };
        for _ in 0..20 {
            let previous = vec![before(name, entry)];
            entry = gather(
                &Fake::default(),
                targets(&[name]),
                None,
                previous,
                &settings(),
            )
            .await
            .remove(0);
            assert_eq!(entry.label_trouble, None);
            assert_eq!(entry.contents, Some(contents("before")));
        }
        assert_eq!(entry.trouble.is_some(), troubled, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_of_a_drive_is_shown_while_another_drive_hangs() {
    let fake = Fake::default();
    let mut questions = Questions::default();
    let (answered, mut answers) = mpsc::unbounded_channel();
    let settings = patient();
    let gathering = probes::gather(
        &fake,
        targets(&["slow1", "ours"]),
        None,
        Vec::new(),
        &settings,
        &mut questions,
        answered,
    );
    let begun = tokio::time::Instant::now();
    let first = async {
        let first = answers.recv().await;
        (first, begun.elapsed())
    };
    let (entries, (first, after)) = tokio::join!(gathering, first);
    let (index, first) = first.unwrap();
    assert_eq!((index, first.contents), (1, Some(contents("read"))));
    assert!(after < Duration::from_secs(1), "{after:?}");
    assert!(entries[0].trouble.is_some());
    // A drive that was known before is reported with the others.
    assert!(answers.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn drives_are_reported_early_only_while_another_one_keeps_the_scan_waiting() {
    let (answered, mut answers) = mpsc::unbounded_channel();
    answered.send(1).unwrap();
    answered.send(2).unwrap();
    assert_eq!(next_batch(&mut answers).await, Some(vec![1, 2]));

    answered.send(3).unwrap();
    drop(answered);
    assert_eq!(next_batch(&mut answers).await, None);
    assert_eq!(next_batch(&mut answers).await, None);
}
