//! Anti-affinity of the volumes of a pod: a group derived from the names of claims, persisted on the drives.

use std::collections::BTreeSet;

use drivebay_hwtests::{Csi, DriveSpec, MIB, Rig, csi, need};
use drivebay_proto::csi as wire;
use tokio::task::JoinSet;
use tonic::{Code, Status};

/// Sends CreateVolume as the provisioner does for a claim.
async fn claim(csi: &Csi, namespace: &str, name: &str, how: &str) -> Result<wire::Volume, Status> {
    let parameters = [
        ("antiAffinityPattern", "[a-z]+-(db-[0-9]+)"),
        ("antiAffinity", how),
        ("csi.storage.k8s.io/pvc/name", name),
        ("csi.storage.k8s.io/pvc/namespace", namespace),
    ];
    let parameters = parameters.map(|(key, value)| (key.to_owned(), value.to_owned()));
    csi.create_with(wire::CreateVolumeRequest {
        name: format!("pvc-{namespace}-{name}"),
        capacity_range: Some(csi::bytes(16 * MIB)),
        volume_capabilities: vec![csi::block()],
        parameters: parameters.into(),
        ..Default::default()
    })
    .await
}

/// Returns the drives that hold these volumes.
async fn drives(rig: &Rig, volumes: &[wire::Volume]) -> BTreeSet<String> {
    let inventory = rig.inventory().await;
    let of = inventory.volumes.into_iter();
    of.filter(|one| volumes.iter().any(|volume| volume.volume_id == one.id))
        .map(|one| one.drive)
        .collect()
}

/// Creates volumes of one pod concurrently.
async fn at_once(
    rig: &Rig,
    namespace: &str,
    how: &'static str,
    claims: &[&str],
) -> Vec<wire::Volume> {
    let mut tasks = JoinSet::new();
    for name in claims {
        let (csi, namespace, name) = (rig.csi.clone(), namespace.to_owned(), (*name).to_owned());
        tasks.spawn(async move { claim(&csi, &namespace, &name, how).await });
    }
    let made = tasks.join_all().await;
    made.into_iter().map(Result::unwrap).collect()
}

/// Returns a rig with three drives in a class with this placement.
async fn three_drives(placement: &str) -> Rig {
    let drives = ["a", "b", "c"].map(|name| DriveSpec::blank(name, 128 * MIB));
    Rig::tuned(drives.into(), |settings| {
        settings.placement = placement.to_owned();
    })
    .await
}

const CLAIMS: [&str; 3] = ["data-db-0", "log-db-0", "wal-db-0"];

#[tokio::test]
async fn a_hard_group_has_one_volume_on_a_drive_also_when_they_are_made_at_once_and_after_a_kill() {
    need!(root, loop);
    for placement in ["spread", "pack"] {
        let mut rig = three_drives(placement).await;
        let made = at_once(&rig, "prod", "hard", &CLAIMS).await;
        assert_eq!(drives(&rig, &made).await.len(), 3);
        // Other pods and other namespaces are other groups.
        let other = at_once(&rig, "prod", "hard", &["data-db-1", "log-db-1"]).await;
        assert_eq!(drives(&rig, &other).await.len(), 2);
        claim(&rig.csi, "test", "tmp-db-0", "hard").await.unwrap();

        for kill in [false, true] {
            if kill {
                rig.agent.kill9();
                rig.start_again().await;
            }
            let refused = claim(&rig.csi, "prod", "tmp-db-0", "hard")
                .await
                .unwrap_err();
            assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
            assert!(refused.message().contains("\"prod/db-0\""), "{refused:?}");
            // A repeated call returns the existing volume.
            let again = claim(&rig.csi, "prod", CLAIMS[0], "hard").await.unwrap();
            assert!(made.iter().any(|one| one.volume_id == again.volume_id));
        }
        rig.csi.delete(&made[0].volume_id).await.unwrap();
        claim(&rig.csi, "prod", "tmp-db-0", "hard").await.unwrap();
    }
}

#[tokio::test]
async fn a_soft_group_uses_a_drive_twice_only_when_each_has_one_of_it() {
    need!(root, loop);
    let rig = three_drives("pack").await;
    let mut made = at_once(&rig, "prod", "soft", &CLAIMS).await;
    assert_eq!(drives(&rig, &made).await.len(), 3);
    made.push(claim(&rig.csi, "prod", "tmp-db-0", "soft").await.unwrap());
    assert_eq!(drives(&rig, &made).await.len(), 3);
    assert_eq!(rig.inventory().await.volumes.len(), 4);
}
