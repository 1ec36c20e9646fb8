//! The objects that scenarios apply, as Kubernetes' own JSON.

use serde_json::{Value, json};

use super::CLASS;

/// The image of a scenario's containers: busybox.
pub const IMAGE: &str = "drivebay.test/tools:1";

/// A claim of this many MiB. `mode` is "Filesystem" or "Block", `access` e.g. "ReadWriteOnce".
pub fn claim_of(name: &str, mib: u64, class: &str, mode: &str, access: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": [access],
            "volumeMode": mode,
            "storageClassName": class,
            "resources": {"requests": {"storage": format!("{mib}Mi")}},
        },
    })
}

/// A claim of the usual class.
pub fn claim(name: &str, mib: u64) -> Value {
    claim_of(name, mib, CLASS, "Filesystem", "ReadWriteOnce")
}

/// A claim for a raw block volume.
pub fn block_claim(name: &str, mib: u64) -> Value {
    claim_of(name, mib, CLASS, "Block", "ReadWriteOnce")
}

/// Returns the claim with a data source in its namespace, of kind "PersistentVolumeClaim" or "VolumeSnapshot".
pub fn copy_of(mut claim: Value, kind: &str, name: &str) -> Value {
    let group = (kind == "VolumeSnapshot").then_some("snapshot.storage.k8s.io");
    claim["spec"]["dataSource"] = json!({"apiGroup": group, "kind": kind, "name": name});
    claim
}

/// Returns a VolumeSnapshot of a claim's volume, of the default class.
pub fn snapshot(name: &str, claim: &str) -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": {"name": name},
        "spec": {"source": {"persistentVolumeClaimName": claim}},
    })
}

/// A StorageClass like the chart's, for another filesystem.
pub fn class(name: &str, filesystem: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": super::DRIVER,
        "parameters": {"class": "loop", "csi.storage.k8s.io/fstype": filesystem},
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true,
    })
}

/// Volume of a pod from a claim, and its mount or device.
#[derive(Debug, Clone)]
pub struct Use {
    claim: String,
    path: String,
    block: bool,
    read_only: bool,
    sub_path: Option<String>,
    template: Option<Value>,
}

/// Mounted at this path.
pub fn mounted(claim: &str, path: &str) -> Use {
    Use {
        claim: claim.to_owned(),
        path: path.to_owned(),
        block: false,
        read_only: false,
        sub_path: None,
        template: None,
    }
}

/// A generic ephemeral volume, mounted at this path: made with the pod like this claim, and deleted with it. The claim's
/// name is the pod's, a dash and this claim's.
pub fn ephemeral(claim: &Value, path: &str) -> Use {
    let name = claim["metadata"]["name"].as_str().unwrap_or_default();
    Use {
        template: Some(json!({"spec": claim["spec"]})),
        ..mounted(name, path)
    }
}

/// As a device at this path.
pub fn device(claim: &str, path: &str) -> Use {
    Use {
        block: true,
        ..mounted(claim, path)
    }
}

impl Use {
    /// Read-only, by the claim's own source: what reaches NodePublishVolume.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// A directory of the volume instead of all of it.
    #[must_use]
    pub fn sub_path(mut self, path: &str) -> Self {
        self.sub_path = Some(path.to_owned());
        self
    }
}

/// The spec of a pod that runs a script of the shell with these claims.
pub fn pod_spec(uses: &[Use], script: &str) -> Value {
    let volumes: Vec<Value> = uses
        .iter()
        .map(|it| match &it.template {
            Some(template) => json!({"name": it.claim, "ephemeral": {"volumeClaimTemplate": template}}),
            None => {
                json!({"name": it.claim, "persistentVolumeClaim": {"claimName": it.claim, "readOnly": it.read_only}})
            }
        })
        .collect();
    let mounts: Vec<Value> = uses
        .iter()
        .filter(|it| !it.block)
        .map(|it| {
            let mut mount = json!({"name": it.claim, "mountPath": it.path});
            if let Some(path) = &it.sub_path {
                mount["subPath"] = json!(path);
            }
            mount
        })
        .collect();
    let devices: Vec<Value> = uses
        .iter()
        .filter(|it| it.block)
        .map(|it| json!({"name": it.claim, "devicePath": it.path}))
        .collect();
    json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "main",
            "image": IMAGE,
            // A shell that is process 1 ends at SIGTERM only when it says so.
            "command": ["/bin/sh", "-ec", format!("trap 'exit 0' TERM\n{script}")],
            "volumeMounts": mounts,
            "volumeDevices": devices,
        }],
        "volumes": volumes,
    })
}

/// Command of a pod that only keeps its volumes mounted.
pub const IDLE: &str = "while :; do sleep 1; done";

/// Returns a Pod that runs a shell script with these claims, mounted or as devices; see [`pod_spec`].
pub fn pod(name: &str, uses: &[Use], script: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec(uses, script)})
}

/// A StatefulSet whose pods each have these claims, and are started and ended all at once.
pub fn stateful_set(
    name: &str,
    replicas: u32,
    claims: &[Value],
    uses: &[Use],
    script: &str,
) -> Value {
    let mut spec = pod_spec(uses, script);
    // They come from the templates.
    spec["volumes"] = json!([]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "serviceName": name,
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"set": name}},
            "template": {"metadata": {"labels": {"set": name}}, "spec": spec},
            "volumeClaimTemplates": claims,
        },
    })
}
