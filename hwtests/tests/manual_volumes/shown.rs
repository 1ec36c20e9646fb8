//! Use and age of a volume in the lists, and a drive named by a symbolic link.

use std::{fs, os::unix::fs::symlink, time::Duration};

use drivebay_hwtests::{DriveSpec, MIB, Rig, need, wait};

use super::helpers::{list, place, run};

/// Volumes are sampled each minute.
const SAMPLED: Duration = Duration::from_secs(150);

#[tokio::test]
async fn a_volume_is_shown_with_its_use_and_age_and_deleted_until_it_is_erased() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", 512 * MIB)]).await;
    let drive = rig.drive_is("a", "available").await;
    let srv = place(&rig, "db");
    run(&rig, "volume create db --size 64MiB").ok();
    run(&rig, &format!("volume mount db {}", srv.display())).ok();
    fs::write(srv.join("letter"), vec![1; 8 << 20]).unwrap();
    let usage = wait::until_async(SAMPLED, "the volume is sampled", async || {
        let usage = list(&rig)["volumes"][0]["usage"].clone();
        usage["used_bytes"]
            .as_u64()
            .filter(|used| *used >= 8 << 20)
            .map(|_| usage)
    })
    .await;
    let of = |key: &str| usage[key].as_u64().unwrap();
    assert!(
        of("total_bytes") > 48 << 20 && of("available_bytes") > 0,
        "{usage}"
    );
    assert!(list(&rig)["volumes"][0]["created_at"].as_u64() > Some(1_700_000_000));
    let table = run(&rig, "volumes").ok();
    assert!(table.contains(&srv.display().to_string()), "{table}");

    // The creation time is stored on the drive, like the volume.
    let link = rig.dir().join("by-id");
    symlink(format!("/dev/{}", drive.kernel_name), &link).unwrap();
    let link = link.display().to_string();
    let shown = run(&rig, &format!("drive show {link}")).ok();
    assert!(
        shown.starts_with(&format!("Drive {}\n", drive.id)),
        "{shown}"
    );
    assert_eq!(
        run(&rig, &format!("volumes --drive {link} -o name")).ok(),
        "db\n"
    );
    let refused = run(&rig, &format!("drive wipe {link}")).refused(1, &["db ("]);
    assert!(refused.contains(&drive.id), "{refused}");

    run(&rig, "volume unmount db").ok();
    let output = run(&rig, "volume delete db --confirm db --wait").ok();
    assert!(output.contains("its space is erased"), "{output}");
    assert_eq!(run(&rig, "volumes -o name").ok(), "");
}
