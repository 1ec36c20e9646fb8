//! Problems of drives and volumes, worst first, with remedies: `health` of both command lines. Pure.

use std::collections::{BTreeMap, BTreeSet};

use drivebay_common::state_trouble::Trouble;
use drivebay_proto::{
    agent::{Condition, Drive, DriveHealth, Finding, Reject, Volume},
    condition,
    words::{DriveState, PollState, Status, Verdict},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    moment,
    show::claim,
    table::{human_seconds, printable},
    tally::Tally,
    terminal::Terminal,
};

/// Largest number of volumes of a drive that are named in a table.
const NAMED: usize = 5;

drivebay_proto::words! {
    /// Severity of a problem, the worst first.
    Severity {
        /// Data of a volume is lost or damaged.
        DataLoss = "DATA_LOSS",
        /// A volume cannot be used.
        Inaccessible = "INACCESSIBLE",
        /// A node's agent is disconnected.
        Away = "AWAY",
        /// A drive is missing.
        Missing = "MISSING",
        /// A drive does not answer.
        NoAnswer = "NO_ANSWER",
        /// A drive's label cannot be read.
        Damaged = "DAMAGED",
        /// A drive's verdict is BAD, and is not acknowledged.
        Bad = "BAD",
        /// A volume can be used, with less than it should have.
        Degraded = "DEGRADED",
        /// A drive's verdict is SUSPECT, and is not acknowledged.
        Suspect = "SUSPECT",
        /// A condition that may become worse.
        Warning = "WARNING",
        /// Not everything is known yet.
        Starting = "STARTING",
    }

    /// With what something is wrong.
    Kind {
        /// The controller, with its own state files.
        Controller = "controller",
        /// A drive, or the volumes that suffer from it.
        Drive = "drive",
        /// A node or its agent: disconnected, still scanning, or with problems of its own.
        Node = "node",
        /// A volume, with problems that are not only those of its drive.
        Volume = "volume",
    }
}

/// One thing that is wrong: with a node, or with a drive and the volumes that suffer from it, or with a volume alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Problem {
    /// `DATA_LOSS`, `INACCESSIBLE`, `AWAY`, `MISSING`, `NO_ANSWER`, `DAMAGED`, `BAD`, `DEGRADED`, `SUSPECT`, `WARNING` or
    /// `STARTING`.
    #[schemars(with = "String")]
    pub severity: Severity,
    /// `controller`, `node`, `drive` or `volume`.
    #[schemars(with = "String")]
    pub kind: Kind,
    /// The node; empty for the controller.
    pub node: String,
    /// Identity, or volume id; the node again for a node, `controller` for the controller.
    pub id: String,
    /// A drive's kernel name and model, a volume's CSI name.
    pub name: String,
    /// A volume's claim, or its name in Nomad, as NAMESPACE/NAME; left out where there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// Why, and what to do.
    pub reasons: Vec<Reason>,
    /// CSI names of the volumes that only suffer from their drive.
    pub volumes: Vec<String>,
}

/// Why something is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Reason {
    /// Stable code; empty when there is none.
    pub code: String,
    /// What it is and what to do.
    pub message: String,
    /// Seconds since 1970; null when not known.
    pub since: Option<u64>,
}

impl From<&Finding> for Reason {
    fn from(finding: &Finding) -> Self {
        Self {
            code: finding.code.clone(),
            message: finding.message.clone(),
            since: moment(finding.since),
        }
    }
}

impl From<&Condition> for Reason {
    fn from(condition: &Condition) -> Self {
        Self {
            code: condition.reason.clone(),
            message: condition.message.clone(),
            since: moment(condition.since),
        }
    }
}

