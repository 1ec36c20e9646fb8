//! A cordoned drive takes no new volumes, for any request and after any restart, and its volumes are served.

use std::process::Output;

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, Shelf, csi, need,
    pair::{Link, Pair},
    scrape,
};
use tonic::Code;

use super::helpers::drive_command;

fn printed(output: &Output) -> String {
    let all = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8(all).unwrap()
}

#[tokio::test]
async fn a_cordoned_drive_takes_no_new_volume_and_serves_those_that_it_has() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let drives = vec![DriveSpec::blank("a", GIB), DriveSpec::blank("b", GIB)];
    let mut rig = Rig::with(drives).await;
    let kept = rig.volume("kept", 100 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&kept).await;
    let cordoned = rig.inventory().await.volumes[0].drive.clone();
    let other = if rig.drive("a").await.unwrap().id == cordoned {
        "b"
    } else {
        "a"
    };
    let before = rig.csi.capacity().await.unwrap();

    let (code, plan) = drive_command(&rig, "cordon", &[&cordoned, "--plan"]);
    assert!(
        code == Some(0) && plan.contains("1 volume on it would stay"),
        "{plan}"
    );
    let words = ["--by", "ann", "--reason", "ticket 4711"];
    let cordon = [&[cordoned.as_str()], words.as_slice()].concat();
    let (code, text) = drive_command(&rig, "cordon", &cordon);
    assert_eq!(code, Some(0), "{text}");
    // Repeated with another reason: the first one stays.
    let again = [cordoned.as_str(), "--by", "bob", "--reason", "other"];
    let (code, text) = drive_command(&rig, "cordon", &again);
    assert!(
        code == Some(0)
            && text.contains("nothing was changed")
            && text.contains("ann: ticket 4711"),
        "{text}"
    );
    let scraped = scrape::scrape(&rig.dir().join("metrics.sock")).unwrap();
    let label = format!("drive=\"{cordoned}\"");
    let value = scrape::value(&scraped, "drivebay_drive_cordoned", &[&label]);
    assert_eq!(value, Some(1.0));
    let after = rig.csi.capacity().await.unwrap();
    assert!(after < before, "{after} of {before}");

    // A spreading class would alternate.
    for n in 0..3 {
        rig.volume(&format!("new-{n}"), 100 * MIB, &csi::block())
            .await;
    }
    let on_it = |volumes: &[drivebay_proto::agent::Volume]| {
        let on_it = volumes.iter().filter(|volume| volume.drive == cordoned);
        on_it.count()
    };
    assert_eq!(on_it(&rig.inventory().await.volumes), 1);
    let full = rig.csi.create("too-large", 900 * MIB, &csi::block()).await;
    let refused = full.unwrap_err();
    assert!(
        refused.code() == Code::ResourceExhausted
            && refused.message().contains("cordoned by ann: ticket 4711"),
        "{refused:?}"
    );

    // Its volumes are served as before, also by an agent that was killed meanwhile.
    rig.agent.kill9();
    rig.start_again().await;
    let shown = printed(&rig.agent.run_command(&["drives"]).unwrap());
    assert!(shown.contains("cordoned by ann"), "{shown}");
    rig.volume("after", 100 * MIB, &csi::block()).await;
    assert_eq!(on_it(&rig.inventory().await.volumes), 1);
    rig.leave_volume(&kept).await;
    rig.csi
        .expand(&kept.id, 200 * MIB, &csi::mount("ext4"))
        .await
        .unwrap();
    rig.use_volume(&kept).await;
    rig.leave_volume(&kept).await;
    rig.csi.delete(&kept.id).await.unwrap();

    let (code, text) = drive_command(&rig, "uncordon", &[&cordoned, "--by", "ann"]);
    assert_eq!(code, Some(0), "{text}");
    let (_, text) = drive_command(&rig, "uncordon", &[&cordoned, "--by", "ann"]);
    assert!(text.contains("nothing was changed"), "{text}");
    rig.volume("back", 700 * MIB, &csi::block()).await;
    assert!(on_it(&rig.inventory().await.volumes) >= 1);
    let unclaimed = rig.drive(other).await.unwrap();
    assert_eq!(unclaimed.cordon, None);
}

#[tokio::test]
async fn a_drive_without_a_label_is_not_cordoned() {
    need!(root, loop);
    let rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    let drive = rig.drive_is("a", "available").await;
    let (code, text) = drive_command(&rig, "cordon", &[&drive.id, "--by", "ann"]);
    assert!(code == Some(1) && text.contains("not claimed"), "{text}");
    rig.volume("v", 100 * MIB, &csi::block()).await;
}

async fn with_one_drive(controller_keys: &str) -> Pair {
    let mut shelf = Shelf::new().unwrap();
    shelf.add(DriveSpec::blank("a", GIB)).unwrap();
    let pair = Pair::start(Link::Socket, shelf, |settings| {
        settings.controller_keys = controller_keys.to_owned();
    })
    .await;
    pair.csi
        .create("v", 100 * MIB, &csi::block())
        .await
        .unwrap();
    pair
}

/// Returns the id of the drive with the pair's volume. The machine may have other loop drives, also of this name: an earlier test's that
/// is not detached yet.
async fn drive_id(pair: &Pair) -> String {
    let inventory = pair.node.inventory().await;
    inventory.volumes[0].drive.clone()
}

#[tokio::test]
async fn a_controller_has_a_drive_cordoned_where_the_nodes_configuration_lets_it() {
    need!(root, loop);
    let pair = with_one_drive("").await;
    let id = &drive_id(&pair).await;
    let command = |verb: &str, more: &[&str]| {
        let words = [&["drive", verb, id, "--by", "ann"], more].concat();
        let output = pair.controller.run_command(&words).unwrap();
        (output.status.code(), printed(&output))
    };
    let (code, text) = command("cordon", &["--reason", "ticket 4711"]);
    assert!(
        code == Some(0) && text.contains("cordoned by ann: ticket 4711"),
        "{text}"
    );
    // The inventory that the controller places by is updated a moment after the answer.
    drivebay_hwtests::wait::until(std::time::Duration::from_secs(10), "shown", || {
        let drives = printed(&pair.controller.run_command(&["drives"]).unwrap());
        drives.contains("cordoned by ann").then_some(())
    });
    let refused = pair.csi.create("w", 100 * MIB, &csi::block()).await;
    assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
    let (code, text) = command("uncordon", &[]);
    assert_eq!(code, Some(0), "{text}");

    let pair = with_one_drive("drive-verbs = []\n").await;
    let id = &drive_id(&pair).await;
    let output = pair
        .controller
        .run_command(&["drive", "cordon", id, "--by", "ann"])
        .unwrap();
    let text = printed(&output);
    assert!(
        !output.status.success() && text.contains("drive-verbs"),
        "{text}"
    );
    pair.csi
        .create("w", 100 * MIB, &csi::block())
        .await
        .unwrap();
}
