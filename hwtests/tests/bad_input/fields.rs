//! Every field of every request with unusual values, each with its one expected code: a valid request is changed in one field at a time.

use std::{collections::HashMap, fs, os::unix::fs::symlink, path::Path};

use drivebay_hwtests::{MIB, csi};
use drivebay_proto::csi::{
    self as wire, CapacityRange, VolumeCapability,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};
use nix::{sys::stat::Mode as FileMode, unistd::mkfifo};
use tonic::{
    Code::{self, *},
    Response, Status,
};

use super::table::{Ground, UNKNOWN, control_strings, hostile_flags};

/// One change of a valid request, and the expected code.
pub(super) struct Row<R> {
    what: String,
    code: Code,
    bend: Box<dyn Fn(&mut R)>,
}

pub(super) fn row<R>(
    what: impl Into<String>,
    code: Code,
    bend: impl Fn(&mut R) + 'static,
) -> Row<R> {
    Row {
        what: what.into(),
        code,
        bend: Box::new(bend),
    }
}

/// Rows of one request: description, expected code, change.
macro_rules! rows {
    ($request:ty { $($what:expr => $code:expr, $bend:expr;)* }) => {
        vec![$(row::<$request>($what, $code, $bend)),*]
    };
}
pub(super) use rows;

/// Sends the valid request with each row's change.
pub(super) async fn send<R: Clone, T: std::fmt::Debug>(
    ground: &mut Ground,
    rpc: &str,
    good: &R,
    rows: Vec<Row<R>>,
    call: impl AsyncFn(R) -> Result<Response<T>, Status>,
) {
    for row in rows {
        let mut request = good.clone();
        (row.bend)(&mut request);
        let answer = call(request).await;
        ground.exactly(rpc, &row.what, row.code, answer);
    }
}

/// Rows with ids of no volume. `elsewhere`: the code for a volume whose node never connected.
pub(super) fn ids<R: 'static>(
    field: fn(&mut R) -> &mut String,
    unknown: Code,
    elsewhere: Code,
) -> Vec<Row<R>> {
    let mut rows = vec![row("no id", InvalidArgument, move |r| field(r).clear())];
    let strangers = [
        UNKNOWN,
        "fake-vol-id",
        "@",
        "@node1",
        "00000000-0000-4000-8000-000000000000",
        "00000000-0000-4000-8000-000000000000@",
        "../../etc/passwd",
        " ",
        "a\nb",
        "a\0b",
        "\u{202e}",
        "-",
    ];
    for id in strangers {
        rows.push(row(format!("id {id:?}"), unknown, move |r| {
            id.clone_into(field(r));
        }));
    }
    rows.push(row("an id of 4096 bytes", unknown, move |r| {
        *field(r) = "x".repeat(4096);
    }));
    rows.push(row("its id in capitals", unknown, move |r| {
        *field(r) = field(r).to_uppercase();
    }));
    rows.push(row("its id without its node", unknown, move |r| {
        let uuid = field(r).split('@').next().unwrap_or_default().to_owned();
        *field(r) = uuid;
    }));
    rows.push(row("its id with a blank", unknown, move |r| {
        field(r).push(' ');
    }));
    rows.push(row("an id of another node", elsewhere, move |r| {
        "00000000-0000-4000-8000-0000000000ff@node2".clone_into(field(r));
    }));
    rows
}

/// Rows with values that are no valid path, for a required field.
pub(super) fn no_paths<R: 'static>(what: &str, field: fn(&mut R) -> &mut String) -> Vec<Row<R>> {
    let component = format!("/var/lib/{}", "x".repeat(256));
    let long = format!("/{}", "x/".repeat(2100));
    [
        "some/path",
        ".",
        "..",
        "/",
        "//",
        "/..",
        "/var/lib/../../etc",
        "/var/lib/kubelet/..",
        "/var/lib/a\nb",
        "/var/lib/a\0b",
        "/var/lib/a\u{1b}[2J",
        "/var/lib/a\u{7f}",
        "/var/lib/a\u{85}",
        &component,
        &long,
    ]
    .into_iter()
    .map(|path| {
        let path = path.to_owned();
        let shown: String = path.chars().take(40).collect();
        row(format!("{what} {shown:?}"), InvalidArgument, move |r| {
            field(r).clone_from(&path);
        })
    })
    .collect()
}

/// Codes with which a call answers a capability that is invalid in itself.
#[derive(Clone, Copy)]
pub(super) struct Capable {
    pub(super) malformed: Code,
    pub(super) unsupported: Code,
    /// Code for mount options that change the source or the target of the mount.
    pub(super) hostile: Code,
}

impl Capable {
    /// Every invalid capability makes the request invalid.
    pub(super) const REFUSED: Self = Self {
        malformed: InvalidArgument,
        unsupported: InvalidArgument,
        hostile: InvalidArgument,
    };
    /// Codes of the calls that use a volume.
    pub(super) const NODE: Self = Self {
        unsupported: FailedPrecondition,
        ..Self::REFUSED
    };
}

