//! Polls with a real child process: a script in place of smartctl, for each way in which it can fail.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::{Assessment, SmartCode, Thresholds, Verdict, fixtures, judge, rules::ConditionLevel};
use drivebay_model::samples;

/// A directory with a `smartctl` in it, first in the PATH that the poll searches.
struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    fn new(script: &str) -> Self {
        let fake = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let path = fake.file("smartctl");
        // Every script records its process id, so that the process can be looked for afterwards.
        let pids = fake.file("pids");
        let text = format!("#!/bin/sh\necho $$ >> {}\n{script}\n", pids.display());
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        fake
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn poll(&self, deadline_ms: u64) -> Outcome {
        let path = format!("{}:/usr/bin:/bin", self.dir.path().display());
        let deadline = Duration::from_millis(deadline_ms);
        run(&question(), deadline, vec![("PATH", path.into())]).outcome
    }

    /// Waits until none of the processes that it started is left, not even as a zombie.
    fn is_gone(&self) {
        let pids = std::fs::read_to_string(self.file("pids")).unwrap();
        assert!(!pids.is_empty());
        let end = Instant::now() + Duration::from_secs(10);
        for pid in pids.split_whitespace() {
            while Path::new("/proc").join(pid).exists() {
                assert!(Instant::now() < end, "process {pid} is still there");
                std::thread::yield_now();
            }
        }
    }
}

fn question() -> Poll {
    Poll {
        node: "/dev/null".into(),
        rotational: false,
        device_type: None,
        scsi: false,
        deep: false,
        unsupported: None,
        mmc: None,
        not_running: None,
        smartctl: None,
    }
}

fn reason(outcome: &Outcome) -> FailureReason {
    match outcome {
        Outcome::Failed(failure) => failure.reason,
        other => panic!("{other:?}"),
    }
}

/// The file with an output, for `cat`.
fn written(fake: &Fake, text: &str) {
    std::fs::write(fake.file("output"), text).unwrap();
}

fn cat(text: &str, then: &str) -> Fake {
    let fake = Fake::new(&format!("cat \"$(dirname \"$0\")/output\"\n{then}"));
    written(&fake, text);
    fake
}

#[test]
fn an_answer_is_read_whatever_the_exit_status() {
    let fake = cat(fixtures::ATA_HDD, "exit 64");
    let Outcome::Answered(facts) = fake.poll(30_000) else {
        panic!("no answer");
    };
    assert_eq!(facts.exit.bits(), 64);
    assert_eq!(facts.model, "EXAMPLE HD8000");
    fake.is_gone();
}

#[test]
fn text_before_the_json_is_no_garbage() {
    let fake = cat(fixtures::SCSI_HDD, "exit 4");
    assert!(matches!(fake.poll(30_000), Outcome::Answered(_)));
    fake.is_gone();
}

#[test]
fn a_missing_smartctl_is_reported() {
    let path = tempfile::tempdir().unwrap();
    let env = vec![("PATH", path.path().as_os_str().to_owned())];
    let polled = run(&question(), Duration::from_secs(30), env);
    assert_eq!(reason(&polled.outcome), FailureReason::Missing);
}

#[test]
fn a_smartctl_that_may_not_be_run_is_reported() {
    let fake = Fake::new("exit 0");
    let path = fake.file("smartctl");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let env = vec![("PATH", fake.dir.path().as_os_str().to_owned())];
    let polled = run(&question(), Duration::from_secs(30), env);
    assert_eq!(reason(&polled.outcome), FailureReason::NotStarted);
}

#[test]
fn a_hanging_smartctl_is_killed_with_all_that_it_started() {
    let fake = Fake::new(
        "sh -c 'echo $$ >> '\"$(dirname \"$0\")\"'/pids; exec sleep 300' &\n\
         while [ $(wc -l < \"$(dirname \"$0\")/pids\") -lt 2 ]; do :; done\nexec sleep 300",
    );
    assert_eq!(reason(&fake.poll(2_000)), FailureReason::Timeout);
    let pids = std::fs::read_to_string(fake.file("pids")).unwrap();
    assert_eq!(pids.lines().count(), 2);
    fake.is_gone();
}

#[test]
fn a_killed_smartctl_is_distinguished_from_one_that_failed() {
    let fake = cat(fixtures::NVME, "kill -9 $$");
    assert_eq!(reason(&fake.poll(30_000)), FailureReason::Killed);
    fake.is_gone();
}

