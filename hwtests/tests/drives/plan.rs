//! `claim-plan` shows what would be claimed, and changes no byte.

use std::process::Command;

use drivebay_hwtests::{
    Agent, DriveSpec, MIB, Rig, Settings, Shelf, csi, need, program, replay, shelf, tools, wait,
};

fn mixed_shelf() -> Shelf {
    let mut shelf = Shelf::new().unwrap();
    shelf.add(DriveSpec::blank("blank", 256 * MIB)).unwrap();
    let ext4 = DriveSpec::blank("ext4", 256 * MIB)
        .holding(|file| tools::run("mkfs.ext4", &["-Fq", &file.display().to_string()]).map(drop));
    shelf.add(ext4).unwrap();
    let raw = DriveSpec::blank("raw", 256 * MIB).holding(shelf::raw_data);
    shelf.add(raw).unwrap();
    shelf.add(DriveSpec::blank("small", 32 * MIB)).unwrap();
    shelf
}

/// Runs claim-plan and returns its output.
pub(super) fn claim_plan(settings: &Settings, more: &[&str]) -> String {
    let output = Command::new(program::agent().unwrap())
        .args(["claim-plan", "--config"])
        .arg(settings.config())
        .args(more)
        .env("PATH", settings.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "claim-plan failed: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_blank_drive_that_is_bad_gets_no_volumes_and_plan_and_agent_report_it() {
    need!(root, loop);
    let rig = Rig::tuned(vec![DriveSpec::blank("blank", 256 * MIB)], |settings| {
        settings.more = replay::smartctl(&settings.dir.join("bin"), 48);
    })
    .await;
    let blank = rig.drive_is("blank", "available").await.id;
    let plan = claim_plan(rig.agent.settings(), &["-o", "json"]);
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let mut drives = plan["drives"].as_array().unwrap().iter();
    let drive = drives.find(|drive| drive["id"] == *blank).unwrap();
    assert_eq!(drive["outcome"], "unfit", "{drive}");
    assert_eq!(drive["verdict"], "BAD", "{drive}");
    let table = claim_plan(rig.agent.settings(), &[]);
    assert!(
        table.contains("Blank, and gets no volumes because of its health:\n"),
        "{table}"
    );
    let listed = wait::until(std::time::Duration::from_secs(60), "polled", || {
        rig.agent.run_command(&["rescan"]).unwrap();
        let listed = rig.agent.run_command(&["drives"]).unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        listed.contains("NoNewVolumes").then_some(listed)
    });
    let row = listed.lines().find(|row| row.starts_with(&blank)).unwrap();
    assert!(row.contains("  available  "), "{listed}");
    let is_sum = |line: &&str| line.contains(" drives: ") || line.starts_with("1 drive: ");
    let sum = listed.lines().find(is_sum).unwrap();
    assert!(!sum.contains(';'), "there is no space to be used: {listed}");
    let refused = rig.csi.create("v", 64 * MIB, &csi::block()).await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::ResourceExhausted);
}

#[tokio::test]
async fn claim_plan_shows_what_would_be_claimed_and_why_not_and_changes_no_byte() {
    need!(root, loop, tool "mkfs.ext4");
    let shelf = mixed_shelf();
    let settings = Settings::new(shelf.dir(), &shelf.pattern());
    std::fs::write(settings.config(), settings.toml()).unwrap();
    let before = shelf.digests().unwrap();

    let table = claim_plan(&settings, &[]);
    let json = claim_plan(&settings, &["-o", "json"]);
    let plan: serde_json::Value = serde_json::from_str(&json).unwrap();
    let drives = plan["drives"].as_array().unwrap();
    for (name, outcome, code) in [
        ("blank", "would-be-claimed", None),
        ("ext4", "not-used", Some("Filesystem")),
        ("raw", "not-used", Some("NotBlank")),
        ("small", "not-used", Some("TooSmall")),
    ] {
        let prefix = format!("loop-{name}.img-");
        let id = |drive: &&serde_json::Value| drive["id"].as_str().unwrap().starts_with(&prefix);
        let drive = drives.iter().find(id).unwrap_or_else(|| panic!("{json}"));
        assert_eq!(drive["outcome"], outcome, "{drive}");
        assert_eq!(drive["class"], "demo", "{drive}");
        let rejects = drive["rejects"].as_array().unwrap();
        let has = |code: &str| rejects.iter().any(|reject| reject["code"] == code);
        match code {
            None => assert!(rejects.is_empty(), "{drive}"),
            Some(code) => assert!(has(code), "{drive}"),
        }
        // The table agrees: the drive in its group, the reason below it.
        let at = table.find(&prefix).unwrap_or_else(|| panic!("{table}"));
        let unused = table.find("Not used, because").unwrap();
        assert_eq!(at > unused, outcome == "not-used", "{table}");
        if let Some(code) = code {
            assert!(table[at..].contains(code), "{table}");
        }
    }
    assert!(table.contains("1 of "), "{table}");
    assert!(table.contains("Nothing was written"), "{table}");
    assert_eq!(shelf.digests().unwrap(), before);
}

#[tokio::test]
async fn claim_plan_beside_a_running_agent_shows_what_is_claimed_and_disturbs_nobody() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let shelf = mixed_shelf();
    let agent = Agent::start(Settings::new(shelf.dir(), &shelf.pattern()))
        .await
        .unwrap();
    let rig = Rig::of(agent, shelf).await;
    // A raw volume: a mounted filesystem writes on its own.
    let volume = rig.volume("used", 64 * MIB, &csi::block()).await;
    rig.use_volume(&volume).await;
    rig.zeroed().await;
    let before = rig.shelf.digests().unwrap();
    let table = claim_plan(rig.agent.settings(), &[]);
    let claimed = table
        .find("Claimed already")
        .unwrap_or_else(|| panic!("{table}"));
    assert!(table[claimed..].contains("1 volume, "), "{table}");
    assert!(!table.contains("Would be claimed"), "{table}");
    assert_eq!(rig.shelf.digests().unwrap(), before);
    rig.leave_volume(&volume).await;
}

