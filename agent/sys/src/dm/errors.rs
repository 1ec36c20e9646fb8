//! Devices that answer reads of some ranges with errors, and pass writes there on, as a drive does with sectors that it cannot read.
//!
//! Such a range has the target `delay` without a delay, which may read from another device than it writes to: it reads from one device for
//! the whole host, all of whose targets are `error`. That one is created when it is first needed, and stays.

use std::{io, path::Path};

use super::{
    change::{Control, Target},
    control::{DmStatus, has_target},
};
use crate::sysfs;

/// Device-mapper name and uuid of the device that answers everything with errors.
const ERRORS: &str = "drivebay-errors";
/// Length of that device in sectors: more than a volume has.
const ERRORS_SECTORS: u64 = 1 << 50;
/// Target that reads and writes different devices, of the module dm-delay.
const DELAY: &str = "delay";

/// Returns why this host cannot have such devices; None: it can. Loads the module.
pub fn unavailable() -> Option<String> {
    match has_target(DELAY) {
        Ok(true) => None,
        Ok(false) => Some("the kernel has no dm-delay; load its module (modprobe dm_delay)".into()),
        Err(error) => Some(format!("device-mapper does not answer: {error}")),
    }
}

/// True if the device of this kernel name is the one that answers everything with errors.
pub(super) fn is_it(sys: &Path, kernel_name: &str) -> bool {
    matches!(sysfs::dm_uuid(sys, kernel_name), Ok(Some(uuid)) if uuid == ERRORS)
}

/// Creates a device over the first `sectors` sectors of another one. `lost`: start and length, in sectors and in order, of the ranges whose
/// reads fail.
///
/// # Errors
/// EBUSY: the name or the uuid is used.
pub fn create_over(
    over: (u32, u32),
    sectors: u64,
    lost: &[(u64, u64)],
    (name, uuid): (&str, &str),
) -> io::Result<DmStatus> {
    let control = Control::open()?;
    let errors = errors(&control)?;
    control.create(name, uuid, &targets(over, sectors, lost, errors))
}

/// Gives a device of `create_over` another size, or other ranges, also while it is used: nothing is frozen, and no request is lost.
pub fn map_over(over: (u32, u32), sectors: u64, lost: &[(u64, u64)], uuid: &str) -> io::Result<()> {
    let control = Control::open()?;
    let errors = errors(&control)?;
    control.load(uuid, &targets(over, sectors, lost, errors))?;
    control.resume(uuid)
}

/// Returns the number of the device that answers everything with errors.
fn errors(control: &Control) -> io::Result<(u32, u32)> {
    if let Some(status) = control.status(ERRORS)? {
        return Ok(status.dev);
    }
    let table = Target {
        sectors: ERRORS_SECTORS,
        kind: "error".to_owned(),
        params: String::new(),
    };
    match control.create(ERRORS, ERRORS, &[table]) {
        Ok(status) => Ok(status.dev),
        // By another worker meanwhile.
        Err(error) => match control.status(ERRORS)? {
            Some(status) => Ok(status.dev),
            None => Err(error),
        },
    }
}

fn targets(over: (u32, u32), sectors: u64, lost: &[(u64, u64)], errors: (u32, u32)) -> Vec<Target> {
    let device = |(major, minor): (u32, u32)| format!("{major}:{minor}");
    let (own, errors) = (device(over), device(errors));
    let mut all = Vec::new();
    let mut add = |kind: &str, from: u64, to: u64, params: String| {
        if from < to {
            all.push(Target {
                sectors: to - from,
                kind: kind.to_owned(),
                params,
            });
        }
    };
    let mut at = 0;
    for &(start, len) in lost {
        let (start, end) = (
            start.clamp(at, sectors),
            start.saturating_add(len).min(sectors),
        );
        add("linear", at, start, format!("{own} {at}"));
        // Reads from the first device, without a delay; writes to the second one, at the same place, without a delay.
        add(DELAY, start, end, format!("{errors} 0 0 {own} {start} 0"));
        at = end.max(at);
    }
    add("linear", at, sectors, format!("{own} {at}"));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(sectors: u64, lost: &[(u64, u64)]) -> Vec<String> {
        let targets = targets((254, 3), sectors, lost, (254, 9));
        assert_eq!(targets.iter().map(|one| one.sectors).sum::<u64>(), sectors);
        let line = |one: Target| format!("{} {} {}", one.sectors, one.kind, one.params);
        targets.into_iter().map(line).collect()
    }

    #[test]
    fn lost_ranges_read_from_the_device_of_errors_and_write_to_their_own_place() {
        assert_eq!(lines(100, &[]), ["100 linear 254:3 0"]);
        assert_eq!(
            lines(100, &[(8, 8), (24, 16)]),
            [
                "8 linear 254:3 0",
                "8 delay 254:9 0 0 254:3 8 0",
                "8 linear 254:3 16",
                "16 delay 254:9 0 0 254:3 24 0",
                "60 linear 254:3 40"
            ]
        );
    }

    #[test]
    fn a_range_at_either_end_or_beyond_leaves_no_gap_and_nothing_behind_the_device() {
        let first = ["8 delay 254:9 0 0 254:3 0 0", "92 linear 254:3 8"];
        assert_eq!(lines(100, &[(0, 8)]), first);
        let last = ["96 linear 254:3 0", "4 delay 254:9 0 0 254:3 96 0"];
        assert_eq!(lines(100, &[(96, 8), (200, 8)]), last);
        assert_eq!(
            lines(100, &[(0, u64::MAX)]),
            ["100 delay 254:9 0 0 254:3 0 0"]
        );
        // As a damaged record may have them.
        let overlapping = lines(100, &[(50, 10), (40, 15), (55, 5)]);
        assert_eq!(overlapping.len(), 3, "{overlapping:?}");
    }
}