/// Everything that was found, of one node or of many.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Health {
    /// Nothing is wrong, and every drive was polled.
    pub well: bool,
    /// Worst first once it is done.
    pub problems: Vec<Problem>,
    /// Worth knowing, and nothing wrong.
    pub notes: Vec<String>,
    /// Drives that volumes are on or could be.
    pub drives: u64,
    /// Those of them that have not been polled since their agent started: their verdicts are from before that, or UNKNOWN.
    pub not_polled: u64,
    /// Volumes that exist.
    pub volumes: u64,
    #[serde(skip)]
    tally: Tally,
}

impl Health {
    /// Adds one node: its drives, and its volumes with abnormal conditions.
    pub fn add(&mut self, node: &str, drives: &[Drive], abnormal: &[&Volume]) {
        let holding: BTreeSet<&str> = abnormal
            .iter()
            .map(|volume| volume.drive.as_str())
            .collect();
        let mut suffering: BTreeMap<&str, Vec<&Volume>> = BTreeMap::new();
        let ids: BTreeSet<&str> = drives.iter().map(|drive| drive.id.as_str()).collect();
        for volume in abnormal {
            let mut reasons = bad(volume);
            let drives_fault = reasons.all(|condition| {
                condition::Reason::parse(&condition.reason)
                    .is_some_and(condition::Reason::is_of_drive)
            });
            if drives_fault && ids.contains(volume.drive.as_str()) {
                suffering.entry(&volume.drive).or_default().push(volume);
            } else {
                self.problems.push(of_volume(node, volume));
            }
        }
        for drive in drives {
            let ours = drive.known_state() != Some(DriveState::Rejected)
                || holding.contains(drive.id.as_str())
                || damage(drive).next().is_some();
            if !ours {
                continue;
            }
            self.add_drive(drive);
            let on_it = suffering.remove(drive.id.as_str()).unwrap_or_default();
            self.problems.extend(of_drive(node, drive, &on_it));
            self.notes.extend(notes(drive));
        }
    }

    /// Adds a drive to the sums alone.
    pub fn add_drive(&mut self, drive: &Drive) {
        self.drives += 1;
        self.tally.add(drive);
        self.not_polled += u64::from(is_not_polled(drive));
    }

    /// Adds the findings of a node's agent about its host: those about its state files are problems, the others notes. `named`: notes name
    /// the node, for output of several nodes.
    pub fn add_host(&mut self, node: &str, findings: &[Finding], named: bool) {
        let (wrong, notes): (Vec<_>, Vec<_>) = findings
            .iter()
            .partition(|finding| Trouble::is_code(&finding.code));
        self.notes.extend(notes.into_iter().map(|one| match named {
            true => format!("node {node}: {}: {}", one.code, one.message),
            false => format!("{}: {}", one.code, one.message),
        }));
        self.add_state(Kind::Node, node, node, wrong);
    }

    /// Adds the findings of the controller about its own state files.
    pub fn add_controller(&mut self, findings: &[Finding]) {
        self.add_state(
            Kind::Controller,
            "",
            "controller",
            findings.iter().collect(),
        );
    }

    fn add_state(&mut self, kind: Kind, node: &str, id: &str, wrong: Vec<&Finding>) {
        if wrong.is_empty() {
            return;
        }
        self.problems.push(Problem {
            severity: Severity::Warning,
            kind,
            node: node.to_owned(),
            id: id.to_owned(),
            name: String::new(),
            claim: String::new(),
            reasons: wrong.into_iter().map(Reason::from).collect(),
            volumes: Vec::new(),
        });
    }

    /// Sorts problems worst first, and sets `well`.
    pub fn done(mut self) -> Self {
        self.problems.sort_by(|a, b| {
            let key = |one: &Problem| (one.severity, one.node.clone(), one.kind, one.id.clone());
            key(a).cmp(&key(b))
        });
        self.well = self.problems.is_empty() && self.not_polled == 0;
        self
    }

    /// True if nothing is wrong except that drives were not polled yet.
    pub fn awaits_polls(&self) -> bool {
        self.problems.is_empty() && self.not_polled > 0
    }

