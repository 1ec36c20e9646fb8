//! `drivebay-controller certs`: the files it creates, that it overwrites nothing, and which files are refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod ca;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use ca::{Ca, DAY, certs, load_error, put};
use clap::Parser;
use drivebay_common::tls::{Credentials, Role, TlsError, TlsFiles, expires, node_id};
use drivebay_controller::{certs::CertsError, config::Cli};
use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};

/// Returns all files below a directory, with mode and contents.
fn tree(dir: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(tree(&path));
        } else {
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            files.insert(path.clone(), (mode, fs::read(&path).unwrap()));
        }
    }
    files
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn what_is_made_can_be_loaded_and_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("a/b");
    let text = dir.to_str().unwrap();
    certs(&["init", "--dir", text]).unwrap();
    certs(&["node", "rack1.Node_7", "--dir", text]).unwrap();
    for made in [
        dir.parent().unwrap(),
        &dir,
        &dir.join("nodes"),
        &dir.join("nodes/rack1.Node_7"),
    ] {
        assert_eq!(mode(made), 0o700, "{made:?}");
    }
    let files = tree(&dir);
    let names: Vec<_> = files
        .keys()
        .map(|path| path.strip_prefix(&dir).unwrap().to_str().unwrap())
        .collect();
    let node = "nodes/rack1.Node_7";
    let expected = [
        "ca-key.pem".to_owned(),
        "ca.pem".to_owned(),
        "controller-key.pem".to_owned(),
        "controller.pem".to_owned(),
        format!("{node}/ca.pem"),
        format!("{node}/node-key.pem"),
        format!("{node}/node.pem"),
    ];
    assert_eq!(names, expected, "and no litter");
    for (path, (mode, _)) in &files {
        let is_key = path.to_str().unwrap().ends_with("-key.pem");
        assert_eq!(*mode == 0o600, is_key, "{path:?}");
    }
    let node = dir.join(node);
    let agent = TlsFiles {
        ca: node.join("ca.pem"),
        cert: node.join("node.pem"),
        key: node.join("node-key.pem"),
    };
    let agent = Credentials::load(agent, Role::Agent).await.unwrap();
    assert_eq!(
        node_id(&agent.certificate().unwrap()).as_deref(),
        Ok("rack1.Node_7")
    );
    let controller = TlsFiles {
        ca: dir.join("ca.pem"),
        cert: dir.join("controller.pem"),
        key: dir.join("controller-key.pem"),
    };
    let controller = Credentials::load(controller, Role::Controller)
        .await
        .unwrap();
    assert_eq!(controller.own_node(), None);
}

#[test]
fn nothing_is_overwritten_without_renew() {
    let ca = Ca::new();
    let before = tree(ca.dir.path());
    let dir = ca.path_text();
    for args in [
        vec!["init", "--dir", dir],
        vec!["controller", "--dir", dir],
        vec!["node", "n1", "--dir", dir],
    ] {
        let error = certs(&args).unwrap_err();
        assert!(matches!(error, CertsError::Exists { .. }), "{error}");
    }
    assert_eq!(tree(ca.dir.path()), before);
}

#[test]
fn renewing_replaces_the_pair_and_nothing_else() {
    let ca = Ca::new();
    let dir = ca.path_text();
    for (args, renewed) in [
        (
            vec!["node", "n1"],
            ["nodes/n1/node.pem", "nodes/n1/node-key.pem"],
        ),
        (vec!["controller"], ["controller.pem", "controller-key.pem"]),
    ] {
        let before = tree(ca.dir.path());
        certs(&[args, vec!["--dir", dir, "--renew"]].concat()).unwrap();
        let after = tree(ca.dir.path());
        assert!(before.keys().eq(after.keys()), "no file more or less");
        let differ: Vec<_> = before
            .iter()
            .filter(|(path, contents)| after.get(*path) != Some(contents))
            .map(|(path, _)| path.clone())
            .collect();
        let mut expected = renewed.map(|file| ca.path(file));
        expected.sort();
        assert_eq!(differ, expected);
        assert_eq!(mode(&ca.path(renewed[1])), 0o600);
    }
}

