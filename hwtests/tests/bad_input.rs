//! Bad input on every RPC of Identity, Controller and Node: the documented code, a
//! sentence a human can act on, nothing changed on disk, and no secret printed.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

mod bad_input {
    pub(crate) mod agent_rows;
    pub(crate) mod controller;
    pub(crate) mod fields;
    pub(crate) mod fields_controller;
    pub(crate) mod fields_node;
    pub(crate) mod good;
    pub(crate) mod node;
    pub(crate) mod options;
    pub(crate) mod raw;
    pub(crate) mod table;
    pub(crate) mod unserved;
}

use bad_input::{
    agent_rows, controller, fields_controller, fields_node, good, node, options, raw,
    table::Ground, unserved,
};
use drivebay_hwtests::{DriveSpec, GIB, MIB, Rig, csi, need, tree};

#[tokio::test]
async fn bad_input_on_every_rpc_gets_its_code_and_a_sentence_and_changes_nothing() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![
        DriveSpec::blank("claimed", 2 * GIB),
        DriveSpec::blank("blank", GIB),
    ])
    .await;
    // Never staged: a mounted filesystem writes of its own accord.
    let files = rig.volume("files", 256 * MIB, &csi::mount("ext4")).await;
    let raw = rig.volume("raw", 64 * MIB, &csi::block()).await;
    rig.zeroed().await;
    rig.shelf.flush().unwrap();
    let before = rig.shelf.digests().unwrap();
    let volumes = rig.csi.ids().await.unwrap();
    let mounts = tree::mounts_of(rig.dir());

    let mut ground = Ground::new(&rig, files, raw);
    controller::rows(&mut ground).await;
    node::rows(&mut ground).await;
    unserved::rows(&mut ground).await;
    let (rows, wrong) = ground.verdict();
    assert!(
        wrong.is_empty(),
        "{} of {rows} rows are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );

    assert_eq!(
        rig.csi.ids().await.unwrap(),
        volumes,
        "volumes came or went"
    );
    assert_eq!(tree::mounts_of(rig.dir()), mounts, "mounts came or went");
    assert_eq!(
        rig.shelf.digests().unwrap(),
        before,
        "a drive was written to"
    );
    // Told again with all the rest, so that the rows cannot pass because nothing works any more.
    good::still_works(&rig).await;
}

#[tokio::test]
async fn every_field_of_every_request_with_an_odd_value_gets_its_one_code() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4", kernel "5.17");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let files = rig.volume("files", 64 * MIB, &csi::mount("ext4")).await;
    let raw_volume = rig.volume("raw", 64 * MIB, &csi::block()).await;
    let unstaged = rig.volume("unstaged", 64 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&files).await;
    rig.use_volume(&raw_volume).await;
    let volumes = rig.csi.ids().await.unwrap();
    let mounts = tree::mounts_of(rig.dir());

    let mut ground = Ground::new(&rig, files.clone(), raw_volume.clone());
    ground.unstaged = unstaged;
    raw::rows(&mut ground).await;
    fields_controller::rows(&mut ground).await;
    fields_node::rows(&mut ground, rig.dir()).await;
    agent_rows::rows(&mut ground, &rig).await;
    let (rows, wrong) = ground.verdict();
    assert!(
        wrong.is_empty(),
        "{} of {rows} rows are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(rows >= 600, "{rows} rows");
    assert_eq!(
        rig.csi.ids().await.unwrap(),
        volumes,
        "volumes came or went"
    );
    assert_eq!(tree::mounts_of(rig.dir()), mounts, "mounts came or went");
    let precious = std::fs::read_to_string(rig.dir().join("odd/content")).unwrap();
    assert_eq!(precious, "precious");
    rig.leave_volume(&files).await;
    rig.leave_volume(&raw_volume).await;
    good::still_works(&rig).await;
}

#[tokio::test]
async fn mount_options_that_the_kernel_does_not_know_are_refused_before_anything_is_written() {
    // Before Linux 5.17 the kernel knows ext4's options only when it mounts.
    need!(root, loop, tool "mkfs.ext4", fs "ext4", kernel "5.17");
    let rig = Rig::tuned(vec![DriveSpec::blank("a", GIB)], |settings| {
        settings.more.push_str(options::A_CLASS);
    })
    .await;
    options::refused_before_anything_is_written(&rig).await;
}

#[tokio::test]
async fn odd_but_legal_input_is_accepted() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    good::odd_names(&rig).await;
    good::long_paths(&rig).await;
    good::sizes(&rig).await;
}

#[tokio::test]
async fn a_secret_in_every_rpc_appears_in_no_output() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::tuned(vec![DriveSpec::blank("a", 2 * GIB)], |settings| {
        // Everything the product itself may ever say.
        settings.log =
            "info,drivebay_agent=trace,drivebay_common=trace,drivebay_controller=trace".to_owned();
    })
    .await;
    good::secrets(&rig).await;
    let tables = [
        &["volumes", "-o", "json"][..],
        &["drives", "-o", "json"],
        &["volumes"],
        &["drives"],
    ]
    .map(|args| rig.agent.ask(args).unwrap());
    for output in tables {
        let said = [output.stdout, output.stderr].concat();
        good::no_canary("a table", &said);
    }
    let inventory = format!("{:?}", rig.inventory().await);
    good::no_canary("the inventory", inventory.as_bytes());
    rig.agent.stop().unwrap();
    good::no_canary("the log", rig.agent.log().as_bytes());
    rig.shelf.flush().unwrap();
    for file in rig.shelf.files() {
        let found = drivebay_hwtests::digest::find(&file, good::CANARY.as_bytes()).unwrap();
        assert!(found.is_empty(), "a secret is on a drive");
    }
    for part in ["state", "run"] {
        good::no_canary_below(&rig.dir().join(part));
    }
}
