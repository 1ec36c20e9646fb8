//! Encrypted volumes, in the guest: this machine has no device-mapper.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use drivebay_hwtests::{
    lab::{Machine, MachineSpec, inside::Tally, shared},
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
