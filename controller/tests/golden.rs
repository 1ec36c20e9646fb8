//! What the first release (commit 4d75420) kept in a controller's state directory, and what its agent and controller said to
//! each other, read by today's build. The files are in `golden/`; `hwtests/golden record` makes them again.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods
)]

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Debug,
    fs,
    path::{Path, PathBuf},
};

use drivebay_controller::{
    Agents,
    agents::{Facts, ForgottenNodes},
    last_known,
    notes::Notes,
    settings::Settings,
};
use drivebay_proto::{agent::*, controller::LastKnown};
use prost::Message;
use tokio::sync::watch;

const NODE: &str = "golden0";
const ABSENT: &str = "78b48bab-f1c7-44ba-9d46-262e7fc7cb19@golden0";
const CHECKED: &str = "a18c6218-0908-4fae-a836-f09eda5e3990@golden0";
const DELETED: &str = "d29031f9-edae-4c6b-a14b-03aca38f7e88@golden0";
const ERASING: &str = "17a034c9-af0a-451f-a504-2d97cacce5bc@golden0";
const MOUNTED: &str = "ff104791-2c02-43da-9ea0-a4e2a8deee8a@golden0";
const NEW: &str = "f594ef90-a901-4283-aa16-29027f281d7a@golden0";
const MIB: u64 = 1 << 20;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/4d75420")
}

/// A state directory with this one of the notes.
fn notes(name: &str) -> (tempfile::TempDir, Notes) {
    let dir = tempfile::tempdir().unwrap();
    let from = golden().join(format!("state/notes-{name}.json"));
    fs::copy(from, dir.path().join("notes.json")).unwrap();
    let notes = Notes::open(dir.path()).unwrap();
    assert!(!dir.path().join("notes.json.damaged").exists());
    (dir, notes)
}

fn is_written_the_same(dir: &tempfile::TempDir, name: &str) {
    let written = fs::read_to_string(dir.path().join("notes.json")).unwrap();
    let golden = fs::read_to_string(golden().join(format!("state/notes-{name}.json"))).unwrap();
    assert_eq!(written, golden);
}

#[tokio::test]
async fn notes_say_what_they_said_and_are_written_the_same() {
    let (dir, doubts) = notes("doubts");
    let name = "pvc-mounted ü:=+,\"";
    assert_eq!(doubts.doubts(name), BTreeSet::from([NODE.to_owned()]));
    assert_eq!(doubts.all_doubts().len(), 1);
    assert!(doubts.undelivered_deletes(NODE).is_empty());
    doubts.doubt(name, NODE).await.unwrap();
    is_written_the_same(&dir, "doubts");

    let (dir, deleted) = notes("deleted");
    assert_eq!(deleted.undelivered_deletes(NODE), [NEW]);
    assert_eq!(deleted.all_doubts().len(), 0);
    deleted.note_delete(NEW).await.unwrap();
    is_written_the_same(&dir, "deleted");

    let (dir, returned) = notes("returned");
    let forgotten_nodes = fs::read_to_string(golden().join("state/controller.toml")).unwrap();
    let settings = Settings::parse(&forgotten_nodes).unwrap();
    let at = settings.forgotten.since(NODE).unwrap();
    let at = at.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(returned.has_returned(NODE, at));
    assert!(!returned.has_returned(NODE, at + 1));
    returned.returned(NODE, at);
    returned.flush().await.unwrap();
    is_written_the_same(&dir, "returned");
}

/// Decodes it; every field of it is known today.
#[track_caller]
fn whole<M: Message + Default + PartialEq + Debug>(bytes: &[u8]) -> M {
    let message = M::decode(bytes).unwrap();
    // Only fields that are known are encoded again. The order of a map's entries may differ.
    let again = message.encode_to_vec();
    assert_eq!(
        again.len(),
        bytes.len(),
        "a field is not known: {message:#?}"
    );
    assert_eq!(M::decode(again.as_slice()).unwrap(), message);
    message
}

