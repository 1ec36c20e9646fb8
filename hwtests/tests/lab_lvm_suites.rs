//! The suites of the loop drives, run inside the guest with layout `lvm`: the same tests with the same expectations as for partitions on
//! this machine, which has no device-mapper.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use drivebay_hwtests::{
    GIB,
    lab::{DriveSpec, Machine, MachineSpec, inside::Tally, shared},
    long, wait,
};

/// If fewer tests pass, the program did not run the intended ones.
const AT_LEAST: u32 = 10;

fn machine() -> shared::Shared {
    shared(|| Machine::restored(MachineSpec::new("suites")))
}

/// Runs a test program with a layout. Panics if a test fails.
fn run(program: &str, layout: &str, words: &[&str]) -> Tally {
    let places = std::env::var("DRIVEBAY_TEST_PLACES").unwrap_or_default();
    let specs = match std::env::var_os("DRIVEBAY_LAB_LONG") {
        Some(_) => "all",
        None => "layout",
    };
    let variables = [
        ("CI", "true"),
        ("DRIVEBAY_TEST_LAYOUT", layout),
        ("DRIVEBAY_TEST_PLACES", &places),
        ("DRIVEBAY_LONG", "1"),
        ("DRIVEBAY_SANITY_SPECS", specs),
    ];
    let machine = machine();
    let tally = machine.guest().run_test_binary(program, words, &variables);
    let tally = tally.unwrap();
    assert_eq!(tally.failed, 0, "{program} on {layout}");
    tally
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn the_conformance_suite_passes_on_lvm_with_mounted_volumes() {
    let tally = run(
        "sanity",
        "lvm",
        &["the_conformance_suite_passes_with_mounted"],
    );
    assert_eq!((tally.passed, tally.skipped), (1, vec![]));
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn the_conformance_suite_passes_on_lvm_with_block_volumes() {
    long!();
    let tally = run(
        "sanity",
        "lvm",
        &["the_conformance_suite_passes_with_block"],
    );
    assert_eq!((tally.passed, tally.skipped), (1, vec![]));
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn one_bad_sector_loses_no_volume_on_lvm() {
    long!();
    let tally = run("bad_sectors", "lvm", &["one_bad_sector", "--nocapture"]);
    assert_eq!((tally.passed, tally.skipped), (1, vec![]));
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn no_bad_sector_loses_a_volume_on_lvm() {
    long!();
    let words = ["no_bad_sector", "--include-ignored", "--nocapture"];
    let tally = run("bad_sectors", "lvm", &words);
    assert_eq!((tally.passed, tally.skipped), (1, vec![]));
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn the_files_in_unreadable_sectors_are_named_on_lvm() {
    long!();
    let tally = run("affected", "lvm", &["--nocapture"]);
    assert_eq!((tally.passed, tally.skipped), (5, vec![]));
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn what_must_hold_on_one_node_holds_on_lvm() {
    long!();
    let tally = run("one_node", "lvm", &[]);
    // Some tests are about layout partition; this guest's kernel is too old for two others.
    let is_known = |line: &String| {
        line.contains("it is about layout partition") || line.contains("no statmount")
    };
    assert!(tally.skipped.iter().all(is_known), "{:?}", tally.skipped);
    assert!(tally.ran() >= 25, "{} tests ran", tally.ran());
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn every_filesystem_is_grown_while_it_is_mounted_on_partitions_too() {
    // In a container root may not expand a mounted ext4; here it may, so that no test is skipped.
    let tally = run("one_node", "partition", &["each_filesystem_is_made"]);
    assert_eq!((tally.passed, tally.skipped), (1, vec![]));
}

/// Modules of `drives` whose tests write a drive's layout. The others are about choosing drives, configurations and partition tables.
const OF_THE_LAYOUT: [&str; 12] = [
    "drives::adopting::",
    "drives::clones::",
    "drives::copies::",
    "drives::cordon::",
    "drives::held::",
    "drives::hotplug::",
    "drives::interrupted::",
    "drives::moves::",
    "drives::moves_beside::",
    "drives::raw::",
    "drives::space::",
    "drives::wiping::",
];

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn the_life_of_drives_is_the_same_on_lvm() {
    long!();
    let tally = run("drives", "lvm", &OF_THE_LAYOUT);
    // Tests about a partition table give that as their reason; no other one is skipped.
    let is_of_tables = |line: &String| line.contains("it is about layout partition");
    assert!(
        tally.skipped.iter().all(is_of_tables),
        "{:#?}",
        tally.skipped
    );
    assert!(tally.ran() >= 30, "{} tests ran", tally.ran());
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn the_jobs_of_the_layout_work_with_the_kernel_and_lvm_itself_on_every_kind_of_drive() {
    long!();
    let names = ["jobs-nvme", "jobs-scsi", "jobs-4096", "jobs-virtio"];
    let drives = [
        DriveSpec::nvme(names[0], 5 * GIB),
        DriveSpec::scsi(names[1], 5 * GIB),
        DriveSpec::scsi(names[2], 5 * GIB).sector(4096, 4096),
        DriveSpec::virtio(names[3], 5 * GIB),
    ];
    let machine = Machine::restored(MachineSpec::new("jobs").with(drives.into())).unwrap();
    let nodes = names.map(|name| {
        let what = format!("drive {name} in the guest");
        wait::until(std::time::Duration::from_secs(60), &what, || {
            let listed = machine
                .guest()
                .run("lsblk --nodeps --noheadings -o PATH,SERIAL");
            let line = listed.lines().find(|line| line.contains(name))?;
            Some(line.split_whitespace().next()?.to_owned())
        })
    });
    let variables = [
        ("CI", "true"),
        ("DRIVEBAY_TEST_GUEST", "1"),
        ("DRIVEBAY_TEST_DRIVES", &nodes.join(" ")),
    ];
    let tally = machine
        .guest()
        .run_test_binary("lvm", &["--nocapture"], &variables);
    let tally = tally.unwrap();
    assert_eq!(tally.failed, 0);
    assert!(tally.passed >= AT_LEAST);
    let skipped = tally
        .output
        .lines()
        .filter(|line| line.contains("skipped:"));
    assert_eq!(skipped.count(), 0);
}
