//! Plan of a command that moves volumes: the moves, or the reasons against them.

use drivebay_common::terminal::Terminal;
use drivebay_proto::agent::MoveVolumesResponse;

use super::{Devices, Verb};
use crate::{
    table::{
        Align::{Left, Right},
        Table, Yielding, human_size, printable, width,
    },
    volumes::count,
};

/// Returns the plan as text.
pub fn plan(
    plan: &MoveVolumesResponse,
    verb: Verb<'_>,
    devices: &Devices,
    terminal: Terminal,
) -> String {
    let mut text = String::new();
    let drive = printable(&plan.drive);
    let total = plan
        .moves
        .iter()
        .fold(0_u64, |sum, one| sum + one.size_bytes);
    let volumes = match plan.moves.len() {
        0 => "no volume".to_owned(),
        many => format!("{} ({})", count(many as u64), human_size(total)),
    };
    let would = match verb {
        Verb::Evacuate => format!("drive {drive} would be cordoned, and {volumes} moved off it"),
        Verb::Replace { new } => format!(
            "drive {drive} would be cordoned, and {volumes} moved from it to drive {}",
            printable(new)
        ),
        Verb::MoveVolume => format!("{volumes} would be moved"),
    };
    if plan.refusals.is_empty() {
        text.push_str(&would);
        text.push_str(if plan.moves.is_empty() { "\n" } else { ":\n\n" });
    } else {
        text.push_str(&refused("it would be refused", &plan.refusals, terminal));
        if !plan.moves.is_empty() {
            text.push_str(&format!("\nwithout that, {would}:\n\n"));
        }
    }
    if !plan.moves.is_empty() {
        text.push_str(&table(plan, devices, terminal));
    }
    text
}

/// Returns every reason on a line of its own. `what`: the beginning of the title.
pub(super) fn refused(what: &str, reasons: &[String], terminal: Terminal) -> String {
    let mut text = match reasons.len() {
        1 => format!("{what}:\n"),
        many => format!("{what}, for {many} reasons:\n"),
    };
    for reason in reasons {
        text.push_str(&terminal.hanging("  - ", "    ", &printable(reason)));
    }
    text
}

fn table(plan: &MoveVolumesResponse, devices: &Devices, terminal: Terminal) -> String {
    let whole = columns(plan, devices, terminal, true);
    let wide = whole.lines().map(width).max();
    match terminal.width {
        // The source of all of them is the drive that the text above names.
        Some(most) if wide > Some(most) && !plan.drive.is_empty() => {
            columns(plan, devices, terminal, false)
        }
        _ => whole,
    }
}

fn columns(
    plan: &MoveVolumesResponse,
    devices: &Devices,
    terminal: Terminal,
    with_source: bool,
) -> String {
    let mut columns = vec![
        ("VOLUME", Left),
        ("SIZE", Right),
        ("TO", Left),
        ("WHEN", Left),
    ];
    if with_source {
        columns.insert(2, ("FROM", Left));
    }
    let mut table = Table::new(&columns).on(terminal, Yielding::default());
    for one in &plan.moves {
        let when = match one.in_use {
            true => "when it is unstaged",
            false => "now",
        };
        let to = devices.short(&one.to).to_owned();
        let mut cells = vec![
            one.name.clone(),
            human_size(one.size_bytes),
            to,
            when.to_owned(),
        ];
        if with_source {
            cells.insert(2, devices.short(&one.from).to_owned());
        }
        let claims = one.claims.then(|| format!("claims the drive {}", one.to));
        table.row(cells, claims.into_iter().collect());
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use drivebay_proto::agent::{Drive, PlannedMove};

    use super::*;

    fn planned() -> MoveVolumesResponse {
        let one = |name: &str, gib: u64, to: &str, in_use, claims| PlannedMove {
            volume_id: format!("{name}@n"),
            name: name.into(),
            from: "wwn-a".into(),
            to: to.into(),
            size_bytes: gib << 30,
            in_use,
            claims,
        };
        MoveVolumesResponse {
            drive: "wwn-a".into(),
            moves: vec![
                one("db", 10, "wwn-b", false, false),
                one("we\u{1b}b", 1, "wwn-c", true, true),
            ],
            ..MoveVolumesResponse::default()
        }
    }

    fn devices() -> Devices {
        let drive = |id: &str, kernel_name: &str| Drive {
            id: id.into(),
            kernel_name: kernel_name.into(),
            ..Drive::default()
        };
        Devices::of(&[
            drive("wwn-a", "sda"),
            drive("wwn-b", "sdb"),
            drive("wwn-c", ""),
        ])
    }

    #[test]
    fn a_plan_lists_what_is_moved_where_when_and_what_is_claimed_for_it() {
        let text = plan(&planned(), Verb::Evacuate, &devices(), Terminal::NONE);
        assert_eq!(
            text,
            "\
drive wwn-a would be cordoned, and 2 volumes (11 GiB) moved off it:

VOLUME       SIZE  FROM  TO     WHEN
db         10 GiB  sda   sdb    now
we\\u{1b}b   1 GiB  sda   wwn-c  when it is unstaged
    claims the drive wwn-c
"
        );
        let mut plain = planned();
        plain.moves.truncate(1);
        let verb = Verb::Replace { new: "wwn-b" };
        let text = plan(&plain, verb, &devices(), Terminal::NONE);
        assert!(
            text.starts_with(
                "drive wwn-a would be cordoned, and 1 volume (10 GiB) moved from it to drive wwn-b:\n"
            ) && !text.contains("claims"),
            "{text}"
        );
        let text = plan(&plain, Verb::MoveVolume, &devices(), Terminal::NONE);
        assert!(
            text.starts_with("1 volume (10 GiB) would be moved:\n"),
            "{text}"
        );
        plain.moves.clear();
        let text = plan(&plain, Verb::Evacuate, &devices(), Terminal::NONE);
        assert_eq!(
            text,
            "drive wwn-a would be cordoned, and no volume moved off it\n"
        );
    }

    #[test]
    fn a_plan_that_would_be_refused_lists_every_reason_first() {
        let mut refused = planned();
        refused.refusals = vec![
            "there is no room for db".into(),
            "drive wwn-c is BAD".into(),
        ];
        let text = plan(&refused, Verb::Evacuate, &devices(), Terminal::NONE);
        assert!(
            text.starts_with(
                "it would be refused, for 2 reasons:\n  - there is no room for db\n  - drive wwn-c is BAD\n\nwithout that, drive wwn-a would be cordoned"
            ),
            "{text}"
        );
        refused.moves.clear();
        refused.refusals.truncate(1);
        let text = plan(&refused, Verb::Evacuate, &devices(), Terminal::NONE);
        assert_eq!(text, "it would be refused:\n  - there is no room for db\n");
    }

    #[test]
    fn a_plan_for_claims_of_kubernetes_fits_a_terminal_of_80_columns() {
        let mut long = planned();
        for one in &mut long.moves {
            one.name = "pvc-3f2c9d1e-5b0c-4a6e-9a57-0d5d8f0c8a11".into();
        }
        let terminal = Terminal {
            width: Some(80),
            ..Terminal::NONE
        };
        let text = plan(&long, Verb::Evacuate, &devices(), terminal);
        let wide = text.lines().map(|line| line.chars().count()).max();
        assert!(wide <= Some(80), "{wide:?}: {text}");
        assert!(
            text.contains("pvc-3f2c9d1e-5b0c-4a6e-9a57-0d5d8f0c8a11  "),
            "{text}"
        );
        assert!(text.contains("when it is unstaged"), "{text}");
    }
}
