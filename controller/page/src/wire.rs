//! Drives and volumes of the agents' protocol as the page shows them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use drivebay_common::smart_names;
use drivebay_proto::{
    agent::{
        self, DirectionLatency, DriveHistoryResponse, DriveLatencyResponse, UnreadableRange,
        VolumeCopy,
    },
    words::{DriveState, Peers, RangeContent},
};
use drivebay_view::{
    drives::is_unwanted,
    moment,
    wrong::{Health, Kind},
};

use crate::{
    findings,
    model::{
        Check, Condition, Direction, Drive, DriveDetail, DriveFacts, Erase, Latency, Move, Reading,
        Snapshot, Unreadable, Volume,
    },
};

/// A volume with its claim and PersistentVolume, which only the controller knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claimed {
    pub(crate) volume: agent::Volume,
    /// NAMESPACE/NAME of the claim or, without Kubernetes, of the claim or Nomad volume that it was created for; empty if there is none.
    pub(crate) claim: String,
    /// Name of the PersistentVolume; empty if there is none or it is not known.
    pub(crate) persistent_volume: String,
}

/// Most counters of a drive, and points of each, that are kept; agents send fewer.
const COUNTERS: usize = 32;
const POINTS: usize = 200;

/// Times and values of a drive's counters, oldest first, by the name of the counter's reading.
pub(crate) type Counters = BTreeMap<String, Vec<(u64, i64)>>;

/// Values that a drive's agent has besides its inventory, each without what it did not answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    pub(crate) latency: Option<Latency>,
    pub(crate) counters: Counters,
}

fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the drives of a node for the view of the fleet. `volumes`: all that the node has, also deleted ones.
pub(crate) fn drives(node: &str, drives: &[agent::Drive], volumes: &[Claimed]) -> Vec<Drive> {
    let existing = || volumes.iter().filter(|one| !one.volume.is_deleted());
    let abnormal = existing().map(|one| &one.volume);
    let abnormal: Vec<_> = abnormal
        .filter(|one| drivebay_view::volumes::is_abnormal(one))
        .collect();
    let mut health = Health::default();
    health.add(node, drives, &abnormal);
    let problems = health.problems.into_iter();
    let problems = problems.filter(|problem| problem.kind == Kind::Drive);
    let mut problems: BTreeMap<String, _> = problems.map(|one| (one.id.clone(), one)).collect();
    let mut on: BTreeMap<&str, Vec<&Claimed>> = BTreeMap::new();
    for one in existing() {
        on.entry(&one.volume.drive).or_default().push(one);
    }
    let shown = drives.iter().map(|drive| {
        let on_it = on.remove(drive.id.as_str()).unwrap_or_default();
        let claims = on_it.iter().map(|one| one.claim.as_str());
        let claims: BTreeSet<&str> = claims.filter(|claim| !claim.is_empty()).collect();
        let problem = problems.remove(&drive.id);
        let mut codes: Vec<String> = Vec::new();
        for reason in problem.iter().flat_map(|problem| &problem.reasons) {
            if !codes.contains(&reason.code) {
                codes.push(reason.code.clone());
            }
        }
        Drive {
            facts: facts(node, drive, problem.map(|one| one.severity.to_string())),
            findings: codes,
            volumes: on_it.len() as u64,
            claims: claims.into_iter().map(str::to_owned).collect(),
        }
    });
    shown.collect()
}

fn facts(node: &str, drive: &agent::Drive, severity: Option<String>) -> DriveFacts {
    let offers = drive.known_state().is_some_and(DriveState::offers_space);
    DriveFacts {
        node: node.to_owned(),
        id: drive.id.clone(),
        device: text(&drive.kernel_name),
        bay: text(&drive.bay()),
        model: text(&drive.model),
        serial: text(&drive.serial),
        media: text(&drive.media),
        bytes: drive.size_bytes,
        usable_bytes: offers.then_some(drive.usable_bytes),
        free_bytes: offers.then_some(drive.free_bytes),
        class: text(&drive.class),
        state: drive.state.clone(),
        verdict: match drive.verdict.as_str() {
            "" => "UNKNOWN".to_owned(),
            verdict => verdict.to_owned(),
        },
        acknowledged: drive.is_acknowledged(),
        severity,
        unwanted: is_unwanted(drive),
        cordoned: drive.cordon.is_some(),
    }
}

