//! Progress of the moves that a command waits for: lines that a terminal rewrites, or further lines on a pipe.

use std::collections::BTreeMap;

use drivebay_proto::{
    agent::{Move, VolumeCopy},
    words::MovePhase,
};

use super::{percent, reason};
use crate::{
    table::{human_seconds, human_size, printable},
    volumes::count,
};

/// Largest number of volumes with a line of their own on a terminal, besides the summary.
const LINES: usize = 8;

/// A move that the command waits for.
#[derive(Debug, Clone)]
pub(super) struct Awaited {
    pub(super) it: Move,
    /// True if the volume was in use when the move was requested.
    pub(super) in_use: bool,
}

impl Awaited {
    pub(super) fn is(&self, phase: MovePhase) -> bool {
        self.it.known_phase() == Some(phase)
    }

    /// True if it waits until the volume is unstaged.
    pub(super) fn is_held(&self) -> bool {
        self.in_use && self.is(MovePhase::Waiting)
    }

    fn is_at_work(&self) -> bool {
        self.is(MovePhase::Copying) || self.is(MovePhase::Completing)
    }
}

impl From<&VolumeCopy> for Awaited {
    /// Shows a copy to a new volume as a move that is copying, or waiting.
    fn from(copy: &VolumeCopy) -> Self {
        let is_held_up = !copy.waits_for.is_empty() && copy.bytes_per_second == 0;
        let phase = match is_held_up {
            true => MovePhase::Waiting,
            false => MovePhase::Copying,
        };
        Self {
            it: Move {
                volume_id: copy.volume_id.clone(),
                name: copy.name.clone(),
                from: copy.from.clone(),
                to: copy.to.clone(),
                phase: phase.to_string(),
                done_bytes: copy.done_bytes,
                total_bytes: copy.total_bytes,
                bytes_per_second: copy.bytes_per_second,
                eta_seconds: copy.eta_seconds,
                waits_for: copy.waits_for.clone(),
                ..Move::default()
            },
            in_use: false,
        }
    }
}

/// Returns one volume in one line, the most important part first, since a terminal may cut the line.
pub(super) fn line(one: &Awaited) -> String {
    let it = &one.it;
    let name = printable(&it.name);
    let why = match reason(it, one.in_use).as_str() {
        "" => String::new(),
        why => format!(": {why}"),
    };
    match it.known_phase() {
        Some(MovePhase::Copying) => {
            let all = amounts(
                it.done_bytes,
                it.total_bytes,
                it.eta_seconds,
                it.bytes_per_second,
            );
            format!("{name}: copying {all}{why}")
        }
        Some(MovePhase::Moved) => format!("{name}: moved to drive {}{why}", printable(&it.to)),
        Some(MovePhase::InDoubt) => format!("{name}: in doubt{why}"),
        Some(MovePhase::Waiting | MovePhase::Completing) | None => {
            format!("{name}: {}{why}", printable(&it.phase))
        }
    }
}

/// Returns percentage, remaining time, rate, and copied and total size.
fn amounts(done: u64, total: u64, eta_seconds: u64, rate: u64) -> String {
    let percent = percent(done, total).unwrap_or(0);
    let left = match eta_seconds {
        0 => String::new(),
        left => format!(", {} left", human_seconds(left)),
    };
    let rate = match rate {
        0 => String::new(),
        rate => format!(", {}/s", human_size(rate)),
    };
    let (done, total) = (human_size(done), human_size(total));
    format!("{percent}%{left}{rate} ({done} of {total})")
}

/// Returns done and total bytes, without volumes that wait until they are unstaged.
fn totals(moves: &[Awaited]) -> (u64, u64) {
    let counted = moves.iter().filter(|one| !one.is_held());
    counted.fold((0, 0), |(done, total), one| {
        let all = one.it.total_bytes;
        let its = match one.is(MovePhase::Moved) {
            true => all,
            false => one.it.done_bytes.min(all),
        };
        (done + its, total + all)
    })
}

/// Returns all volumes in one line.
pub(super) fn summary(moves: &[Awaited]) -> String {
    let (done, total) = totals(moves);
    let rates = moves.iter().filter(|one| one.is(MovePhase::Copying));
    let rate: u64 = rates.map(|one| one.it.bytes_per_second).sum();
    let left = (total - done).checked_div(rate).unwrap_or(0);
    let in_phase = |phase| moves.iter().filter(|one| one.is(phase)).count();
    let all = count(moves.len() as u64);
    let mut text = format!("{} of {all} moved", in_phase(MovePhase::Moved));
    for (many, what) in [
        (in_phase(MovePhase::Waiting), "waiting"),
        (in_phase(MovePhase::InDoubt), "in doubt"),
    ] {
        if many > 0 {
            text.push_str(&format!(", {many} {what}"));
        }
    }
    format!("{text}: {}", amounts(done, total, left, rate))
}

/// Returns the lines that a terminal shows in place of the previous ones.
pub(super) fn screen(moves: &[Awaited]) -> Vec<String> {
    if let [one] = moves {
        return vec![line(one)];
    }
    let at_work = moves.iter().filter(|one| one.is_at_work());
    let mut lines: Vec<String> = at_work.take(LINES).map(line).collect();
    lines.push(summary(moves));
    lines
}

/// State of the output on a pipe, from which changes are computed.
#[derive(Debug, Default)]
pub(super) struct Log {
    lines: BTreeMap<String, (String, String)>,
    tenth: Option<u64>,
}

