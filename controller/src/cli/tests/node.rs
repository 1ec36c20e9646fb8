//! `node forget` and `node remember`: a node is forgotten only if it is disconnected, its loss was shown, and it was confirmed.

use drivebay_proto::controller::Connection;

use super::{
    fake::{Fake, Served},
    *,
};

fn cluster(state: &str) -> Served {
    let mut gone = node("n7", state);
    gone.away_seconds = 90_000;
    gone.drives = 12;
    gone.machine_id = "8f1c".into();
    gone.notes = vec!["a note".into()];
    let mut deleted = volume(3, "n7", "pvc-3");
    inside(&mut deleted).state = "erasing".into();
    Fake {
        nodes: vec![gone, node("n8", "connected")],
        volumes: vec![
            volume(1, "n7", "pvc-1"),
            volume(2, "n7", "pvc-2"),
            deleted,
            volume(4, "n8", "pvc-4"),
        ],
        ..Fake::default()
    }
    .serve()
}

fn forget(served: &Served, more: &[&str]) -> CommandOutput {
    let config = served.dir().join("c.toml");
    let mut line = vec!["node", "forget", "n7", "--config", config.to_str().unwrap()];
    line.extend(more);
    run_cli(&served.socket(), &line)
}

fn config(served: &Served) -> String {
    std::fs::read_to_string(served.dir().join("c.toml")).unwrap()
}

fn write_config(served: &Served, text: &str) {
    std::fs::write(served.dir().join("c.toml"), text).unwrap();
}

#[test]
fn without_confirmation_what_would_be_given_up_is_shown_and_nothing_done() {
    let served = cluster("away");
    write_config(&served, "# mine\n");
    let (text, code) = forget(&served, &[]).error();
    assert_eq!(code, 2);
    assert_eq!(
        text,
        format!(
            "\
forgetting gives a node up for good:

  node     n7
  state    away for 1d01h
  machine  8f1c
  drives   12
  note     a note
  volume   pvc-1 (10 GiB, fast, ready)
  volume   pvc-2 (10 GiB, fast, ready)

These 2 volumes are lost to the cluster: deleting one is answered with OK, without anything being erased.
If the node returns after all, those that were deleted meanwhile are quarantined there before they
are erased, and the others are there again.

Nothing was changed. To give it up, spell out its name:

  drivebay-controller node forget n7 --config {0} --confirm n7",
            served.dir().join("c.toml").display()
        )
    );
    assert_eq!(config(&served), "# mine\n");
    let (text, code) = forget(&served, &["--confirm", "n8"]).error();
    assert!(text.contains("nothing was changed"), "{text}");
    assert_eq!((code, config(&served).as_str()), (2, "# mine\n"));
}

#[test]
fn a_confirmed_one_is_in_the_config_and_can_be_taken_back() {
    let served = cluster("away");
    write_config(&served, "# mine\n");
    let output = forget(&served, &["--confirm", "n7"]).ok();
    assert!(output.starts_with("n7 is forgotten now"), "{output}");
    let text = config(&served);
    assert!(
        text.starts_with("# mine\n\n[[forgotten]]\nnode = \"n7\"\nat = 20"),
        "{text}"
    );
    let again = forget(&served, &["--confirm", "n7"]).ok();
    assert!(again.contains("already, since 20"), "{again}");
    assert_eq!(config(&served), text);

    let path = served.dir().join("c.toml");
    let line = ["node", "remember", "n7", "--config", path.to_str().unwrap()];
    let output = run_cli(&served.socket(), &line).ok();
    assert!(
        output.starts_with("n7 is not forgotten any more"),
        "{output}"
    );
    assert_eq!(config(&served), "# mine\n");
    let (error, code) = run_cli(&served.socket(), &line).error();
    assert!(error.contains("\"n7\" is not forgotten"), "{error}");
    assert_eq!(code, 1);
}

#[test]
fn a_node_that_is_there_or_in_an_unknown_state_is_not_given_up() {
    for (state, words) in [
        ("connected", "its agent is connected"),
        ("starting", "its agent is connected"),
        ("resting", "does not know"),
        ("", "does not know"),
    ] {
        let served = cluster(state);
        write_config(&served, "");
        for more in [&["--confirm", "n7"] as &[&str], &[]] {
            let (error, code) = forget(&served, more).error();
            assert!(error.contains(words), "{state}: {error}");
            assert_eq!(code, 1);
        }
        let (error, _) = run_cli(&served.socket(), &["node", "forget", "n7", "--print"]).error();
        assert!(error.contains(words), "{state}: {error}");
        assert_eq!(config(&served), "");
    }
}

