//! `volume pv`: the manifest, and that no volume name can inject anything into it.

use drivebay_proto::controller::GetVolumeResponse;
use drivebay_view::{
    kube::is_subdomain,
    pv::{self, Manifest, PvError},
};
use proptest::prelude::*;

use super::{
    super::{
        ClientCommand,
        args::{PvArgs, VolumeCommand},
    },
    fake::Fake,
    *,
};

fn answer(there: VolumeOnNode) -> GetVolumeResponse {
    GetVolumeResponse {
        volume: Some(there),
        driver: "csi.drivebay.io".into(),
        topology_key: "csi.drivebay.io/node".into(),
    }
}

fn manifest(answer: &GetVolumeResponse, args: &PvArgs) -> Result<Manifest, PvError> {
    pv::manifest(answer, &args.id.parse().unwrap(), &args.claim)
}

fn args(line: &[&str]) -> PvArgs {
    let mut words = vec!["x", "volume", "pv"];
    words.extend(line);
    match Cli::try_parse_from(words).unwrap().command {
        Command::Client(ClientCommand::Volume(VolumeCommand::Pv(args))) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_moved_volume_gets_a_manifest_for_where_it_is() {
    let served = Fake {
        volumes: vec![volume(7, "n2", "pvc-77")],
        driver: "csi.drivebay.io".into(),
        ..Fake::default()
    }
    .serve();
    let old = id(7, "n1");
    let line = [
        "volume",
        "pv",
        &old,
        "--pvc",
        "shop/data-db-0",
        "--storage-class",
        "fast-disks",
    ];
    let output = run_cli(&served.socket(), &line);
    assert_eq!(
        output.notes,
        r#"Volume 00000000-0000-4000-8000-000000000007@n2 (pvc-77, 10 GiB), on node n2 now.
Its drive came from node n1: the PersistentVolume made there cannot be changed, this one replaces it.

Before applying it, in this order. Where there is no old PersistentVolume, begin with 4.
1. Stop the pods that use the volume, and keep them stopped.
2. Have the data kept when the old PersistentVolume (volumeHandle 00000000-0000-4000-8000-000000000007@...) goes,
   and see that it says Retain now. Otherwise step 3 DELETES THE DATA.
     kubectl patch pv pvc-77 -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'
     kubectl get pv pvc-77 -o jsonpath='{.spec.persistentVolumeReclaimPolicy}'
3. Delete the claim shop/data-db-0, then the old PersistentVolume:
     kubectl -n shop delete pvc data-db-0
     kubectl delete pv pvc-77
4. Apply this, and see it: kubectl get pv pvc-77
5. Make the claim shop/data-db-0 again (a StatefulSet does it when it is scaled up): storageClassName fast-disks,
   at most 10 GiB (10737418240 bytes). Start the pods.
The policy stays Retain: set it to Delete once all is well, if it was that before.

"#
    );
    let manifest: serde_json::Value = serde_json::from_str(&output.ok()).unwrap();
    assert_eq!(
        manifest,
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "annotations": { "pv.kubernetes.io/provisioned-by": "csi.drivebay.io" },
                "name": "pvc-77",
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": { "storage": "10737418240" },
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "name": "data-db-0",
                    "namespace": "shop",
                },
                "csi": {
                    "driver": "csi.drivebay.io",
                    "fsType": "ext4",
                    "volumeAttributes": { "class": "fast" },
                    "volumeHandle": "00000000-0000-4000-8000-000000000007@n2",
                },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [{
                    "key": "csi.drivebay.io/node",
                    "operator": "In",
                    "values": ["n2"],
                }]}]}},
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "fast-disks",
                "volumeMode": "Filesystem",
            },
        })
    );
    let output = run_cli(&served.socket(), &["volume", "pv", &old, "-o", "json"]);
    assert!(
        output.notes.contains("CAUTION: any claim"),
        "{}",
        output.notes
    );
    let json: serde_json::Value = serde_json::from_str(&output.ok()).unwrap();
    assert_eq!(json["spec"].get("claimRef"), None);
    assert_eq!(json["spec"]["storageClassName"], "");
    let (error, code) = run_cli(&served.socket(), &["volume", "pv", &id(8, "n1")]).error();
    assert!(error.contains("there is no volume"), "{error}");
    assert_eq!(code, 6);
    let named = run_cli(&served.socket(), &["volume", "pv", "pvc-7"]).ok();
    assert!(named.contains(&id(7, "n2")), "a beginning will do: {named}");
    let (_, code) = run_cli(&served.socket(), &["volume", "pv", "none"]).error();
    assert_eq!(code, 6);
}

#[test]
fn a_block_volume_has_no_filesystem_in_it() {
    let mut block = volume(7, "n2", "pvc-77");
    inside(&mut block).mode = "block".into();
    inside(&mut block).fs_type = String::new();
    let value = manifest(&answer(block), &args(&[&id(7, "n2")]))
        .unwrap()
        .value;
    assert_eq!(value["spec"]["volumeMode"], "Block");
    assert_eq!(value["spec"]["csi"].get("fsType"), None);
}

