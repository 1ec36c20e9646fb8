//! Messages over sockets: CSI requests of the kubelet, requests of controllers, replies of workers.

use drivebay_csi::NewVolume;
use drivebay_proto::{agent as wire, csi as proto};
use drivebay_service::{catalog::Catalog, inventory::Inventory};
use prost::Message;

use super::{Target, seeds};
use crate::{
    csi::{status, validate},
    uplink::parts,
};
use drivebay_fs::{check_mkfs_options, parse_mount_flags};
use drivebay_model::FsType;
use drivebay_node::volumes::{VolumeError, create};
use drivebay_worker::protocol::{Call, FrameReader, Reply, encode, read};

const FRAMES: &str = include_str!("../../../controller/src/fuzzing/seeds/messages.txt");
const CLI: &str = include_str!("seeds/messages-cli.txt");

pub(super) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "csi-node",
            run: csi_node,
            seeds: node_requests,
            replays: 2000,
        },
        Target {
            name: "options",
            run: options,
            seeds: || {
                seeds([
                    "noatime,nodiratime\nro",
                    "context=\"system_u:object_r:a:s0:c1,c2\",discard",
                    "-m 1 -O ^has_journal -E lazy_itable_init=0",
                    "-i size=512 -n ftype=1",
                    "bind\nx-mount.mkdir\nerrors=panic",
                ])
            },
            replays: 2000,
        },
        Target {
            name: "agent-requests",
            run: agent_requests,
            seeds: || recorded(" request "),
            replays: 1000,
        },
        Target {
            name: "inventory-parts",
            run: inventory_parts,
            seeds: inventories,
            replays: 300,
        },
        Target {
            name: "worker-frames",
            run: worker_frames,
            seeds: frames,
            replays: 1000,
        },
    ]
}

/// Returns the recorded messages, in hex behind `marker`, of all lines that contain it.
fn recorded(marker: &str) -> Vec<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    FRAMES
        .lines()
        .chain(CLI.lines())
        .filter_map(|line| Some(line.split_once(marker)?.1))
        .map(|hex| hex.as_bytes().chunks(2).map(byte).collect())
        .collect()
}

fn capability(mount_flags: &[&str]) -> proto::VolumeCapability {
    use proto::volume_capability::{AccessMode, AccessType, MountVolume};
    proto::VolumeCapability {
        access_mode: Some(AccessMode { mode: 1 }),
        access_type: Some(AccessType::Mount(MountVolume {
            fs_type: "ext4".into(),
            mount_flags: mount_flags.iter().map(|flag| (*flag).to_owned()).collect(),
            volume_mount_group: String::new(),
        })),
    }
}

fn node_requests() -> Vec<Vec<u8>> {
    let staged = proto::NodeStageVolumeRequest {
        volume_id: "a18c6218-0908-4fae-a836-f09eda5e3990@n".into(),
        staging_target_path: "/var/lib/kubelet/x/globalmount".into(),
        volume_capability: Some(capability(&["noatime"])),
        ..Default::default()
    };
    let published = proto::NodePublishVolumeRequest {
        target_path: "/var/lib/kubelet/pods/p/volumes/v/mount".into(),
        volume_capability: Some(capability(&["ro"])),
        readonly: true,
        ..Default::default()
    };
    vec![staged.encode_to_vec(), published.encode_to_vec()]
}

/// Asserts that an error over a socket is short and has no control characters of the request.
fn refused(error: &VolumeError) {
    let status = status::status(error);
    assert_ne!(status.code(), tonic::Code::Ok);
    let text = status.message();
    assert!(text.len() <= 16 << 10, "an error of {} bytes", text.len());
    assert!(
        !text.chars().any(|c| c.is_control() && c != '\n'),
        "{text:?}"
    );
}

fn csi_node(data: &[u8]) {
    let mut given = Vec::new();
    if let Ok(stage) = proto::NodeStageVolumeRequest::decode(data) {
        given.push((stage.staging_target_path, stage.volume_capability));
    }
    if let Ok(publish) = proto::NodePublishVolumeRequest::decode(data) {
        given.push((publish.target_path, publish.volume_capability));
    }
    for (path, capability) in given {
        match validate::path("target_path", &path) {
            Ok(good) => {
                assert!(good.is_absolute() && !path.contains("/../") && path.len() < 4096);
            }
            Err(error) => refused(&error),
        }
        match validate::capability(capability.as_ref()) {
            Ok(wanted) => checked(&wanted.flags),
            Err(error) => refused(&error),
        }
    }
}

