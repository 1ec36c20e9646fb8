//! PersistentVolume for a volume on its current node. Pure.

use drivebay_proto::{
    VolumeId,
    agent::Volume,
    controller::{GetVolumeResponse, VolumeOnNode},
    names,
    volume_id::is_node_id,
    words::{Mode, NodeState},
};
use serde_json::{Value, json};

use super::{
    args::PvClaimArgs,
    kube::{is_subdomain, resembling},
    table::{human_size, printable},
};
use drivebay_common::units::exact_size;
use drivebay_csi::validate::{InvalidRequest, driver_name};

/// Reason for which there is no PersistentVolume for a volume.
#[derive(Debug, thiserror::Error)]
pub enum PvError {
    /// The controller's answer is inconsistent.
    #[error(
        "the controller's answer cannot be used: {0}; is it of another version, or the record damaged?"
    )]
    Answer(&'static str),
    /// The driver's name is invalid.
    #[error("the controller's answer cannot be used")]
    Driver(#[from] InvalidRequest),
    #[error(
        "volume {id} was deleted ({state}); a PersistentVolume would bring back what was to be erased"
    )]
    Deleted {
        id: String,
        /// State: `erasing` or `quarantined`.
        state: String,
    },
}

/// A manifest, and the instructions for applying it.
#[derive(Debug)]
pub struct Manifest {
    pub value: Value,
    /// Lines of instructions, escaped for a terminal and not wrapped.
    pub first: Vec<String>,
}

/// Returns the manifest for a volume as reported by its node's agent or the controller. Errs if the answer is inconsistent, or if the
/// volume was deleted.
pub fn manifest(
    answer: &GetVolumeResponse,
    wanted: &VolumeId,
    args: &PvClaimArgs,
) -> Result<Manifest, PvError> {
    let there = answer
        .volume
        .as_ref()
        .ok_or(PvError::Answer("no volume is in it"))?;
    let volume = there
        .volume
        .as_ref()
        .ok_or(PvError::Answer("no volume is in it"))?;
    let id: VolumeId = volume
        .id
        .parse()
        .map_err(|_| PvError::Answer("its volume id is none"))?;
    if id.uuid != wanted.uuid {
        return Err(PvError::Answer("it is about another volume"));
    }
    if id.node != there.node_id || !is_node_id(&there.node_id) {
        return Err(PvError::Answer("its volume id is not one of its node's"));
    }
    if volume.is_deleted() {
        return Err(PvError::Deleted {
            id: volume.id.clone(),
            state: volume.state.clone(),
        });
    }
    let mode = match volume.known_mode() {
        Some(Mode::Mount) => "Filesystem",
        Some(Mode::Block) => "Block",
        None => return Err(PvError::Answer("its volume is neither mount nor block")),
    };
    if volume.size_bytes == 0 {
        return Err(PvError::Answer("its volume has no size"));
    }
    let driver = driver_name(&answer.driver)?;
    if answer.topology_key.is_empty() {
        return Err(PvError::Answer("its topology key is empty"));
    }
    let name = name(volume, &id);
    let mut csi = json!({
        "driver": driver,
        "volumeHandle": volume.id,
        "volumeAttributes": { names::PARAM_CLASS: volume.class },
    });
    if mode == "Filesystem" && !volume.fs_type.is_empty() {
        csi["fsType"] = json!(volume.fs_type);
    }
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "capacity": { "storage": volume.size_bytes.to_string() },
        "csi": csi,
        "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [{
            "key": answer.topology_key,
            "operator": "In",
            "values": [there.node_id],
        }]}]}},
        // Applying a manifest must never lead to the deletion of data.
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": args.storage_class.as_deref().unwrap_or_default(),
        "volumeMode": mode,
    });
    if let Some(claim) = &args.pvc {
        spec["claimRef"] = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.namespace,
            "name": claim.name,
        });
    }
    let value = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            // As external-provisioner sets it: it deletes only volumes with its driver's name, so that the policy Delete works once a user
            // sets it.
            "annotations": { "pv.kubernetes.io/provisioned-by": driver },
        },
        "spec": spec,
    });
    Ok(Manifest {
        value,
        first: first(there, volume, wanted, args, &name),
    })
}

