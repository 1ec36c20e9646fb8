//! Secrets that change, recovery keys, and encrypted volumes without an orchestrator.

use std::{
    fs,
    path::{Path, PathBuf},
};

use drivebay_hwtests::{DriveSpec, GIB, MIB, Rig, csi, need, node::Placed, tools};
use tonic::Code;

use crate::{KEY, SECRET, WRONG, encrypted, holds, mapped, put, stage, use_it};

const PREVIOUS: &str = "previousPassphrase";
const NEW: &str = "silent-Salmon-of-1990";
/// Parameters of a key derivation that takes no time.
const FAST: [&str; 4] = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];

/// Numbers of the key slots of a device.
fn slots(device: &Path) -> Vec<String> {
    let node = device.display().to_string();
    let dump = tools::must("cryptsetup", &["luksDump", "--dump-json-metadata", &node]);
    let dump: serde_json::Value = serde_json::from_str(&dump).unwrap();
    let slots = dump["keyslots"].as_object().unwrap();
    slots.keys().cloned().collect()
}

fn key_file(rig: &Rig, name: &str, secret: &str) -> PathBuf {
    let path = rig.dir().join(name);
    fs::write(&path, format!("{secret}\n")).unwrap();
    path
}

/// Runs a command of the agent; arguments are separated by spaces. Returns its exit code, standard output and standard error.
pub(crate) fn run(rig: &Rig, line: &str) -> (Option<i32>, String, String) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = rig.agent.run_command(&words).unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code(), out, err)
}

pub(crate) fn done(rig: &Rig, line: &str) -> String {
    let (code, out, err) = run(rig, line);
    assert_eq!(code, Some(0), "{line}: {out}{err}");
    out
}

fn refused(rig: &Rig, line: &str, why: &str) {
    let (code, out, err) = run(rig, line);
    assert_eq!(code, Some(1), "{line}: {out}{err}");
    assert!(err.contains(why), "{line}: {err}");
}

async fn is_wrong(rig: &Rig, volume: &Placed, secrets: &[(&str, &str)]) {
    let refused = stage(rig, volume, secrets).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains(PREVIOUS), "{refused:?}");
}