/// Returns a drive with all its data. `volumes`: those of its node; `is_host`: the reader is on the drive's node; `local`: drive and volumes
/// are from the local agent's own answer, so that they have usage and unreadable ranges.
pub(crate) fn detail(
    node: &str,
    drive: &agent::Drive,
    volumes: &[Claimed],
    layout: impl Fn(&str) -> Option<String>,
    measured: Measured,
    (is_host, local): (bool, bool),
) -> Option<DriveDetail> {
    let brief = drives(node, std::slice::from_ref(drive), volumes).pop()?;
    let empty = Default::default();
    let health = drive.health.as_ref().unwrap_or(&empty);
    let smart = health.smart.as_ref();
    let readings = smart.map_or(&[][..], |smart| &smart.readings);
    let read = |name: &str| {
        readings
            .iter()
            .find(|one| one.name == name)
            .map(|one| one.value)
    };
    let on_it = volumes.iter().filter(|one| one.volume.drive == drive.id);
    let on_it = on_it.filter(|one| !one.volume.is_deleted());
    let Measured {
        latency,
        mut counters,
    } = measured;
    let smart_values = readings
        .iter()
        .map(|one| reading(one, counters.remove(&one.name)));
    let is_by_id = drive.id.starts_with("wwn-0x")
        && drive
            .id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    Some(DriveDetail {
        findings: findings::of_drive(drive, is_host),
        commands: findings::commands(drive, node, is_host),
        notes: drive.notes.clone(),
        smart: smart_values.collect(),
        smart_answered_at: smart.and_then(|smart| moment(smart.answered_at)),
        smart_failure: smart.and_then(|smart| text(&smart.failure)),
        latency,
        unreadable: local.then(|| health.unreadable.iter().map(unreadable).collect()),
        unreadable_more: health.unreadable_more,
        volumes: on_it.map(|one| volume(node, one, &layout)).collect(),
        temperature_celsius: read("temperature-celsius"),
        power_on_hours: read("power-on-hours"),
        wear_percent: read("wear-percent"),
        firmware: text(&drive.firmware),
        wwn: text(&drive.wwn),
        transport: text(&drive.transport),
        path: is_by_id.then(|| format!("/dev/disk/by-id/{}", drive.id)),
        largest_free_bytes: brief.facts.free_bytes.map(|_| drive.largest_free_bytes),
        cordon: drive.cordon.as_ref().map(agent::Cordon::describe),
        verdict_since: smart.and_then(|smart| moment(smart.verdict_since)),
        facts: brief.facts,
        claims: brief.claims,
    })
}

fn reading(reading: &agent::Reading, history: Option<Vec<(u64, i64)>>) -> Reading {
    let (name, value) = (reading.name.as_str(), reading.value);
    let (label, text) = (smart_names::label(name), smart_names::value(name, value));
    Reading {
        name: reading.name.clone(),
        shown: format!("{label}: {text}"),
        value,
        history,
    }
}

fn unreadable(range: &UnreadableRange) -> Unreadable {
    let is_in_files = range.known_content() == Some(RangeContent::Files);
    let files = range.files.len() as u64 + u64::from(range.more_files);
    Unreadable {
        offset: range.start,
        bytes: range.len,
        volume: text(&range.volume),
        holds: range.holds.clone(),
        files: is_in_files.then_some(files),
    }
}

/// Returns the counters of a drive; a later counter of the same name is left out.
pub(crate) fn counters(answer: DriveHistoryResponse) -> Counters {
    let mut counters = Counters::new();
    for one in answer.counters.into_iter().take(COUNTERS) {
        let points = one.points.into_iter().take(POINTS).map(|point| {
            let value = i64::try_from(point.value).unwrap_or(i64::MAX);
            (point.at, value)
        });
        counters.entry(one.name).or_insert_with(|| points.collect());
    }
    counters
}

/// Returns the latencies of a drive; None before the first minute has passed.
pub(crate) fn latency(answer: &DriveLatencyResponse) -> Option<Latency> {
    let peers = answer.known_peers().filter(|peers| *peers != Peers::TooFew);
    Some(Latency {
        unit: "ms",
        buckets: Vec::new(),
        peers: Vec::new(),
        at: moment(answer.at)?,
        compared_with: peers.map(|peers| peers.to_string()),
        peer_drives: answer.peers,
        read: direction(answer.read.as_ref()),
        write: direction(answer.write.as_ref()),
    })
}

// JSON has no number for what is not finite.
fn finite(number: f64) -> Option<f64> {
    (number.is_finite() && number >= 0.0).then_some(number)
}

