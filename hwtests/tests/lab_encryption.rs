//! Encrypted volumes, in the guest: this machine has no device-mapper.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use drivebay_hwtests::{
    GIB,
    lab::{DriveSpec, LabRig, Machine, MachineSpec, Tpm, inside::Tally, shared},
    long,
};

fn machine() -> shared::Shared {
    shared(|| Machine::restored(MachineSpec::new("encryption")))
}

fn run(layout: &str, words: &[&str]) -> Tally {
    let variables = [("CI", "true"), ("DRIVEBAY_TEST_LAYOUT", layout)];
    let machine = machine();
    let tally = machine
        .guest()
        .run_test_binary("encryption", words, &variables);
    let tally = tally.unwrap();
    assert_eq!(tally.failed, 0, "on layout {layout}");
    tally
}

fn run_all(layout: &str) {
    let tally = run(layout, &[]);
    // One is for hosts that cannot encrypt; snapshots are of layout lvm.
    let is_known = |line: &String| {
        line.contains("this host can encrypt") || line.contains("it is about layout lvm")
    };
    assert!(tally.skipped.iter().all(is_known), "{:?}", tally.skipped);
    assert!(tally.ran() >= 15, "{} tests ran", tally.ran());
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn neither_a_lost_header_nor_a_secret_is_handled_carelessly() {
    let tally = run("lvm", &["a_header_that", "a_secret_is"]);
    assert_eq!((tally.passed, tally.skipped), (2, vec![]));
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn encrypted_volumes_live_on_lvm() {
    long!();
    run_all("lvm");
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn encrypted_volumes_live_on_partitions() {
    long!();
    run_all("partition");
}

/// Runs a command on volumes in the guest, and returns its output.
fn done(lab: &LabRig, words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    let ran = lab.agent.run_command(&words);
    assert!(ran.ok(), "{words:?}: {}{}", ran.stdout, ran.stderr);
    ran.stdout
}

/// Powers the machine off and on, and starts the agent.
async fn boot_again(lab: &mut LabRig, restore_tpm: impl FnOnce()) {
    lab.guest().run("sync");
    lab.machine.power_off();
    restore_tpm();
    lab.machine.power_again().unwrap();
    lab.start_again().await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_key_sealed_by_the_tpm_opens_a_volume_after_a_boot_and_with_another_tpm_only_the_recovery_key()
 {
    long!();
    let mut tpm = Tpm::new().unwrap();
    let mut spec = MachineSpec::new("node1").with(vec![DriveSpec::scsi("safe-01", GIB)]);
    spec.args = tpm.args();
    let mut lab = LabRig::on(Machine::boot(spec).unwrap(), "partition").await;
    lab.are_available(&["safe-01"]).await;
    let seal = "set -e; cd /var/lib; mkdir -p /srv/db; umask 077; head -c 32 /dev/urandom | base64 -w0 >db.key; \
        systemd-creds encrypt --with-key=tpm2 --name=db.cred db.key db.cred";
    lab.guest().run(seal);
    done(&lab, "volume create db --size 64MiB --encrypt");
    let recovery = done(&lab, "volume recovery-key db --key-file /var/lib/db.key");
    lab.guest()
        .write("/var/lib/recovery.key".as_ref(), recovery.trim().as_bytes());
    done(
        &lab,
        "volume mount db /srv/db --key-file /var/lib/db.cred --persist",
    );
    lab.guest()
        .run("rm /var/lib/db.key; printf 'dear reader' >/srv/db/letter; sync /srv/db/letter");

    boot_again(&mut lab, || tpm.power_on().unwrap()).await;
    done(&lab, "volume mount --persisted");
    assert_eq!(lab.guest().run("cat /srv/db/letter"), "dear reader");

    boot_again(&mut lab, || tpm.replace().unwrap()).await;
    let refused = lab.agent.run_command(&["volume", "mount", "--persisted"]);
    assert!(
        !refused.ok() && refused.stderr.contains("cannot decrypt"),
        "{refused:?}"
    );
    done(
        &lab,
        "volume mount db /srv/db --key-file /var/lib/recovery.key",
    );
    assert_eq!(lab.guest().run("cat /srv/db/letter"), "dear reader");
}
