//! The first release's drives and state directories, taken over by today's agent and controller.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_hwtests::{
    Agent, DriveSpec, GIB, MIB, Rig, Settings, Shelf, csi, digest, fleet, need, replay, scrape,
    tools::must as run, wait,
};
use drivebay_proto::csi::Volume;
use serde_json::Value;

use crate::{
    files::dir,
    outputs::{self, has_every_family, has_every_field},
    record,
};

const LIMIT: Duration = Duration::from_secs(60);
const MOUNTED: &str = "ff104791-2c02-43da-9ea0-a4e2a8deee8a@golden0";
const BLOCK: &str = "e8b99ca4-487c-4604-ad29-b489c4209f30@golden0";
const ABSENT: &str = "78b48bab-f1c7-44ba-9d46-262e7fc7cb19@golden0";
const DELETED: &str = "d29031f9-edae-4c6b-a14b-03aca38f7e88@golden0";
const MOUNTED_NAME: &str = "pvc-mounted ü:=+,\"";

/// CRC-32 (IEEE 802.3).
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

/// A loop drive's identity has its file's path in it: files of another shelf are read as of this one.
struct Moved(Vec<(String, String)>);

impl Moved {
    fn to(shelf: &Shelf) -> Self {
        let config = fs::read_to_string(dir("agent").join("agent.toml")).unwrap();
        let (_, rest) = config.split_once("state-dir = \"").unwrap();
        let (then, _) = rest.split_once("/state\"").unwrap();
        let now = shelf.dir().display().to_string();
        let id = |dir: &str, name: &str| {
            let hash = crc32(format!("{dir}/shelf/{name}.img").as_bytes());
            format!("loop-{name}.img-{hash:08x}")
        };
        let ids = ["a", "gone", "spare", "used"].map(|name| (id(then, name), id(&now, name)));
        let mut all = ids.to_vec();
        all.push((then.to_owned(), now));
        Self(all)
    }

    fn text(&self, text: &str) -> String {
        let all = self.0.iter();
        all.fold(text.to_owned(), |text, (then, now)| text.replace(then, now))
    }

    fn tree(&self, from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let to = to.join(self.text(path.file_name().unwrap().to_str().unwrap()));
            if path.is_dir() {
                self.tree(&path, &to);
            } else {
                fs::write(to, self.text(&fs::read_to_string(path).unwrap())).unwrap();
            }
        }
    }

    fn golden(&self, name: &str) -> String {
        let path = dir("agent").join("output").join(name);
        self.text(&fs::read_to_string(path).unwrap())
    }
}

fn extract(shelf: &Shelf, name: &str) {
    let archive = dir("agent").join(format!("drives/{name}.tar.gz"));
    let to = shelf.dir().join("shelf").display().to_string();
    run("tar", &["-C", &to, "-xzf", archive.to_str().unwrap()]);
}

/// Today's agent on them; the drive `gone` is not plugged in.
async fn restored() -> (Rig, Moved) {
    restored_with(|_| ()).await
}

/// The same with other settings.
async fn restored_with(tune: impl FnOnce(&mut Settings)) -> (Rig, Moved) {
    let mut shelf = Shelf::new().unwrap();
    for name in ["a", "gone"] {
        extract(&shelf, name);
    }
    shelf.plug("a").unwrap();
    shelf.add(DriveSpec::blank("spare", GIB)).unwrap();
    let used = DriveSpec::blank("used", 320 * MIB).holding(|file| {
        run("mkfs.ext4", &["-Fq", file.to_str().unwrap()]);
        Ok(())
    });
    shelf.add(used).unwrap();
    let moved = Moved::to(&shelf);
    moved.tree(&dir("agent").join("state"), &shelf.dir().join("state"));
    let mut settings = Settings::new(shelf.dir(), &shelf.pattern());
    record::settings(&mut settings);
    replay::pending_sectors(&settings.dir.join("bin"), 48);
    settings.node = drivebay_hwtests::pair::NODE.to_owned();
    // What is kept of checks stays what it is.
    settings.more.push_str("[checks]\nenabled = false\n");
    // So that what is being erased still is when it is looked at.
    settings.erase_rate = "64MiB".to_owned();
    tune(&mut settings);
    let agent = Agent::start(settings).await.unwrap();
    (Rig::of(agent, shelf).await, moved)
}