/// Asserts that no accepted mount option was refused or split before it is passed to the kernel.
fn checked(flags: &[String]) {
    let Ok(parsed) = parse_mount_flags(flags) else {
        return;
    };
    for option in &parsed.data {
        assert!(
            !option.is_empty() && !option.starts_with(['-', '=']),
            "{option:?}"
        );
        assert!(!option.chars().any(char::is_control), "{option:?}");
        assert!(option.matches('"').count().is_multiple_of(2), "{option:?}");
        let once = parse_mount_flags(std::slice::from_ref(option)).unwrap();
        assert_eq!(once.data, std::slice::from_ref(option));
    }
    for kind in FsType::ALL {
        assert!(parsed.data_for(kind).len() <= 4096 + 64);
    }
}

fn options(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let flags: Vec<String> = text.lines().map(str::to_owned).collect();
    checked(&flags);
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    for kind in FsType::ALL {
        if check_mkfs_options(kind, &words).is_ok() {
            assert!(words.iter().all(|word| !word.chars().any(char::is_control)));
            assert!(words.first().is_none_or(|word| word.starts_with('-')));
        }
    }
}

fn agent_requests(data: &[u8]) {
    if let Ok(request) = wire::CreateVolumeRequest::decode(data) {
        let parsed = NewVolume::try_from(request).map_err(VolumeError::from);
        match parsed.and_then(|parsed| create::check(&parsed).map(|()| parsed)) {
            Ok(parsed) => {
                assert!(parsed.range.required > 0 && parsed.name.len() <= 128);
                let bytes = parsed.range.required;
                let again =
                    parsed.agent_request(parsed.class.as_deref().unwrap_or_default(), bytes);
                assert_eq!(NewVolume::try_from(again), Ok(parsed));
            }
            Err(error) => refused(&error),
        }
    }
    let _ = wire::ExpandVolumeRequest::decode(data);
    let _ = wire::HelloRequest::decode(data);
    let _ = wire::WipeDriveRequest::decode(data);
    let _ = wire::AdoptDriveRequest::decode(data);
}

/// Seeds: the recorded inventories, and one that is large enough for parts.
fn inventories() -> Vec<Vec<u8>> {
    let mut seeds = recorded("WatchInventory response ");
    let volume = |number: u32| wire::Volume {
        id: format!("00000000-0000-4000-8000-{number:012}@n"),
        name: "x".repeat(200),
        ..Default::default()
    };
    let large = wire::InventoryUpdate {
        instance: "a".into(),
        node_id: "n".into(),
        full: true,
        ready: true,
        revision: 5,
        volumes: (0..80).map(volume).collect(),
        ..Default::default()
    };
    seeds.push(large.encode_to_vec());
    seeds
}

/// Asserts that a controller's state is the same for an update in parts and as a whole.
fn inventory_parts(data: &[u8]) {
    let Ok(update) = wire::InventoryUpdate::decode(data) else {
        return;
    };
    let node = update.node_id.clone();
    let state_after = |parts: Vec<wire::InventoryUpdate>| {
        let catalog = Catalog::default();
        let mut inventory = Inventory::new(node.as_str().into());
        let last = parts
            .into_iter()
            .try_for_each(|part| inventory.apply(part, &catalog).map(drop));
        (last, inventory.dump(&catalog), inventory.complete())
    };
    let whole = state_after(vec![update.clone()]);
    let parts = parts::cut(update);
    assert_eq!(state_after(parts.into()), whole);
}

fn frames() -> Vec<Vec<u8>> {
    let call = Call {
        id: 7,
        name: "look".into(),
        arguments: serde_json::json!({"drive": {"id": "wwn-0x1", "size_bytes": 1}, "repair": true}),
    };
    let step = Reply::Step {
        id: 7,
        name: "open".into(),
    };
    let done = Reply::Done {
        id: 7,
        outcome: Err(serde_json::json!({"Busy": {"drive": "x", "reason": "y"}})),
        retire: false,
    };
    let [call, step, done] = [encode(&call), encode(&step), encode(&done)].map(Result::unwrap);
    vec![[step, done].concat(), call, vec![0xff; 5]]
}

/// Asserts that the blocking and the async reader read the same messages and end in the same way.
fn worker_frames(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut rest = data;
    let mut reader = FrameReader::new(data);
    loop {
        let sync = read::<Reply>(&mut rest);
        let other = runtime.block_on(reader.next::<Reply>());
        let text = |reply: &Reply| serde_json::to_string(reply).unwrap();
        match (sync, other) {
            (Ok(Some(one)), Ok(Some(two))) => assert_eq!(text(&one), text(&two)),
            (Ok(None), Ok(None)) => break,
            (Err(one), Err(two)) => {
                assert_eq!(one.to_string(), two.to_string());
                break;
            }
            (one, two) => panic!("{one:?} and {two:?}"),
        }
    }
    let _: Result<Option<Call>, _> = read(&mut &*data);
}
