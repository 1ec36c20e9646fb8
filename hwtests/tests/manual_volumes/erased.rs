//! Receipts of erased volumes, verified with openssl.

use std::fs;

use drivebay_hwtests::{DriveSpec, MIB, Rig, need, tools};
use serde_json::Value;

use super::helpers::run;

#[tokio::test]
async fn a_volume_that_was_erased_has_a_receipt_that_openssl_verifies_after_a_restart() {
    need!(root, loop, tool "openssl");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 512 * MIB)]).await;
    rig.drive_is("a", "available").await;
    run(&rig, "volume erased db").refused(6, &["db", "volume erased"]);
    run(&rig, "volume create db --size 64MiB").ok();
    run(&rig, "volume erased db --receipt").refused(6, &["db"]);
    run(&rig, "volume delete db --confirm db --wait").ok();
    rig.erased().await;
    rig.agent.kill9();
    rig.start_again().await;

    let list = run(&rig, "volume erased").ok();
    assert!(list.contains("db") && list.contains("64 MiB"), "{list}");
    let json: Value = serde_json::from_str(&run(&rig, "volume erased db -o json").ok()).unwrap();
    assert_eq!(json["volumes"][0]["bytes"], 64 << 20, "{json}");
    let signed = run(&rig, "volume erased db --receipt").ok();
    let signed: Value = serde_json::from_str(&signed).unwrap();
    let text = |field: &str| signed[0][field].as_str().unwrap().to_owned();
    let receipt: Value = serde_json::from_str(&text("receipt")).unwrap();
    assert_eq!(receipt["name"], "db", "{receipt}");
    assert_eq!(receipt["ranges"][0][1], 64 << 20, "{receipt}");
    let [document, signature, key] =
        ["receipt", "signature", "key.pem"].map(|name| rig.dir().join(name).display().to_string());
    fs::write(&key, text("public_key")).unwrap();
    fs::write(format!("{signature}.b64"), text("signature")).unwrap();
    let decode = [
        "base64",
        "-d",
        "-A",
        "-in",
        &format!("{signature}.b64"),
        "-out",
        &signature,
    ];
    tools::must("openssl", &decode);
    let verify = [
        "pkeyutl", "-verify", "-pubin", "-inkey", &key, "-rawin", "-in", &document, "-sigfile",
        &signature,
    ];
    fs::write(&document, text("receipt")).unwrap();
    tools::must("openssl", &verify);
    fs::write(&document, text("receipt").replace("\"db\"", "\"dc\"")).unwrap();
    let forged = std::process::Command::new("openssl").args(verify).output();
    assert!(!forged.unwrap().status.success());
}