#[test]
fn a_renewed_controller_keeps_its_names_unless_others_are_given() {
    let ca = Ca::new();
    let dir = ca.path_text();
    let names = [
        "--name",
        "a.example",
        "--name",
        "10.0.0.7",
        "--name",
        "fd00::7",
    ];
    let base = ["controller", "--dir", dir, "--renew"];
    let output = certs(&[base.as_slice(), &names].concat()).unwrap();
    assert!(
        output.contains("as a.example, 10.0.0.7, fd00::7\n"),
        "{output}"
    );
    let output = certs(&base).unwrap();
    assert!(
        output.contains("as a.example, 10.0.0.7, fd00::7\n"),
        "{output}"
    );
}

#[test]
fn renewing_what_is_not_there_is_refused() {
    let ca = Ca::new();
    let dir = ca.path_text();
    let error = certs(&["node", "n2", "--dir", dir, "--renew"]).unwrap_err();
    assert!(
        matches!(error, CertsError::NothingToRenew { .. }),
        "{error}"
    );
    assert!(!ca.path("nodes/n2").exists());
}

#[test]
fn another_nodes_certificate_is_not_replaced() {
    let ca = Ca::new();
    let before = tree(ca.dir.path());
    let out = ca.path("nodes/n1");
    let out = out.to_str().unwrap();
    let args = [
        "node",
        "n2",
        "--dir",
        ca.path_text(),
        "--out",
        out,
        "--renew",
    ];
    let error = certs(&args).unwrap_err();
    assert!(matches!(error, CertsError::AnotherNode { .. }), "{error}");
    assert_eq!(tree(ca.dir.path()), before);
}

#[test]
fn half_a_pair_is_refused_and_renewed() {
    for missing in ["nodes/n1/node.pem", "nodes/n1/node-key.pem"] {
        let ca = Ca::new();
        fs::remove_file(ca.path(missing)).unwrap();
        let error = certs(&["node", "n1", "--dir", ca.path_text()]).unwrap_err();
        assert!(matches!(error, CertsError::HalfAPair { .. }), "{error}");
        certs(&["node", "n1", "--dir", ca.path_text(), "--renew"]).unwrap();
        assert!(ca.path(missing).exists());
    }
}

#[test]
fn a_ca_is_completed_by_a_controller_and_never_made_twice() {
    let ca = Ca::new();
    let (dir, before) = (ca.path_text(), tree(ca.dir.path()));
    for file in ["controller.pem", "controller-key.pem"] {
        fs::remove_file(ca.path(file)).unwrap();
    }
    let output = certs(&["init", "--dir", dir]).unwrap();
    assert!(output.contains("already exists"), "{output}");
    assert!(ca.path("controller.pem").exists());
    let after = tree(ca.dir.path());
    for file in ["ca.pem", "ca-key.pem"] {
        let path = ca.path(file);
        assert_eq!(after.get(&path), before.get(&path));
    }
}

#[test]
fn half_a_ca_is_not_completed_by_another() {
    let init = |ca: &Ca| certs(&["init", "--dir", ca.path_text()]).unwrap_err();
    let ca = Ca::new();
    fs::remove_file(ca.path("ca-key.pem")).unwrap();
    let error = init(&ca);
    assert!(matches!(error, CertsError::CaKeyMissing { .. }), "{error}");

    let ca = Ca::new();
    fs::remove_file(ca.path("ca.pem")).unwrap();
    let error = init(&ca);
    assert!(
        matches!(error, CertsError::CaCertificateMissing { .. }),
        "{error}"
    );

    let ca = Ca::new();
    fs::remove_file(ca.path("ca.pem")).unwrap();
    fs::remove_file(ca.path("ca-key.pem")).unwrap();
    let error = init(&ca);
    assert!(matches!(error, CertsError::Exists { .. }), "{error}");
    assert!(!ca.path("ca.pem").exists());

    let (ca, other) = (Ca::new(), Ca::new());
    put(&ca.path("ca.pem"), fs::read(other.path("ca.pem")).unwrap());
    let error = certs(&["node", "n2", "--dir", ca.path_text()]).unwrap_err();
    assert!(matches!(error, CertsError::NotTheCasKey { .. }), "{error}");
}

