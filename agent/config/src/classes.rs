//! Checking the `[[class]]` tables. Pure.

use super::{
    HostFacts,
    raw::{Class, Size},
    report::{At, Given, Problem, Report, entries, value},
    selectors,
    texts::unique,
};
use drivebay_common::sizes::parse_size;
use drivebay_fs::{check_mkfs_options, kernel_options::OptionsCheck, parse_mount_flags};
use drivebay_model::{ClassConfig, ErasePolicy, FsType, GIB, RawSpace, Selector};
use drivebay_proto::volume_id::is_node_id;

/// Checks all classes, each alone and against the others. `has_kubelet`: StorageClasses are named after the classes.
pub(super) fn check(
    raw: &[At<Class>],
    allow_loop: bool,
    has_kubelet: bool,
    host: &HostFacts,
    report: &mut Report,
) -> Vec<ClassConfig> {
    unique(
        raw.iter()
            .filter_map(|class| class.value.as_ref()?.name.as_ref()),
        |name, line| {
            format!("class {name:?} already exists, in line {line}; class names are unique")
        },
        report,
    );
    if raw.is_empty() && report.problems.is_empty() {
        report.warnings.push(Problem::new(
            None,
            "[[class]]",
            "there is no class: no drive will ever be used",
        ));
    }
    let mut classes: Vec<ClassConfig> = Vec::new();
    for (raw, line) in raw
        .iter()
        .filter_map(|at| Some((at.value.as_ref()?, at.line)))
    {
        let class = one(raw, line, allow_loop, host, report);
        if has_kubelet && let Some(at) = &raw.name {
            warn_of_name(at, report);
        }
        for earlier in &classes {
            if earlier.priority == class.priority
                && certainly_overlap(&earlier.select, &class.select)
            {
                report.warnings.push(Problem::new(
                    Some(line),
                    "[[class]]",
                    format!(
                        "AmbiguousClass: {:?} and {:?} select the same drives with the same priority ({}); such drives belong to neither. Narrow one, or give one a higher priority",
                        earlier.name, class.name, class.priority
                    ),
                ));
            }
        }
        classes.push(class);
    }
    classes
}

/// Warns about a class name that no StorageClass can have. It is no error: the name is on the labels of claimed drives, and an agent that
/// has run with it must start after an upgrade.
fn warn_of_name(at: &At<String>, report: &mut Report) {
    if let Some(name) = at.value.as_deref()
        && is_node_id(name)
        && !is_object_name(name)
    {
        report.warn(
            at,
            format!(
                "no StorageClass can be named after {name:?}: names of Kubernetes objects have lower-case letters, digits, '-' and '.', and begin and end with a letter or digit, also around each '.'. Give the StorageClass another name (storageClass.name in the chart), or the class, if no drive was claimed for it yet"
            ),
        );
    }
}

/// True if the name of a Kubernetes object may end with this text (RFC 1123, subdomain).
fn is_object_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label =
        |part: &str| !part.is_empty() && part.chars().all(good) && part.trim_matches('-') == part;
    name.split('.').all(is_label)
}

fn one(
    raw: &Class,
    line: usize,
    allow_loop: bool,
    host: &HostFacts,
    report: &mut Report,
) -> ClassConfig {
    let name = report.require(
        raw.name.as_ref(),
        is_node_id,
        "cannot be a class name: 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit",
    );
    if raw.name.is_none() {
        report.problems.push(Problem::new(
            Some(line),
            "[[class]] name",
            "is missing; StorageClasses name the class by it",
        ));
    }
    if let Some(at) = &raw.erase
        && at.value == Some(ErasePolicy::Signatures)
    {
        report.warn(
            at,
            "deleted volumes keep their data readable for whoever gets the space next",
        );
    }
    if let Some(at) = &raw.raw_space
        && at.value == Some(RawSpace::Sampled)
    {
        report.warn(
            at,
            "raw volumes on drives that do not zero on command show what a former owner of the drive left there",
        );
    }
    let fs_type = *value(&raw.fs).unwrap_or(&FsType::Ext4);
    ClassConfig {
        select: select(raw, line, allow_loop, report),
        name: name.unwrap_or_default().to_owned(),
        layout: value(&raw.layout).copied().unwrap_or_default(),
        placement: value(&raw.placement).copied().unwrap_or_default(),
        priority: *value(&raw.priority).unwrap_or(&0),
        claim: value(&raw.claim).copied().unwrap_or_default(),
        erase: value(&raw.erase).copied().unwrap_or_default(),
        raw_space: value(&raw.raw_space).copied().unwrap_or_default(),
        evacuate: value(&raw.evacuate).copied().unwrap_or_default(),
        fs_type,
        mkfs_options: options(&raw.mkfs_options, report, |all| {
            check_mkfs_options(fs_type, all).map_err(|error| error.to_string())
        }),
        mount_options: mount_options(raw, fs_type, host, report),
        allow_removable: value(&raw.allow_removable) == Some(&true),
        xfs_retry_forever: value(&raw.xfs_retry_forever) == Some(&true),
        check_reserve_bytes: size(&raw.check_reserve, report).unwrap_or(GIB),
    }
}

