//! The resource `drives.drivebay.io`: types, schema, columns, and names of its objects.
//!
//! An object has a status and nothing else: it is a view of the inventory, and no part of Drivebay reads it to decide anything about a
//! drive.
#![allow(
    clippy::duplicated_attributes,
    reason = "each column has the same kinds of attributes"
)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt};
use ring::digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Field manager of every write of the controllers.
pub const MANAGER: &str = "drivebay-controller";
/// Bytes of the digest in a name.
const NAME_DIGEST: usize = 8;
/// Longest readable part of a name that has a digest, bytes.
const MAX_READABLE: usize = 180;
/// Kinds of identity that are unique in the world and become names as they are.
const UNIQUE: [&str; 3] = ["wwn-", "eui-", "nguid-"];

/// No spec: an object is a view, and has no desired state.
#[derive(
    CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "drivebay.io",
    version = "v1alpha1",
    kind = "Drive",
    plural = "drives",
    status = "DriveStatus",
    no_spec,
    derive = "PartialEq",
    category = "drivebay",
    selectable = ".status.node",
    selectable = ".status.health",
    selectable = ".status.class",
    doc = "A drive as the agent of its node reports it. Written by Drivebay's controller; changes made here have no effect on the drive, and a deleted object returns.",
    printcolumn(name = "Node", type_ = "string", json_path = ".status.node"),
    printcolumn(name = "Bay", type_ = "string", json_path = ".status.bay"),
    printcolumn(name = "Model", type_ = "string", json_path = ".status.model"),
    printcolumn(name = "Size", type_ = "string", json_path = ".status.size"),
    printcolumn(name = "Free", type_ = "string", json_path = ".status.free"),
    printcolumn(name = "Class", type_ = "string", json_path = ".status.class"),
    printcolumn(name = "Health", type_ = "string", json_path = ".status.health"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Device",
        type_ = "string",
        json_path = ".status.device",
        priority = 1
    ),
    printcolumn(
        name = "State",
        type_ = "string",
        json_path = ".status.state",
        priority = 1
    ),
    printcolumn(
        name = "Serial",
        type_ = "string",
        json_path = ".status.serial",
        priority = 1
    ),
    printcolumn(
        name = "Volumes",
        type_ = "integer",
        json_path = ".status.volumeCount",
        priority = 1
    )
)]
pub struct NoSpec {}

/// Last report of the node's agent about a drive. Fields in bytes have names that end in Bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DriveStatus {
    /// The node whose agent reports the drive, by the name that the agent has proved.
    pub node: String,
    /// Further nodes whose agents report a drive of this identity.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_nodes: Vec<String>,
    /// Identity of the drive, as Drivebay's commands show it.
    pub drive: String,
    /// Kernel name, such as sda; empty while the drive is missing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// Slot and enclosure.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bay: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub serial: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub firmware: String,
    /// hdd, ssd or nvme.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub media: String,
    /// sata, sas, nvme or another bus.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub transport: String,
    /// claimed, available, rejected, missing, not-scanned or unprobed.
    pub state: String,
    /// Class that selects the drive.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// GOOD, SUSPECT, BAD or UNKNOWN. SUSPECT and BAD have the suffix " (ack)" while all findings are acknowledged.
    pub health: String,
    /// Codes of findings, and of reasons why the drive takes no volumes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Size with a unit.
    pub size: String,
    /// Free space with a unit; empty if the drive takes no new volumes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub free: String,
    pub size_bytes: i64,
    /// Space that volumes could have in all; 0 if the drive is not claimed.
    #[serde(skip_serializing_if = "is_zero")]
    pub usable_bytes: i64,
    pub free_bytes: i64,
    pub largest_free_bytes: i64,
    /// Operator who cordoned the drive, and the reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cordon: String,
    /// Findings, and reasons why the drive takes no volumes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Number of findings that are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_findings: i64,
    /// Findings that a DriveTask names to acknowledge them: those that are not acknowledged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<FindingCount>,
    /// Volumes on the drive: those with abnormal conditions first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeOnDrive>,
    /// Number of volumes on the drive, including those that are not listed.
    pub volume_count: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Time of the last write of this status, RFC 3339. A status that does not change is not written again.
    pub updated: String,
    /// The agent process and the revision of its inventory that this status is from, by which controllers order their writes.
    pub observed: Observed,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