fn ask(rig: &Rig, args: &[&str]) -> String {
    let output = rig.agent.ask(&[args, &["-o", "json"]].concat()).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// What does not depend on the moment.
fn lasting(volumes: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(volumes).unwrap();
    let mut all = all["volumes"].as_array().unwrap().clone();
    for volume in &mut all {
        let members = volume.as_object_mut().unwrap();
        for moment in [
            "device",
            "in_use",
            "mounts",
            "erased_bytes",
            "erase_eta_seconds",
            "conditions",
        ] {
            assert!(members.remove(moment).is_some(), "{moment}");
        }
        // New since (CHANGELOG): no volume of that time was made by hand.
        assert_ne!(members.remove("by_hand"), Some(Value::Bool(true)));
        // Nor does one say when it was created, or for what.
        for unknown in ["created_at", "created_for"] {
            let told = members.remove(unknown);
            assert!(told.is_none_or(|told| told.is_null()), "{unknown}");
        }
        members.remove("pods");
        members.remove("usage");
        // Its check was tried after the output was taken, and before the state was.
        if members["name"] == "pvc-troubled" {
            members.remove("checks");
        }
    }
    all
}

#[tokio::test]
async fn the_first_releases_drives_and_state_directory_are_taken_over() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", tool "tar", fs "ext4");
    let (mut rig, moved) = restored().await;
    // Drives are asked how they are within seconds.
    wait::until_async(LIMIT, "every drive was asked", async || {
        let drives = rig.inventory().await.drives;
        let here = drives.iter().filter(|drive| drive.state != "missing");
        let bad = here.clone().filter(|drive| drive.verdict == "BAD").count();
        // The third one is acknowledged, which its history says.
        let acknowledged =
            here.filter_map(|drive| drive.health.as_ref()?.smart.as_ref()?.acknowledged.as_ref());
        (bad == 2 && acknowledged.count() == 1).then_some(())
    })
    .await;

    // All volumes are there, as they were.
    let volumes = ask(&rig, &["volumes"]);
    assert_eq!(lasting(&volumes), lasting(&moved.golden("volumes.json")));
    let capability = csi::mount("ext4");
    let volume = Volume {
        volume_id: MOUNTED.to_owned(),
        capacity_bytes: 192 << 20,
        ..Volume::default()
    };
    let mounted = rig.place(&volume, MOUNTED_NAME, &capability);
    let block = Volume {
        volume_id: BLOCK.to_owned(),
        ..volume
    };
    let block = rig.place(&block, "pvc-block", &csi::block());
    for volume in [&mounted, &block] {
        rig.use_volume(volume).await;
    }
    let letter = fs::read_to_string(mounted.target.join("letter")).unwrap();
    assert_eq!(letter, "dear reader");
    rig.csi.stats(&mounted.id, &mounted.target).await.unwrap();

    // Outputs have all that they had.
    let drives = ask(&rig, &["drives", "--all"]);
    has_every_field("drives", &moved.golden("drives.json"), &drives, &[]);
    let volumes = ask(&rig, &["volumes"]);
    has_every_field("volumes", &moved.golden("volumes.json"), &volumes, &[]);
    let of_lvm = moved.golden("../lvm/volumes.json");
    has_every_field("volumes of layout lvm", &of_lvm, &volumes, &[]);
    has_every_field(
        "health",
        &moved.golden("health.json"),
        &ask(&rig, &["health"]),
        &[],
    );
    let (_, drive_a) = &moved.0[0];
    let show = ask(&rig, &["drive", "show", drive_a]);
    has_every_field("drive show", &moved.golden("drive-show.json"), &show, &[]);
    let show = ask(&rig, &["volume", "show", MOUNTED]);
    has_every_field("volume show", &moved.golden("volume-show.json"), &show, &[]);
    let config = rig.agent.settings().config().display().to_string();
    let plan = std::process::Command::new(rig.agent.program())
        .args(["claim-plan", "--config", &config, "-o", "json", "--all"])
        .output()
        .unwrap();
    let plan = String::from_utf8(plan.stdout).unwrap();
    has_every_field("claim-plan", &moved.golden("claim-plan.json"), &plan, &[]);
    let metrics = scrape::scrape(&rig.agent.settings().metrics_socket()).unwrap();
    has_every_family(&moved.golden("metrics.txt"), &metrics, &[]);

    // A drive that was away comes back with what was deleted meanwhile.
    rig.shelf.plug("gone").unwrap();
    rig.volume_is(DELETED, "quarantined").await;
    rig.volume_is(ABSENT, "new").await;

    // A label of a newer format is not touched.
    let newer = rig.shelf.file("newer");
    fs::copy(rig.shelf.file("gone"), &newer).unwrap();
    for slot in [MIB, 3 * MIB] {
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(&newer)
            .unwrap();
        let mut header = vec![0; 4096];
        file.read_exact_at(&mut header, slot).unwrap();
        header[8] = 2;
        let crc = crc32(&header[..4092]);
        header[4092..].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&header, slot).unwrap();
    }
    let before = digest::of(&newer).unwrap();
    rig.shelf.plug("newer").unwrap();
    let drive = rig.drive_is("newer", "rejected").await;
    let why = drive.rejects.iter().find(|one| one.code == "OursDamaged");
    assert!(
        why.is_some_and(|one| one.detail.contains("format is 2")),
        "{drive:#?}"
    );
    rig.shelf.pull("newer");
    assert_eq!(digest::of(&newer).unwrap(), before);

    // The agent does not start on a state file of a newer one.
    rig.leave_volume(&mounted).await;
    rig.leave_volume(&block).await;
    rig.agent.stop().unwrap();
    let file = rig.shelf.dir().join("state/tombstones.json");
    let text = fs::read_to_string(&file).unwrap();
    let newer = text.replace("\"version\": 1", "\"version\": 2");
    assert_ne!(newer, text);
    fs::write(&file, &newer).unwrap();
    let refused = rig.agent.start_again().await.unwrap_err().to_string();
    assert!(
        refused.contains("tombstones.json has version 2"),
        "{refused}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), newer);
}

