//! The PersistentVolume for a volume where it is now. Pure.

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

/// Why there is no PersistentVolume for a volume.
#[derive(Debug, thiserror::Error)]
pub enum PvError {
    /// The controller's answer is not of one piece.
    #[error(
        "the controller's answer cannot be used: {0}; is it of another version, or the record damaged?"
    )]
    Answer(&'static str),
    /// The driver's name cannot be one.
    #[error("the controller's answer cannot be used")]
    Driver(#[from] InvalidRequest),
    /// It was deleted.
    #[error(
        "volume {id} was deleted ({state}); a PersistentVolume would bring back what was to be erased"
    )]
    Deleted {
        id: String,
        /// `erasing` or `quarantined`.
        state: String,
    },
}

/// A manifest, and what to know and do before it is applied.
#[derive(Debug)]
pub struct Manifest {
    pub value: Value,
    /// Lines for a person; nothing in them acts on a terminal, and none is broken.
    pub first: Vec<String>,
}

/// The manifest for a volume as its node's agent or the controller knows it.
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
        // Applying a manifest must never be a step towards deleting data.
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
            // As external-provisioner would have it: it deletes only what carries its driver's name, so
            // that policy Delete works again once somebody sets it.
            "annotations": { "pv.kubernetes.io/provisioned-by": driver },
        },
        "spec": spec,
    });
    Ok(Manifest {
        value,
        first: first(there, volume, wanted, args, &name),
    })
}

/// The CSI name, which is the name of the PersistentVolume that external-provisioner made; one that Kubernetes
/// does not take is changed, and made unique by the first part of the uuid.
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
    // A name that Kubernetes takes is safe in a shell, too.
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
