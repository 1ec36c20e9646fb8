//! Summary line below a list of drives. Pure.

use drivebay_proto::{
    agent::Drive,
    words::{DriveState, Verdict},
};

use drivebay_common::units::count;

use super::{drives::used_bytes, table::human_size, terminal::Terminal};

/// Sums over the drives added so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    drives: u64,
    good: u64,
    suspect: u64,
    bad: u64,
    unknown: u64,
    missing: u64,
    rejected: u64,
    used_bytes: u64,
    // Used space, and free space that is available to new volumes.
    all_bytes: u64,
}

impl Tally {
    /// Counts a drive by state or verdict, and adds its space; free space only if the drive takes new volumes.
    pub fn add(&mut self, drive: &Drive) {
        let counter = match (drive.known_state(), drive.known_verdict()) {
            (Some(DriveState::Rejected), _) => &mut self.rejected,
            (Some(DriveState::Missing), _) => &mut self.missing,
            (_, Some(Verdict::Good)) => &mut self.good,
            (_, Some(Verdict::Suspect)) => &mut self.suspect,
            (_, Some(Verdict::Bad)) => &mut self.bad,
            (_, Some(Verdict::Unknown) | None) => &mut self.unknown,
        };
        *counter += 1;
        self.drives += 1;
        let used = used_bytes(drive);
        let free = match drive.takes_new_volumes() {
            true => drive.free_bytes,
            false => 0,
        };
        self.used_bytes = self.used_bytes.saturating_add(used);
        self.all_bytes = self.all_bytes.saturating_add(used).saturating_add(free);
    }

    /// Returns `24 drives: 21 GOOD, 2 SUSPECT, 1 BAD; 63 of 140 GiB used`; free space is counted only if it is available to new volumes.
    /// Empty without drives.
    pub fn text(&self, terminal: Terminal) -> String {
        let parts = [
            (self.good, "GOOD"),
            (self.suspect, "SUSPECT"),
            (self.bad, "BAD"),
            (self.unknown, "UNKNOWN"),
            (self.missing, "missing"),
            (self.rejected, "not used"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let space = match self.all_bytes {
            0 => String::new(),
            all => format!("; {} used", part_of(self.used_bytes, all)),
        };
        if self.drives == 0 {
            return String::new();
        }
        let drives = count(self.drives, "drive");
        let line = format!("{drives}: {}{space}", parts.join(", "));
        terminal.hanging("", "  ", &line)
    }
}

/// Returns `63 of 140 GiB`, with the unit once if it is the same.
pub(crate) fn part_of(part: u64, all: u64) -> String {
    let (part, all) = (human_size(part), human_size(all));
    let unit = all.split_once(' ').map_or("", |(_, unit)| unit);
    let number = part.strip_suffix(unit).map_or(part.as_str(), str::trim_end);
    format!("{number} of {all}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_and_space_add_up_and_a_bad_drive_offers_none() {
        let drive = |state: &str, verdict: &str| Drive {
            state: state.into(),
            verdict: verdict.into(),
            usable_bytes: 10 << 30,
            free_bytes: 4 << 30,
            ..Drive::default()
        };
        let mut tally = Tally::default();
        assert_eq!(tally.text(Terminal::NONE), "");
        for one in [
            drive("claimed", "GOOD"),
            drive("available", "GOOD"),
            drive("claimed", "BAD"),
            drive("available", "BAD"),
            drive("rejected", "UNKNOWN"),
            drive("missing", "UNKNOWN"),
        ] {
            tally.add(&one);
        }
        // 6 and 4, 4, 6 of the BAD one, and nothing of the blank BAD one.
        assert_eq!(
            tally.text(Terminal::NONE),
            "6 drives: 2 GOOD, 2 BAD, 1 missing, 1 not used; 12 of 20 GiB used\n"
        );
    }
}
