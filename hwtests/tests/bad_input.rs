//! Invalid input on every RPC of Identity, Controller and Node returns the documented code and a readable message, changes nothing on disk,
//! and prints no secret.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

mod bad_input {
    pub(crate) mod agent_rows;
    pub(crate) mod fields;
    pub(crate) mod fields_controller;
    pub(crate) mod fields_create;
    pub(crate) mod fields_mount;
    pub(crate) mod fields_node;
    pub(crate) mod fields_snapshots;
    pub(crate) mod good;
    pub(crate) mod options;
    pub(crate) mod raw;
    pub(crate) mod table;
    pub(crate) mod unserved;
}

use bad_input::{
    agent_rows, fields_controller, fields_create, fields_mount, fields_node, fields_snapshots,
    good, options, raw, table::Ground, unserved,
};
use drivebay_hwtests::{
    DriveSpec, GIB, Node, Rig, Shelf, need,
    pair::{Link, Pair},
    tree, wait,
};
use std::time::Duration;
use tonic::Code;

/// Sends the rows that change nothing, whether a volume is staged or not.
async fn unstaged_rows(ground: &mut Ground, node: &Node) {
    raw::rows(ground).await;
    unserved::rows(ground).await;
    fields_create::rows(ground).await;
    fields_controller::rows(ground).await;
    fields_snapshots::rows(ground).await;
    agent_rows::rows(ground, node).await;
}

/// Sends the rows of volumes that are staged and published.
async fn staged_rows(mut ground: Ground, node: &Node) {
    let volumes = ground.controller.ids().await.unwrap();
    let used = [ground.files.clone(), ground.raw.clone()];
    for volume in &used {
        node.use_volume(volume).await;
    }
    let mounts = tree::mounts_of(node.dir());
    fields_controller::in_use(&mut ground).await;
    fields_mount::rows(&mut ground, node.dir()).await;
    fields_node::rows(&mut ground, node.dir()).await;
    let controller = ground.controller.clone();
    let (rows, wrong) = ground.verdict();
    let text = wrong.join("\n");
    assert!(
        wrong.is_empty(),
        "{} of {rows} rows are wrong:\n{text}",
        wrong.len()
    );
    assert!(rows >= 800, "{rows} rows");
    assert_eq!(
        controller.ids().await.unwrap(),
        volumes,
        "volumes came or went"
    );
    assert_eq!(tree::mounts_of(node.dir()), mounts, "mounts came or went");
    let precious = std::fs::read_to_string(node.dir().join("odd/content")).unwrap();
    assert_eq!(precious, "precious");
    for volume in &used {
        node.leave_volume(volume).await;
    }
}

#[tokio::test]
async fn every_field_of_every_request_with_an_odd_value_gets_its_one_code_and_changes_nothing() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4", kernel "5.17");
    let rig = Rig::with(vec![
        DriveSpec::blank("claimed", 2 * GIB),
        DriveSpec::blank("blank", GIB),
    ])
    .await;
    let mut ground = Ground::new(&rig, &rig.csi).await;
    rig.zeroed().await;
    rig.shelf.flush().unwrap();
    let before = rig.shelf.digests().unwrap();
    // Nothing is staged yet: a mounted filesystem writes on its own.
    unstaged_rows(&mut ground, &rig).await;
    assert_eq!(
        rig.shelf.digests().unwrap(),
        before,
        "a drive was written to"
    );
    staged_rows(ground, &rig).await;
    // The rows must not pass because the agent no longer works.
    good::still_works(&rig).await;
}

#[tokio::test]
async fn a_controller_of_its_own_answers_each_request_as_a_headless_agent_does() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4", kernel "5.17");
    let mut shelf = Shelf::new().unwrap();
    shelf.add(DriveSpec::blank("a", 2 * GIB)).unwrap();
    let pair = Pair::start(Link::Socket, shelf, |settings| {
        settings.node = "node1".to_owned()
    })
    .await;
    // For a while after its start a controller expects agents that have not connected yet.
    wait::until_async(Duration::from_secs(30), "an unknown node is none", || {
        let request = fields_create::on_no_such_node();
        let csi = pair.csi.clone();
        async move {
            let refused = csi.create_with(request).await.unwrap_err();
            (refused.code() == Code::ResourceExhausted).then_some(())
        }
    })
    .await;
    let mut ground = Ground::new(&pair.node, &pair.csi).await;
    unstaged_rows(&mut ground, &pair.node).await;
    staged_rows(ground, &pair.node).await;
}

#[tokio::test]
async fn mkfs_options_that_need_smaller_sectors_than_the_drives_have_are_refused_before_anything_is_written()
 {
    need!(root, loop, tool "mkfs.ext4", tool "mkfs.xfs", fs "ext4", fs "xfs");
    let large = || DriveSpec::blank("large", GIB).sector(4096);
    options::refused_for_their_sectors(&Rig::with(vec![large()]).await, false).await;
    // If another drive supports the options, the volume goes there.
    let both = vec![large(), DriveSpec::blank("small", 2 * GIB)];
    options::refused_for_their_sectors(&Rig::with(both).await, true).await;
}

#[tokio::test]
async fn mount_options_that_the_kernel_does_not_know_are_refused_before_anything_is_written() {
    // Before Linux 5.17 the kernel validates ext4's options only when it mounts.
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
        // All output of the product.
        settings.log = "info,drivebay=trace".to_owned();
    })
    .await;
    good::secrets(&rig).await;
    let tables = [
        &["volumes", "-o", "json"][..],
        &["drives", "-o", "json"],
        &["volumes"],
        &["drives"],
    ]
    .map(|args| rig.agent.run_command(args).unwrap());
    for output in tables {
        let printed = [output.stdout, output.stderr].concat();
        good::no_canary("a table", &printed);
    }
    let inventory = format!("{:?}", rig.inventory().await);
    good::no_canary("the inventory", inventory.as_bytes());
    rig.agent.stop().unwrap();
    good::no_canary("the log", rig.agent.log().as_bytes());
    rig.shelf.flush().unwrap();
    for file in rig.shelf.files() {
        let offsets = drivebay_hwtests::digest::find(&file, good::CANARY.as_bytes()).unwrap();
        assert!(offsets.is_empty(), "a secret is on a drive");
    }
    for part in ["state", "run"] {
        good::no_canary_below(&rig.dir().join(part));
    }
}
