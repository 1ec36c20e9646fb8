//! `nodes`, `drives`, `volumes`: exact output, since operators read it and scripts parse it.

use std::io::{self, Write};

use drivebay_proto::agent::{SnapshotGroup, VolumeSnapshot};
use tonic::Status;

use super::{fake::Fake, *};

fn trouble(status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        abnormal: true,
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        since: 0,
    }
}

fn cluster() -> Fake {
    let mut first = node("n1", "connected");
    first.drives = 24;
    first.drives_in_trouble = 1;
    first.volumes = 310;
    first.volumes_abnormal = 2;
    first.address = "10.0.0.7:43210".into();
    first.machine_id = "8f1c".into();
    first.instance = "i1".into();
    first.revision = 77;
    first.classes = vec![Class {
        name: "fast".into(),
        layout: "lvm".into(),
        total_bytes: 2048 * GIB,
        free_bytes: 1500 * GIB,
        largest_volume_bytes: 700 * GIB,
        smallest_volume_bytes: 4 << 20,
        fs_type: "ext4".into(),
        extent_bytes: 4 << 20,
    }];
    let mut second = node("n2", "away");
    second.away_seconds = 7380;
    second.notes = vec!["another machine calls itself n2 and was refused".into()];
    let mut sick = drive("wwn-b", "sdb", "claimed");
    sick.verdict = "BAD".into();
    sick.notes = vec!["12 pending sectors\u{1b}[2J".into()];
    let mut rejected = drive("wwn-c", "sdc", "rejected");
    rejected.verdict = "UNKNOWN".into();
    rejected.rejects = vec![Reject {
        code: "Mounted".into(),
        detail: "/".into(),
    }];
    let mut noise = drive("loop-0", "loop0", "rejected");
    noise.rejects = vec![Reject {
        code: "NotADisk".into(),
        detail: "loop".into(),
    }];
    let mut bulky = volume(2, "n1", "pvc-2");
    inside(&mut bulky).class = "bulk".into();
    inside(&mut bulky).published = true;
    inside(&mut bulky).mounts = vec!["/staging".into(), "/pods/1".into()];
    let mut lost = volume(3, "n2", "pvc-3");
    lost.node_state = "away".into();
    inside(&mut lost).conditions = vec![trouble(
        "INACCESSIBLE",
        "NodeAway",
        "node n2 is not connected",
    )];
    let mut deleted = volume(4, "n1", "pvc-4");
    inside(&mut deleted).state = "quarantined".into();
    Fake {
        nodes: vec![first, second, node("n3", "starting")],
        drives: vec![
            NodeDrives {
                node_id: "n1".into(),
                state: "connected".into(),
                drives: vec![drive("wwn-a", "sda", "claimed"), sick, rejected, noise],
            },
            NodeDrives {
                node_id: "n2".into(),
                state: "away".into(),
                drives: vec![drive("wwn-d", "", "missing")],
            },
        ],
        volumes: vec![volume(1, "n1", "pvc-1"), bulky, lost, deleted],
        ..Fake::default()
    }
}

#[test]
fn nodes_are_shown_with_what_is_wrong() {
    let served = cluster().serve();
    let nodes = |line: &[&str]| run_cli(&served.socket(), line).ok();
    assert_eq!(
        nodes(&["nodes"]),
        "\
NODE  STATE       VERSION  DRIVES  TROUBLE  VOLUMES  ABNORMAL     FREE
n1    connected   0.1.0        24        1      310         2  1.4 TiB
n2    away 2h03m  0.1.0         0        0        0         0        -
    note: another machine calls itself n2 and was refused
n3    starting    0.1.0         0        0        0         0        -
"
    );
    assert_eq!(
        nodes(&["nodes", "-o", "wide", "--node", "n1"]),
        "\
NODE  STATE      VERSION  DRIVES  TROUBLE  VOLUMES  ABNORMAL     FREE  ADDRESS         MACHINE  INSTANCE  REVISION
n1    connected  0.1.0        24        1      310         2  1.4 TiB  10.0.0.7:43210  8f1c     i1              77
    class fast (lvm): 1.4 TiB free of 2 TiB, largest volume 700 GiB, ext4
"
    );
    let away = nodes(&["nodes", "--state", "away"]);
    assert!(away.contains("\nn2 ") && !away.contains("\nn1 "), "{away}");
    assert_eq!(
        nodes(&["nodes", "--state", "forgotten"]),
        "no node of 3 is forgotten\n"
    );
    assert_eq!(
        run_cli(&Fake::default().serve().socket(), &["nodes"]).ok(),
        "no nodes\n"
    );
}

