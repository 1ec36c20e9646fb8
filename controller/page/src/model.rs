//! Types of the API, as JSON; `README.md` lists them by path. None is null, sizes are bytes, times are Unix seconds.

use serde::Serialize;

/// A finding about a drive or a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub code: String,
    /// A word of `drivebay_view::wrong::Severity`, or NOTE for a finding that is no problem.
    pub severity: String,
    pub text: String,
    /// Remedy; None if the message has none apart from `text`.
    pub todo: Option<String>,
    pub since: Option<u64>,
    /// An operator has acknowledged it, and it is no worse since.
    pub acknowledged: bool,
}

/// A finding with commands that show details of it or repair it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remedy {
    #[serde(flatten)]
    pub finding: Finding,
    pub commands: Vec<String>,
}

/// A node and the state of its agent's connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub name: String,
    /// `connected`, `starting`, `away` or `forgotten`.
    pub state: String,
    /// Time of the disconnection; None while the agent is connected.
    pub away_since: Option<u64>,
    /// Seconds from `away_since` to the rendering of the answer.
    pub away_seconds: Option<u64>,
    pub version: Option<String>,
    pub findings: Vec<Finding>,
}

/// Facts of a drive, in the fleet and in the answer for one drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriveFacts {
    pub node: String,
    pub id: String,
    pub device: Option<String>,
    pub bay: Option<String>,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub media: Option<String>,
    pub bytes: u64,
    /// Space for volumes, allocated and free together; None unless the drive is claimed or available.
    pub usable_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    pub class: Option<String>,
    pub state: String,
    pub verdict: String,
    /// An operator has acknowledged all findings that determine the verdict.
    pub acknowledged: bool,
    /// Severity of the worst problem; None without a problem.
    pub severity: Option<String>,
    /// No class selects it, it has no problem and no data of Drivebay; for example a system drive.
    pub unwanted: bool,
    pub cordoned: bool,
}

/// A drive in the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    pub facts: DriveFacts,
    /// Codes without duplicates, those of the worst findings first.
    pub findings: Vec<String>,
    /// Number of volumes on it, without deleted ones.
    pub volumes: u64,
    /// Claims of its volumes, NAMESPACE/NAME, sorted and without duplicates.
    pub claims: Vec<String>,
}

/// A reading of SMART data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// Stable name with its unit, such as `temperature-celsius`.
    pub name: String,
    /// Text for people: `LABEL: VALUE`, the label as smartctl names the reading, the value with its unit.
    pub shown: String,
    pub value: i64,
    /// Times and values of the last week, oldest first; each value holds until the next. None: the agent keeps none of this reading, or did
    /// not answer.
    pub history: Option<Vec<(u64, i64)>>,
}

/// A bucket of a distribution: the number of requests that took at most `le` milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bucket {
    pub le: f64,
    pub count: u64,
}

/// Latencies of a drive's requests, by the minute.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    /// Unit of all latencies in this struct: always `ms`.
    pub unit: &'static str,
    /// Distribution of the drive's latencies; empty, since agents report means of minutes only.
    pub buckets: Vec<Bucket>,
    /// Distribution of the peers' latencies; empty for the same reason.
    pub peers: Vec<Bucket>,
    /// End of the last measured minute.
    pub at: u64,
    /// `model` or `media`: the peers are drives of the same model, or of the same media type. None: too few peers.
    pub compared_with: Option<String>,
    pub peer_drives: u32,
    pub read: Direction,
    pub write: Direction,
}

/// Latencies of reads or of writes, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Direction {
    pub bytes_per_second: f64,
    pub requests_per_second: f64,
    /// Mean of the last minute; None with too few requests.
    pub mean: Option<f64>,
    /// Mean that the peers would have under the load of the last minute.
    pub expected: Option<f64>,
    /// Median of the minutes in `history`.
    pub usual: Option<f64>,
    /// Means of the last minutes, oldest first; None for a minute with too few requests.
    pub history: Vec<Option<f64>>,
    /// Start of the current slowdown; None if the drive is not slow.
    pub slow_since: Option<u64>,
}

/// An unreadable range of a drive. `offset` is from the start of the drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unreadable {
    pub offset: u64,
    pub bytes: u64,
    /// Id of the volume at this range; None for a range outside of volumes.
    pub volume: Option<String>,
    /// Kind of the range's contents, a word of the agent's protocol.
    pub holds: String,
    /// Number of files with data in the range; None if the range is not in files.
    pub files: Option<u64>,
}

/// A condition of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Condition {
    pub reason: String,
    pub text: String,
    /// DEGRADED, INACCESSIBLE or DATA_LOSS; None for a normal condition.
    pub status: Option<String>,
    pub since: Option<u64>,
}

/// A snapshot of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    pub id: String,
    pub name: String,
    pub created_at: Option<u64>,
    pub state: String,
    pub bytes: u64,
    pub reserve_bytes: u64,
    pub used_bytes: Option<u64>,
    pub text: Option<String>,
}

