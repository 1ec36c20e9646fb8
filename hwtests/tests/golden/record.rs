//! Makes the golden files: runs the first release's agent and controller on loop drives, and copies what they write.
//!
//! Every kind of state is there: volumes in each state of their life, a drive that is missing, one that may not be used,
//! one whose SMART answers are bad, a volume that was deleted while its drive was missing, a filesystem error, a check.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Shelf, csi,
    fleet::{Fleet, FleetOptions, Plan, command::Percent},
    node::Placed,
    pair::{Builds, NODE, Pair},
    replay, scrape,
    tap::{Message, Sender, Tap},
    tools::must as run,
    wait,
};
use drivebay_proto::{agent as wire, csi::CreateVolumeRequest};
use prost::Message as _;

use crate::{
    files::{excerpt, frame},
    outputs,
};

const LIMIT: Duration = Duration::from_secs(90);

/// A class for each drive that a test tells apart; a program in smartctl's place.
pub(crate) fn settings(settings: &mut drivebay_hwtests::Settings) {
    let tools = settings.dir.join("bin");
    let smart = replay::smartctl(&tools, 0);
    settings.cluster = "golden".to_owned();
    let shelf = settings.dir.join("shelf");
    let shelf = shelf.display();
    settings.select = format!("path = [\"{shelf}/a.img\", \"{shelf}/used.img\"]");
    settings.more = format!(
        "\n[[class]]\nname = \"gone\"\nlayout = \"partition\"\n[class.select]\npath = [\"{shelf}/gone.img\"]\n\
         [[class]]\nname = \"spare\"\nlayout = \"partition\"\n[class.select]\npath = [\"{shelf}/spare.img\"]\n\
         {smart}"
    );
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) async fn create(
    pair: &Pair,
    name: &str,
    bytes: u64,
    fs: Option<&str>,
    class: &str,
) -> Placed {
    let mut parameters = HashMap::from([("class".to_owned(), class.to_owned())]);
    if fs == Some("ext4") {
        parameters.insert("mkfsOptions".to_owned(), "-m 1".to_owned());
        parameters.insert("mountOptions".to_owned(), "noatime".to_owned());
    }
    let capability = fs.map_or_else(csi::block, csi::mount);
    let request = CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(csi::bytes(bytes)),
        volume_capabilities: vec![capability.clone()],
        parameters,
        ..CreateVolumeRequest::default()
    };
    let volume = pair.csi.create_with(request).await.unwrap();
    pair.node.place(&volume, name, &capability)
}

/// Every kind of message at most this often; the whole inventory, and some changes.
fn chosen(all: &[Message]) -> String {
    let mut count: HashMap<(String, Sender), usize> = HashMap::new();
    let mut text = String::new();
    let mut snapshot = String::new();
    for message in all {
        if message.method == "WatchInventory" && message.sender == Sender::Answerer {
            let update = wire::InventoryUpdate::decode(message.bytes.as_slice()).unwrap();
            if update.full {
                // The last whole one, with the parts that follow it.
                snapshot.clear();
            }
            let is_part = update.full || update.since_revision == 0;
            if is_part {
                snapshot.push_str(&frame(message));
                continue;
            }
        }
        let seen = count
            .entry((message.method.clone(), message.sender))
            .or_default();
        *seen += 1;
        if *seen <= 3 {
            text.push_str(&frame(message));
        }
    }
    text + &snapshot
}