#[test]
fn garbage_is_quoted() {
    let fake = Fake::new("echo 'smartctl 6.6'; echo 'no such option' >&2; exit 1");
    let outcome = fake.poll(30_000);
    assert_eq!(reason(&outcome), FailureReason::Garbage);
    let Outcome::Failed(failure) = outcome else {
        panic!("no failure");
    };
    for quoted in ["smartctl 6.6", "no such option", "1 (usage)"] {
        assert!(failure.detail.contains(quoted), "{failure}");
    }
    fake.is_gone();
    let silent = Fake::new("exit 0");
    assert_eq!(reason(&silent.poll(30_000)), FailureReason::Garbage);
}

#[test]
fn the_code_of_a_shell_that_finds_no_program_is_not_read_as_smartctls_bits() {
    for (script, expected, detail) in [
        (
            "no-such-smartctl \"$@\"",
            FailureReason::Missing,
            "127, command not found",
        ),
        (
            "echo denied >&2; exit 126",
            FailureReason::NotStarted,
            "126, command not executable; on standard error: \"denied\"",
        ),
    ] {
        let Outcome::Failed(failure) = Fake::new(script).poll(30_000) else {
            panic!("no failure");
        };
        assert_eq!(failure.reason, expected);
        assert!(failure.detail.contains(detail), "{failure}");
        assert!(!failure.detail.contains("usage"), "{failure}");
    }
    // The script ran smartctl, and could not run what comes after it.
    let Outcome::Answered(facts) = cat(fixtures::NVME, "no-such-logger").poll(30_000) else {
        panic!("no answer");
    };
    assert_eq!(facts.exit.bits(), 0);
    assert_eq!(facts.status(), Some(true));
}

#[test]
fn a_truncated_output_is_distinguished_from_garbage() {
    let fake = cat(&fixtures::NVME[..fixtures::NVME.len() / 2], "");
    assert_eq!(reason(&fake.poll(30_000)), FailureReason::Truncated);
    fake.is_gone();
}

#[test]
fn a_huge_output_is_refused_and_does_not_block() {
    let fake = cat(fixtures::NVME, "head -c 20000000 /dev/zero | tr '\\0' ' '");
    assert_eq!(reason(&fake.poll(60_000)), FailureReason::TooLarge);
    fake.is_gone();
}

#[test]
fn a_drive_that_sleeps_is_left_alone() {
    let json = fixtures::ALL
        .iter()
        .find(|(name, _)| *name == "standby-message")
        .unwrap()
        .1;
    assert_eq!(cat(json, "exit 3").poll(30_000), Outcome::Standby);
    let text = "Device is in STANDBY mode, exit(3)";
    assert_eq!(cat(text, "exit 3").poll(30_000), Outcome::Standby);
    assert_eq!(
        reason(&cat(text, "exit 1").poll(30_000)),
        FailureReason::Garbage
    );
}

#[test]
fn the_exit_status_of_the_process_counts_too() {
    let text = fixtures::ALL
        .iter()
        .find(|(name, _)| *name == "open-failed")
        .unwrap()
        .1;
    let fake = cat(
        &text.replace("\"exit_status\": 2", "\"exit_status\": 0"),
        "exit 2",
    );
    assert_eq!(reason(&fake.poll(30_000)), FailureReason::OpenFailed);
}

#[test]
fn the_arguments_depend_on_the_drive() {
    let words = |poll: &Poll| {
        let words = poll.arguments();
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        words.join(" ")
    };
    let mut poll = question();
    assert_eq!(
        words(&poll),
        "--json=c -i -H -A -l selftest -l devstat /dev/null"
    );
    poll.rotational = true;
    poll.scsi = true;
    poll.device_type = Some(DeviceType::parse("sat+megaraid,0").unwrap());
    assert_eq!(
        words(&poll),
        "--json=c -i -H -A -l selftest -l error -l ssd -n standby,3 -d sat+megaraid,0 /dev/null"
    );
    poll.deep = true;
    assert_eq!(
        words(&poll),
        "--json=c -x -n standby,3 -d sat+megaraid,0 /dev/null"
    );
}

