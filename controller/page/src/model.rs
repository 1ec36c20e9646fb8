//! The data of the page, as JSON. Names are those of the API in `README.md`; absent values are null. Sizes are bytes, moments Unix seconds.

use serde::Serialize;

/// Something that a person should know of a drive or a node, with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub code: String,
    /// A word of `drivebay_view::wrong::Severity`, or NOTE for what is not wrong.
    pub severity: String,
    pub text: String,
    /// The part of the message that says what to do; None where the message does not set it off.
    pub todo: Option<String>,
    pub since: Option<u64>,
    /// An operator has seen it, and it is no worse since.
    pub acknowledged: bool,
}

/// A finding with commands that show or repair it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remedy {
    #[serde(flatten)]
    pub finding: Finding,
    pub commands: Vec<String>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub name: String,
    /// `connected`, `starting`, `away` or `forgotten`.
    pub state: String,
    /// Since when the agent is disconnected; None while it is connected.
    pub away_since: Option<u64>,
    /// The same as a duration, at the moment of the answer.
    pub away_seconds: Option<u64>,
    pub version: Option<String>,
    pub findings: Vec<Finding>,
}

/// Facts of a drive in the view of the fleet and in its own.
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
    /// Space of all volumes together, used and free; None unless the drive is claimed or available.
    pub usable_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    pub class: Option<String>,
    pub state: String,
    pub verdict: String,
    /// An operator has acknowledged what the verdict rests on.
    pub acknowledged: bool,
    /// Worst of its findings; None if there is nothing wrong.
    pub severity: Option<String>,
    /// No class selects it, nothing is wrong with it and nothing of Drivebay is on it, as of a system drive.
    pub unwanted: bool,
    pub cordoned: bool,
}

/// A drive in the view of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    pub facts: DriveFacts,
    /// Codes, each once.
    pub findings: Vec<String>,
    /// How many volumes exist on it.
    pub volumes: u64,
    /// Claims of its volumes, NAMESPACE/NAME, in order, each once.
    pub claims: Vec<String>,
}

/// A reading of SMART data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// Stable name.
    pub name: String,
    /// The name that smartctl uses, and the value with its unit, for people.
    pub shown: String,
    pub value: i64,
    pub unit: Option<&'static str>,
    /// Earlier values; None: they are not kept where this is answered from.
    pub history: Option<Vec<(u64, i64)>>,
}

/// Upper bound in milliseconds, and how many requests were at most that slow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bucket {
    pub le: f64,
    pub count: u64,
}

/// How long a drive's requests take, minute by minute.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    /// Always `ms`.
    pub unit: &'static str,
    /// Distributions; empty: agents report means of minutes only.
    pub buckets: Vec<Bucket>,
    pub peers: Vec<Bucket>,
    /// End of the last minute.
    pub at: u64,
    /// `model` or `media`: which other drives the expectation is of. None: too few.
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
    /// Mean of the last minute; None: too few requests.
    pub mean: Option<f64>,
    /// Mean that the load of the last minute would have on the other drives.
    pub expected: Option<f64>,
    /// Median of the minutes in `history`.
    pub usual: Option<f64>,
    /// Mean of each of the last minutes, the latest last.
    pub history: Vec<Option<f64>>,
    /// Since when the drive is slow.
    pub slow_since: Option<u64>,
}

/// A range of a drive that cannot be read. `offset` counts from the start of the drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unreadable {
    pub offset: u64,
    pub bytes: u64,
    /// Id of the volume that it is in.
    pub volume: Option<String>,
    /// Kind of contents, a word of the agent's protocol.
    pub holds: String,
    /// How many files have a part in it; None: not known here, or it is not in files.
    pub files: Option<u64>,
}

/// A condition of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Condition {
    pub reason: String,
    pub text: String,
    /// DEGRADED, INACCESSIBLE or DATA_LOSS; None: nothing is wrong.
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

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    pub id: String,
    pub name: String,
    pub node: String,
    pub drive: Option<String>,
    pub class: Option<String>,
    pub bytes: u64,
    /// Bytes in use of its filesystem; None: not mounted, or not known here.
    pub used_bytes: Option<u64>,
    /// NAMESPACE/NAME; None: none, or of a namespace whose claims the reader may not list.
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

/// Volumes in order of their ids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Volumes {
    pub volumes: Vec<Volume>,
    /// There are more than are shown.
    pub more: bool,
}

/// A drive with all that is known of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriveDetail {
    #[serde(flatten)]
    pub facts: DriveFacts,
    /// Claims of its volumes, as in [`Drive`].
    pub claims: Vec<String>,
    pub findings: Vec<Remedy>,
    /// Commands that fit any drive.
    pub commands: Vec<String>,
    /// Reasons why it may not be used, and notes, one per line.
    pub notes: Vec<String>,
    pub smart: Vec<Reading>,
    pub smart_answered_at: Option<u64>,
    /// Why the last poll failed.
    pub smart_failure: Option<String>,
    pub latency: Option<Latency>,
    /// None: not known here. File names are never part of it.
    pub unreadable: Option<Vec<Unreadable>>,
    /// More unreadable ranges exist than are kept.
    pub unreadable_more: bool,
    pub volumes: Vec<Volume>,
    pub temperature_celsius: Option<i64>,
    pub power_on_hours: Option<i64>,
    pub wear_percent: Option<i64>,
    pub firmware: Option<String>,
    pub wwn: Option<String>,
    pub transport: Option<String>,
    /// Stable link below /dev/disk; None where the identity is no name of udev's.
    pub path: Option<String>,
    pub largest_free_bytes: Option<u64>,
    pub cordon: Option<String>,
    pub verdict_since: Option<u64>,
}

/// A volume that moves to another drive of its node, or a copy that is being made.
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
    /// Reason for which it waits, or for which the last attempt failed.
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
    /// erasing or quarantined.
    pub state: String,
}

/// The last completed check of a volume's filesystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    pub node: String,
    pub volume: String,
    pub name: String,
    pub at: u64,
    pub outcome: String,
    pub text: String,
    pub method: Option<String>,
}

/// Moves, copies and erases that go on, and the last checks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    pub moves: Vec<Move>,
    pub copies: Vec<Move>,
    pub erases: Vec<Erase>,
    pub checks: Vec<Check>,
    /// Nodes whose moves and copies could not be asked for.
    pub silent: Vec<String>,
    /// There is more than is shown.
    pub more: bool,
}