#[test]
fn what_is_not_well_is_reported_before_anything_else() {
    let mut there = volume(7, "n2", "Größe\u{1b}\nspec: {}");
    there.node_state = "away".into();
    let inner = inside(&mut there);
    inner.state = "missing".into();
    inner.published = true;
    inner.conditions = vec![Condition {
        abnormal: true,
        status: "INACCESSIBLE".into(),
        reason: "DriveMissing".into(),
        message: "drive wwn-a is not here".into(),
        since: 0,
    }];
    let made = manifest(&answer(there), &args(&[&id(7, "n2")])).unwrap();
    assert_eq!(made.value["metadata"]["name"], "gr-e-spec-00000000");
    let first: Vec<&str> = made.first.iter().map(String::as_str).take(5).collect();
    assert_eq!(
        first,
        [
            "Volume 00000000-0000-4000-8000-000000000007@n2 (Größe\\u{1b}\\u{a}spec: {}, 10 GiB), on node n2 now.",
            "CAUTION: node n2 is away; this is as last reported.",
            "CAUTION: the volume is missing.",
            "CAUTION: DriveMissing: drive wwn-a is not here",
            "CAUTION: it is in use on its node now; a PersistentVolume that names it there may exist.",
        ]
    );
    assert!(
        made.first
            .iter()
            .any(|line| line.contains("kubectl patch pv OLD "))
    );
}

#[test]
fn an_answer_that_does_not_fit_makes_no_manifest() {
    let arguments = args(&[&id(7, "n1")]);
    let refused = |change: &dyn Fn(&mut GetVolumeResponse)| {
        let mut answer = answer(volume(7, "n2", "pvc-7"));
        change(&mut answer);
        manifest(&answer, &arguments).map(|made| made.value)
    };
    assert!(refused(&|_| ()).is_ok());
    fn there(answer: &mut GetVolumeResponse) -> &mut VolumeOnNode {
        answer.volume.as_mut().unwrap()
    }
    let wrong: [&dyn Fn(&mut GetVolumeResponse); 10] = [
        &|answer| answer.volume = None,
        &|answer| there(answer).volume = None,
        &|answer| inside(there(answer)).id = "x".into(),
        &|answer| inside(there(answer)).id = id(8, "n2"),
        &|answer| inside(there(answer)).id = id(7, "n1"),
        &|answer| there(answer).node_id = "n3".into(),
        &|answer| inside(there(answer)).mode = "other".into(),
        &|answer| inside(there(answer)).size_bytes = 0,
        &|answer| answer.topology_key = String::new(),
        &|answer| answer.driver = "a b".into(),
    ];
    for (index, change) in wrong.into_iter().enumerate() {
        let result = refused(change);
        assert!(
            matches!(result, Err(PvError::Answer(_) | PvError::Driver(_))),
            "{index}: {result:?}"
        );
    }
    for state in ["erasing", "quarantined"] {
        let result = refused(&|answer| inside(there(answer)).state = state.into());
        assert!(matches!(result, Err(PvError::Deleted { .. })), "{state}");
    }
}

#[test]
fn ids_and_names_are_checked_where_they_are_typed() {
    let good = id(7, "n1");
    for line in [
        vec![&*good, "--pvc", "data"],
        vec![&*good, "--pvc", "a/b/c"],
        vec![&*good, "--pvc", "shop/Data"],
        vec![&*good, "--storage-class", "a b"],
        vec![&*good, "--storage-class", ""],
    ] {
        let mut words = vec!["x", "volume", "pv"];
        words.extend(&line);
        assert!(Cli::try_parse_from(words).is_err(), "{line:?}");
    }
}

proptest! {
    #[test]
    fn no_name_breaks_out_of_the_manifest(
        name in any::<String>(),
        class in any::<String>(),
        fs_type in any::<String>(),
        state in any::<String>(),
        reason in any::<String>(),
        node_state in any::<String>(),
        topology_key in ".+",
    ) {
        let mut there = volume(7, "n2", &name);
        there.node_state = node_state;
        let inner = inside(&mut there);
        inner.class = class.clone();
        inner.fs_type = fs_type.clone();
        inner.state = state.clone();
        inner.conditions = vec![Condition { abnormal: true, reason, ..Condition::default() }];
        let mut answer = answer(there);
        answer.topology_key = topology_key.clone();
        let made = manifest(&answer, &args(&[&id(7, "n1")])).unwrap();
        for line in &made.first {
            prop_assert!(!line.chars().any(char::is_control), "{line:?}");
        }
        let named = made.value["metadata"]["name"].as_str().unwrap();
        prop_assert!(is_subdomain(named), "{named:?}");
        let spec = &made.value["spec"];
        prop_assert_eq!(spec["csi"]["volumeAttributes"]["class"].as_str(), Some(class.as_str()));
        prop_assert_eq!(spec["csi"].get("fsType").is_none(), fs_type.is_empty());
        prop_assert_eq!(spec["persistentVolumeReclaimPolicy"].as_str(), Some("Retain"));
    }
}
