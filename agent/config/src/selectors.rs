//! Warns about selectors of which a part can never match a drive, or may match another one after a reboot: allowed, and probably
//! unintended. Pure.

use super::{
    raw::Class,
    report::{At, Given, Report, entries, value},
};
use drivebay_model::{LEAST_BYTES, Media, Selector, Transport, by_id};
use drivebay_sys::sysfs::identity;

/// Prefixes of drive identities. A `drive` pattern that can begin with none of them, nor with `/dev/`, gets a warning.
const IDENTITIES: [&str; 7] = [
    "wwn-", "eui-", "nguid-", "uuid-", "serial-", "path-", "loop-",
];
const LOOPS: &str = "loop devices are not used unless [discovery] allow-loop = true";
const CHANGES: &str = "is a kernel name, which may be another drive's after a reboot: select by identity (drive, as `drivebay-agent claim-plan` shows it) or by place (path = [\"/sys/devices/…\"])";

/// Warns about unusual parts of a class's selector. `select`: its valid values.
pub(super) fn warn(raw: &Class, select: &Selector, allow_loop: bool, report: &mut Report) {
    for at in entries(&raw.select.transport) {
        match at.value.as_ref().map(|it| it.0) {
            Some(Transport::Loop) if !allow_loop => report.warn(at, LOOPS),
            Some(Transport::Usb) if value(&raw.allow_removable) != Some(&true) => report.warn(
                at,
                "USB drives are not used unless the class says allow-removable = true",
            ),
            _ => {}
        }
    }
    each(&raw.select.drive, report, |pattern| {
        drive(pattern, allow_loop)
    });
    each(&raw.select.path, report, |pattern| {
        path(pattern, allow_loop)
    });
    each(&raw.select.model, report, |pattern| {
        let odd = pattern.trim() != pattern && !pattern.is_empty();
        odd.then(|| never("models have no white space at their ends"))
    });
    if let Some(at) = &raw.select.max_size
        && select.max_bytes.is_some_and(|max| max < LEAST_BYTES)
    {
        report.warn(at, never("the smallest drive that is used has 64 MiB"));
    }
    if let Some(at) = &raw.select.transport
        && !select.media.is_empty()
        && !select.transport.is_empty()
        && !select.media.iter().any(|media| {
            let transports = &mut select.transport.iter();
            transports.any(|transport| go_together(*media, *transport))
        })
    {
        report.warn(at, never("no drive has this transport and this media"));
    }
}

fn go_together(media: Media, transport: Transport) -> bool {
    (media == Media::Nvme) == (transport == Transport::Nvme)
}

fn each(given: &Given<Vec<At<String>>>, report: &mut Report, odd: impl Fn(&str) -> Option<String>) {
    for at in entries(given) {
        if let Some(pattern) = at.value.as_deref().filter(|pattern| !pattern.is_empty())
            && let Some(why) = odd(pattern)
        {
            report.warn(at, format!("{pattern:?} {why}"));
        }
    }
}

fn never(why: &str) -> String {
    format!("can never match: {why}")
}

/// Returns the part before the first `*` or `?`, and true if there is one.
fn literal(pattern: &str) -> (&str, bool) {
    match pattern.find(['*', '?']) {
        Some(at) => (&pattern[..at], true),
        None => (pattern, false),
    }
}

/// True if a text with this beginning can begin with one of `with`.
fn may_begin(literal: &str, is_whole: bool, with: &[&str]) -> bool {
    with.iter()
        .any(|it| literal.starts_with(it) || (!is_whole && it.starts_with(literal)))
}