pub(crate) fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// A finding about a drive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Finding {
    /// Stable, CamelCase.
    pub code: String,
    /// Description and remedy.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// RFC 3339; empty if not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub since: String,
}

/// A finding that is not acknowledged, with its count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FindingCount {
    pub code: String,
    /// Attribute of the SMART data, such as ata-197; empty for a finding from another source.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Count of that attribute.
    #[serde(skip_serializing_if = "is_zero")]
    pub value: i64,
}

/// A volume on a drive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeOnDrive {
    /// CSI name: that of the PersistentVolume, if the provisioner made it.
    pub name: String,
    /// NAMESPACE/NAME of the PersistentVolumeClaim.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// Size with a unit.
    pub size: String,
    /// ready, new, erasing or another state.
    pub state: String,
    /// Reasons of the volume's abnormal conditions.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A condition in the form of Kubernetes' own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Present, Healthy, AcceptingVolumes, AgentConnected or Conflict.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// CamelCase.
    pub reason: String,
    pub message: String,
    /// Time of the last change of the status, RFC 3339.
    pub last_transition_time: String,
}

/// Position of a status in the order of an agent's reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Observed {
    /// Random id of the agent process.
    pub instance: String,
    /// Revision of its inventory; restarts with the process.
    pub revision: i64,
}

/// Returns the definition of the resource, as the chart has it.
///
/// Differs from the derived one in two points. There is no subresource `status`: an object has nothing else to protect from a writer
/// of status, and a creation would take two requests. The status is atomic, so that a write replaces all of it.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = Drive::crd();
    for version in &mut definition.spec.versions {
        version.subresources = None;
        let schema = version.schema.as_mut();
        let root = schema.and_then(|schema| schema.open_api_v3_schema.as_mut());
        let properties = root.and_then(|root| root.properties.as_mut());
        if let Some(status) = properties.and_then(|all| all.get_mut("status")) {
            status.x_kubernetes_map_type = Some("atomic".to_owned());
        }
    }
    definition
}

/// Returns the name of a drive's object: a DNS-1123 subdomain, the same for the same drive in every replica.
///
/// An identity that is unique in the world and has only characters of a name is the name. Of any other, what is readable is followed by
/// a dot and a digest of the identity, so that two identities never share a name. `path-` and `loop-` name a place in a machine, so
/// that the digest is of the node, too.
pub fn name(node: &str, drive: &str) -> String {
    let is_plain = |rest: &str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        !rest.is_empty() && rest.len() <= MAX_READABLE && rest.chars().all(plain)
    };
    let unique = UNIQUE.iter().find_map(|kind| drive.strip_prefix(kind));
    if unique.is_some_and(is_plain) {
        return drive.to_owned();
    }
    let is_place = drive.starts_with("path-") || drive.starts_with("loop-");
    let mut context = digest::Context::new(&digest::SHA256);
    if is_place {
        context.update(node.as_bytes());
        context.update(&[0]);
    }
    context.update(drive.as_bytes());
    let bytes = context.finish();
    let bytes = bytes.as_ref().iter().take(NAME_DIGEST);
    let digest: String = bytes.map(|byte| format!("{byte:02x}")).collect();
    let readable: String = drive
        .chars()
        .take(MAX_READABLE)
        .map(|c| match c.to_ascii_lowercase() {
            c if c.is_ascii_lowercase() || c.is_ascii_digit() => c,
            _ => '-',
        })
        .collect();
    match readable.trim_matches('-') {
        "" => format!("drive.{digest}"),
        readable => format!("{readable}.{digest}"),
    }
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