#[test]
fn a_link_to_nowhere_is_not_written_through() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = dir.path().join("elsewhere");
    symlink(&elsewhere, dir.path().join("ca-key.pem")).unwrap();
    let error = certs(&["init", "--dir", dir.path().to_str().unwrap()]).unwrap_err();
    assert!(
        matches!(error, CertsError::CaCertificateMissing { .. }),
        "{error}"
    );
    assert!(!elsewhere.exists());
}

#[test]
fn whom_a_node_trusts_is_not_changed() {
    let (ca, other) = (Ca::new(), Ca::new());
    let copy = ca.path("nodes/n1/ca.pem");
    let renew = ["node", "n1", "--dir", ca.path_text(), "--renew"];
    let (own, foreign) = (
        fs::read_to_string(&copy).unwrap(),
        fs::read_to_string(other.path("ca.pem")).unwrap(),
    );
    let both = format!("{foreign}{own}");
    put(&copy, &both);
    let output = certs(&renew).unwrap();
    assert!(output.contains("it was not changed"), "{output}");
    assert_eq!(fs::read_to_string(&copy).unwrap(), both);

    put(&copy, &foreign);
    let before = tree(ca.dir.path());
    let error = certs(&renew).unwrap_err();
    assert!(matches!(error, CertsError::AnotherCa { .. }), "{error}");
    assert_eq!(tree(ca.dir.path()), before);
}

#[tokio::test]
async fn a_bundle_signs_with_the_ca_whose_key_is_there() {
    let (old, new) = (Ca::new(), Ca::new());
    let bundle = [old.path("ca.pem"), new.path("ca.pem")].map(|path| fs::read(path).unwrap());
    put(&new.path("ca.pem"), bundle.concat());
    certs(&["node", "n2", "--dir", new.path_text()]).unwrap();
    let agent = new.node_files("n2");
    assert_eq!(fs::read(&agent.ca).unwrap(), bundle.concat());
    Credentials::load(agent.clone(), Role::Agent).await.unwrap();
    put(&agent.ca, &bundle[1]);
    Credentials::load(agent, Role::Agent).await.unwrap();
}

#[tokio::test]
async fn no_certificate_outlives_its_ca() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().to_str().unwrap();
    let output = certs(&["init", "--dir", text, "--ca-days", "3"]).unwrap();
    assert!(output.contains("less than asked for"), "{output}");
    certs(&["node", "n1", "--dir", text, "--days", "2"]).unwrap();
    let until = |file: &str| {
        let files = TlsFiles {
            ca: PathBuf::new(),
            cert: dir.path().join(file),
            key: dir.path().join("ca-key.pem"),
        };
        expires(Ca::read(&files).chain.first().unwrap()).unwrap()
    };
    assert_eq!(until("controller.pem"), until("ca.pem"));
    assert!(until("nodes/n1/node.pem") < until("ca.pem"));
}

#[test]
fn serial_numbers_differ() {
    let ca = Ca::new();
    let serial = || {
        certs(&["node", "n1", "--dir", ca.path_text(), "--renew"]).unwrap();
        let chain = Ca::read(&ca.node_files("n1")).chain;
        let (_, parsed) = x509_parser::parse_x509_certificate(chain.first().unwrap()).unwrap();
        parsed.raw_serial().to_vec()
    };
    let (first, second) = (serial(), serial());
    assert_ne!(first, second);
    assert!(first.len() >= 15, "as many as are random");
}