fn volume<'a>(volumes: &'a [Volume], id: &str) -> &'a Volume {
    volumes.iter().find(|volume| volume.id == id).unwrap()
}

fn is_the_nodes(inventory: &InventoryUpdate) {
    assert!(inventory.full && inventory.ready);
    assert_eq!(inventory.node_id, NODE);
    let drive = |prefix: &str| {
        let mut drives = inventory.drives.iter();
        drives.find(|drive| drive.id.starts_with(prefix)).unwrap()
    };
    let (a, gone) = (drive("loop-a.img-"), drive("loop-gone.img-"));
    assert_eq!([&a.state, &a.class, &a.verdict], ["claimed", "demo", "BAD"]);
    assert_eq!(
        [&a.media, &a.transport, &gone.state],
        ["hdd", "loop", "missing"]
    );
    assert_eq!((a.size_bytes, a.usable_bytes), (2 << 40, 2_199_016_964_096));
    assert_eq!(
        (a.logical_sector_bytes, a.physical_sector_bytes),
        (512, 512)
    );
    let health = a.health.as_ref().unwrap();
    assert_eq!(health.findings[0].code, "PendingSectorsMany");
    let smart = health.smart.as_ref().unwrap();
    let found = &smart.findings[0];
    assert_eq!(
        (found.subject.as_str(), found.value, found.threshold),
        ("ata-197", 48, 40)
    );
    assert_eq!(smart.device_type, "sat");
    let reading = smart
        .readings
        .iter()
        .find(|one| one.name == "power-on-hours");
    assert_eq!(reading.unwrap().value, 1234);
    let spare = drive("loop-spare.img-").health.clone().unwrap();
    let acknowledged = spare.smart.unwrap().acknowledged.unwrap();
    assert_eq!(acknowledged.note, "the old cable");

    let mounted = volume(&inventory.volumes, MOUNTED);
    assert_eq!(mounted.name, "pvc-mounted ü:=+,\"");
    assert_eq!(
        [&mounted.class, &mounted.mode, &mounted.fs_type],
        ["demo", "mount", "ext4"]
    );
    assert_eq!((mounted.size_bytes, &*mounted.state), (192 * MIB, "ready"));
    assert_eq!(mounted.drive, a.id);
    let parameters = [
        ("class", "demo"),
        ("mkfsOptions", "-m 1"),
        ("mountOptions", "noatime"),
    ];
    let parameters = parameters.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(mounted.parameters, HashMap::from(parameters));
    let absent = volume(&inventory.volumes, ABSENT);
    assert_eq!(absent.state, "missing");
    let condition = &absent.conditions[0];
    assert!(condition.abnormal);
    assert_eq!(
        [&condition.status, &condition.reason],
        ["INACCESSIBLE", "DriveMissing"]
    );
    let checks = &volume(&inventory.volumes, CHECKED).checks;
    assert_eq!(
        [&checks[0].outcome, &checks[0].method, &checks[0].tool],
        ["clean", "unmounted", "e2fsck -fn"]
    );
    assert_eq!(volume(&inventory.volumes, ERASING).state, "erasing");
    let class = inventory
        .classes
        .iter()
        .find(|class| class.name == "demo")
        .unwrap();
    assert_eq!([&class.layout, &class.fs_type], ["partition", "ext4"]);
    assert_eq!(
        (class.smallest_volume_bytes, class.extent_bytes),
        (16 * MIB, MIB)
    );
}