    /// Returns the result as text. `of`: the subject of the first line. `nodes`: problems name their node. `now`: seconds since 1970.
    pub fn text(&self, of: &str, nodes: bool, wide: bool, now: u64, terminal: Terminal) -> String {
        let count = drivebay_common::units::count::<u64>;
        let drives = count(self.drives, "drive");
        let not_polled = format!(
            "{} of {drives} not polled since the agent started; ask again in a minute",
            self.not_polled
        );
        let mut text = if self.awaits_polls() {
            format!(
                "{}: nothing is known to be wrong; {not_polled}\n",
                printable(of)
            )
        } else if self.well {
            format!(
                "{} is well: {} and {}, nothing is wrong\n",
                printable(of),
                drives,
                count(self.volumes, "volume")
            )
        } else {
            let wrong = match self.problems.len() {
                1 => "1 thing is wrong".to_owned(),
                many => format!("{many} things are wrong"),
            };
            format!("{}: {wrong}\n\n", printable(of))
        };
        for problem in &self.problems {
            problem.write(&mut text, nodes, wide, now, terminal);
        }
        if !self.problems.is_empty() && self.drives > 0 {
            text.push_str(&format!("\n{}", self.tally.text(terminal)));
        }
        if self.not_polled > 0 && !self.problems.is_empty() {
            text.push_str(&format!("\n{not_polled}\n"));
        }
        if !self.notes.is_empty() {
            text.push_str("\nNotes:\n");
        }
        for note in &self.notes {
            text.push_str(&terminal.hanging("    ", "      ", &printable(note)));
        }
        text
    }
}

impl Problem {
    fn write(&self, text: &mut String, nodes: bool, wide: bool, now: u64, terminal: Terminal) {
        let node = if nodes && matches!(self.kind, Kind::Drive | Kind::Volume) {
            format!("{}: ", self.node)
        } else {
            String::new()
        };
        let what = match (self.kind, wide) {
            (Kind::Node, _) => format!("node {}", self.id),
            (Kind::Controller, _) => "the controller".to_owned(),
            (Kind::Volume, false) if self.claim.is_empty() => {
                format!("{node}volume {}", self.name)
            }
            (Kind::Volume, false) => format!("{node}volume {} ({})", self.name, self.claim),
            _ if self.name.is_empty() => format!("{node}{} {}", self.kind, self.id),
            _ => format!("{node}{} {} ({})", self.kind, self.id, self.name),
        };
        let severity = self.severity.as_str();
        let line = terminal.hanging(&format!("{severity}  "), "    ", &printable(&what));
        text.push_str(&line.replacen(severity, &terminal.paint.word(severity), 1));
        let mut line = |indent: &str, content: &str| {
            text.push_str(&terminal.hanging(indent, "      ", content));
        };
        for reason in &self.reasons {
            line("    ", &printable(&reason.one_line(now)));
        }
        let named = if wide { self.volumes.len() } else { NAMED };
        if !self.volumes.is_empty() {
            let names: Vec<&str> = self
                .volumes
                .iter()
                .take(named)
                .map(String::as_str)
                .collect();
            let more = match self.volumes.len().saturating_sub(named) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            line(
                "    ",
                &printable(&format!("volumes on it: {}{more}", names.join(", "))),
            );
        }
    }
}

impl Reason {
    /// Returns the reason in one line, with its duration.
    pub fn one_line(&self, now: u64) -> String {
        let since = match self.since {
            None => String::new(),
            Some(since) => format!(" (for {})", human_seconds(now.saturating_sub(since))),
        };
        match self.code.as_str() {
            "" => format!("{}{since}", self.message),
            code => format!("{code}{since}: {}", self.message),
        }
    }
}

fn bad(volume: &Volume) -> impl Iterator<Item = &Condition> {
    volume
        .conditions
        .iter()
        .filter(|condition| condition.abnormal)
}

