//! The fault table: one row for each injected fault, with how and when it was reported, and the state after its repair. A test injects the
//! fault; its row is written however the test ends.

use std::{
    env,
    fs::OpenOptions,
    io::Write,
    time::{Duration, Instant},
};

use drivebay_proto::agent::{self as wire, InventoryUpdate};
use serde::{Deserialize, Serialize};

use crate::{Node, rig::Placed, wait};

/// Environment variable with the file to which rows are appended, one JSON object per line.
pub const TABLE: &str = "DRIVEBAY_FAULTS";
/// Longest time until a fault is reported, also on a busy or an emulated machine; the table has the actual time.
const REPORT_LIMIT: Duration = Duration::from_secs(180);

/// One row of the table.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Row {
    /// Description of the fault.
    pub fault: String,
    /// Method by which it was made, and on which device.
    pub made: String,
    /// True if the fault was reported.
    pub seen: bool,
    /// True if it was reported of the affected drive and volumes, and of no others.
    pub named: bool,
    /// The verdict of a drive; DEGRADED, INACCESSIBLE or DATA_LOSS of a volume.
    pub severity: String,
    /// The code of the finding or condition.
    pub reason: String,
    /// From the fault to the condition, seconds.
    pub after_s: f64,
    /// Seconds until the condition was cleared after the repair, or the reason why it was not.
    pub back: String,
}

/// Objects affected by a fault: drives by shelf or serial name, part of their identity or serial number; volumes by id.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// Drives that may be reported.
    pub drives: &'a [&'a str],
    /// Volumes that may be reported.
    pub volumes: &'a [&'a Placed],
}

/// A fault being injected. Writes its row on drop.
#[derive(Debug)]
pub struct Case {
    row: Row,
    struck: Instant,
}

impl Case {
    /// Creates the row of a fault, which is not reported yet: `fault` describes it, `made` the method and the device.
    pub fn new(fault: &str, made: &str) -> Self {
        Self {
            row: Row {
                fault: fault.to_owned(),
                made: made.to_owned(),
                back: "not tried".to_owned(),
                ..Row::default()
            },
            struck: Instant::now(),
        }
    }

    /// Marks the fault as injected: the time is measured from here.
    pub fn strikes(&mut self) {
        self.struck = Instant::now();
    }

    /// Waits until the volume has a condition with this reason; no other object may be reported.
    ///
    /// # Panics
    /// When that takes too long, or another object is reported.
    pub async fn of_volume(
        &mut self,
        node: &Node,
        volume: &Placed,
        reason: &str,
        about: About<'_>,
    ) -> wire::Volume {
        let what = format!("{}: {} has {reason}", self.row.fault, volume.id);
        let listed = wait::until_async(REPORT_LIMIT, &what, async || {
            let listed = node.volume_of(&volume.id).await?;
            let has = listed.conditions.iter().any(|one| one.reason == reason);
            has.then_some(listed)
        })
        .await;
        let severity = listed.conditions.iter().find(|one| one.reason == reason);
        let severity = severity.map(|one| one.status.clone()).unwrap_or_default();
        self.record(node, &severity, reason, about).await;
        listed
    }

    /// Waits until the drive has this verdict with this code; no other object may be reported.
    ///
    /// # Panics
    /// When that takes too long, or another object is reported.
    pub async fn of_drive(
        &mut self,
        node: &Node,
        drive: &str,
        verdict: &str,
        code: &str,
        about: About<'_>,
    ) -> wire::Drive {
        let what = format!("{}: {drive} is {verdict} for {code}", self.row.fault);
        let listed = wait::until_async(REPORT_LIMIT, &what, async || {
            let inventory = node.inventory().await;
            let listed = inventory.drives.into_iter().find(|of| is(of, drive))?;
            let has = listed.all_notes().iter().any(|note| note.contains(code));
            (has && (verdict.is_empty() || listed.verdict == verdict)).then_some(listed)
        })
        .await;
        self.record(node, &listed.verdict, code, about).await;
        listed
    }

    async fn record(&mut self, node: &Node, severity: &str, reason: &str, about: About<'_>) {
        self.row.seen = true;
        self.row.after_s = self.struck.elapsed().as_secs_f64();
        severity.clone_into(&mut self.row.severity);
        reason.clone_into(&mut self.row.reason);
        let others = strangers(&node.inventory().await, about);
        self.row.named = others.is_empty();
        assert!(
            self.row.named,
            "{}: also told of {others:?}",
            self.row.fault
        );
    }