#[test]
fn virtual_and_remote_drives_are_not_polled_unless_the_operator_gives_a_type() {
    let mut drive = samples::facts("sda");
    let history = History::default();
    drive.transport = Transport::Sata;
    assert_eq!(Poll::of(&drive, &history, None, false).unsupported, None);
    drive.transport = Transport::Virtio;
    let question = Poll::of(&drive, &history, None, false);
    assert_eq!(reason(&poll(&question).outcome), FailureReason::Unsupported);
    let given = DeviceType::parse("megaraid,1").ok();
    assert_eq!(Poll::of(&drive, &history, given, false).unsupported, None);
}

#[test]
fn a_device_type_is_a_word_and_never_an_option() {
    for good in [
        "sat",
        "megaraid,0",
        "sat+megaraid,3",
        "areca,3/1",
        "jmb39x-q,0",
        "3ware,2",
    ] {
        assert!(DeviceType::parse(good).is_ok(), "{good}");
    }
    for bad in ["", "-x", ",0", "sat; reboot", "a b", "sat\n", "é"] {
        assert!(DeviceType::parse(bad).is_err(), "{bad}");
    }
    assert!(serde_json::from_str::<DeviceType>("\"--json=o\"").is_err());
}

#[test]
fn an_emmc_is_polled_by_sysfs_and_judged_by_its_reserved_blocks_and_its_wear() {
    let sys = tempfile::tempdir().unwrap();
    let device = mmc::directory(sys.path(), "mmcblk0");
    std::fs::create_dir_all(&device).unwrap();
    let write = |name: &str, text: &str| std::fs::write(device.join(name), text).unwrap();
    let mut drive = samples::facts("mmcblk0");
    drive.transport = Transport::Mmc;
    let mut question = Poll::of(&drive, &History::default(), None, false);
    assert_eq!(
        question.mmc.as_deref(),
        Some(Path::new("/sys/class/block/mmcblk0/device"))
    );
    question.mmc = Some(device.clone());
    let poll_and_judge = || {
        let mut history = History::default();
        let outcome = poll(&question).outcome;
        judge(&outcome, &mut history, 1, &Thresholds::default(), None)
    };
    let failure = |assessment: &Assessment| assessment.failure.as_ref().map(|it| it.reason);

    // An SD card has neither; an eMMC from before version 5.0 shows zeros.
    write("type", "SD\n");
    assert_eq!(failure(&poll_and_judge()), Some(FailureReason::Unsupported));
    write("type", "MMC\n");
    assert_eq!(failure(&poll_and_judge()), Some(FailureReason::NoData));
    write("life_time", "0x00 0x00\n");
    write("pre_eol_info", "0x00\n");
    assert_eq!(failure(&poll_and_judge()), Some(FailureReason::NoData));

    // Life time, reserved blocks, verdict, code, wear: each on both sides of its threshold.
    let cases = [
        ("0x01 0x01", "0x01", Verdict::Good, None, None),
        ("0x08 0x01", "0x01", Verdict::Good, None, None),
        (
            "0x01 0x09",
            "0x01",
            Verdict::Good,
            None,
            Some(ConditionLevel::Info),
        ),
        (
            "0x0a 0x09",
            "0x01",
            Verdict::Good,
            None,
            Some(ConditionLevel::Warning),
        ),
        (
            "0x0b 0x01",
            "0x01",
            Verdict::Good,
            None,
            Some(ConditionLevel::NoNewVolumes),
        ),
        (
            "0x01 0x01",
            "0x02",
            Verdict::Suspect,
            Some(SmartCode::SpareLow),
            None,
        ),
        (
            "0x01 0x01",
            "0x03",
            Verdict::Bad,
            Some(SmartCode::SpareExhausted),
            None,
        ),
        (
            "0x00 0x00",
            "0x03",
            Verdict::Bad,
            Some(SmartCode::SpareExhausted),
            None,
        ),
    ];
    for (life, eol, verdict, code, wear) in cases {
        write("life_time", life);
        write("pre_eol_info", eol);
        let assessment = poll_and_judge();
        assert_eq!(assessment.verdict, verdict, "{life}, {eol}");
        assert_eq!(
            assessment.findings.first().map(|finding| finding.code),
            code
        );
        assert_eq!(
            assessment
                .conditions
                .first()
                .map(|condition| condition.level),
            wear,
            "{life}"
        );
        assert_eq!(failure(&assessment), None);
    }
}