pub(crate) fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &to);
        } else if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn archive(shelf: &Shelf, name: &str, to: &Path) {
    let file = shelf.file(name);
    let dir = file.parent().unwrap().display().to_string();
    let archive = to.join(format!("{name}.tar.gz")).display().to_string();
    let image = format!("{name}.img");
    run(
        "tar",
        &[
            "-C",
            &dir,
            "--sparse",
            "--owner=0",
            "--group=0",
            "-czf",
            &archive,
            &image,
        ],
    );
    fs::write(to.join(format!("{name}.hex")), excerpt(&file)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes the golden files: hwtests/golden"]
async fn the_first_releases_files_are_recorded() {
    let out = PathBuf::from(std::env::var_os("DRIVEBAY_GOLDEN_OUT").expect("hwtests/golden"));
    let (agent_out, controller_out) = (out.join("agent"), out.join("controller"));
    for dir in [
        "agent/output",
        "agent/drives",
        "controller/output",
        "controller/state",
    ] {
        fs::create_dir_all(out.join(dir)).unwrap();
    }
    let builds = Builds::here().unwrap();
    let mut shelf = Shelf::new().unwrap();
    shelf.add(DriveSpec::blank("a", 2048 * GIB)).unwrap();
    shelf.add(DriveSpec::blank("gone", GIB)).unwrap();
    shelf.add(DriveSpec::blank("spare", GIB)).unwrap();
    let used = DriveSpec::blank("used", 320 * MIB).holding(|file| {
        run("mkfs.ext4", &["-Fq", file.to_str().unwrap()]);
        Ok(())
    });
    shelf.add(used).unwrap();
    let mut pair = Pair::start(&builds, shelf, |of| {
        settings(of);
        of.erase_rate = "64MiB".to_owned();
    })
    .await;
    let tools = pair.shelf.dir().join("bin");

    // Volumes in each state.
    let absent = create(&pair, "pvc-absent", 128 * MIB, Some("ext4"), "gone").await;
    let deleted = create(&pair, "pvc-deleted", 128 * MIB, None, "gone").await;
    let erasing = create(&pair, "pvc-erasing", 1024 * GIB, None, "demo").await;
    let block = create(&pair, "pvc-block", 128 * MIB, None, "demo").await;
    let new = create(&pair, "pvc-new", 320 * MIB, Some("xfs"), "demo").await;
    let checked = create(&pair, "pvc-checked", 64 * MIB, Some("ext4"), "demo").await;
    let troubled = create(&pair, "pvc-troubled", 64 * MIB, Some("ext4"), "demo").await;
    let mounted = create(
        &pair,
        "pvc-mounted \u{fc}:=+,\"",
        128 * MIB,
        Some("ext4"),
        "demo",
    )
    .await;
    let notes = pair.controller_state().join("notes.json");
    fs::copy(&notes, controller_out.join("state/notes-doubts.json")).unwrap();
    for volume in [&mounted, &block, &troubled] {
        pair.node.use_volume(volume).await;
    }
    fs::write(mounted.target.join("letter"), "dear reader").unwrap();
    pair.csi
        .expand(&mounted.id, 192 * MIB, &mounted.capability)
        .await
        .unwrap();

    // What only a command line asks.
    let tap = Tap::before_socket(&pair.shelf.dir().join("tap.sock"), &pair.node.agent_socket).await;
    let tap = tap.unwrap();
    let tapped = |args: &[&str]| {
        let mut command = std::process::Command::new(pair.agent.program());
        let output = command
            .args(args)
            .arg("--socket")
            .arg(tap.socket())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        said(&output)
    };
    pair.node
        .csi
        .stage(&checked.id, &checked.staging, &checked.capability)
        .await
        .unwrap();
    pair.node
        .csi
        .unstage(&checked.id, &checked.staging)
        .await
        .unwrap();
    let checks = wait::poll_async(LIMIT, async || {
        let args = [
            "volume",
            "check",
            &checked.id,
            "--socket",
            tap.socket().to_str().unwrap(),
        ];
        let output = std::process::Command::new(pair.agent.program())
            .args(args)
            .output()
            .unwrap();
        output.status.success().then_some(())
    });
    checks.await.expect("the check is done");
    let drives = pair.node.inventory().await.drives;
    let id = |name: &str| {
        let prefix = format!("loop-{name}.img-");
        drives
            .iter()
            .find(|drive| drive.id.starts_with(&prefix))
            .unwrap()
            .id
            .clone()
    };
    let (drive_a, used_id, spare) = (id("a"), id("used"), id("spare"));
    tapped(&["drive", "wipe", &used_id, "--confirm", &used_id]);

    // What is bad.
    replay::pending_sectors(&tools, 48);
    wait::until_async(LIMIT, "the drives are BAD", async || {
        tapped(&["rescan"]);
        let all = pair.node.inventory().await.drives;
        all.iter()
            .any(|drive| drive.id == spare && drive.verdict == "BAD")
            .then_some(())
    })
    .await;
    tapped(&["drive", "ack", &spare, "--note", "the old cable"]);
    let device = pair.node.device(&troubled).await;
    let name = device.file_name().unwrap().to_str().unwrap();
    fs::write(
        format!("/sys/fs/ext4/{name}/trigger_fs_error"),
        "a golden error",
    )
    .unwrap();
    pair.node.is_told(&troubled, "FilesystemError").await;

    // What is missing.
    pair.shelf.pull("gone");
    pair.node.volume_is(&absent.id, "missing").await;
    wait::until_async(
        LIMIT,
        "the volume of the missing drive is deleted",
        async || pair.csi.delete(&deleted.id).await.ok(),
    )
    .await;

    // What is being erased: so much that the agent rests between two steps.
    pair.csi.delete(&erasing.id).await.unwrap();
    wait::until_async(LIMIT, "a note of erasing is on the drive", async || {
        let volume = pair.node.volume_of(&erasing.id).await.unwrap();
        (volume.erased_bytes > 2 * GIB).then_some(())
    })
    .await;
    let workers = pair.agent.settings().runtime.join("workers");
    copy_tree(&workers, &agent_out.join("workers"));

    // Outputs.
    let (dir, program) = (agent_out.join("output"), pair.agent.program().to_owned());
    let keep = |name: &str, args: &[&str]| {
        fs::write(
            dir.join(format!("{name}.json")),
            tapped(&[args, &["-o", "json"]].concat()),
        )
        .unwrap();
    };
    keep("drives", &["drives", "--all"]);
    keep("volumes", &["volumes"]);
    keep("drive-show", &["drive", "show", &drive_a]);
    keep("volume-show", &["volume", "show", &mounted.id]);
    let health = pair.agent.ask(&["health", "-o", "json"]).unwrap();
    fs::write(dir.join("health.json"), health.stdout).unwrap();
    let config = pair.agent.settings().config().display().to_string();
    let plan = std::process::Command::new(program)
        .args(["claim-plan", "--config", &config, "-o", "json", "--all"])
        .output()
        .unwrap();
    fs::write(dir.join("claim-plan.json"), plan.stdout).unwrap();
    let metrics = scrape::scrape(&pair.agent.settings().metrics_socket()).unwrap();
    fs::write(dir.join("metrics.txt"), metrics).unwrap();
    let dir = controller_out.join("output");
    for (name, args) in outputs::of_a_controller(&drive_a, &mounted.id) {
        let output = pair
            .controller
            .ask(&[&args[..], &["-o", "json"]].concat())
            .unwrap();
        fs::write(dir.join(format!("{name}.json")), output.stdout).unwrap();
    }
    let metrics = scrape::scrape(&pair.controller.metrics_socket()).unwrap();
    fs::write(dir.join("metrics.txt"), metrics).unwrap();

    // The state, as a crash leaves it. What should be mounted is written within seconds.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let erased = pair.node.volume_of(&erasing.id).await.unwrap();
    assert_eq!(erased.state, "erasing", "{erased:?}");
    pair.agent.kill9();
    copy_tree(
        &pair.agent.settings().dir.join("state"),
        &agent_out.join("state"),
    );
    let config = fs::read_to_string(pair.agent.settings().config()).unwrap();
    fs::write(agent_out.join("agent.toml"), config).unwrap();
    for path in [
        &mounted.target,
        &mounted.staging,
        &block.target,
        &troubled.target,
        &troubled.staging,
    ] {
        run("umount", &[path.to_str().unwrap()]);
    }
    pair.shelf.flush().unwrap();
    for name in ["a", "gone"] {
        archive(&pair.shelf, name, &agent_out.join("drives"));
    }
    pair.controller.stop().unwrap();
    let known = format!("nodes/{NODE}.known");
    let state = controller_out.join("state");
    fs::copy(
        pair.controller_state().join(&known),
        state.join(format!("{NODE}.known")),
    )
    .unwrap();

    // The node is given up, one of its volumes is deleted, and it comes back.
    let forgotten = format!("[[forgotten]]\nnode = \"{NODE}\"\nat = 2026-11-21T10:00:00Z\n");
    fs::write(pair.controller_config(), forgotten).unwrap();
    pair.start_controller_again().await;
    pair.csi.delete(&new.id).await.unwrap();
    fs::copy(&notes, state.join("notes-deleted.json")).unwrap();
    pair.start_agent_again().await;
    wait::until_async(LIMIT, "the node is told of the deletion", async || {
        let all = pair.tap.messages();
        let told = all
            .iter()
            .filter(|one| one.method == "DeleteVolume" && one.sender == Sender::Answerer);
        (told.count() >= 3).then_some(())
    })
    .await;
    pair.controller.stop().unwrap();
    fs::copy(&notes, state.join("notes-returned.json")).unwrap();
    fs::copy(pair.controller_config(), state.join("controller.toml")).unwrap();

    // Another machine of the same name is refused.
    pair.start_controller_again().await;
    pair.are_connected().await;
    // The fleet is of today, and the controller may not be.
    let here = format!("unix:{}/strangers.sock", pair.shelf.dir().display());
    let strangers = Tap::before_controller(&here, &pair.controller.address()).await;
    let strangers = strangers.unwrap();
    let another = FleetOptions {
        plan: Plan {
            nodes: 1,
            prefix: NODE.trim_end_matches('0').to_owned(),
            machine: "another-".to_owned(),
            ..Plan::default()
        },
        controllers: vec![strangers.address().to_owned()],
        certs: None,
        journal: None,
        change: Percent::default(),
    };
    let fleet = Fleet::start(&another).await.unwrap();
    let is_refused = |one: &Message| one.method == "Refused";
    wait::until_async(LIMIT, "the other machine is refused", async || {
        strangers
            .messages()
            .iter()
            .any(|one| is_refused(one) && one.sender == Sender::Answerer)
            .then_some(())
    })
    .await;
    drop(fleet);
    let refused = strangers.messages().into_iter().filter(is_refused);

    // The node has another name: its drive is adopted.
    let mut frames = chosen(&pair.tap.messages());
    frames.extend(refused.take(2).map(|one| frame(&one)));
    pair.agent.stop().unwrap();
    pair.agent
        .retune(|of| of.node = "golden1".to_owned())
        .unwrap();
    pair.start_agent_again().await;
    let socket = tap.socket().display().to_string();
    let program = pair.agent.program().to_owned();
    wait::until_async(LIMIT, "the drive is adopted", async || {
        let args = [
            "drive",
            "adopt",
            &drive_a,
            "--confirm",
            &drive_a,
            "--socket",
            &socket,
        ];
        let output = std::process::Command::new(&program)
            .args(args)
            .output()
            .unwrap();
        output.status.success().then_some(())
    })
    .await;
    fs::write(controller_out.join("frames.txt"), frames).unwrap();
    let asked: Vec<Message> = tap.messages();
    let asked = asked
        .into_iter()
        .filter(|one| one.method != "WatchInventory");
    fs::write(
        agent_out.join("frames-cli.txt"),
        chosen(&asked.collect::<Vec<_>>()),
    )
    .unwrap();
    pair.agent.stop().unwrap();
}
