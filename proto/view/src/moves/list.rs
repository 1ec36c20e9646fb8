//! List of the moves of a node.

use drivebay_common::terminal::Terminal;
use drivebay_proto::{
    agent::{ListMovesResponse, Move, NotEvacuated},
    words::MovePhase,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Devices, percent, reason, unfenced};
use crate::{
    args::{ListArgs, ListFormat},
    table::{
        Align::{self, Left, Right},
        Table, Yielding, human_seconds, human_size, printable,
    },
};

const COLUMNS: [(&str, Align); 8] = [
    ("VOLUME", Left),
    ("PHASE", Left),
    ("DONE", Right),
    ("LEFT", Right),
    ("RATE", Right),
    ("SIZE", Right),
    ("FROM", Left),
    ("TO", Left),
];

/// Columns that may be cut or left out if the table is too wide.
const YIELDING: Yielding<'_> = Yielding {
    names: &["VOLUME"],
    dispensable: &["RATE", "SIZE", "LEFT"],
};

/// What `moves -o json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MoveList<'a> {
    /// The node id.
    node: &'a str,
    /// The moves that were asked for and whose old place is not erased yet.
    moves: &'a [Move],
    /// Drives whose verdict calls for an evacuation by their class, and why the agent does not evacuate them.
    not_evacuated: &'a [NotEvacuated],
}

/// Returns the list in the requested format. `now`: seconds since 1970.
pub fn render(
    node: &str,
    listed: &ListMovesResponse,
    args: &ListArgs,
    devices: &Devices,
    now: u64,
    terminal: Terminal,
) -> serde_json::Result<String> {
    let ListMovesResponse {
        moves,
        not_evacuated,
    } = listed;
    if let Some(document) = args.output.document() {
        return document.write(&MoveList {
            node,
            moves,
            not_evacuated,
        });
    }
    if args.output == ListFormat::Name {
        let names = moves.iter().map(|one| printable(&one.name) + "\n");
        return Ok(names.collect());
    }
    let mut text = match (moves.is_empty(), args.no_headers) {
        (true, true) => String::new(),
        (true, false) => "no volume is being moved\n".to_owned(),
        (false, _) => table(moves, args, devices, now, terminal).render(),
    };
    if !args.no_headers {
        for NotEvacuated { drive, reason } in not_evacuated {
            text.push_str(&format!(
                "drive {} is not evacuated automatically: {}\n",
                printable(devices.short(drive)),
                printable(reason)
            ));
        }
    }
    Ok(text)
}

fn table(
    moves: &[Move],
    args: &ListArgs,
    devices: &Devices,
    now: u64,
    terminal: Terminal,
) -> Table {
    let wide = args.output.is_wide();
    let mut columns = COLUMNS.to_vec();
    let table = match wide {
        true => {
            columns.extend([("BY", Left), ("AGE", Right), ("ID", Left)]);
            Table::new(&columns).on(terminal, Yielding::default())
        }
        false => Table::new(&columns).on(terminal, YIELDING),
    };
    let mut table = match args.no_headers {
        true => table.without_header(),
        false => table,
    };
    for one in moves {
        let drive = |id: &str| match wide {
            true => id.to_owned(),
            false => devices.short(id).to_owned(),
        };
        let copying = one.known_phase() == Some(MovePhase::Copying);
        let percent = percent(one.done_bytes, one.total_bytes).map(|it| format!("{it}%"));
        let some = |shown: bool, text: String| if shown { text } else { String::new() };
        let mut cells = vec![
            one.name.clone(),
            one.phase.clone(),
            percent.unwrap_or_default(),
            some(
                copying && one.eta_seconds > 0,
                human_seconds(one.eta_seconds),
            ),
            some(
                copying && one.bytes_per_second > 0,
                human_size(one.bytes_per_second) + "/s",
            ),
            human_size(one.total_bytes),
            drive(&one.from),
            drive(&one.to),
        ];
        if wide {
            let age = now.saturating_sub(one.requested_at);
            cells.push(one.by.clone());
            cells.push(some(one.requested_at > 0, human_seconds(age)));
            cells.push(one.volume_id.clone());
        }
        table.row(cells, below(one));
    }
    table
}

fn below(one: &Move) -> Vec<String> {
    let mut lines = Vec::new();
    let why = reason(one, false);
    if !why.is_empty() {
        lines.push(why);
    }
    if one.known_phase() == Some(MovePhase::Moved) {
        let after = match one.old_place_seconds {
            0 => String::new(),
            left => format!(", in {} at the earliest", human_seconds(left)),
        };
        let from = &one.from;
        lines.push(format!(
            "what is left of it on drive {from} is erased{after}"
        ));
    }
    lines.extend(unfenced(one));
    lines
}

#[cfg(test)]
mod tests {
    use drivebay_proto::agent::Drive;

    use super::*;