#[tokio::test]
async fn a_new_secret_replaces_the_previous_one_at_the_next_stage_also_after_an_interruption() {
    need!(root, loop, crypt, tool "cryptsetup", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    let volume = encrypted(&rig, "files", 64 * MIB, &csi::mount("ext4")).await;
    use_it(&rig, &volume).await;
    put(&volume);
    rig.leave_volume(&volume).await;
    let device = rig.device(&volume).await;
    let (node, new) = (device.display().to_string(), key_file(&rig, "new", NEW));
    // cryptsetup takes the newline for a part of the key.
    fs::write(&new, NEW).unwrap();
    let old = rig.dir().join("old");
    fs::write(&old, SECRET).unwrap();
    let [new, old] = [new, old].map(|path| path.display().to_string());

    is_wrong(&rig, &volume, &[(KEY, NEW)]).await;
    is_wrong(&rig, &volume, &[(KEY, NEW), (PREVIOUS, WRONG)]).await;
    assert_eq!(slots(&device), ["0", "1"]);
    let add = [
        &["luksAddKey", "-q", "--key-file", &old][..],
        &FAST,
        &[&node, &new],
    ]
    .concat();
    let kill = |slot: &str| tools::must("cryptsetup", &["luksKillSlot", "-q", &node, slot]);
    // What an interrupted change leaves: with one new slot, with both, and with one of the old ones.
    for interrupted in ["one added", "two added", "one removed"] {
        tools::must("cryptsetup", &add);
        if interrupted != "one added" {
            tools::must("cryptsetup", &add);
        }
        if interrupted == "one removed" {
            let first = slots(&device).remove(0);
            kill(&first);
        }
        // Either secret opens it until the change is completed.
        use_it(&rig, &volume).await;
        rig.leave_volume(&volume).await;
        for _ in 0..2 {
            let both = [(KEY, NEW), (PREVIOUS, SECRET)];
            stage(&rig, &volume, &both).await.unwrap();
            assert_eq!(slots(&device).len(), 2, "{interrupted}");
        }
        rig.publish(&volume).await;
        assert!(holds(&volume));
        rig.leave_volume(&volume).await;
        is_wrong(&rig, &volume, &[(KEY, SECRET)]).await;
        // And back.
        let back = [(KEY, SECRET), (PREVIOUS, NEW)];
        stage(&rig, &volume, &back).await.unwrap();
        rig.publish(&volume).await;
        rig.leave_volume(&volume).await;
        is_wrong(&rig, &volume, &[(KEY, NEW)]).await;
        assert_eq!(slots(&device).len(), 2);
    }
    assert_eq!(mapped(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn an_encrypted_volume_is_used_by_hand_with_a_key_file_and_a_recovery_key() {
    need!(root, loop, crypt, tool "cryptsetup", tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    rig.drive_is("a", "available").await;
    let [key, wrong, new] = [("key", SECRET), ("wrong", WRONG), ("new", NEW)]
        .map(|(name, secret)| key_file(&rig, name, secret).display().to_string());
    let srv = rig.dir().join("srv");
    fs::create_dir(&srv).unwrap();
    let at = srv.display().to_string();

    let made = done(&rig, "volume create db --size 64MiB --encrypt");
    assert!(made.contains("--key-file FILE"), "{made}");
    refused(&rig, &format!("volume mount db {at}"), "is encrypted");
    let mount = format!("volume mount db {at} --persist --key-file {key}");
    refused(&rig, &mount, "no recovery key");
    refused(
        &rig,
        &format!("volume check-key db --key-file {key}"),
        "not formatted yet",
    );
    let recovery = done(&rig, &format!("volume recovery-key db --key-file {key}"));
    let recovery = key_file(&rig, "recovery", recovery.trim());
    let recovery = recovery.display().to_string();
    done(&rig, &mount);
    fs::write(srv.join("letter"), "dear reader").unwrap();
    let checked = done(&rig, &format!("volume check-key db --key-file {key}"));
    assert!(checked.contains("by 2 key slots"), "{checked}");
    let checked = done(&rig, &format!("volume check-key db --key-file {recovery}"));
    assert!(checked.contains("the recovery key"), "{checked}");
    refused(
        &rig,
        &format!("volume check-key db --key-file {wrong}"),
        "does not open",
    );

    // While it is mounted. The recovery key stays.
    let rekey = format!("volume rekey db --key-file {key} --new-key-file {new}");
    done(&rig, &rekey);
    done(&rig, &rekey);
    refused(
        &rig,
        &format!("volume rekey db --key-file {wrong} --new-key-file {wrong}"),
        "does not open",
    );
    done(&rig, &format!("volume check-key db --key-file {recovery}"));

    // The state after a boot: nothing is mounted or mapped, and the agent starts. The persisted mount names the file with the old secret.
    rig.agent.stop().unwrap();
    nix::mount::umount(&srv).unwrap();
    for device in mapped() {
        tools::must("cryptsetup", &["close", &device.display().to_string()]);
    }
    rig.start_again().await;
    refused(&rig, "volume mount --persisted", "could not be mounted");
    fs::copy(&new, &key).unwrap();
    done(&rig, "volume mount --persisted");
    assert_eq!(
        fs::read_to_string(srv.join("letter")).unwrap(),
        "dear reader"
    );

    // The file is lost: the recovery key gives the volume another secret.
    done(&rig, "volume unmount db");
    assert_eq!(mapped(), Vec::<PathBuf>::new());
    let lost = format!("volume rekey db --key-file {recovery} --new-key-file {wrong}");
    done(&rig, &lost);
    refused(
        &rig,
        &format!("volume mount db {at} --key-file {new}"),
        "does not open",
    );
    done(&rig, &format!("volume mount db {at} --key-file {recovery}"));
    assert_eq!(
        fs::read_to_string(srv.join("letter")).unwrap(),
        "dear reader"
    );
    done(&rig, "volume unmount db");

    // A second recovery key removes the first one.
    let second = done(&rig, &format!("volume recovery-key db --key-file {wrong}"));
    let second = key_file(&rig, "second", second.trim())
        .display()
        .to_string();
    done(&rig, &format!("volume check-key db --key-file {second}"));
    refused(
        &rig,
        &format!("volume check-key db --key-file {recovery}"),
        "does not open",
    );
    done(&rig, "volume delete db --confirm db");
}

#[tokio::test]
async fn a_secret_that_systemd_has_encrypted_opens_a_volume() {
    need!(root, loop, crypt, tool "cryptsetup", tool "systemd-creds", tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    rig.drive_is("a", "available").await;
    let (key, sealed) = (key_file(&rig, "key", SECRET), rig.dir().join("db.cred"));
    let srv = rig.dir().join("srv");
    fs::create_dir(&srv).unwrap();
    let [key, sealed, at] = [&key, &sealed, &srv].map(|path| path.display().to_string());
    tools::must(
        "systemd-creds",
        &["encrypt", "--with-key=host", &key, &sealed],
    );
    done(&rig, "volume create db --size 64MiB --encrypt");
    done(&rig, &format!("volume mount db {at} --key-file {sealed}"));
    done(&rig, &format!("volume check-key db --key-file {key}"));
    done(&rig, "volume unmount db");
    let other = rig.dir().join("other.cred").display().to_string();
    fs::copy(&sealed, &other).unwrap();
    refused(
        &rig,
        &format!("volume mount db {at} --key-file {other}"),
        "cannot decrypt",
    );
}