fn worst(volume: &Volume) -> Severity {
    match super::volumes::worst(volume) {
        Some(Status::DataLoss) => Severity::DataLoss,
        Some(Status::Inaccessible) => Severity::Inaccessible,
        Some(Status::Degraded) | None => Severity::Degraded,
    }
}

fn of_volume(node: &str, volume: &Volume) -> Problem {
    Problem {
        severity: worst(volume),
        kind: Kind::Volume,
        node: node.to_owned(),
        id: volume.id.clone(),
        name: volume.name.clone(),
        claim: claim(volume),
        reasons: bad(volume).map(Reason::from).collect(),
        volumes: Vec::new(),
    }
}

/// True if the drive is monitored and was not polled since its agent started.
pub fn is_not_polled(drive: &Drive) -> bool {
    let poll = drive.health.as_ref().and_then(DriveHealth::known_poll);
    matches!(poll, Some(PollState::LastKnown | PollState::Awaited))
}

/// Returns the rejects for which volumes of a claimed drive that is present cannot be read.
fn damage(drive: &Drive) -> impl Iterator<Item = &Reject> {
    let rejects = drive.rejects.iter();
    rejects.filter(|reject| matches!(reject.code.as_str(), "OursDamaged" | "SectorSizeChanged"))
}

/// Returns the identities of the drives that `health` reports.
pub fn wrong_drives(drives: &[Drive], abnormal: &[&Volume]) -> BTreeSet<String> {
    let mut health = Health::default();
    health.add("", drives, abnormal);
    let problems = health.problems.into_iter();
    let of_drives = problems.filter(|problem| problem.kind == Kind::Drive);
    of_drives.map(|problem| problem.id).collect()
}

/// Returns everything with a code that keeps the drive from being used, or that users should know.
pub fn reasons(drive: &Drive) -> Vec<Reason> {
    let (_, mut reasons) = own_trouble(drive);
    let reason_of = |code: &str, message: String| Reason {
        code: code.to_owned(),
        message,
        since: None,
    };
    let damaged: Vec<&Reject> = damage(drive).collect();
    let rejects = drive.rejects.iter();
    let others = rejects.filter(|reject| !damaged.contains(reject));
    reasons.extend(others.map(|reject| reason_of(&reject.code, reject.detail.clone())));
    let is_blank = drive.known_state() == Some(DriveState::Available);
    if is_blank && drive.cordon.is_none() && !drive.takes_new_volumes() {
        let verdict = drive.shown_verdict();
        let why = format!("the drive is blank and {verdict}: it gets no volumes");
        reasons.push(reason_of("NoNewVolumes", why));
    }
    reasons.extend(
        drive
            .cordon
            .iter()
            .map(|it| reason_of("Cordoned", it.describe())),
    );
    let health = drive.health.iter();
    let given = health.filter_map(|health| health.acknowledged.as_ref());
    let given = given.filter(|_| drive.is_acknowledged());
    reasons.extend(given.map(|it| reason_of("Acknowledged", it.describe())));
    reasons
}

/// Returns the severity of the drive's own problems, and their reasons; without those that its volumes report.
fn own_trouble(drive: &Drive) -> (Option<Severity>, Vec<Reason>) {
    let empty = DriveHealth::default();
    let health = drive.health.as_ref().unwrap_or(&empty);
    let mut reasons: Vec<Reason> = Vec::new();
    let reason_of = |code: &str, message: &str| Reason {
        code: code.to_owned(),
        message: message.to_owned(),
        since: None,
    };
    let mut severity: Option<Severity> = None;
    let mut is = |one| severity = worse(one, severity);
    if drive.known_state() == Some(DriveState::Missing) {
        is(Severity::Missing);
        reasons.push(reason_of(
            "DriveMissing",
            "it is not found on this node; plug it in again. If it is gone for good, so are the volumes on it: delete them",
        ));
    } else if !drive.trouble.is_empty() {
        is(Severity::NoAnswer);
        reasons.push(reason_of(
            "DriveStuck",
            &format!(
                "it does not answer: {}; see the kernel log, check cable, slot and power",
                drive.trouble
            ),
        ));
    }
    for reject in damage(drive) {
        is(match reject.code.as_str() {
            "OursDamaged" => Severity::Damaged,
            _ => Severity::Inaccessible,
        });
        reasons.push(reason_of(&reject.code, &reject.detail));
    }
    let verdict = drive.known_verdict().filter(|_| !drive.is_acknowledged());
    let verdict = match verdict {
        Some(Verdict::Bad) => Some(Severity::Bad),
        Some(Verdict::Suspect) => Some(Severity::Suspect),
        Some(Verdict::Good | Verdict::Unknown) | None => None,
    };
    if let Some(verdict) = verdict {
        is(verdict);
        reasons.extend(health.counting().map(Reason::from));
    }
    for condition in &health.conditions {
        if !is_note(condition, health) {
            is(Severity::Warning);
            reasons.push(condition.into());
        }
    }
    (severity, reasons)
}