/// Returns the CSI name, which is the name of the PersistentVolume that external-provisioner made. If that is not valid in Kubernetes,
/// returns a similar one with the first part of the uuid, which makes it unique.
fn name(volume: &Volume, id: &VolumeId) -> String {
    if is_subdomain(&volume.name) {
        return volume.name.clone();
    }
    let uuid = id.uuid.as_hyphenated().to_string();
    let short = uuid.split('-').next().unwrap_or(&uuid);
    match resembling(&volume.name, 200).as_str() {
        "" => format!("drivebay-{short}"),
        like => format!("{like}-{short}"),
    }
}

fn first(
    there: &VolumeOnNode,
    volume: &Volume,
    wanted: &VolumeId,
    args: &PvClaimArgs,
    name: &str,
) -> Vec<String> {
    let node = &there.node_id;
    let mut lines = vec![format!(
        "Volume {} ({}, {}), on node {node} now.",
        volume.id,
        volume.name,
        human_size(volume.size_bytes),
    )];
    if wanted.node != *node {
        lines.push(format!(
            "Its drive came from node {}: the PersistentVolume made there cannot be changed, this one replaces it.",
            wanted.node
        ));
    }
    let mut warn = |text: String| lines.push(format!("CAUTION: {text}"));
    if there.known_node_state() != Some(NodeState::Connected) {
        warn(format!(
            "node {node} is {}; this is as last reported.",
            there.node_state
        ));
    }
    if !volume.is_usable() {
        warn(format!("the volume is {}.", volume.state));
    }
    for condition in volume.conditions.iter().filter(|one| one.abnormal) {
        warn(format!("{}: {}", condition.reason, condition.message));
    }
    if volume.published {
        warn(
            "it is in use on its node now; a PersistentVolume that names it there may exist."
                .into(),
        );
    }
    // A valid Kubernetes name is also safe in a shell.
    let old = if is_subdomain(&volume.name) {
        &volume.name
    } else {
        "OLD"
    };
    let (claim, delete_claim) = match &args.pvc {
        Some(pvc) => (
            format!("the claim {}/{}", pvc.namespace, pvc.name),
            format!("kubectl -n {} delete pvc {}", pvc.namespace, pvc.name),
        ),
        None => (
            "its claim".to_owned(),
            "kubectl -n NAMESPACE delete pvc NAME".to_owned(),
        ),
    };
    let uuid = wanted.uuid;
    lines.extend([
        String::new(),
        "Before applying it, in this order. Where there is no old PersistentVolume, begin with 4.".into(),
        "1. Stop the pods that use the volume, and keep them stopped.".into(),
        format!("2. Have the data kept when the old PersistentVolume (volumeHandle {uuid}@...) goes,"),
        "   and see that it says Retain now. Otherwise step 3 DELETES THE DATA.".into(),
        format!("     kubectl patch pv {old} -p '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"Retain\"}}}}'"),
        format!("     kubectl get pv {old} -o jsonpath='{{.spec.persistentVolumeReclaimPolicy}}'"),
        format!("3. Delete {claim}, then the old PersistentVolume:"),
        format!("     {delete_claim}"),
        format!("     kubectl delete pv {old}"),
        format!("4. Apply this, and see it: kubectl get pv {name}"),
    ]);
    let class = match &args.storage_class {
        Some(class) => format!("storageClassName {class}"),
        None => "storageClassName \"\" (or name its class with --storage-class)".into(),
    };
    lines.extend([
        format!("5. Make {claim} again (a StatefulSet does it when it is scaled up): {class},"),
        format!(
            "   at most {}. Start the pods.",
            exact_size(volume.size_bytes)
        ),
    ]);
    if args.pvc.is_none() {
        lines.push(
            "CAUTION: any claim of this class may bind it first; name the right one with --pvc NAMESPACE/NAME.".into(),
        );
    }
    lines.push(
        "The policy stays Retain: set it to Delete once all is well, if it was that before.".into(),
    );
    lines.iter().map(|line| printable(line)).collect()
}