#[test]
fn node_json_is_in_bytes_under_stable_names() {
    let served = cluster().serve();
    let text = run_cli(&served.socket(), &["nodes", "-o", "json", "--node", "n1"]).ok();
    assert_eq!(
        text,
        r#"{"nodes": [
{"node":"n1","state":"connected","version":"0.1.0","instance":"i1","machine_id":"8f1c","address":"10.0.0.7:43210","away_seconds":0,"drives":24,"drives_in_trouble":1,"volumes":310,"volumes_abnormal":2,"classes":[{"name":"fast","layout":"lvm","fs_type":"ext4","total_bytes":2199023255552,"free_bytes":1610612736000,"largest_volume_bytes":751619276800,"smallest_volume_bytes":4194304,"extent_bytes":4194304}],"notes":[],"revision":77,"expected":false,"findings":[]}
]}
"#
    );
    let _: serde_json::Value = serde_json::from_str(&text).unwrap();
    let none = run_cli(
        &served.socket(),
        &["nodes", "-o", "json", "--state", "forgotten"],
    )
    .ok();
    assert_eq!(none, "{\"nodes\": []}\n");
}

#[test]
fn yaml_of_a_list_has_what_json_has() {
    let served = cluster().serve();
    let list = |words: &[&str]| run_cli(&served.socket(), words).ok();
    assert_eq!(
        list(&["nodes", "-o", "yaml", "--state", "away"]),
        "\
nodes:
- node: n2
  state: away
  version: \"0.1.0\"
  instance: \"\"
  machine_id: \"\"
  address: \"\"
  away_seconds: 7380
  drives: 0
  drives_in_trouble: 0
  volumes: 0
  volumes_abnormal: 0
  classes: []
  notes:
  - another machine calls itself n2 and was refused
  revision: 0
  expected: false
  findings: []
"
    );
    assert_eq!(
        list(&["nodes", "-o", "yaml", "--state", "forgotten"]),
        "nodes: []\n"
    );
    for name in ["drives", "volumes"] {
        let json: serde_json::Value = serde_json::from_str(&list(&[name, "-o", "json"])).unwrap();
        let one = json[name][0].as_object().unwrap();
        let yaml = list(&[name, "-o", "yaml"]);
        assert!(
            yaml.starts_with(&format!("{name}:\n- node: n1\n")),
            "{yaml}"
        );
        let first = yaml.split("\n- ").nth(1).unwrap();
        for key in one.keys() {
            assert!(first.contains(&format!("{key}:")), "{key} in {first}");
        }
        let items = yaml.lines().filter(|line| line.starts_with("- ")).count();
        assert_eq!(items, json[name].as_array().unwrap().len(), "{yaml}");
        assert!(!yaml.contains('\u{1b}'), "{yaml}");
    }
}

