//! What would be claimed is known before anything is, and finding out changes no byte.

use std::process::Command;

use drivebay_hwtests::{
    Agent, DriveSpec, MIB, Rig, Settings, Shelf, agent, csi, need, shelf, tools,
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

/// Runs claim-plan; answers with what it printed.
fn claim_plan(settings: &Settings, more: &[&str]) -> String {
    let output = Command::new(agent::program().unwrap())
        .args(["claim-plan", "--config"])
        .arg(settings.config())
        .args(more)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "claim-plan failed: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn claim_plan_says_what_would_be_claimed_and_why_not_and_changes_no_byte() {
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
        // The table says the same: the drive in its group, its reason below it.
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
    // A raw one: a mounted filesystem writes by itself.
    let volume = rig.volume("used", 64 * MIB, &csi::block()).await;
    rig.use_volume(&volume).await;
    let before = rig.shelf.digests().unwrap();
    let table = claim_plan(rig.agent.settings(), &[]);
    let claimed = table
        .find("Claimed already")
        .unwrap_or_else(|| panic!("{table}"));
    assert!(table[claimed..].contains("1 volumes"), "{table}");
    assert!(!table.contains("Would be claimed"), "{table}");
    assert_eq!(rig.shelf.digests().unwrap(), before);
    rig.leave_volume(&volume).await;
}