#[tokio::test]
async fn the_last_known_node_says_what_it_said() {
    let bytes = fs::read(golden().join("state/golden0.known")).unwrap();
    let known: LastKnown = whole(&bytes);
    assert_eq!((known.format, &*known.version), (1, "0.1.0"));
    assert!(!known.machine_id.is_empty() && known.address.starts_with("127.0.0.1:"));
    is_the_nodes(known.inventory.as_ref().unwrap());

    let dir = tempfile::tempdir().unwrap();
    let store = last_known::Store::open(dir.path()).unwrap();
    fs::write(dir.path().join("nodes/golden0.known"), bytes).unwrap();
    let (_keep, forgotten_nodes) = watch::channel(ForgottenNodes::new());
    let agents = Agents::new(forgotten_nodes, Notes::in_memory());
    assert_eq!(store.load(&agents).unwrap(), 1);
    let facts = Facts {
        node: NODE.to_owned(),
        identity: None,
        instance: known.inventory.unwrap().instance,
        machine_id: known.machine_id,
        version: known.version,
        address: known.address,
    };
    assert_eq!(agents.get(NODE).unwrap().facts(), Some(facts));
    assert!(agents.volume(MOUNTED).is_ok() && agents.volume(ABSENT).is_ok());
    assert!(agents.volume(DELETED).is_err());
}

/// Messages of one method, as requests and responses.
fn frames(path: PathBuf, method: &str) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let text = fs::read_to_string(path).unwrap();
    let mut both = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split(' ');
        let (of, sender, digits) = (words.next(), words.next().unwrap(), words.next().unwrap());
        if of != Some(method) {
            continue;
        }
        let digits = digits.as_bytes().chunks(2);
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let bytes = digits.map(byte).collect();
        match sender {
            "request" => both.0.push(bytes),
            _ => both.1.push(bytes),
        }
    }
    assert!(!both.0.is_empty() && !both.1.is_empty(), "{method}");
    both
}

fn said<Q, A>(method: &str) -> (Vec<Q>, Vec<A>)
where
    Q: Message + Default + PartialEq + Debug,
    A: Message + Default + PartialEq + Debug,
{
    let (requests, responses) = frames(golden().join("frames.txt"), method);
    (
        requests.iter().map(|bytes| whole(bytes)).collect(),
        responses.iter().map(|bytes| whole(bytes)).collect(),
    )
}

#[test]
fn what_controller_and_agent_said_to_each_other_is_understood() {
    let (hellos, answers) = said::<HelloRequest, HelloResponse>("Hello");
    let hello = &hellos[0];
    assert_eq!(
        (hello.protocol, hello.oldest_protocol, hello.replicas),
        (1, 1, 1)
    );
    assert_eq!(hello.controller_version, "0.1.0");
    assert_eq!(hello.controller_instance.len(), 36);
    assert!(hello.features.is_empty());
    let answer = &answers[0];
    assert_eq!((answer.protocol, answer.oldest_protocol), (1, 1));
    assert_eq!([&answer.node_id, &answer.version], [NODE, "0.1.0"]);
    assert_eq!((answer.instance.len(), answer.machine_id.len()), (36, 32));

    let (creates, created) = said::<CreateVolumeRequest, CreateVolumeResponse>("CreateVolume");
    assert_eq!((creates.len(), created.len()), (3, 3));
    let create = &creates[0];
    assert_eq!([&create.name, &create.class], ["pvc-absent", "gone"]);
    assert_eq!([&create.mode, &create.fs_type], ["mount", "ext4"]);
    assert_eq!(
        [&create.mkfs_options, &create.mount_options],
        ["-m 1", "noatime"]
    );
    assert_eq!((create.required_bytes, create.limit_bytes), (128 * MIB, 0));
    assert_eq!(create.parameters.len(), 3);
    let volume = created[0].volume.as_ref().unwrap();
    assert_eq!(
        (&*volume.id, volume.size_bytes, &*volume.state),
        (ABSENT, 128 * MIB, "new")
    );
    assert!(created[0].revision > 0);
    assert_eq!(
        [&creates[1].mode, &creates[2].name],
        ["block", "pvc-erasing"]
    );

    let (expands, expanded) = said::<ExpandVolumeRequest, ExpandVolumeResponse>("ExpandVolume");
    let expand = &expands[0];
    assert_eq!(
        (&*expand.id, expand.required_bytes, expand.limit_bytes),
        (MOUNTED, 192 * MIB, 0)
    );
    assert_eq!(expanded[0].volume.as_ref().unwrap().size_bytes, 192 * MIB);

    let (deletes, deleted) = said::<DeleteVolumeRequest, DeleteVolumeResponse>("DeleteVolume");
    let deletes: Vec<_> = deletes
        .iter()
        .map(|one| (&*one.id, one.quarantine))
        .collect();
    assert_eq!(deletes, [(DELETED, false), (ERASING, false), (NEW, true)]);
    assert!(deleted.iter().all(|one| one.revision > 0));

    let (refusals, _) = said::<RefusedRequest, RefusedResponse>("Refused");
    assert!(
        refusals[0].reason.contains("another-golden0"),
        "{refusals:?}"
    );

    let (watches, updates) = said::<WatchInventoryRequest, InventoryUpdate>("WatchInventory");
    assert_eq!(watches[0], WatchInventoryRequest {});
    let deltas: Vec<_> = updates.iter().filter(|one| !one.full).collect();
    assert!(
        deltas
            .iter()
            .any(|one| one.since_revision > 0 && one.since_revision < one.revision)
    );
    // The last whole one, which came in one part.
    let full = updates.iter().rfind(|one| one.full).unwrap();
    assert_eq!(full.instance.len(), 36);
    assert!(full.ready && full.volumes.len() > 4);
    assert_eq!(volume_states(full)["pvc-new"], "quarantined");
}