#[test]
fn a_list_is_shown_again_when_it_has_changed() {
    /// Accepts this many writes.
    struct Reader(usize, Vec<u8>);
    impl Write for Reader {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::BrokenPipe)?;
            self.1.extend(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut fake = cluster();
    // The age of a volume changes each second.
    inside(&mut fake.volumes[0]).created_at = unix_seconds();
    let served = fake.serve();
    let socket = served.socket();
    let words = [
        "x",
        "volumes",
        "--watch=1",
        "--socket",
        socket.to_str().unwrap(),
    ];
    let Command::Client(command) = Cli::try_parse_from(words).unwrap().command else {
        panic!("not a question");
    };
    let mut reader = Reader(2, Vec::new());
    let end = execute(&command, &mut reader, &mut Vec::new()).unwrap_err();
    assert!(end.is_hang_up(), "{end}");
    let shown = String::from_utf8(reader.1).unwrap();
    assert_eq!(shown.matches("NODE  NAME").count(), 2, "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown}");
}

#[test]
fn volumes_of_all_nodes_are_not_sorted_by_how_full_they_are() {
    for by in ["used", "full"] {
        assert!(Cli::try_parse_from(["x", "volumes", "--sort", by]).is_err());
    }
    assert!(Cli::try_parse_from(["x", "volumes", "--sort", "size"]).is_ok());
}

#[test]
fn drives_are_shown_with_their_node_and_every_reason() {
    let served = cluster().serve();
    let drives = |line: &[&str]| run_cli(&served.socket(), line).ok();
    assert_eq!(
        drives(&["drives"]),
        "\
NODE  DRIVE  DEVICE  MEDIA      SIZE  USE%  STATE     CLASS  FREE  HEALTH   TEMP  WEAR  SINCE  REASON
n1    wwn-a  sda     nvme   1000 GiB     -  claimed   -       0 B  GOOD        -     -      -  -
n1    wwn-b  sdb     nvme   1000 GiB     -  claimed   -         -  BAD         -     -      -  -
n1    wwn-c  sdc     nvme   1000 GiB     -  rejected  -         -  UNKNOWN     -     -      -  Mounted
n2    wwn-d  -       nvme   1000 GiB     -  missing   -         -  GOOD        -     -      -  DriveMissing

Reasons:
  Note (n1: sdb): 12 pending sectors\\u{1b}[2J
  Mounted (n1: sdc): /
  DriveMissing (n2: wwn-d): it is not found on this node; plug it in again. If it is gone for good, so are the volumes on it: delete them

4 drives: 1 GOOD, 1 BAD, 1 missing, 1 not used
(1 virtual device is not shown; --all shows it)
(n2 is away: shown as last reported)
(n3 is starting: still scanning its drives)
"
    );
    assert_eq!(
        drives(&["drives", "--trouble"]),
        "\
NODE  DRIVE  DEVICE  MEDIA      SIZE  USE%  STATE    CLASS  FREE  HEALTH  TEMP  WEAR  SINCE  REASON
n1    wwn-b  sdb     nvme   1000 GiB     -  claimed  -         -  BAD        -     -      -  -

Reasons:
  Note (n1: sdb): 12 pending sectors\\u{1b}[2J

1 drive: 1 BAD
(n2 is away: shown as last reported)
(n3 is starting: still scanning its drives)
"
    );
    let all = drives(&["drives", "--all", "-o", "wide", "--node", "n1"]);
    assert!(all.contains("loop-0") && all.contains("FIRMWARE"), "{all}");
    assert!(!all.contains("n2"), "{all}");
    let json = drives(&["drives", "-o", "json", "--node", "n1", "--node", "n2"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let list = json["drives"].as_array().unwrap();
    assert_eq!(list.len(), 5, "virtual devices too");
    assert_eq!(
        (&list[4]["node"], &list[4]["node_state"], &list[4]["id"]),
        (&"n2".into(), &"away".into(), &"wwn-d".into())
    );
}

#[test]
fn volumes_are_shown_with_their_node_and_filtered() {
    let served = cluster().serve();
    let volumes = |line: &[&str]| run_cli(&served.socket(), line).ok();
    assert_eq!(
        volumes(&["volumes"]),
        "\
NODE  NAME   CLASS    SIZE  FS    STATE          CONDITION     AGE  USED-BY   DRIVE  REASON
n1    pvc-1  fast   10 GiB  ext4  ready          ok              -  -         wwn-a  -
n1    pvc-2  bulk   10 GiB  ext4  ready, in use  ok              -  /staging  wwn-a  -
n2    pvc-3  fast   10 GiB  ext4  ready          INACCESSIBLE    -  -         wwn-a  NodeAway

Reasons:
  NodeAway (pvc-3): node n2 is not connected
(n2 is away: shown as last reported)
(n3 is starting: still scanning its drives)
"
    );
    let names = |line: &[&str]| {
        let mut words = vec!["volumes", "-o", "json"];
        words.extend(line);
        let json: serde_json::Value = serde_json::from_str(&volumes(&words)).unwrap();
        let list = json["volumes"].as_array().unwrap().clone();
        list.iter()
            .map(|volume| volume["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&["--class", "bulk"]), ["pvc-2"]);
    assert_eq!(names(&["--abnormal"]), ["pvc-3"]);
    assert_eq!(names(&["--node", "n2"]), ["pvc-3"]);
    assert_eq!(
        names(&["--deleted", "--node", "n1"]),
        ["pvc-1", "pvc-2", "pvc-4"]
    );
    assert_eq!(
        volumes(&["volumes", "--class", "none", "--node", "n1"]),
        "none of 2 volumes\n"
    );
    assert_eq!(names(&["pvc-2", "pvc-1"]), ["pvc-1", "pvc-2"]);
    assert_eq!(
        names(&["pvc", "--sort", "condition"]),
        ["pvc-3", "pvc-1", "pvc-2"]
    );
    assert_eq!(names(&["--drive", "wwn-b"]), [""; 0]);
    assert_eq!(
        volumes(&["volumes", "-o", "name", "--class", "bulk"]),
        "pvc-2\n"
    );
    let rows = volumes(&["volumes", "--no-headers", "--node", "n1", "--class", "fast"]);
    assert_eq!(rows.lines().count(), 1, "{rows}");
    let wide = volumes(&["volumes", "-o", "wide"]);
    assert!(wide.contains(&id(1, "n1")), "{wide}");
    let row = wide.lines().find(|line| line.contains(&id(2, "n1")));
    assert!(row.unwrap().ends_with("  /staging, /pods/1  -"), "{wide}");
}

#[test]
fn snapshots_of_all_nodes_are_shown_with_their_node_and_volume_and_filtered() {
    let snapshot = |name: &str, state: &str| VolumeSnapshot {
        id: format!("uuid-{name}@n1"),
        name: name.into(),
        size_bytes: 10 * GIB,
        state: state.into(),
        reserve_bytes: 2 * GIB,
        used_bytes: Some(GIB),
        ..VolumeSnapshot::default()
    };
    let mut fake = cluster();
    let in_group = VolumeSnapshot {
        group: Some(SnapshotGroup {
            id: "uuid-nightly@n2".into(),
            name: "nightly".into(),
            members: 2,
        }),
        ..snapshot("c", "ready")
    };
    inside(&mut fake.volumes[2]).snapshots = vec![in_group];
    inside(&mut fake.volumes[0]).snapshots = vec![snapshot("a", "ready"), snapshot("b", "x")];
    let served = fake.serve();
    let of = |line: &[&str]| run_cli(&served.socket(), line).ok();
    assert_eq!(
        of(&["snapshots"]),
        "\
NODE  NAME  VOLUME    SIZE  AGE  EXPIRES  RESERVE  USED%  STATE
n1    a     pvc-1   10 GiB    -    never    2 GiB    50%  ready
n1    b     pvc-1   10 GiB    -    never    2 GiB    50%  x
n2    c     pvc-3   10 GiB    -    never    2 GiB    50%  ready
3 snapshots of 2 volumes: 2 ready, 1 x; 3 of 6 GiB reserve used
groups: nightly (1 of 2)
(n2 is away: shown as last reported)
(n3 is starting: still scanning its drives)
"
    );
    assert_eq!(of(&["snapshots", "pvc-3", "-o", "name"]), "c\n");
    assert_eq!(of(&["snapshots", "--node", "n2", "-o", "name"]), "c\n");
    assert_eq!(
        of(&["snapshots", "pvc-2", "--node", "n1"]),
        "none of 2 snapshots\n"
    );
    let json: serde_json::Value = serde_json::from_str(&of(&["snapshots", "-o", "json"])).unwrap();
    let last = &json["snapshots"][2];
    assert_eq!(
        (&last["node"], &last["node_state"], &last["volume_name"]),
        (&"n2".into(), &"away".into(), &"pvc-3".into())
    );
    assert_eq!(last["used_bytes"], GIB);
    assert_eq!(last["group"]["name"], "nightly");
    let (_, code) = run_cli(&served.socket(), &["snapshots", "pvc-9"]).error();
    assert_eq!(code, 6);
    let none = Fake::default().serve();
    assert_eq!(
        run_cli(&none.socket(), &["snapshots"]).ok(),
        "no snapshots\n"
    );
    let shown = of(&["volume", "show", "pvc-1"]);
    assert!(
        shown.contains(
            "\n  snapshots  a (10 GiB, never expires, 50% of 2 GiB reserve used): ready\n"
        ),
        "{shown}"
    );
}

#[test]
fn a_narrow_terminal_leaves_columns_out_and_reports_them() {
    let served = cluster().serve();
    let socket = served.socket();
    let shown = |list: &str, width: usize| {
        let words = ["x", list, "--socket", socket.to_str().unwrap()];
        let Command::Client(command) = Cli::try_parse_from(words).unwrap().command else {
            panic!("not a question");
        };
        let terminal = Terminal {
            width: Some(width),
            ..Terminal::NONE
        };
        let mut out = Vec::new();
        execute_on(&command, &mut out, &mut Vec::new(), terminal).unwrap();
        String::from_utf8(out).unwrap()
    };
    for list in ["nodes", "drives", "volumes"] {
        let narrow = shown(list, 60);
        let widest = narrow.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(60), "{narrow}");
        // Of two tables that fit, one has empty columns, whose omission needs no note.
        let has_note = narrow.contains("; -o wide shows");
        assert!(has_note || !narrow.contains("AGE"), "{narrow}");
        assert_eq!(shown(list, 200), run_cli(&socket, &[list]).ok());
    }
}

#[test]
fn volume_json_has_its_node() {
    let served = cluster().serve();
    let text = run_cli(
        &served.socket(),
        &["volumes", "-o", "json", "--class", "bulk"],
    )
    .ok();
    assert_eq!(
        text,
        r#"{"volumes": [
{"node":"n1","node_state":"connected","id":"00000000-0000-4000-8000-000000000002@n1","name":"pvc-2","class":"bulk","drive":"wwn-a","device":"sda2","size_bytes":10737418240,"mode":"mount","fs_type":"ext4","state":"ready","in_use":true,"places":[],"generation":null,"mounts":["/staging","/pods/1"],"pods":[],"conditions":[],"checks":[],"running_check":null,"erased_bytes":0,"erase_eta_seconds":null,"parameters":{},"manual":false,"created_at":null,"created_for":null,"usage":null}
]}
"#
    );
}

#[test]
fn a_node_that_is_not_known_is_an_error_and_not_a_node_without_trouble() {
    let served = cluster().serve();
    for list in ["nodes", "drives", "volumes", "snapshots"] {
        let (error, code) =
            run_cli(&served.socket(), &[list, "--node", "n1", "--node", "n9"]).error();
        assert!(error.starts_with("no node n9 is known"), "{error}");
        assert_eq!(code, 6);
    }
}

#[test]
fn a_list_that_breaks_off_is_a_failure_and_a_short_one_is_not_shown() {
    let mut fake = cluster();
    fake.end = Some(Status::resource_exhausted("too slow"));
    let served = fake.serve();
    for list in ["drives", "volumes"] {
        let output = run_cli(&served.socket(), &[list]);
        assert_eq!(output.out, "");
        assert_eq!(
            output.error(),
            ("the controller refused: too slow".into(), 1)
        );
    }
}

#[test]
fn nobody_there_has_a_code_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (error, code) = run_cli(&dir.path().join("none"), &["nodes"]).error();
    assert!(error.starts_with("no controller answers at"), "{error}");
    assert_eq!(code, 3);
    let (error, code) = run_cli(&dir.path().join("none"), &["volume", "pv", &id(1, "n1")]).error();
    assert!(error.starts_with("no controller answers at"), "{error}");
    assert_eq!(code, 3);
}

#[test]
fn one_that_goes_away_within_its_answer_is_nobody_there() {
    use std::os::unix::net::UnixListener;
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("c.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    // Accepts the connection, reads the call's first bytes, and closes it.
    let hangs_up = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut bytes = [0; 24];
        io::Read::read_exact(&mut connection, &mut bytes).unwrap();
    });
    let (error, code) = run_cli(&socket, &["nodes"]).error();
    assert_eq!(code, 3, "{error}");
    hangs_up.join().unwrap();
}

#[test]
fn lists_of_any_length_come_in_pieces_and_whole() {
    const MANY: usize = 25_001;
    let one = volume(1, "n1", "pvc-1");
    let served = Fake {
        nodes: vec![node("n1", "connected")],
        volumes: vec![one; MANY],
        ..Fake::default()
    }
    .serve();
    let table = run_cli(&served.socket(), &["volumes"]).ok();
    assert_eq!(table.lines().count(), MANY + 1);
    assert_eq!(table.matches("NODE").count(), 1);
    let text = run_cli(&served.socket(), &["volumes", "-o", "json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["volumes"].as_array().unwrap().len(), MANY);
}

#[test]
fn a_reader_that_hangs_up_is_distinguished_from_an_error() {
    struct Gone;
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let served = cluster().serve();
    let socket = served.socket();
    let line = ["x", "volumes", "--socket", socket.to_str().unwrap()];
    let Command::Client(command) = Cli::try_parse_from(line).unwrap().command else {
        panic!("not a question");
    };
    let error = execute(&command, &mut Gone, &mut Vec::new()).unwrap_err();
    assert!(error.is_hang_up(), "{error}");
}