#[test]
fn nothing_is_given_up_while_no_controller_reports_what() {
    let served = cluster("away");
    write_config(&served, "");
    let path = served.dir().join("c.toml");
    let line = [
        "node",
        "forget",
        "n7",
        "--confirm",
        "n7",
        "--config",
        path.to_str().unwrap(),
    ];
    let (error, code) = run_cli(&served.dir().join("none"), &line).error();
    assert!(error.starts_with("no controller answers"), "{error}");
    assert_eq!((code, config(&served).as_str()), (3, ""));
}

#[test]
fn a_node_that_the_controller_does_not_know_is_reported_as_unknown() {
    let served = Fake::default().serve();
    write_config(&served, "");
    let (text, code) = forget(&served, &[]).error();
    assert!(
        text.contains("unknown to this controller: is the name right?"),
        "{text}"
    );
    assert!(text.contains("No volume of it is known"), "{text}");
    assert_eq!((code, config(&served).as_str()), (2, ""));
    forget(&served, &["--confirm", "n7"]).ok();
    assert!(config(&served).contains("\"n7\""));
}

#[test]
fn the_entry_is_printed_for_a_config_map() {
    let served = cluster("away");
    let output = run_cli(&served.socket(), &["node", "forget", "n7", "--print"]);
    assert!(output.notes.contains("volume   pvc-1"), "{}", output.notes);
    let text = output.ok();
    let settings = crate::settings::Settings::parse(&text).unwrap();
    assert!(settings.forgotten.since("n7").is_some(), "{text}");
}

#[test]
fn a_config_that_is_not_there_or_wrong_is_not_made_right() {
    let served = cluster("away");
    let (error, code) = forget(&served, &["--confirm", "n7"]).error();
    assert!(error.starts_with("there is no "), "{error}");
    assert_eq!(code, 1);
    assert!(!served.dir().join("c.toml").exists());
    write_config(&served, "nonsense = 1\n");
    let (error, _) = forget(&served, &["--confirm", "n7"]).error();
    assert!(error.contains("c.toml:1: unknown field"), "{error}");
    assert_eq!(config(&served), "nonsense = 1\n");
}

#[test]
fn what_is_typed_is_checked() {
    for line in [
        vec!["forget", "n7"],
        vec!["forget", "-n7", "--print"],
        vec!["forget", "n7\n", "--print"],
        vec!["forget", "n7", "--print", "--confirm", "n7"],
        vec!["forget", "n7", "--print", "--config", "x"],
        vec!["remember", "n7"],
    ] {
        let mut words = vec!["x", "node"];
        words.extend(&line);
        assert!(Cli::try_parse_from(words).is_err(), "{line:?}");
    }
}

#[test]
fn a_node_is_shown_with_its_sessions_and_who_was_refused_under_its_name() {
    let past = |outcome: &str, text: &str, times| Connection {
        at: 1_000,
        outcome: outcome.into(),
        address: "10.0.0.7:4000".into(),
        text: text.into(),
        times,
    };
    let mut shown = node("n7", "away");
    shown.away_seconds = 7200;
    shown.volumes = 3;
    shown.history = vec![
        past("connected", "version 0.1.0", 1),
        past("refused", "its token is of a pod on node \"n8\"", 40),
    ];
    let served = Fake {
        nodes: vec![shown],
        ..Fake::default()
    }
    .serve();
    let out = run_cli(&served.socket(), &["node", "show", "n7"]).ok();
    for part in [
        "Node n7",
        "away 2h",
        "3, 0 abnormal",
        "connected",
        "40 times",
        "on node \"n8\"",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let json = run_cli(&served.socket(), &["node", "show", "n7", "-o", "json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["history"][1]["times"], 40);
    assert_eq!(json["node"], "n7");
    let (error, _) = run_cli(&served.socket(), &["node", "show", "n9"]).error();
    assert!(error.contains("no node n9 is known"), "{error}");
}