impl Log {
    /// Returns lines about changes: phases and reasons of volumes, and each tenth of all bytes.
    pub(super) fn news(&mut self, moves: &[Awaited]) -> Vec<String> {
        let mut news = Vec::new();
        for one in moves {
            let now = (one.it.phase.clone(), one.it.waits_for.clone());
            let before = self.lines.insert(one.it.volume_id.clone(), now.clone());
            if before != Some(now) {
                news.push(line(one));
            }
        }
        let (done, total) = totals(moves);
        let tenth = done.saturating_mul(10).checked_div(total);
        let before = std::mem::replace(&mut self.tenth, tenth);
        let copying = moves.iter().any(|one| one.is(MovePhase::Copying));
        if before.is_some() && before != tenth && copying {
            match moves {
                // The line about its phase has the amount already.
                [_] if !news.is_empty() => {}
                [one] => news.push(line(one)),
                _ => news.push(summary(moves)),
            }
        }
        news
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn awaited(name: &str, phase: &str, done_gib: u64) -> Awaited {
        Awaited {
            it: Move {
                volume_id: format!("{name}@n"),
                name: name.into(),
                from: "wwn-a".into(),
                to: "wwn-b".into(),
                phase: phase.into(),
                done_bytes: done_gib << 30,
                total_bytes: 4 << 30,
                ..Move::default()
            },
            in_use: false,
        }
    }

    fn copying(name: &str, done_gib: u64) -> Awaited {
        let mut one = awaited(name, "copying", done_gib);
        one.it.bytes_per_second = 10 << 20;
        one.it.eta_seconds = (4 - done_gib) * 100;
        one
    }

    #[test]
    fn a_line_has_phase_share_time_left_and_rate() {
        assert_eq!(
            line(&copying("db", 1)),
            "db: copying 25%, 5m left, 10 MiB/s (1 GiB of 4 GiB)"
        );
        let mut waiting = awaited("d\nb", "waiting", 0);
        assert_eq!(line(&waiting), "d\\u{a}b: waiting");
        waiting.in_use = true;
        assert_eq!(line(&waiting), "d\\u{a}b: waiting: it is in use");
        waiting.it.waits_for = "pod a/b uses it".into();
        assert_eq!(line(&waiting), "d\\u{a}b: waiting: pod a/b uses it");
        assert_eq!(line(&awaited("db", "completing", 4)), "db: completing");
        assert_eq!(line(&awaited("db", "moved", 4)), "db: moved to drive wwn-b");
        assert_eq!(line(&awaited("db", "in-doubt", 4)), "db: in doubt");
        assert_eq!(line(&awaited("db", "verifying", 4)), "db: verifying");
    }

    #[test]
    fn a_copy_to_a_new_volume_is_shown_as_a_move_is() {
        let mut copy = VolumeCopy {
            volume_id: "new@n".into(),
            name: "new".into(),
            done_bytes: 1 << 30,
            total_bytes: 4 << 30,
            bytes_per_second: 10 << 20,
            eta_seconds: 300,
            ..VolumeCopy::default()
        };
        assert_eq!(
            screen(&[(&copy).into()]),
            ["new: copying 25%, 5m left, 10 MiB/s (1 GiB of 4 GiB)"]
        );
        copy.waits_for = "volume db is staged".into();
        let line = line(&(&copy).into());
        assert!(line.starts_with("new: copying 25%"), "{line}");
        copy.bytes_per_second = 0;
        let mut log = Log::default();
        let news = log.news(&[(&copy).into()]);
        assert_eq!(news, ["new: waiting: volume db is staged"]);
        assert_eq!(log.news(&[(&copy).into()]), [""; 0]);
    }

    #[test]
    fn a_terminal_has_a_line_for_each_volume_at_work_and_one_for_all() {
        let mut held = awaited("held", "waiting", 0);
        held.in_use = true;
        let moves = [
            copying("db", 1),
            awaited("web", "moved", 0),
            awaited("log", "waiting", 0),
            held,
        ];
        assert_eq!(
            screen(&moves),
            [
                "db: copying 25%, 5m left, 10 MiB/s (1 GiB of 4 GiB)",
                // 7 GiB of three volumes at 10 MiB/s; the one in use is not counted.
                "1 of 4 volumes moved, 2 waiting: 41%, 11m56s left, 10 MiB/s (5 GiB of 12 GiB)",
            ]
        );
        assert_eq!(screen(&moves[..1]), [line(&moves[0])]);
        let many: Vec<Awaited> = (0..24).map(|n| copying(&format!("pvc-{n}"), 1)).collect();
        let lines = screen(&many);
        assert_eq!(lines.len(), LINES + 1);
        assert!(
            lines[LINES].starts_with("0 of 24 volumes moved: 25%"),
            "{lines:?}"
        );
    }

    #[test]
    fn a_pipe_gets_a_line_when_something_changes_and_for_each_tenth() {
        let mut log = Log::default();
        let waiting = awaited("web", "waiting", 0);
        let at = |done: u64, phase: &str| {
            let mut one = awaited("db", phase, 0);
            one.it.done_bytes = done << 20;
            [one, waiting.clone()]
        };
        let news = log.news(&at(0, "copying"));
        assert_eq!(news.len(), 2, "{news:?}");
        assert_eq!(log.news(&at(100, "copying")), [""; 0]);
        // 1000 of 8192 MiB.
        let news = log.news(&at(1000, "copying"));
        assert_eq!(
            news,
            ["0 of 2 volumes moved, 1 waiting: 12% (1000 MiB of 8 GiB)"]
        );
        assert_eq!(log.news(&at(1001, "copying")), [""; 0]);
        let news = log.news(&at(4096, "completing"));
        assert_eq!(news, ["db: completing"]);
        let mut alone = Log::default();
        let of = |done| [copying("db", done)];
        assert_eq!(alone.news(&of(0)).len(), 1);
        assert_eq!(alone.news(&of(1)), [line(&copying("db", 1))]);
        assert_eq!(alone.news(&of(1)), [""; 0]);
    }
}
