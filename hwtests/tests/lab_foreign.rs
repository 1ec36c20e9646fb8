//! The product on a processor that is not this machine's: `hwtests/lab test --arch arm64` builds for it, and boots one guest of it.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use drivebay_hwtests::{
    lab::{
        Machine, MachineSpec, guest::quote, image::target_dir, inside, progress::print_progress,
        shared,
    },
    stage::REPOSITORY,
};

/// A booted machine that has the repository, read-only, in its place on this machine: unit tests read recorded files there.
fn machine() -> shared::Shared {
    shared(|| {
        let repository = std::fs::canonicalize(REPOSITORY)?.display().to_string();
        let device =
            format!("local,id=repository,path={repository},security_model=none,readonly=on");
        let mut spec = MachineSpec::new("foreign");
        spec.args = [
            "-fsdev",
            &device,
            "-device",
            "virtio-9p-pci,fsdev=repository,mount_tag=repository",
        ]
        .map(str::to_owned)
        .into();
        let machine = Machine::boot(spec)?;
        let at = quote(&repository);
        machine.guest().run(&format!(
            "mkdir -p {at} && mount -t 9p -o trans=virtio,ro,msize=262144 repository {at}"
        ));
        Ok(machine)
    })
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn the_unit_tests_pass_on_this_processor() {
    let machine = machine();
    let kernel = machine.guest().run("uname -rm");
    print_progress(format!("Linux {}", kernel.trim()));
    let programs = inside::unit_tests().unwrap();
    assert!(!programs.is_empty(), "{}", target_dir().unwrap().display());
    let mut passed = 0;
    let mut failed = Vec::new();
    for (name, program) in programs {
        let tally = machine.guest().run_test_program(&name, &program, &[], &[]);
        let tally = tally.unwrap();
        print_progress(format!(
            "{name}: {} passed, {} failed, {} ignored",
            tally.passed, tally.failed, tally.ignored
        ));
        passed += tally.passed;
        if tally.failed > 0 {
            failed.push(name);
        }
    }
    print_progress(format!("{passed} unit tests passed"));
    assert_eq!(failed, [""; 0]);
}

fn one_node(layout: &str) {
    let machine = machine();
    let variables = [("CI", "true"), ("DRIVEBAY_TEST_LAYOUT", layout)];
    let tally = machine
        .guest()
        .run_test_binary("one_node", &[], &variables)
        .unwrap();
    print_progress(format!(
        "{layout}: {} passed, {:#?}",
        tally.passed, tally.skipped
    ));
    assert_eq!(tally.failed, 0);
    assert!(tally.ran() >= 25, "{} tests ran", tally.ran());
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn what_must_hold_on_one_node_holds_with_layout_lvm_on_this_processor() {
    one_node("lvm");
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn what_must_hold_on_one_node_holds_with_layout_partition_on_this_processor() {
    one_node("partition");
}
