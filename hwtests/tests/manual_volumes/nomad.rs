//! Nomad's dynamic host volume plugin by its contract: called as Nomad calls it, with its variables as the only environment. With a real
//! Nomad: hwtests/nomad.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
};

use drivebay_hwtests::{DriveSpec, GIB, MIB, Rig, csi, need, tree};
use serde_json::Value;

use super::helpers::{CommandOutput, id_of, list, run};

const ID: &str = "8e1c7c0a-0b9d-4d52-9c3d-2f4a1b5c6d7e";
const PARAMETERS: &str = r#"{"fsType":"xfs"}"#;
const NAME: &str = "nomad-8e1c7c0a-0b9d-4d52-9c3d-2f4a1b5c6d7e";

fn volumes_dir(rig: &Rig) -> PathBuf {
    rig.dir().join("host_volumes")
}

/// Returns the command with the variables that Nomad sets; `other` overrides them.
fn command(rig: &Rig, operation: &str, other: &[(&str, &str)]) -> Command {
    let mut command = Command::new(rig.agent.program());
    command
        .args(["nomad-plugin", operation, "--socket"])
        .arg(rig.agent.settings().agent_socket())
        .env_clear()
        .env("DHV_OPERATION", operation)
        .stdin(Stdio::null());
    if operation != "fingerprint" {
        command
            .env("DHV_VOLUMES_DIR", volumes_dir(rig))
            .env("DHV_PLUGIN_DIR", "/opt/nomad/plugins")
            .env("DHV_NAMESPACE", "default")
            .env("DHV_VOLUME_NAME", "db")
            .env("DHV_VOLUME_ID", ID)
            .env("DHV_NODE_ID", "d87c86d7-d22b-f811-c329-09e263995e86")
            .env("DHV_NODE_POOL", "default")
            .env("DHV_CAPACITY_MIN_BYTES", (400 * MIB).to_string())
            .env("DHV_CAPACITY_MAX_BYTES", GIB.to_string())
            .env("DHV_PARAMETERS", PARAMETERS)
            .envs(other.iter().copied());
    }
    command
}