fn mount_options(
    raw: &Class,
    fs_type: FsType,
    host: &HostFacts,
    report: &mut Report,
) -> Vec<String> {
    let given = &raw.mount_options;
    // The options may be meant for a filesystem whose name is mistyped.
    let is_known = raw.fs.is_none() || value(&raw.fs).is_some();
    let mut not_checked = None;
    let kept = options(given, report, |all| {
        let flags = parse_mount_flags(all).map_err(|error| error.to_string())?;
        if !is_known {
            return Ok(());
        }
        match (host.check_mount_options)(fs_type, &flags) {
            OptionsCheck::Accepted => Ok(()),
            OptionsCheck::Refused { options, why } => {
                Err(format!("the kernel refuses {options:?} ({why})"))
            }
            OptionsCheck::NotChecked { why } => {
                not_checked = Some(why);
                Ok(())
            }
        }
    });
    if let (Some(at), Some(why)) = (given, not_checked) {
        report.warn(at, format!("not checked by the kernel: {why}"));
    }
    kept
}

/// Reads options of a program: checks each by itself, then all of them together by `check`.
fn options(
    given: &Given<Vec<At<String>>>,
    report: &mut Report,
    check: impl FnOnce(&[String]) -> Result<(), String>,
) -> Vec<String> {
    let good = |option: &str| !option.is_empty() && !option.chars().any(char::is_control);
    let mut kept = Vec::new();
    for at in entries(given) {
        let otherwise = "is not an option: empty, or with control characters";
        let option = report.require(Some(at), good, otherwise);
        kept.extend(option.filter(|option| good(option)).map(str::to_owned));
    }
    if let Some(list) = given
        && let Err(why) = check(&kept)
    {
        report.error(list, why);
    }
    kept
}

fn select(raw: &Class, line: usize, allow_loop: bool, report: &mut Report) -> Selector {
    let select = &raw.select;
    let mut patterns = |given: &Given<Vec<At<String>>>| {
        let mut patterns = Vec::new();
        for at in entries(given) {
            if at.value.as_ref().is_some_and(String::is_empty) {
                report.error(
                    at,
                    "an empty pattern matches nothing; write \"*\" for anything",
                );
            }
            patterns.extend(at.value.clone());
        }
        patterns
    };
    let selector = Selector {
        media: entries(&select.media).filter_map(|at| at.value).collect(),
        transport: entries(&select.transport)
            .filter_map(|at| Some(at.value?.0))
            .collect(),
        model: patterns(&select.model),
        drive: patterns(&select.drive),
        path: patterns(&select.path),
        min_bytes: size(&select.min_size, report),
        max_bytes: size(&select.max_size, report),
    };
    if let (Some(min), Some(max)) = (selector.min_bytes, selector.max_bytes)
        && let Some(at) = &select.max_size
        && let Some(text) = &at.value
        && max < min
    {
        report.error(
            at,
            format!("{:?} is below min-size; no drive can match", text.0),
        );
    }
    selectors::warn(raw, &selector, allow_loop, report);
    let given = is_given(&select.media)
        || is_given(&select.transport)
        || [&select.model, &select.drive, &select.path]
            .into_iter()
            .any(is_given)
        || select.min_size.is_some()
        || select.max_size.is_some();
    if !given {
        let name = value(&raw.name).map_or("", String::as_str);
        report.problems.push(Problem::new(
            Some(line),
            "[class.select]",
            format!(
                "class {name:?} selects nothing: give at least one of media, transport, model, drive, path, min-size, max-size (drive = \"*\" for all)"
            ),
        ));
    }
    selector
}

/// True if a list is given: an empty one is not, and one that was refused is.
fn is_given<T>(list: &Given<Vec<At<T>>>) -> bool {
    let empty = |at: &At<Vec<At<T>>>| at.value.as_ref().is_some_and(Vec::is_empty);
    list.as_ref().is_some_and(|at| !empty(at))
}

fn size(given: &Given<Size>, report: &mut Report) -> Option<u64> {
    report.parse(given.as_ref(), parse_size)
}

/// True if some drive could certainly match both. Two different lists of patterns may or may not overlap; that is detected for each drive
/// later, and not reported here.
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