/// Rows with capabilities that are invalid in themselves.
pub(super) fn capabilities<R: 'static>(
    set: fn(&mut R, Option<VolumeCapability>),
    codes: Capable,
) -> Vec<Row<R>> {
    let mount = |change: &dyn Fn(&mut MountVolume)| {
        let mut mount = MountVolume {
            fs_type: "ext4".to_owned(),
            ..MountVolume::default()
        };
        change(&mut mount);
        csi::capability(AccessType::Mount(mount), Mode::SingleNodeWriter)
    };
    let of_mode = |mode: i32| VolumeCapability {
        access_mode: Some(AccessMode { mode }),
        ..csi::mount("ext4")
    };
    let mut all: Vec<(String, Code, VolumeCapability)> = vec![
        (
            "an empty capability".into(),
            codes.malformed,
            VolumeCapability::default(),
        ),
        (
            "no access type".into(),
            codes.malformed,
            VolumeCapability {
                access_type: None,
                ..csi::mount("ext4")
            },
        ),
        (
            "no access mode".into(),
            codes.malformed,
            VolumeCapability {
                access_mode: None,
                ..csi::mount("ext4")
            },
        ),
        (
            "a mount group".into(),
            codes.unsupported,
            mount(&|mount| "1000".clone_into(&mut mount.volume_mount_group)),
        ),
        (
            "mount flags of 4097 bytes".into(),
            codes.malformed,
            mount(&|mount| mount.mount_flags = vec!["x".repeat(4097)]),
        ),
    ];
    for mode in [0, 8, 99, -1, i32::MAX, i32::MIN] {
        all.push((
            format!("access mode {mode}"),
            codes.malformed,
            of_mode(mode),
        ));
    }
    for mode in [
        Mode::MultiNodeReaderOnly,
        Mode::MultiNodeSingleWriter,
        Mode::MultiNodeMultiWriter,
    ] {
        all.push((
            mode.as_str_name().into(),
            codes.unsupported,
            of_mode(mode.into()),
        ));
    }
    for fs_type in [
        "ntfs",
        "EXT4",
        "ext4;reboot",
        "-t",
        "ext4 ",
        "../ext4",
        "ext3",
        "auto",
    ] {
        let capability = mount(&|mount| fs_type.clone_into(&mut mount.fs_type));
        all.push((
            format!("filesystem {fs_type:?}"),
            codes.unsupported,
            capability,
        ));
    }
    for (what, text) in control_strings() {
        let fs_type = mount(&|mount| mount.fs_type.clone_from(&text));
        all.push((format!("{what} in fs_type"), codes.malformed, fs_type));
        let flag = mount(&|mount| mount.mount_flags = vec![text.clone()]);
        all.push((format!("{what} in a mount flag"), codes.malformed, flag));
    }
    for (_, flag) in hostile_flags() {
        if flag.chars().any(char::is_control) {
            continue;
        }
        let capability = mount(&|mount| mount.mount_flags = vec![flag.clone()]);
        all.push((format!("mount flag {flag:?}"), codes.hostile, capability));
    }
    let mut rows = vec![row("no capability", codes.malformed, move |r| set(r, None))];
    rows.extend(all.into_iter().map(|(what, code, capability)| {
        row(what, code, move |r| set(r, Some(capability.clone())))
    }));
    rows
}

/// Rows for a map that the driver ignores, with arbitrary contents.
pub(super) fn unread<R: 'static>(
    name: &'static str,
    field: fn(&mut R) -> &mut HashMap<String, String>,
) -> Vec<Row<R>> {
    ["", "a\nb", "\u{202e}", "csi.storage.k8s.io/pod.name"]
        .into_iter()
        .map(|text| {
            row(format!("{name} with {text:?}"), Ok, move |r| {
                field(r).insert(text.to_owned(), text.to_owned());
            })
        })
        .collect()
}

/// Rows with capacity ranges that no size satisfies.
pub(super) fn ranges<R: 'static>(set: fn(&mut R, Option<CapacityRange>)) -> Vec<Row<R>> {
    [
        (-1, 0),
        (i64::MIN, 0),
        (0, -1),
        (0, i64::MIN),
        (-1, -1),
        (2 << 30, 1 << 30),
        (i64::MAX, 1),
    ]
    .into_iter()
    .map(|(required_bytes, limit_bytes)| {
        let what = format!("range {required_bytes} to {limit_bytes}");
        row(what, InvalidArgument, move |r| {
            set(
                r,
                Some(CapacityRange {
                    required_bytes,
                    limit_bytes,
                }),
            );
        })
    })
    .collect()
}

/// Creates paths in this directory that exist and cannot be a target.
pub(super) fn occupied(dir: &Path) -> Vec<(&'static str, String)> {
    let at = |name: &str| csi::text(&dir.join(name));
    let _ = fs::create_dir_all(dir.join("full/inside"));
    let _ = fs::write(dir.join("content"), "precious");
    let _ = symlink(dir.join("nowhere"), dir.join("link"));
    let _ = mkfifo(&dir.join("fifo"), FileMode::S_IRWXU);
    vec![
        ("a directory that is not empty", at("full")),
        ("a file with content", at("content")),
        ("a symbolic link", at("link")),
        ("a FIFO", at("fifo")),
    ]
}

/// Returns the request with which the volume of this name is created.
pub(super) fn create(name: &str) -> wire::CreateVolumeRequest {
    wire::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(csi::bytes(64 * MIB)),
        volume_capabilities: vec![csi::mount("ext4")],
        ..Default::default()
    }
}
