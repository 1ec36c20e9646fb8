//! Checking the `[[class]]` tables. Pure.

use super::{
    check::{Notes, repeated},
    raw::{RawClass, RawSelect},
    section::{At, Problem},
    units::parse_size,
};
use crate::fs::{check_mkfs_options, parse_mount_flags};
use crate::model::{
    ClaimPolicy, ClassConfig, ErasePolicy, FsType, GIB, Layout, Media, Selector, Transport,
};
use drivebay_proto::volume_id::is_node_id;

const MEDIA: [(&str, Media); 3] = [
    ("hdd", Media::Hdd),
    ("ssd", Media::Ssd),
    ("nvme", Media::Nvme),
];

/// Transports that a class may name: the local ones.
const TRANSPORTS: [(&str, Transport); 9] = [
    ("sata", Transport::Sata),
    ("sas", Transport::Sas),
    ("nvme", Transport::Nvme),
    ("usb", Transport::Usb),
    ("virtio", Transport::Virtio),
    ("mmc", Transport::Mmc),
    ("scsi", Transport::Scsi),
    ("loop", Transport::Loop),
    ("unknown", Transport::Unknown),
];

/// Checks all classes, each alone and against the others.
pub fn check(raw: &[RawClass], allow_loop: bool, notes: &mut Notes) -> Vec<ClassConfig> {
    for (at, line) in repeated(raw.iter().filter_map(|class| class.name.as_ref())) {
        notes.wrong(
            at,
            format!(
                "class {:?} already exists, in line {line}; class names are unique",
                at.value
            ),
        );
    }
    if raw.is_empty() && notes.problems.is_empty() {
        notes.warnings.push(Problem {
            line: None,
            key: "[[class]]".into(),
            message: "there is no class: no drive will ever be used".into(),
        });
    }
    let classes: Vec<ClassConfig> = raw
        .iter()
        .map(|class| one(class, allow_loop, notes))
        .collect();
    for (index, (class, raw_class)) in classes.iter().zip(raw).enumerate() {
        for earlier in classes.iter().take(index) {
            if earlier.priority == class.priority
                && certainly_overlap(&earlier.select, &class.select)
            {
                notes.warnings.push(Problem {
                    line: Some(raw_class.line),
                    key: "[[class]]".into(),
                    message: format!(
                        "AmbiguousClass: {:?} and {:?} select the same drives with the same priority ({}); such drives belong to neither. Narrow one, or give one a higher priority",
                        earlier.name, class.name, class.priority
                    ),
                });
            }
        }
    }
    classes
}

fn one(raw: &RawClass, allow_loop: bool, notes: &mut Notes) -> ClassConfig {
    let name = match &raw.name {
        Some(at) => {
            if !is_node_id(&at.value) {
                notes.wrong(
                    at,
                    format!(
                        "{:?} cannot be a class name: 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit",
                        at.value
                    ),
                );
            }
            at.value.clone()
        }
        None => {
            notes.problems.push(Problem {
                line: Some(raw.line),
                key: "[[class]] name".into(),
                message: "is missing; StorageClasses name the class by it".into(),
            });
            String::new()
        }
    };
    let layout = raw
        .layout
        .as_ref()
        .and_then(|at| {
            notes.choice(
                at,
                &[Layout::Partition, Layout::Lvm].map(|layout| (layout.as_str(), layout)),
            )
        })
        .unwrap_or(Layout::Partition);
    let fs_type = raw
        .fs
        .as_ref()
        .and_then(|at| notes.choice(at, &FsType::ALL.map(|fs| (fs.as_str(), fs))))
        .unwrap_or(FsType::Ext4);
    let claim = raw
        .claim
        .as_ref()
        .and_then(|at| {
            notes.choice(
                at,
                &[
                    ("blank", ClaimPolicy::Blank),
                    ("signature-free", ClaimPolicy::SignatureFree),
                ],
            )
        })
        .unwrap_or_default();
    let erase = raw
        .erase
        .as_ref()
        .and_then(|at| {
            notes.choice(
                at,
                &[
                    ("zero", ErasePolicy::Zero),
                    ("signatures", ErasePolicy::Signatures),
                ],
            )
        })
        .unwrap_or_default();
    if erase == ErasePolicy::Signatures
        && let Some(at) = &raw.erase
    {
        notes.odd(
            at,
            "deleted volumes keep their data readable for whoever gets the space next",
        );
    }
    let xfs_retry_forever = raw
        .xfs_retry_forever
        .as_ref()
        .is_some_and(|flag| flag.value);
    ClassConfig {
        select: select(raw, allow_loop, notes),
        name,
        layout,
        priority: raw.priority.as_ref().map_or(0, |at| at.value),
        claim,
        erase,
        fs_type,
        mkfs_options: options(raw.mkfs_options.as_ref(), notes, |all| {
            check_mkfs_options(fs_type, all).map_err(|error| error.to_string())
        }),
        mount_options: options(raw.mount_options.as_ref(), notes, |all| {
            parse_mount_flags(all)
                .map(drop)
                .map_err(|error| error.to_string())
        }),
        allow_removable: raw.allow_removable.as_ref().is_some_and(|flag| flag.value),
        xfs_retry_forever,
        check_reserve_bytes: size(raw.check_reserve.as_ref(), notes).unwrap_or(GIB),
    }
}