fn call(rig: &Rig, operation: &str, other: &[(&str, &str)]) -> CommandOutput {
    let output = command(rig, operation, other).output().unwrap();
    CommandOutput {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn answer(output: CommandOutput) -> Value {
    serde_json::from_str(&output.ok()).unwrap()
}

/// Asserts that a call failed with these words, in Nomad's form too.
fn refused(output: CommandOutput, words: &[&str]) {
    let json: Value = serde_json::from_str(&output.out).unwrap();
    let shown = json["error"].as_str().unwrap().to_owned();
    for word in words {
        assert!(shown.contains(word), "{word:?}: {shown}");
    }
    output.refused(1, words);
}

fn volumes(rig: &Rig) -> usize {
    let list = list(rig);
    let all = list["volumes"].as_array().unwrap();
    all.iter().filter(|one| one["state"] != "erasing").count()
}

#[tokio::test]
async fn a_nomad_volume_is_made_once_mounted_again_after_a_boot_enlarged_and_deleted() {
    need!(root, loop, tool "mkfs.xfs", fs "xfs");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    rig.drive_is("a", "available").await;
    let version = answer(call(&rig, "fingerprint", &[]));
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));

    let parameters = (
        "DHV_PARAMETERS",
        r#"{"class":"demo","fsType":"xfs","uid":"1234","mode":"0770"}"#,
    );
    let made = answer(call(&rig, "create", &[parameters]));
    let at = volumes_dir(&rig).join(ID);
    assert_eq!(made["path"], at.display().to_string());
    assert_eq!(made["bytes"], 400 * MIB);
    let root = fs::metadata(&at).unwrap();
    assert_eq!(
        (root.uid(), root.gid(), root.mode() & 0o7777),
        (1234, 0, 0o770)
    );
    fs::write(at.join("letter"), "dear reader").unwrap();
    // The data that the job wrote stays.
    std::os::unix::fs::chown(&at, Some(5678), None).unwrap();
    assert_eq!(answer(call(&rig, "create", &[parameters])), made);
    assert_eq!(fs::metadata(&at).unwrap().uid(), 5678);
    assert_eq!((tree::mounted_times(&at), volumes(&rig)), (1, 1));
    refused(
        call(
            &rig,
            "create",
            &[("DHV_PARAMETERS", r#"{"fsType":"ext4"}"#)],
        ),
        &["filesystem \"xfs\""],
    );
    for refused_option in [
        r#"{"mountOptions":"bind"}"#,
        r#"{"mkfsOptions":"-b size=7"}"#,
    ] {
        let variables = [("DHV_PARAMETERS", refused_option)];
        refused(call(&rig, "create", &variables), &["Options"]);
    }

    // The state after a boot: nothing is mounted, and Nomad's client starts before the agent.
    rig.agent.stop().unwrap();
    nix::mount::umount(&at).unwrap();
    let mut again = command(&rig, "create", &[parameters]);
    let waiting = thread::spawn(move || again.output().unwrap());
    rig.start_again().await;
    let output = waiting.join().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        fs::read_to_string(at.join("letter")).unwrap(),
        "dear reader"
    );

    let larger = [
        ("DHV_CAPACITY_MIN_BYTES", "838860800"),
        ("DHV_CAPACITY_MAX_BYTES", "1073741824"),
    ];
    assert_eq!(answer(call(&rig, "create", &larger))["bytes"], 800 * MIB);
    // Smaller than the volume: nothing changes.
    assert_eq!(answer(call(&rig, "create", &[]))["bytes"], 800 * MIB);

    // In use: none of its data is deleted.
    let open = fs::File::open(at.join("letter")).unwrap();
    refused(call(&rig, "delete", &[]), &["in use"]);
    assert_eq!((tree::mounted_times(&at), volumes(&rig)), (1, 1));
    drop(open);
    // Without the name, as after a create that Nomad could not record.
    assert_eq!(call(&rig, "delete", &[("DHV_VOLUME_NAME", "")]).ok(), "");
    assert_eq!((at.exists(), volumes(&rig)), (false, 0));
    assert_eq!(call(&rig, "delete", &[]).ok(), "");
}

#[tokio::test]
async fn a_nomad_volume_that_is_lost_is_not_replaced_by_an_empty_one() {
    need!(root, loop, tool "mkfs.xfs", fs "xfs");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    rig.drive_is("a", "available").await;
    call(&rig, "create", &[]).ok();
    run(&rig, &format!("volume unmount {NAME}")).ok();
    run(&rig, &format!("volume delete {NAME} --confirm {NAME}")).ok();
    refused(call(&rig, "create", &[]), &["is lost", "not replaced"]);
    assert_eq!(volumes(&rig), 0);
    // After its deletion in Nomad it can be created again.
    call(&rig, "delete", &[]).ok();
    call(&rig, "create", &[]).ok();
    call(&rig, "delete", &[]).ok();
}

#[tokio::test]
async fn a_nomad_volume_that_cannot_be_had_leaves_nothing_behind() {
    need!(root, loop, tool "mkfs.xfs", fs "xfs");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    rig.drive_is("a", "available").await;
    let dir = volumes_dir(&rig);
    let file = rig.dir().join("file");
    fs::write(&file, "").unwrap();
    let no_directory = file.join("volumes").display().to_string();
    for (variable, value, words) in [
        // The volume is created, but its mount point cannot be.
        (
            "DHV_VOLUMES_DIR",
            no_directory.as_str(),
            &["cannot make"][..],
        ),
        ("DHV_PARAMETERS", r#"{"class":"slow"}"#, &["slow", "demo"]),
        ("DHV_PARAMETERS", r#"{"block":"true"}"#, &["parameters"]),
        ("DHV_CAPACITY_MIN_BYTES", "0", &["capacity_min"]),
        ("DHV_CAPACITY_MAX_BYTES", "1048576", &["capacity_max"]),
    ] {
        refused(call(&rig, "create", &[(variable, value)]), words);
        assert_eq!(volumes(&rig), 0, "{variable}={value}");
        assert!(!dir.exists(), "{variable}={value}");
    }
    let huge = [
        ("DHV_CAPACITY_MIN_BYTES", "1099511627776"),
        ("DHV_CAPACITY_MAX_BYTES", "1099511627776"),
    ];
    refused(call(&rig, "create", &huge), &["refused"]);
    assert!(!dir.exists());

    // A volume of this name that was created through CSI belongs to CSI.
    let volume = rig.volume(NAME, 400 * MIB, &csi::mount("ext4")).await;
    refused(
        call(&rig, "create", &[]),
        &["was not made by Nomad's plugin"],
    );
    refused(
        call(&rig, "delete", &[]),
        &["was not made by Nomad's plugin"],
    );
    assert_eq!(id_of(&rig, NAME), volume.id);
}