#[test]
fn what_a_command_line_and_an_agent_said_to_each_other_is_understood() {
    let file = golden().join("../../../../agent/tests/golden/4d75420/frames-cli.txt");
    let said = |method: &str| {
        let (mut requests, mut responses) = frames(file.clone(), method);
        (requests.remove(0), responses.pop().unwrap())
    };
    let (request, response) = said("WipeDrive");
    let wipe: WipeDriveRequest = whole(&request);
    assert!(wipe.drive == wipe.confirm && wipe.drive.starts_with("loop-used.img-"));
    let progress: WipeDriveProgress = whole(&response);
    assert!(progress.finished && progress.done_bytes == progress.total_bytes);
    assert_eq!(progress.total_bytes, 320 * MIB);

    let (request, response) = said("AdoptDrive");
    let adopt: AdoptDriveRequest = whole(&request);
    assert!(adopt.drive == adopt.confirm && adopt.drive.starts_with("loop-a.img-"));
    let adopted: AdoptDriveResponse = whole(&response);
    assert!(adopted.revision > 0 && adopted.volumes >= 5, "{adopted:?}");

    let (request, response) = said("AcknowledgeDrive");
    let acknowledge: AcknowledgeDriveRequest = whole(&request);
    assert_eq!(acknowledge.note, "the old cable");
    let done: AcknowledgeDriveResponse = whole(&response);
    assert_eq!((&*done.verdict, done.remaining.len()), ("GOOD", 0));
    let found = &done.acknowledged[0];
    assert_eq!(
        (&*found.code, &*found.subject),
        ("PendingSectorsMany", "ata-197")
    );
    assert!(found.acknowledged && done.drive.starts_with("loop-spare.img-"));

    let (request, response) = said("CheckVolume");
    let check: CheckVolumeRequest = whole(&request);
    assert_eq!(check.volume_id, CHECKED);
    let checked: CheckVolumeResponse = whole(&response);
    let how = [&checked.method, &checked.tool, &checked.outcome];
    assert_eq!(how, ["unmounted", "e2fsck -fn", "clean"]);

    let (request, response) = said("Rescan");
    assert_eq!(whole::<RescanRequest>(&request), RescanRequest {});
    assert!(whole::<RescanResponse>(&response).revision > 0);
}

fn volume_states(update: &InventoryUpdate) -> HashMap<&str, &str> {
    let volumes = update.volumes.iter();
    volumes
        .map(|volume| (&*volume.name, &*volume.state))
        .collect()
}