    fn of(name: &str, phase: &str) -> Move {
        Move {
            volume_id: format!("{name}@n"),
            name: name.into(),
            from: "wwn-0x5000c500a1b2c3d4".into(),
            to: "wwn-0x5000c500a1b2c3d5".into(),
            phase: phase.into(),
            total_bytes: 4 << 30,
            by: "ann".into(),
            requested_at: 1000,
            ..Move::default()
        }
    }

    fn moves() -> Vec<Move> {
        let mut copying = of("db", "copying");
        copying.done_bytes = 1 << 30;
        copying.bytes_per_second = 210 << 20;
        copying.eta_seconds = 300;
        let mut waiting = of("log", "waiting");
        waiting.waits_for = "it is staged at /x\u{1b}".into();
        let mut moved = of("web", "moved");
        moved.done_bytes = 4 << 30;
        moved.old_place_seconds = 7200;
        moved.unfenced = true;
        vec![copying, waiting, moved]
    }

    fn devices() -> Devices {
        let drive = |id: &str, kernel_name: &str| Drive {
            id: id.into(),
            kernel_name: kernel_name.into(),
            ..Drive::default()
        };
        Devices::of(&[
            drive("wwn-0x5000c500a1b2c3d4", "sda"),
            drive("wwn-0x5000c500a1b2c3d5", "nvme0n1"),
        ])
    }

    fn list(output: ListFormat, moves: &[Move], width: Option<usize>) -> String {
        let args = ListArgs {
            output,
            no_headers: false,
        };
        let terminal = Terminal {
            width,
            ..Terminal::NONE
        };
        let listed = ListMovesResponse {
            moves: moves.to_vec(),
            not_evacuated: Vec::new(),
        };
        render("n", &listed, &args, &devices(), 4600, terminal).unwrap()
    }

    #[test]
    fn below_the_moves_is_why_a_failing_drive_is_not_evacuated() {
        let listed = ListMovesResponse {
            moves: Vec::new(),
            not_evacuated: vec![NotEvacuated {
                drive: "wwn-0x5000c500a1b2c3d4".into(),
                reason: "no drive of the node may be a target".into(),
            }],
        };
        let list = |output| {
            let args = ListArgs {
                output,
                no_headers: false,
            };
            render("n", &listed, &args, &devices(), 4600, Terminal::NONE).unwrap()
        };
        assert_eq!(
            list(ListFormat::Table),
            "no volume is being moved\ndrive sda is not evacuated automatically: no drive of the node may be a target\n"
        );
        assert_eq!(list(ListFormat::Name), "");
        let json: serde_json::Value = serde_json::from_str(&list(ListFormat::Json)).unwrap();
        assert_eq!(json["not_evacuated"][0]["drive"], "wwn-0x5000c500a1b2c3d4");
    }

    #[test]
    fn moves_are_listed_with_how_far_they_are_and_what_they_wait_for() {
        assert_eq!(
            list(ListFormat::Table, &moves(), None),
            "\
VOLUME  PHASE    DONE  LEFT       RATE   SIZE  FROM  TO
db      copying   25%    5m  210 MiB/s  4 GiB  sda   nvme0n1
log     waiting    0%     -          -  4 GiB  sda   nvme0n1
    it is staged at /x\\u{1b}
web     moved    100%     -          -  4 GiB  sda   nvme0n1
    what is left of it on drive wwn-0x5000c500a1b2c3d4 is erased, in 2h at the earliest
    drive wwn-0x5000c500a1b2c3d4 could not be written and still says that the volume lives on it; the copy there is out of date: do not use it
"
        );
        let wide = list(ListFormat::Wide, &moves(), Some(40));
        assert!(
            wide.contains("wwn-0x5000c500a1b2c3d5  ann   1h  db@n\n"),
            "{wide}"
        );
        assert_eq!(list(ListFormat::Name, &moves(), None), "db\nlog\nweb\n");
        assert_eq!(
            list(ListFormat::Table, &[], None),
            "no volume is being moved\n"
        );
    }

    #[test]
    fn twenty_four_moves_of_claims_fit_80_columns() {
        let one = of("pvc-3f2c9d1e-5b0c-4a6e-9a57-0d5d8f0c8a11", "completing");
        let many = vec![one; 24];
        let text = list(ListFormat::Table, &many, Some(80));
        let wide = text.lines().map(|line| line.chars().count()).max();
        assert!(wide <= Some(80), "{wide:?}: {text}");
        // Not in the output, since no move has a rate now.
        assert!(
            !text.contains("RATE") && !text.contains("-o wide"),
            "{text}"
        );
        assert!(text.contains("sda   nvme0n1\n"), "{text}");
    }

    #[test]
    fn programs_get_bytes_and_null_for_what_is_not_known() {
        let text = list(ListFormat::Json, &moves(), None);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["node"], "n");
        let (copying, waiting) = (&json["moves"][0], &json["moves"][1]);
        assert_eq!(copying["volume"], "db@n");
        assert_eq!(copying["bytes_per_second"], 210 << 20);
        assert_eq!(copying["phase"], "copying");
        assert!(waiting["eta_seconds"].is_null() && waiting["bytes_per_second"].is_null());
    }
}