fn drive(pattern: &str, allow_loop: bool) -> Option<String> {
    let (head, open) = literal(pattern);
    if ["loop-", "/dev/loop"].iter().any(|it| head.starts_with(it)) && !allow_loop {
        return Some(never(LOOPS));
    }
    if pattern.starts_with("/dev/") {
        return node(pattern);
    }
    if may_begin(head, !open, &IDENTITIES) {
        let is_hex = ["wwn-", "eui-", "nguid-"]
            .iter()
            .any(|kind| head.starts_with(kind));
        let odd = pattern.chars().any(|c| c.is_ascii_uppercase());
        return (is_hex && odd).then(|| never("such identities are written in lower case"));
    }
    if let Some(id) = identity::from_wwn(head).or_else(|| bare_number(head)) {
        let written = format!("{id}{}", &pattern[head.len()..]);
        return Some(never(&format!("as an identity it is written {written:?}")));
    }
    if may_begin(head, true, &by_id::KINDS) {
        let link = format!("{}{pattern}", by_id::DIR);
        return Some(never(&format!("write {link:?}")));
    }
    Some(match is_kernel_name(pattern) {
        true => never(
            "drive takes identities, as `drivebay-agent claim-plan` shows them; a kernel name may be another drive's after a reboot",
        ),
        false => never(&format!(
            "identities begin with {}; `drivebay-agent claim-plan` shows them",
            IDENTITIES.join(", ")
        )),
    })
}

/// Parses a WWN as printed on drives and by tools, and returns the identity.
fn bare_number(text: &str) -> Option<String> {
    let number = text.strip_prefix("0x")?;
    identity::from_wwn(&format!("naa.{number}"))
}

fn node(pattern: &str) -> Option<String> {
    let (head, open) = literal(pattern);
    if let Some(name) = head.strip_prefix(by_id::DIR) {
        if !open && is_of_partition(name) {
            return Some(never(
                "the link is a partition's, and only whole drives are used; leave out \"-part…\"",
            ));
        }
        let derived = may_begin(name, !open, &by_id::KINDS);
        return (!derived).then(|| {
            never(&format!(
                "of these links only {}… are supported; write the identity, as `drivebay-agent claim-plan` shows it",
                by_id::KINDS.join("…, ")
            ))
        });
    }
    let name = head.strip_prefix("/dev/")?;
    if ["disk/", "mapper/", "dm-", "md"]
        .iter()
        .any(|it| name.starts_with(it))
    {
        return Some(never(
            "it is no drive's own node; select by identity (drive, as `drivebay-agent claim-plan` shows it), by a link below /dev/disk/by-id, or by place (path = [\"/sys/devices/…\"])",
        ));
    }
    (!open).then(|| CHANGES.to_owned())
}

fn path(pattern: &str, allow_loop: bool) -> Option<String> {
    let (head, open) = literal(pattern);
    if head.starts_with(by_id::DIR) {
        return Some(never("a link below /dev/disk/by-id belongs into `drive`"));
    }
    if head.starts_with("/dev/") {
        return match head.starts_with("/dev/loop") && !allow_loop {
            true => Some(never(LOOPS)),
            false => node(pattern),
        };
    }
    if head.starts_with("/sys/") && !may_begin(head, !open, &["/sys/devices/"]) {
        return Some(never(
            "sysfs paths begin with /sys/devices/; `readlink -f /sys/block/NAME` prints a drive's",
        ));
    }
    if head.starts_with('/') && !may_begin(head, !open, &["/sys/devices/"]) {
        return (!allow_loop).then(|| never(&format!("it is a file's path; {LOOPS}")));
    }
    if !head.is_empty() && !head.starts_with('/') && pattern.contains('/') {
        return Some(never("paths begin with /"));
    }
    (!open && is_kernel_name(pattern)).then(|| CHANGES.to_owned())
}

fn is_of_partition(link: &str) -> bool {
    link.rsplit_once("-part")
        .is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// True if this looks like the kernel's name of a whole disk.
fn is_kernel_name(text: &str) -> bool {
    let lettered = ["sd", "vd", "xvd", "hd"].iter().any(|kind| {
        let rest = text.strip_prefix(kind).unwrap_or_default();
        !rest.is_empty() && rest.len() <= 3 && rest.bytes().all(|b| b.is_ascii_lowercase())
    });
    let numbered = ["nvme", "mmcblk", "loop"].iter().any(|kind| {
        let rest = text.strip_prefix(kind).unwrap_or_default();
        rest.starts_with(|c: char| c.is_ascii_digit())
            && rest.bytes().all(|b| b.is_ascii_digit() || b == b'n')
    });
    lettered || numbered
}