    /// Must be called right after the repair: waits until these volumes have no condition.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn back(&mut self, node: &Node, volumes: &[&Placed]) {
        "NO".clone_into(&mut self.row.back);
        let mended = Instant::now();
        let what = format!("{}: well again after mending", self.row.fault);
        wait::until_async(REPORT_LIMIT, &what, async || {
            let inventory = node.inventory().await;
            let mut of = inventory.volumes.iter().filter(|of| {
                let mut ids = volumes.iter().map(|volume| volume.id.as_str());
                ids.any(|id| id == of.id)
            });
            of.all(|of| of.conditions.is_empty()).then_some(())
        })
        .await;
        self.row.back = format!("yes, {:.1} s", mended.elapsed().as_secs_f64());
    }

    /// Records that it was repaired and stays reported, with the reason.
    pub fn stays(&mut self, why: &str) {
        why.clone_into(&mut self.row.back);
    }

    /// Asserts that nothing is reported, as expected.
    ///
    /// # Panics
    /// When something is reported.
    pub async fn is_quiet(&mut self, node: &Node, why: &str) {
        let about = About {
            drives: &[],
            volumes: &[],
        };
        let others = strangers(&node.inventory().await, about);
        assert!(others.is_empty(), "{}: told of {others:?}", self.row.fault);
        self.row.seen = true;
        self.row.named = true;
        "none".clone_into(&mut self.row.severity);
        why.clone_into(&mut self.row.reason);
        if self.row.back == "not tried" {
            "-".clone_into(&mut self.row.back);
        }
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        println!("fault: {}", render(std::slice::from_ref(&self.row)));
        let Some(file) = env::var_os(TABLE) else {
            return;
        };
        let line = serde_json::to_string(&self.row).unwrap_or_default();
        let written = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&file)
            .and_then(|mut file| writeln!(file, "{line}"));
        if let Err(error) = written {
            println!("fault: the table {} takes no row: {error}", file.display());
        }
    }
}

/// True if a name (of a shelf's file, a serial number, or an identity) is this drive's. No class selects one that another shelf left, whose
/// files have the same names.
fn is(drive: &wire::Drive, name: &str) -> bool {
    let is_left = || {
        let mut codes = drive.rejects.iter().map(|one| one.code.as_str());
        codes.any(|code| code == "NotSelected")
    };
    let is_file = || drive.id.starts_with(&format!("loop-{name}.img-")) && !is_left();
    drive.serial == name || drive.id == name || is_file()
}

/// Returns the objects that are reported and not affected by the fault.
fn strangers(inventory: &InventoryUpdate, about: About<'_>) -> Vec<String> {
    let ill = |drive: &&wire::Drive| matches!(drive.verdict.as_str(), "SUSPECT" | "BAD");
    let drives = inventory.drives.iter().filter(ill);
    let drives = drives.filter(|drive| !about.drives.iter().any(|name| is(drive, name)));
    let abnormal = inventory
        .volumes
        .iter()
        .filter(|of| !of.conditions.is_empty());
    let volumes = abnormal.filter(|of| !about.volumes.iter().any(|volume| volume.id == of.id));
    drives
        .map(|drive| format!("{} {}", drive.id, drive.verdict))
        .chain(volumes.map(|of| format!("{} {:?}", of.id, of.conditions)))
        .collect()
}

/// Returns the table, aligned.
pub fn render(rows: &[Row]) -> String {
    let yes = |is: bool| if is { "yes" } else { "NO" }.to_owned();
    let head = [
        "FAULT", "MADE BY", "SEEN", "NAMED", "SEVERITY", "REASON", "AFTER", "BACK",
    ];
    let mut lines = vec![head.map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        let after = format!("{:.1} s", row.after_s);
        [
            row.fault.clone(),
            row.made.clone(),
            yes(row.seen),
            yes(row.named),
            row.severity.clone(),
            row.reason.clone(),
            if row.seen { after } else { "-".to_owned() },
            row.back.clone(),
        ]
    }));
    let skip = usize::from(rows.len() == 1);
    let text = aligned(&lines);
    text.lines().skip(skip).collect::<Vec<_>>().join("\n")
}

/// Returns lines of cells, each column as wide as its widest cell.
pub fn aligned<L: AsRef<[String]>>(lines: &[L]) -> String {
    let mut widths = Vec::new();
    for line in lines {
        for (at, cell) in line.as_ref().iter().enumerate() {
            widths.resize(widths.len().max(at + 1), 0);
            widths[at] = cell.chars().count().max(widths[at]);
        }
    }
    let lines = lines.iter().map(|line| {
        let cells = line.as_ref().iter().zip(&widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A row of a table of cases, with its deviations.
pub trait Outcome: std::fmt::Debug {
    /// Titles of the columns.
    const HEAD: &'static [&'static str];
    /// Returns the cells of all columns but the last, which has the deviations.
    fn cells(&self) -> Vec<String>;
    /// Returns the deviations; empty if there is none.
    fn wrong(&self) -> &[String];
}

/// Rows of cases, printed as a table. No row may have deviations.
#[derive(Debug)]
pub struct Outcomes<O>(pub Vec<O>);

impl<O: Outcome> Outcomes<O> {
    /// Prints the table to standard output.
    #[must_use]
    pub fn print(self) -> Self {
        let head = O::HEAD.iter().chain(&["WRONG"]);
        let mut lines: Vec<Vec<String>> = vec![head.map(|&cell| cell.to_owned()).collect()];
        lines.extend(self.0.iter().map(|row| {
            let mut cells = row.cells();
            cells.push(row.wrong().join("; "));
            cells
        }));
        let table = aligned(&lines) + "\n";
        let _ = std::io::stdout().write_all(table.as_bytes());
        self
    }

    /// # Panics
    /// A row is wrong.
    pub fn assert(self) {
        let wrong: Vec<&O> = self
            .0
            .iter()
            .filter(|row| !row.wrong().is_empty())
            .collect();
        assert!(
            wrong.is_empty(),
            "{} of {} rows are wrong: {wrong:#?}",
            wrong.len(),
            self.0.len()
        );
    }
}