fn direction(of: Option<&DirectionLatency>) -> Direction {
    let Some(of) = of else {
        return Direction::default();
    };
    Direction {
        bytes_per_second: finite(of.bytes_per_second).unwrap_or(0.0),
        requests_per_second: finite(of.requests_per_second).unwrap_or(0.0),
        mean: of.latency_ms.and_then(finite),
        expected: of.expected_ms.and_then(finite),
        usual: of.usual_ms.and_then(finite),
        history: of.history_ms.iter().copied().map(finite).collect(),
        slow_since: of.slow.as_ref().and_then(|slow| moment(slow.since)),
    }
}

/// Returns a volume. `layout`: that of a class.
pub(crate) fn volume(node: &str, one: &Claimed, layout: impl Fn(&str) -> Option<String>) -> Volume {
    let volume = &one.volume;
    let conditions = volume.conditions.iter().map(|condition| Condition {
        reason: condition.reason.clone(),
        text: condition.message.clone(),
        status: text(&condition.status),
        since: moment(condition.since),
    });
    let snapshots = volume.snapshots.iter().map(|snapshot| Snapshot {
        id: snapshot.id.clone(),
        name: snapshot.name.clone(),
        created_at: moment(snapshot.created_at),
        state: snapshot.state.clone(),
        bytes: snapshot.size_bytes,
        reserve_bytes: snapshot.reserve_bytes,
        used_bytes: snapshot.used_bytes,
        text: text(&snapshot.message),
    });
    Volume {
        id: volume.id.clone(),
        name: volume.name.clone(),
        node: node.to_owned(),
        drive: text(&volume.drive),
        class: text(&volume.class),
        bytes: volume.size_bytes,
        used_bytes: volume.usage.as_ref().map(|usage| usage.used_bytes),
        claim: text(&one.claim),
        persistent_volume: text(&one.persistent_volume),
        layout: layout(&volume.class),
        filesystem: text(&volume.fs_type),
        mode: volume.mode.clone(),
        state: volume.state.clone(),
        in_use: volume.published,
        created_at: moment(volume.created_at),
        conditions: conditions.collect(),
        snapshots: snapshots.collect(),
    }
}

/// Returns a move as its agent describes it.
pub(crate) fn a_move(node: &str, one: agent::Move) -> Move {
    Move {
        node: node.to_owned(),
        volume: one.volume_id,
        name: one.name,
        from: one.from,
        to: one.to,
        done_bytes: one.done_bytes,
        total_bytes: one.total_bytes,
        bytes_per_second: moment(one.bytes_per_second),
        seconds_left: moment(one.eta_seconds),
        state: one.phase,
        text: text(&one.waits_for),
    }
}

/// Returns a copy as its agent describes it.
pub(crate) fn copy(node: &str, one: VolumeCopy, failed: bool) -> Move {
    Move {
        node: node.to_owned(),
        volume: one.volume_id,
        name: one.name,
        from: one.from,
        to: one.to,
        done_bytes: one.done_bytes,
        total_bytes: one.total_bytes,
        bytes_per_second: moment(one.bytes_per_second),
        seconds_left: moment(one.eta_seconds),
        state: if failed { "failed" } else { "copying" }.to_owned(),
        text: text(&one.waits_for),
    }
}

/// Returns a volume that is being erased or is quarantined; None for another one.
pub(crate) fn erase(node: &str, volume: &agent::Volume) -> Option<Erase> {
    volume.is_deleted().then(|| Erase {
        node: node.to_owned(),
        volume: volume.id.clone(),
        name: volume.name.clone(),
        drive: volume.drive.clone(),
        done_bytes: volume.erased_bytes,
        total_bytes: volume.size_bytes,
        seconds_left: moment(volume.erase_eta_seconds),
        state: volume.state.clone(),
    })
}

/// Outcome of a check that has not ended.
pub(crate) const RUNNING: &str = "running";

/// Returns the running and the last checks of a volume's filesystem.
pub(crate) fn checks<'a>(
    node: &'a str,
    volume: &'a agent::Volume,
) -> impl Iterator<Item = Check> + 'a {
    let of_volume = |at, outcome: &str, details: &str, method| Check {
        node: node.to_owned(),
        volume: volume.id.clone(),
        name: volume.name.clone(),
        at,
        outcome: outcome.to_owned(),
        text: details.to_owned(),
        method: text(method),
    };
    let running = volume.running_check.iter();
    let running =
        running.map(move |one| of_volume(one.since, RUNNING, "has not ended", &one.method));
    let ended = volume.checks.iter();
    running.chain(ended.map(move |one| of_volume(one.at, &one.outcome, &one.text, &one.method)))
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
