//! Layout with which drives are claimed: `lvm`, unless the class sets another one, and never on a host without support for it.

use std::{fs, os::unix::fs::PermissionsExt};

use super::plan::claim_plan;
use drivebay_hwtests::{DriveSpec, MIB, Rig, csi, need};
use tonic::Code;

#[tokio::test]
async fn a_host_without_lvm_claims_nothing_and_reports_what_is_missing_and_which_layout_works() {
    need!(root, loop);
    let mut rig = Rig::tuned(vec![DriveSpec::blank("a", 128 * MIB)], |settings| {
        // A version of LVM that is too old, as on a host without another one.
        let tools = settings.dir.join("bin");
        fs::create_dir(&tools).unwrap();
        let lvm = tools.join("lvm");
        fs::write(&lvm, "#!/bin/sh\necho '  LVM version:     2.02.98(2)'\n").unwrap();
        fs::set_permissions(&lvm, fs::Permissions::from_mode(0o755)).unwrap();
        settings.tools = Some(tools);
        settings.layout.clear();
    })
    .await;
    let before = rig.shelf.digests().unwrap();
    assert_eq!(rig.csi.capacity().await.unwrap(), 0);
    let refused = rig.csi.create("first", 24 * MIB, &csi::block()).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    let findings = rig.inventory().await.findings;
    let finding = findings.iter().find(|one| one.code == "LvmUnavailable");
    let finding = finding.expect("the host is said to lack LVM");
    for text in [refused.message(), &finding.message] {
        for part in ["LVM 2.02.98 is installed", "layout = \"partition\""] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    let plan = claim_plan(rig.agent.settings(), &["-o", "json"]);
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let why = plan["lvm_unavailable"].as_str().unwrap_or_default();
    assert!(why.contains("LVM 2.02.98 is installed"), "{plan}");
    let drives = plan["drives"].as_array().unwrap().iter();
    let outcomes: Vec<_> = drives.map(|drive| &drive["outcome"]).collect();
    assert!(outcomes.contains(&&"layout-unavailable".into()), "{plan}");
    assert!(!outcomes.contains(&&"would-be-claimed".into()), "{plan}");
    assert_eq!(rig.shelf.digests().unwrap(), before);

    // The layout that the class sets.
    rig.agent.stop().unwrap();
    let config = rig.agent.settings().config();
    let text = fs::read_to_string(&config).unwrap();
    let class = "name = \"demo\"\n";
    let set = text.replace(class, &format!("{class}layout = \"partition\"\n"));
    assert_ne!(set, text);
    fs::write(&config, set).unwrap();
    rig.start_again().await;
    rig.volume("first", 24 * MIB, &csi::block()).await;
    let findings = rig.inventory().await.findings;
    assert!(findings.iter().all(|one| one.code != "LvmUnavailable"));
}