/// The first release's default was partition.
#[tokio::test]
async fn a_class_without_a_layout_keeps_the_one_of_the_first_releases_drives_and_says_so() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", tool "tar");
    let (mut rig, _) = restored_with(|settings| {
        settings.layout.clear();
        settings.placement.clear();
        // A drive of verdict BAD takes no volume.
        replay::pending_sectors(&settings.dir.join("bin"), 0);
        let shelf = settings.dir.join("shelf");
        let more = format!(", \"{}/fresh.img\"]", shelf.display());
        settings.select = settings.select.replace(']', &more);
    })
    .await;
    rig.shelf.add(DriveSpec::blank("fresh", 8 * GIB)).unwrap();
    rig.drive_is("fresh", "available").await;
    let inventory = rig.inventory().await;
    let class = inventory.classes.iter().find(|class| class.name == "demo");
    assert_eq!(class.map(|class| class.layout.as_str()), Some("partition"));
    let told = |rig: &Rig| {
        let text = ask(rig, &["health"]);
        text.contains("LayoutNotSet")
    };
    assert!(told(&rig), "nothing is said of it");
    let log = fs::read_to_string(rig.agent.settings().log_file()).unwrap();
    assert!(log.contains("LayoutNotSet"), "it is not logged");

    let parameters = [("class".to_owned(), "demo".to_owned())].into();
    let request = drivebay_proto::csi::CreateVolumeRequest {
        name: "next".to_owned(),
        capacity_range: Some(csi::bytes(GIB)),
        volume_capabilities: vec![csi::block()],
        parameters,
        ..Default::default()
    };
    let next = rig.csi.create_with(request).await.unwrap();
    rig.drive_is("fresh", "claimed").await;
    let device = rig.volume_of(&next.volume_id).await.unwrap().device;
    assert!(device.ends_with("p2"), "{device} is no partition");

    // Its drives are away, and still known as what they are.
    rig.agent.stop().unwrap();
    for name in ["a", "fresh"] {
        rig.shelf.pull(name);
    }
    rig.start_again().await;
    rig.drive_is("fresh", "missing").await;
    assert!(told(&rig), "the layout of missing drives is forgotten");
}