/// Returns the text with the settings that `init` comments out enabled.
fn uncommented(text: &str) -> String {
    let setting = |line: &str| match line.strip_prefix('#') {
        Some(setting) if !setting.is_empty() && !setting.starts_with(' ') => setting.to_owned(),
        _ => line.to_owned(),
    };
    text.lines().map(|line| setting(line) + "\n").collect()
}

fn run(args: &[&str], file: &std::path::Path) -> std::process::Output {
    let mut command = Command::new(program::agent().unwrap());
    command.args(args).arg("--config").arg(file);
    command.output().unwrap()
}

#[tokio::test]
async fn init_writes_a_config_that_claims_nothing_and_whose_classes_are_the_drives_that_can_be_claimed()
 {
    need!(root, loop, tool "mkfs.ext4");
    let shelf = mixed_shelf();
    let before = shelf.digests().unwrap();
    let file = shelf.dir().join("etc/drivebay.toml");
    let printed = run(&["init", "--allow-loop", "--print"], &file);
    assert!(!file.exists(), "--print writes nothing");

    let made = run(&["init", "--allow-loop"], &file);
    let stdout = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(made.status.success(), "{made:?}");
    assert!(
        stdout.contains("can be claimed; none is, until a class selects it"),
        "{stdout}"
    );
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text, String::from_utf8(printed.stdout).unwrap());

    // Unchanged.
    let checked = run(&["check-config"], &file);
    assert!(checked.status.success(), "{checked:?}");
    let warnings = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(
        warnings
            .lines()
            .map(|line| line.rsplit_once(": ").unwrap().1)
            .collect::<Vec<_>>(),
        ["no drive will ever be used"],
    );
    let plan = run(&["claim-plan", "--all"], &file);
    let plan = String::from_utf8(plan.stdout).unwrap();
    assert!(plan.contains("\n0 of "), "{plan}");

    // Every drive, with the reasons below it.
    for (name, reason) in [
        ("blank", "can be claimed: "),
        ("ext4", "Filesystem: "),
        ("raw", "NotBlank: "),
        ("small", "TooSmall: "),
    ] {
        let prefix = format!("# loop-{name}.img-");
        let at = text.find(&prefix).unwrap_or_else(|| panic!("{text}"));
        let remarks = text[at..].split("\n#\n").next().unwrap();
        let (first, reasons) = remarks.split_once('\n').unwrap();
        assert!(
            first.contains(", /dev/loop") && first.contains(" MiB, "),
            "{first}"
        );
        assert!(reasons.contains(reason), "{remarks}");
        assert_eq!(
            reasons.contains("can be claimed: "),
            name == "blank",
            "{remarks}"
        );
    }

    // With its classes enabled the plan agrees with the comments.
    std::fs::write(&file, uncommented(&text)).unwrap();
    let checked = run(&["check-config"], &file);
    assert!(
        checked.status.success() && checked.stderr.is_empty(),
        "{checked:?}"
    );
    let plan = run(&["claim-plan", "-o", "json"], &file);
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
    let claimed: Vec<&str> = plan["drives"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|drive| drive["outcome"] == "would-be-claimed")
        .map(|drive| drive["id"].as_str().unwrap())
        .filter(|id| {
            ["blank", "ext4", "raw", "small"]
                .iter()
                .any(|it| id.starts_with(&format!("loop-{it}.img-")))
        })
        .collect();
    assert!(
        matches!(claimed.as_slice(), [one] if one.starts_with("loop-blank.img-")),
        "{claimed:?}"
    );
    let listed = text.lines().filter(|line| line.starts_with("#\"")).count();
    let claimable = text
        .lines()
        .filter(|line| line.starts_with("#   can be claimed: "))
        .count();
    assert_eq!(listed, claimable, "{text}");

    // An existing file is not overwritten.
    let edited = std::fs::read(&file).unwrap();
    let again = run(&["init", "--allow-loop"], &file);
    assert_eq!(again.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(stderr.contains("is left as it is"), "{stderr}");
    assert_eq!(std::fs::read(&file).unwrap(), edited);
    assert_eq!(shelf.digests().unwrap(), before);
}

#[tokio::test]
async fn init_writes_layout_partition_where_lvm_does_not_work() {
    need!(root, loop);
    let shelf = Shelf::new().unwrap();
    let file = shelf.dir().join("drivebay.toml");
    let layout = |tools: &str| {
        let mut command = Command::new(program::agent().unwrap());
        command.args(["init", "--print", "--config"]).arg(&file);
        let output = command.env("PATH", tools).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let here = layout("/usr/sbin:/usr/bin:/sbin:/bin");
    let kernel = std::fs::read_to_string("/proc/misc").unwrap();
    let works = tools::find("lvm").is_some() && kernel.contains("device-mapper");
    assert_eq!(here.contains("#layout = \"lvm\""), works, "{here}");
    assert_eq!(here.contains("#layout = \"partition\""), !works, "{here}");
    // With a failing program in place of lvm.
    let lvm = shelf.dir().join("lvm");
    std::fs::write(&lvm, "#!/bin/sh\nexit 5\n").unwrap();
    tools::run("chmod", &["755", &lvm.display().to_string()]).unwrap();
    let without = layout(&shelf.dir().display().to_string());
    assert!(without.contains("#layout = \"partition\""), "{without}");
    assert!(
        without.contains("# Layout: layout lvm cannot be used"),
        "{without}"
    );
}