fn worse(one: Severity, than: Option<Severity>) -> Option<Severity> {
    Some(than.map_or(one, |it| it.min(one)))
}

/// Returns the problem of a drive: its own, or at least that of volumes that it affects. None if there is none.
fn of_drive(node: &str, drive: &Drive, suffering: &[&Volume]) -> Option<Problem> {
    let (mut severity, mut reasons) = own_trouble(drive);
    if reasons.is_empty() {
        // Reported by its volumes only, e.g. by an older agent.
        let by_reason: BTreeMap<&str, Reason> = suffering
            .iter()
            .flat_map(|volume| bad(volume))
            .map(|condition| (condition.reason.as_str(), condition.into()))
            .collect();
        reasons.extend(by_reason.into_values());
    }
    // The drive's own reasons are more specific than those of its volumes, unless these are more severe.
    let away = matches!(
        severity,
        Some(Severity::Missing | Severity::NoAnswer | Severity::Damaged)
    );
    for volume in suffering {
        match worst(volume) {
            Severity::Degraded => severity = severity.or(Some(Severity::Degraded)),
            one if !away => severity = worse(one, severity),
            _ => {}
        }
    }
    let device = Some(drive.kernel_name.clone()).filter(|name| !name.is_empty());
    let name: Vec<String> = device.into_iter().chain(drive.known_by()).collect();
    Some(Problem {
        severity: severity?,
        kind: Kind::Drive,
        node: node.to_owned(),
        id: drive.id.clone(),
        name: name.join(", "),
        claim: String::new(),
        reasons,
        volumes: suffering.iter().map(|volume| volume.name.clone()).collect(),
    })
}

/// True for a condition that is no problem: endurance used but not exceeded, and implausible values.
fn is_note(condition: &Finding, health: &DriveHealth) -> bool {
    match condition.code.as_str() {
        "Wear" => !health.worn_out,
        code => code == "ImplausibleValues",
    }
}

fn notes(drive: &Drive) -> Vec<String> {
    let Some(health) = &drive.health else {
        return Vec::new();
    };
    let worth = health.conditions.iter().filter(|one| is_note(one, health));
    let worth = worth.map(|one| format!("drive {}: {}", drive.id, one.message));
    let overridden = health.overridden.iter().map(|given| {
        format!(
            "drive {} is {}: {}",
            drive.id,
            drive.verdict,
            given.describe()
        )
    });
    let acknowledged = health
        .acknowledged
        .iter()
        .filter(|_| drive.is_acknowledged());
    let acknowledged = acknowledged.map(|given| {
        let codes = health.findings.iter().map(|one| one.code.as_str());
        format!(
            "drive {} is {} by {}: {}",
            drive.id,
            drive.shown_verdict(),
            given.by,
            codes.collect::<Vec<_>>().join(", ")
        )
    });
    worth.chain(overridden).chain(acknowledged).collect()
}

#[cfg(test)]
#[path = "wrong_tests.rs"]
mod tests;