/// Options for a program: each by itself, then `check` on all of them together.
fn options(
    given: Option<&At<Vec<At<String>>>>,
    notes: &mut Notes,
    check: impl Fn(&[String]) -> Result<(), String>,
) -> Vec<String> {
    let mut kept = Vec::new();
    for at in given.iter().flat_map(|list| &list.value) {
        if at.value.is_empty() || at.value.chars().any(char::is_control) {
            notes.wrong(
                at,
                format!(
                    "{:?} is not an option: empty, or with control characters",
                    at.value
                ),
            );
        } else {
            kept.push(at.value.clone());
        }
    }
    if let Some(list) = given
        && let Err(why) = check(&kept)
    {
        notes.wrong(list, why);
    }
    kept
}

fn select(raw: &RawClass, allow_loop: bool, notes: &mut Notes) -> Selector {
    let RawSelect {
        media,
        transport,
        model,
        drive,
        path,
        min_size,
        max_size,
    } = &raw.select;
    let mut selector = Selector::default();
    for at in media.iter().flat_map(|list| &list.value) {
        selector.media.extend(notes.choice(at, &MEDIA));
    }
    for at in transport.iter().flat_map(|list| &list.value) {
        if matches!(at.value.as_str(), "iscsi" | "fc" | "nvme-of") {
            notes.wrong(
                at,
                format!(
                    "{:?} is remote storage; only local drives are ever used",
                    at.value
                ),
            );
            continue;
        }
        let chosen = notes.choice(at, &TRANSPORTS);
        selector.transport.extend(chosen);
        match chosen {
            Some(Transport::Loop) if !allow_loop => {
                notes.odd(
                    at,
                    "loop devices are not used unless [discovery] allow-loop = true",
                );
            }
            Some(Transport::Usb)
                if !raw.allow_removable.as_ref().is_some_and(|flag| flag.value) =>
            {
                notes.odd(
                    at,
                    "USB drives are not used unless the class says allow-removable = true",
                );
            }
            _ => {}
        }
    }
    for (given, into) in [
        (model, &mut selector.model),
        (drive, &mut selector.drive),
        (path, &mut selector.path),
    ] {
        for at in given.iter().flat_map(|list| &list.value) {
            if at.value.is_empty() {
                notes.wrong(
                    at,
                    "an empty pattern matches nothing; write \"*\" for anything",
                );
            }
            into.push(at.value.clone());
        }
    }
    selector.min_bytes = size(min_size.as_ref(), notes);
    selector.max_bytes = size(max_size.as_ref(), notes);
    if let (Some(min), Some(max), Some(at)) = (selector.min_bytes, selector.max_bytes, max_size)
        && max < min
    {
        notes.wrong(
            at,
            format!("{:?} is below min-size; no drive can match", at.value),
        );
    }
    // An empty list counts as not given, and a condition that was refused counts as given.
    let lists = [media, transport, model, drive, path];
    let given = lists
        .iter()
        .any(|list| list.as_ref().is_some_and(|list| !list.value.is_empty()))
        || min_size.is_some()
        || max_size.is_some();
    if !given {
        notes.problems.push(Problem {
            line: Some(raw.line),
            key: "[class.select]".into(),
            message: format!(
                "class {:?} selects nothing: give at least one of media, transport, model, drive, path, min-size, max-size (drive = \"*\" for all)",
                raw.name.as_ref().map_or("", |at| at.value.as_str())
            ),
        });
    }
    selector
}

fn size(given: Option<&At<String>>, notes: &mut Notes) -> Option<u64> {
    let at = given?;
    match parse_size(&at.value) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            notes.wrong(at, error.to_string());
            None
        }
    }
}

/// Whether some drive could be in both for sure. Two different lists of patterns may or may not
/// meet; that is found out drive by drive, and not said here.
fn certainly_overlap(a: &Selector, b: &Selector) -> bool {
    fn meet<T: PartialEq>(a: &[T], b: &[T]) -> bool {
        a.is_empty() || b.is_empty() || a.iter().any(|item| b.contains(item))
    }
    let lists = [
        (&a.model, &b.model),
        (&a.drive, &b.drive),
        (&a.path, &b.path),
    ];
    meet(&a.media, &b.media)
        && meet(&a.transport, &b.transport)
        && lists.iter().all(|(a, b)| meet(a, b))
        && a.min_bytes.unwrap_or(0) <= b.max_bytes.unwrap_or(u64::MAX)
        && b.min_bytes.unwrap_or(0) <= a.max_bytes.unwrap_or(u64::MAX)
}
