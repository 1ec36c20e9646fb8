//! The five lines for a host on the first page, run unchanged, on a drive made of a file.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use drivebay_hwtests::{
    DriveSpec, GIB, Shelf, need, program, settings,
    stage::{Stage, lines_of},
    tools,
};

const README: &str = include_str!("../../README.md");

/// Replaces systemd for the units that the line names.
const SYSTEMCTL: &str = r#"[ "$*" = "enable drivebay-agent drivebay-mounts" ] && exit 0
[ "$*" = "restart drivebay-agent" ]
setsid drivebay-agent run >/var/lib/agent.log 2>&1 </dev/null &
until drivebay-agent drives -o json 2>/dev/null | grep -q '"ready": true'; do sleep 0.2; done"#;

#[test]
fn the_first_pages_five_lines_for_a_host_end_with_a_volume_that_is_mounted() {
    need!(root, loop, tool "unshare", tool "mkfs.ext4", fs "ext4", fs "overlay");
    let mut shelf = Shelf::new().unwrap();
    shelf.add(DriveSpec::blank("a", 16 * GIB)).unwrap();
    let backup = DriveSpec::blank("b", GIB).holding(|file| {
        let file = file.display().to_string();
        tools::run("mkfs.ext4", &["-qF", "-L", "backup", &file]).map(drop)
    });
    shelf.add(backup).unwrap();
    let stage = Stage::new(shelf.dir()).unwrap();
    stage
        .program("drivebay-agent", &program::agent().unwrap())
        .unwrap();
    stage.stand_in("systemctl", SYSTEMCTL).unwrap();
    let config = format!(
        "install -d /etc/drivebay\ncat >/etc/drivebay/drivebay.toml <<'END'\n[discovery]\nallow-loop = true\n[kubelet]\nregistration = false\n\
         [metrics]\nlisten = \"off\"\n[[class]]\nname = \"fast\"\nlayout = \"{}\"\n[class.select]\npath = [\"{}\"]\nEND",
        settings::layout(),
        shelf.pattern()
    );
    stage.run(&config).unwrap();

    let lines = lines_of(README, "Five lines on a host");
    assert_eq!(lines.len(), 5, "{lines:#?}");
    let mut outputs = Vec::new();
    for line in &lines {
        let printed = stage.run(line).unwrap();
        eprintln!("# {line}\n{printed}");
        outputs.push(printed);
    }
    assert!(outputs[0].contains("loop-a.img"), "{outputs:#?}");
    assert!(outputs[0].contains("Filesystem: "), "{outputs:#?}");
    assert!(outputs[4].contains("/srv/db (persisted)"), "{outputs:#?}");
    let written = stage.run("date >/srv/db/written; findmnt -no FSTYPE /srv/db");
    assert_eq!(written.unwrap().trim(), "ext4");
    let health = stage.run_unchecked("drivebay-agent health").unwrap();
    eprintln!("{}", String::from_utf8_lossy(&health.stdout));
    // So that the loop device can be detached.
    stage
        .run("drivebay-agent volume unmount db; kill $(pgrep -o -x drivebay-agent)")
        .unwrap();
}
