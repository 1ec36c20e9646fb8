//! `volumes --unclaimed`: unclaimed volumes, and every kind of list that is refused.

use serde_json::{Value, json};
use tonic::Status;

use super::{
    super::claims::{Claims, ClaimsError},
    fake::{Fake, Served},
    *,
};

fn pv(name: &str, handle: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": "x"},
        "spec": {"csi": {"driver": "csi.drivebay.io", "volumeHandle": handle}, "capacity": {}},
    })
}

fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items, "metadata": {"resourceVersion": ""}})
        .to_string()
}

fn cluster() -> Served {
    let mut used = volume(4, "n2", "pvc-4");
    inside(&mut used).published = true;
    Fake {
        nodes: vec![node("n1", "connected"), node("n2", "connected")],
        volumes: vec![
            volume(1, "n1", "pvc-1"),
            volume(2, "n1", "pvc-2"),
            volume(3, "n2", "pvc-3"),
            used,
        ],
        ..Fake::default()
    }
    .serve()
}

fn unclaimed(served: &Served, pvs: &str, more: &[&str]) -> CommandOutput {
    let file = served.dir().join("pvs.json");
    std::fs::write(&file, pvs).unwrap();
    let mut line = vec!["volumes", "--unclaimed", file.to_str().unwrap()];
    line.extend(more);
    run_cli(&served.socket(), &line)
}

fn pvs() -> String {
    list(&[
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "nfs"}, "spec": {"nfs": {}}}),
        pv("pvc-1", &id(1, "n1")),
        pv("old-3", &id(3, "n1")),
    ])
}

#[test]
fn what_no_persistent_volume_names_is_shown_and_what_was_moved_is_noted() {
    let served = cluster();
    assert_eq!(
        unclaimed(&served, &pvs(), &[]).ok(),
        format!(
            "\
NODE  NAME   CLASS    SIZE  FS    STATE          CONDITION  AGE  USED-BY  DRIVE  REASON
n1    pvc-2  fast   10 GiB  ext4  ready          ok           -  -        wwn-a  -
n2    pvc-3  fast   10 GiB  ext4  ready          ok           -  -        wwn-a  -
    PersistentVolume old-3 names it on node n1; see `drivebay-controller volume pv {}`
n2    pvc-4  fast   10 GiB  ext4  ready, in use  ok           -  -        wwn-a  -
    no PersistentVolume names it, but it is in use: it is not left over
(2 of 4 volumes without a PersistentVolume; 1 with one, 1 with one that names another node)
(a volume that is being created has none yet: repeat the command in some minutes before deleting one)
",
            id(3, "n2")
        )
    );
    let output = unclaimed(&served, &pvs(), &["-o", "json", "--node", "n2"]);
    assert!(
        output.notes.starts_with("(1 of 2 volumes"),
        "{}",
        output.notes
    );
    let json: Value = serde_json::from_str(&output.ok()).unwrap();
    let elsewhere = json!({"persistent_volume": "old-3", "node": "n1"});
    assert_eq!(json["volumes"].as_array().unwrap().len(), 2);
    assert_eq!(json["volumes"][0]["named_elsewhere"], elsewhere);
    assert_eq!(json["volumes"][1].get("named_elsewhere"), None);
}

#[test]
fn a_volume_made_by_hand_is_not_called_unclaimed() {
    let mut manual = volume(2, "n1", "scratch");
    inside(&mut manual).manual = true;
    let served = Fake {
        nodes: vec![node("n1", "connected")],
        volumes: vec![volume(1, "n1", "pvc-1"), manual, volume(3, "n1", "pvc-3")],
        ..Fake::default()
    }
    .serve();
    let out = unclaimed(&served, &list(&[pv("pvc-1", &id(1, "n1"))]), &[]).ok();
    assert!(out.contains("pvc-3") && !out.contains("scratch"), "{out}");
    assert!(out.contains("(1 of 2 volumes"), "{out}");
}

#[test]
fn a_volume_that_is_named_where_it_is_and_elsewhere_is_claimed() {
    let served = cluster();
    for order in [[0, 1], [1, 0]] {
        let pvs = [pv("old", &id(3, "n1")), pv("new", &id(3, "n2"))];
        let pvs = order.map(|index| pvs[index].clone());
        let out = unclaimed(&served, &list(&pvs), &[]).ok();
        assert!(!out.contains("pvc-3"), "{out}");
        assert!(out.contains("(most volumes have none:"), "{out}");
    }
}

#[test]
fn another_drivers_name_on_it_is_a_claim_all_the_same() {
    let served = cluster();
    let mut other = pv("pvc-2", &id(2, "n1"));
    other["spec"]["csi"]["driver"] = "csi.example.org".into();
    let out = unclaimed(&served, &list(&[other]), &[]).ok();
    assert!(!out.contains("pvc-2"), "{out}");
}