#[tokio::test]
async fn the_first_releases_controller_state_is_taken_over() {
    let work = tempfile_dir();
    let golden = dir("controller");
    fs::create_dir_all(work.join("state/nodes")).unwrap();
    let known = work.join("state/nodes/golden0.known");
    fs::copy(golden.join("state/golden0.known"), &known).unwrap();
    fs::copy(
        golden.join("state/notes-deleted.json"),
        work.join("state/notes.json"),
    )
    .unwrap();
    let state = work.join("state").display().to_string();
    let more = ["--state-dir", &state, "--away-grace", "1"];
    let mut controller = fleet::Controller::start(&work, None, &more).await.unwrap();
    let ask = |controller: &fleet::Controller, args: &[&str]| {
        let output = controller.ask(&[args, &["-o", "json"]].concat()).unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    wait::until(LIMIT, "the node is away", || {
        ask(&controller, &["nodes"])
            .contains("\"state\":\"away\"")
            .then_some(())
    });
    let text = |name: &str| fs::read_to_string(golden.join("output").join(name)).unwrap();
    let ids = |text: &str| -> Vec<String> {
        let all: Value = serde_json::from_str(text).unwrap();
        let all = all["volumes"].as_array().unwrap().iter();
        all.map(|one| one["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let volumes = ask(&controller, &["volumes", "--deleted"]);
    assert_eq!(ids(&volumes), ids(&text("volumes.json")));
    let drives = text("drives.json");
    let (_, rest) = drives.split_once("\"loop-a.img-").unwrap();
    let drive_a = format!("loop-a.img-{}", &rest[..8]);
    for (name, args) in outputs::of_a_controller(&drive_a, MOUNTED) {
        let today = ask(&controller, &args);
        // Of a node that is away nothing else is wrong.
        let without: &[&str] = match name {
            "health" => &[".problems[].volumes[]"],
            _ => &[],
        };
        has_every_field(name, &text(&format!("{name}.json")), &today, without);
    }
    controller.csi().await.unwrap().ids().await.unwrap();
    let metrics = scrape::scrape(&controller.metrics_socket()).unwrap();
    has_every_family(&text("metrics.txt"), &metrics, &[]);

    // Files of a newer controller.
    controller.stop().unwrap();
    for (file, newer) in [
        (work.join("state/notes.json"), &b"{\"format\":2}"[..]),
        (known, &[0x08, 0x02]),
    ] {
        let kept = fs::read(&file).unwrap();
        fs::write(&file, newer).unwrap();
        let refused = controller.start_again().await.unwrap_err().to_string();
        assert!(refused.contains("has format 2"), "{refused}");
        assert_eq!(fs::read(&file).unwrap(), newer);
        fs::write(&file, kept).unwrap();
    }
    fs::remove_dir_all(&work).unwrap();
}

fn tempfile_dir() -> PathBuf {
    std::env::temp_dir().join(format!("drivebay-golden-{}", std::process::id()))
}