#[test]
fn names_and_days_that_cannot_be_are_refused() {
    let init = ["drivebay-controller", "certs", "init", "--dir", "/nowhere"];
    let node = ["drivebay-controller", "certs", "node", "--dir", "/nowhere"];
    let refused = |base: &[&str], more: &[&str]| {
        assert!(
            Cli::try_parse_from([base, more].concat()).is_err(),
            "{more:?}"
        );
    };
    for name in ["", "*", "https://a", "a:1", "10.0.0.999"] {
        refused(&init, &["--name", name]);
    }
    for days in ["0", "-1", "36501", "x"] {
        refused(&init, &["--days", days]);
        refused(&init, &["--ca-days", days]);
    }
    let long = "n".repeat(64);
    for id in ["", "..", "a/b", "/a", "-a", "a b", "ä", &long] {
        refused(&node, &[id]);
    }
}

#[tokio::test]
async fn files_that_do_not_fit_are_refused_at_the_start_with_their_name() {
    let (ca, other) = (Ca::new(), Ca::new());
    let whole = ca.node_files("n1");
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str, contents: &[u8]| {
        let path = scratch.path().join(name);
        fs::write(&path, contents).unwrap();
        path
    };
    let pair = |name: &str, issued: &ca::Issued| TlsFiles {
        ca: whole.ca.clone(),
        cert: file(&format!("{name}.pem"), issued.certificate_pem.as_bytes()),
        key: file(&format!("{name}-key.pem"), issued.key_pem.as_bytes()),
    };
    let now = std::time::SystemTime::now();
    let node = "drivebay://node/n1";
    let expired = ca.issue(now - 2 * DAY, now - DAY, ClientAuth, node);
    let early = ca.issue(now + DAY, now + 2 * DAY, ClientAuth, node);
    let server = ca.issue(now - DAY, now + DAY, ServerAuth, "localhost");
    let nobody = ca.issue(now - DAY, now + DAY, ClientAuth, "localhost");
    let cut = fs::read(&whole.cert).unwrap();
    let cut = cut.get(..cut.len() / 2).unwrap();
    let base = whole.clone();
    let cases: Vec<(TlsFiles, &str, &str)> = vec![
        (
            TlsFiles {
                ca: "/nowhere".into(),
                ..base.clone()
            },
            "/nowhere",
            "cannot read",
        ),
        (
            TlsFiles {
                key: scratch.path().into(),
                ..base.clone()
            },
            "",
            "cannot read",
        ),
        (
            TlsFiles {
                cert: whole.key.clone(),
                ..base.clone()
            },
            "node-key.pem",
            "no certificate",
        ),
        (
            TlsFiles {
                key: whole.cert.clone(),
                ..base.clone()
            },
            "node.pem",
            "no private key",
        ),
        (
            TlsFiles {
                cert: file("cut.pem", cut),
                ..base.clone()
            },
            "cut.pem",
            "damaged",
        ),
        (
            TlsFiles {
                ca: file("long.pem", &vec![b'\n'; (1 << 20) + 1]),
                ..base.clone()
            },
            "long.pem",
            "more than",
        ),
        (
            TlsFiles {
                ca: whole.cert.clone(),
                ..base.clone()
            },
            "node.pem",
            "is not a CA's",
        ),
        (
            TlsFiles {
                key: other.node_files("n1").key,
                ..base.clone()
            },
            "node-key.pem",
            "is not the one of the certificate",
        ),
        (pair("expired", &expired), "expired.pem", "expired at"),
        (pair("early", &early), "early.pem", "valid only from"),
        (
            pair("server", &server),
            "server.pem",
            "not meant for an agent",
        ),
        (pair("nobody", &nobody), "nobody.pem", "is no node's"),
        (
            TlsFiles {
                ca: other.path("ca.pem"),
                ..base.clone()
            },
            "node.pem",
            "not signed by the CA",
        ),
    ];
    for (files, name, part) in cases {
        let error = load_error(&files, Role::Agent).await;
        let text = error.to_string();
        assert!(text.contains(name) && text.contains(part), "{text}");
    }
    let error = load_error(&whole, Role::Controller).await;
    assert!(matches!(error, TlsError::WrongRole { .. }), "{error}");
    assert!(
        error.to_string().contains("not meant for a controller"),
        "{error}"
    );
}