#[test]
fn a_wrong_list_is_an_error_and_never_everything() {
    let served = cluster();
    let mut partial: Value = serde_json::from_str(&pvs()).unwrap();
    partial["metadata"]["continue"] = "abc".into();
    let mut claim = pv("pvc-1", &id(1, "n1"));
    claim["kind"] = "PersistentVolumeClaim".into();
    let mut no_kind = pv("pvc-1", &id(1, "n1"));
    no_kind.as_object_mut().unwrap().remove("kind");
    let mut no_handle = pv("pvc-1", "x");
    no_handle["spec"]["csi"] = json!({"driver": "csi.drivebay.io"});
    for (pvs, words) in [
        (String::new(), "is not what `kubectl"),
        ("{}".into(), "is not what `kubectl"),
        ("[]".into(), "is not what `kubectl"),
        ("No resources found\n".into(), "is not what `kubectl"),
        (pvs()[..pvs().len() - 9].into(), "is not what `kubectl"),
        (pvs() + &pvs(), "is not what `kubectl"),
        (list(&[no_handle]), "is not what `kubectl"),
        (
            list(&[json!({"kind": "PersistentVolume"})]),
            "is not what `kubectl",
        ),
        (list(&[]), "names no volume of Drivebay"),
        (list(&[pv("x", "vol-0123")]), "names no volume of Drivebay"),
        (
            pv("pvc-1", &id(1, "n1")).to_string(),
            "a PersistentVolume, not a list",
        ),
        (
            list(&[pv("pvc-1", &id(1, "n1")), claim]),
            "a PersistentVolumeClaim, not",
        ),
        (list(&[no_kind]), "not a list of PersistentVolumes"),
        (pvs().replace("\"List\"", "\"PodList\""), "a PodList, not"),
        (pvs().replace("\"items\"", "\"things\""), "a List, not"),
        (partial.to_string(), "only a part"),
        (list(&[pv("x", &id(99, "n1"))]), "another cluster's list"),
    ] {
        for format in ["table", "json"] {
            let output = unclaimed(&served, &pvs, &["-o", format]);
            assert_eq!(output.out, "", "{pvs}");
            let (error, code) = output.error();
            assert!(error.contains(words), "{pvs}: {error}");
            assert_eq!(code, 1);
        }
    }
    let (error, _) = run_cli(
        &served.socket(),
        &["volumes", "--unclaimed", "/nonexistent"],
    )
    .error();
    assert!(error.contains("cannot read /nonexistent"), "{error}");
}

#[test]
fn the_api_servers_own_list_is_one_too() {
    let served = cluster();
    let mut item = pv("pvc-1", &id(1, "n1"));
    item.as_object_mut().unwrap().remove("kind");
    let raw = json!({"kind": "PersistentVolumeList", "apiVersion": "v1", "metadata": {}, "items": [item]});
    let out = unclaimed(&served, &raw.to_string(), &[]).ok();
    assert!(out.contains("pvc-2") && !out.contains("pvc-1"), "{out}");
}

#[test]
fn without_volumes_nothing_is_left_over() {
    let served = Fake::default().serve();
    assert_eq!(unclaimed(&served, &pvs(), &[]).ok(), "no volumes\n");
}

#[test]
fn a_list_that_breaks_off_while_it_is_compared_is_no_evidence() {
    let fake = Fake {
        volumes: vec![volume(9, "n1", "pvc-9")],
        end: Some(Status::unavailable("not all of it is known")),
        ..Fake::default()
    };
    let output = unclaimed(&fake.serve(), &pvs(), &[]);
    assert_eq!(output.out, "");
    assert_eq!(
        output.error(),
        ("the controller refused: not all of it is known".into(), 1)
    );
}

#[test]
fn deleted_volumes_are_not_compared() {
    let line = ["x", "volumes", "--unclaimed", "-", "--deleted"];
    assert!(Cli::try_parse_from(line).is_err());
}

#[test]
fn a_broken_reader_is_not_a_wrong_list() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::TimedOut.into())
        }
    }
    let error = Claims::parse(Path::new("-"), Broken).unwrap_err();
    assert!(matches!(error, ClaimsError::Read { .. }), "{error}");
}

#[test]
fn without_a_list_the_controller_reports_what_no_persistent_volume_names() {
    let mut named = volume(1, "n1", "kept");
    named.claims_known = true;
    named.persistent_volume = "pv-1".into();
    let mut new = volume(2, "n1", "young");
    (new.claims_known, new.unclaimed_seconds) = (true, 599);
    let mut left = volume(3, "n1", "left");
    (left.claims_known, left.unclaimed_seconds) = (true, 7200);
    let served = Fake {
        nodes: vec![node("n1", "connected")],
        volumes: vec![named, new, left],
        ..Fake::default()
    }
    .serve();
    let out = run_cli(&served.socket(), &["volumes", "--unclaimed"]).ok();
    assert!(out.contains("left") && !out.contains("kept"), "{out}");
    assert!(!out.contains("young"), "{out}");
    assert!(
        out.contains("no PersistentVolume has named it for 2h"),
        "{out}"
    );
    assert!(
        out.contains("(1 of 3 volumes without a PersistentVolume"),
        "{out}"
    );
}

#[test]
fn a_controller_that_follows_no_persistent_volumes_does_not_report_that_all_are_claimed() {
    let served = Fake {
        nodes: vec![node("n1", "connected")],
        volumes: vec![volume(1, "n1", "v")],
        ..Fake::default()
    }
    .serve();
    let (error, _) = run_cli(&served.socket(), &["volumes", "--unclaimed"]).error();
    assert!(
        error.contains("does not follow PersistentVolumes"),
        "{error}"
    );
}