/// A volume as its agent last reported it, with its claim. Deleted volumes are an [`Erase`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    pub id: String,
    pub name: String,
    pub node: String,
    pub drive: Option<String>,
    pub class: Option<String>,
    pub bytes: u64,
    /// Used bytes of its filesystem; None if it is not mounted, and in a cluster.
    pub used_bytes: Option<u64>,
    /// NAMESPACE/NAME; None without a claim, and for a claim that the reader may not list.
    pub claim: Option<String>,
    pub persistent_volume: Option<String>,
    pub layout: Option<String>,
    /// None for a raw volume.
    pub filesystem: Option<String>,
    pub mode: String,
    pub state: String,
    pub in_use: bool,
    pub created_at: Option<u64>,
    pub conditions: Vec<Condition>,
    pub snapshots: Vec<Snapshot>,
}

/// Volumes, sorted by id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Volumes {
    pub volumes: Vec<Volume>,
    /// The list is cut at its bound.
    pub more: bool,
}

/// A drive with all its data.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriveDetail {
    #[serde(flatten)]
    pub facts: DriveFacts,
    /// Claims of its volumes, as in [`Drive`].
    pub claims: Vec<String>,
    pub findings: Vec<Remedy>,
    /// Commands that apply to every drive.
    pub commands: Vec<String>,
    /// Reasons for which the drive is not used, and notes of the agent.
    pub notes: Vec<String>,
    pub smart: Vec<Reading>,
    pub smart_answered_at: Option<u64>,
    /// Error of the last poll; None if it succeeded.
    pub smart_failure: Option<String>,
    pub latency: Option<Latency>,
    /// None in a cluster, and if the local agent does not list the drive. Has no file names.
    pub unreadable: Option<Vec<Unreadable>>,
    /// More unreadable ranges were found than the agent keeps.
    pub unreadable_more: bool,
    pub volumes: Vec<Volume>,
    pub temperature_celsius: Option<i64>,
    pub power_on_hours: Option<i64>,
    pub wear_percent: Option<i64>,
    pub firmware: Option<String>,
    pub wwn: Option<String>,
    pub transport: Option<String>,
    /// Stable link below /dev/disk/by-id; None if udev makes none of this identity.
    pub path: Option<String>,
    pub largest_free_bytes: Option<u64>,
    pub cordon: Option<String>,
    pub verdict_since: Option<u64>,
}

/// A move of a volume to another drive of its node, or the making of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    pub node: String,
    /// Id of the volume.
    pub volume: String,
    pub name: String,
    pub from: String,
    pub to: String,
    pub done_bytes: u64,
    pub total_bytes: u64,
    pub bytes_per_second: Option<u64>,
    pub seconds_left: Option<u64>,
    pub state: String,
    /// Reason for waiting, or error of the last attempt.
    pub text: Option<String>,
}

/// A deleted volume whose space is being erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Erase {
    pub node: String,
    pub volume: String,
    pub name: String,
    pub drive: String,
    pub done_bytes: u64,
    pub total_bytes: u64,
    pub seconds_left: Option<u64>,
    /// `erasing`, or `quarantined`: the erasing begins after the quarantine.
    pub state: String,
}

/// A check of a volume's filesystem that runs, or one of the last that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    pub node: String,
    pub volume: String,
    pub name: String,
    /// Time at which it ended; of a running one, at which it began.
    pub at: u64,
    pub outcome: String,
    pub text: String,
    pub method: Option<String>,
}

/// Moves, copies and erases in progress, and the last checks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    pub moves: Vec<Move>,
    pub copies: Vec<Move>,
    pub erases: Vec<Erase>,
    pub checks: Vec<Check>,
    /// Nodes that did not answer a request for their moves and copies.
    pub silent: Vec<String>,
    /// A list is cut at its bound, or reading from a node failed.
    pub more: bool,
}

/// Kind of an [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A finding about a drive, or about a node's host.
    Finding,
    /// A condition of a drive.
    Condition,
    Verdict,
    Cordoned,
    Acknowledged,
    VolumeCreated,
    VolumeCondition,
    SnapshotCreated,
    /// A check of a volume's filesystem ended.
    Checked,
    /// A session of a node's agent began.
    Connected,
    /// A connection of a node's agent was not accepted.
    Refused,
    /// A session of a node's agent ended.
    Disconnected,
}

/// Something that happened in the last week.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    pub at: u64,
    pub node: String,
    /// Id of the drive, also that of a volume.
    pub drive: Option<String>,
    /// Id of the volume.
    pub volume: Option<String>,
    /// NAMESPACE/NAME; None without a claim, and for a claim that the reader may not list.
    pub claim: Option<String>,
    pub what: EventKind,
    pub text: String,
}

/// Events that are still known, newest first. A finding or condition that was cleared has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Events {
    pub events: Vec<Event>,
    /// The list is cut at its bound, or not all volumes were read.
    pub more: bool,
}
