//! The resource `drivetasks.drivebay.io`: types, schema and columns.

#![allow(
    clippy::duplicated_attributes,
    reason = "each column has the same kinds of attributes"
)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, ValidationRule,
};
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::drive::is_zero;

/// Time for which a finished task is kept by default: a week, in seconds.
pub const DEFAULT_TTL: i64 = 7 * 24 * 3600;
/// Most characters of a name, and of `by`.
const MAX_NAME: i64 = 253;
/// Most characters of a reason or note. The agent accepts 512 bytes.
const MAX_TEXT: i64 = 256;
/// Most target drives, each of which is authorized by itself.
const MAX_TARGETS: i64 = 8;
const MAX_VOLUMES: i64 = 64;
const MAX_FINDINGS: i64 = 32;

/// One operation on one drive, requested once. Exactly one of cordon, uncordon, evacuate, replace, locate and acknowledge is set.
#[derive(
    CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "drivebay.io",
    version = "v1alpha1",
    kind = "DriveTask",
    plural = "drivetasks",
    status = "DriveTaskStatus",
    derive = "PartialEq",
    category = "drivebay",
    doc = "An operation on a drive, carried out once by Drivebay's controller. A task cannot be changed. Deleting one withdraws it only while it is Pending.",
    printcolumn(name = "Drive", type_ = "string", json_path = ".spec.drive"),
    printcolumn(name = "Operation", type_ = "string", json_path = ".status.operation"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Progress", type_ = "string", json_path = ".status.progress"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Node",
        type_ = "string",
        json_path = ".status.node",
        priority = 1
    ),
    printcolumn(name = "By", type_ = "string", json_path = ".spec.by", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct DriveTaskSpec {
    /// Name of the drive's object, as `kubectl get drives` shows it.
    pub drive: String,
    /// Name of the user who creates the task, as `kubectl auth whoami` shows it. The chart's admission policy refuses any other.
    pub by: String,
    /// Time at which the task was written, RFC 3339. A task that is first seen more than an hour later is refused, so that a task of a
    /// backup or a repository is not carried out again.
    pub issued_at: String,
    /// The drive takes no new volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cordon: Option<Cordon>,
    /// The drive takes new volumes again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncordon: Option<Empty>,
    /// Volumes move to other drives of the node, and the drive is cordoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evacuate: Option<Evacuate>,
    /// All volumes move to one other drive of the node, and the drive is cordoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace: Option<Replace>,
    /// The light of the drive's bay is switched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locate: Option<Locate>,
    /// Named findings of the drive are silenced until they get worse; the verdict stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledge: Option<Acknowledge>,
    /// Seconds after which the finished task is deleted. Default: a week.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Empty {}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cordon {
    /// Recorded on the drive.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evacuate {
    /// Names of the objects of the drives that receive the volumes. Empty: those where the class would put new volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// Names of volumes, as the drive's object lists them. Empty: all volumes of the drive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// A pod that starts waits until its volume has moved. By default, it ends the copying of its volume.
    #[serde(default)]
    pub hold: bool,
    /// Unreadable sectors with data stop the move of their volume. By default they read as errors on the other drive, too.
    #[serde(default)]
    pub abort_on_error: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Replace {
    /// Name of the object of the drive that receives the volumes.
    pub with: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Locate {
    pub on: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Acknowledge {
    /// Every finding that counts, as in status.counts of the drive's object. The task fails if another one counts, or one is worse.
    pub findings: Vec<NamedFinding>,
    /// Kept with the drive's history.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// End of the acknowledgement, RFC 3339. Default: it holds until the findings get worse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The drive takes new volumes all the same.
    #[serde(default)]
    pub takes_new_volumes: bool,
}

/// A finding with its count, by which an acknowledgement names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedFinding {
    pub code: String,
    /// Attribute of the SMART data, such as ata-197; empty if the finding is not from the last poll.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Count of that attribute: the largest that is acknowledged.
    #[serde(default)]
    pub value: i64,
}

/// State of a task, written by Drivebay's controller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DriveTaskStatus {
    /// Pending, Running, Succeeded or Failed.
    pub phase: String,
    /// Cordon, Uncordon, Evacuate, Replace, Locate or Acknowledge.
    pub operation: String,
    /// CamelCase: why the task waits, or how it ended.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Time at which the reason became this one, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub since: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The drive's node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The drive's identity, as Drivebay's commands show it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub identity: String,
    /// Such as "2 of 5 volumes, 40 GiB of 100 GiB".
    #[serde(skip_serializing_if = "String::is_empty")]
    pub progress: String,
    /// Number of volumes that are to move.
    #[serde(skip_serializing_if = "is_zero")]
    pub volumes: i64,
    /// Number of volumes that have moved.
    #[serde(skip_serializing_if = "is_zero")]
    pub volumes_moved: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub bytes: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub bytes_copied: i64,
    /// Volumes that have not moved yet, and why: at most 16.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingVolume>,
    /// RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub started_at: String,
    /// RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub finished_at: String,
    /// True after the agent has accepted the request.
    #[serde(skip_serializing_if = "is_false")]
    pub accepted: bool,
    /// Time at which a controller last handled the task, RFC 3339. One that was not handled for an hour is not carried out any more.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub handled_at: String,
    /// Process that handles the running task.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub controller: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WaitingVolume {
    pub name: String,
    /// waiting, copying, completing or in-doubt.
    pub phase: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// Returns the definition of the resource, as the chart has it: the derived one with bounds and rules.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = DriveTask::crd();
    for version in &mut definition.spec.versions {
        let schema = version.schema.as_mut();
        let root = schema.and_then(|schema| schema.open_api_v3_schema.as_mut());
        let Some(root) = root else { continue };
        if let Some(spec) = property(root, &["spec"]) {
            bound(spec);
        }
    }
    definition
}

fn bound(spec: &mut JSONSchemaProps) {
    // An operation that is null would count as set in the rule below.
    for property in spec.properties.iter_mut().flatten().map(|(_, it)| it) {
        property.nullable = None;
    }
    let rule = |rule: &str, message: &str| ValidationRule {
        rule: rule.to_owned(),
        message: Some(message.to_owned()),
        ..ValidationRule::default()
    };
    spec.x_kubernetes_validations = Some(vec![
        rule(
            "self == oldSelf",
            "a task cannot be changed: create another one",
        ),
        rule(
            "[has(self.cordon), has(self.uncordon), has(self.evacuate), has(self.replace), has(self.locate), has(self.acknowledge)].filter(set, set).size() == 1",
            "exactly one of cordon, uncordon, evacuate, replace, locate and acknowledge must be set",
        ),
    ]);
    let texts: [(&[&str], i64, i64); 7] = [
        (&["drive"], 1, MAX_NAME),
        (&["by"], 1, MAX_NAME),
        (&["cordon", "reason"], 0, MAX_TEXT),
        (&["replace", "with"], 1, MAX_NAME),
        (&["acknowledge", "note"], 0, MAX_TEXT),
        (&["acknowledge", "findings", "[]", "code"], 1, MAX_NAME),
        (&["acknowledge", "findings", "[]", "subject"], 0, MAX_NAME),
    ];
    for (path, least, most) in texts {
        if let Some(text) = property(spec, path) {
            (text.min_length, text.max_length) = (Some(least), Some(most));
        }
    }
    let lists: [(&[&str], i64, i64); 3] = [
        (&["evacuate", "to"], 0, MAX_TARGETS),
        (&["evacuate", "volumes"], 0, MAX_VOLUMES),
        (&["acknowledge", "findings"], 1, MAX_FINDINGS),
    ];
    for (path, least, most) in lists {
        let Some(list) = property(spec, path) else {
            continue;
        };
        (list.min_items, list.max_items) = (Some(least), Some(most));
        if let Some(item) = property(list, &["[]"])
            && item.type_.as_deref() == Some("string")
        {
            (item.min_length, item.max_length) = (Some(1), Some(MAX_NAME));
        }
    }
    for path in [&["issuedAt"][..], &["acknowledge", "until"]] {
        if let Some(time) = property(spec, path) {
            time.format = Some("date-time".to_owned());
            time.max_length = Some(64);
        }
    }
    if let Some(seconds) = property(spec, &["ttlSecondsAfterFinished"]) {
        // A month.
        (seconds.minimum, seconds.maximum) = (Some(0.0), Some(2_678_400.0));
    }
    if let Some(value) = property(spec, &["acknowledge", "findings", "[]", "value"]) {
        value.minimum = Some(0.0);
    }
}

/// Returns the schema of a property; `[]` is the item of a list.
fn property<'a>(
    mut schema: &'a mut JSONSchemaProps,
    path: &[&str],
) -> Option<&'a mut JSONSchemaProps> {
    for name in path {
        schema = match *name {
            "[]" => match schema.items.as_mut()? {
                JSONSchemaPropsOrArray::Schema(item) => item,
                JSONSchemaPropsOrArray::Schemas(_) => return None,
            },
            name => schema.properties.as_mut()?.get_mut(name)?,
        };
    }
    Some(schema)
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
