//! The contents of a cluster's Secrets after several pods have run, one after the other.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    error::Error as _,
    fs,
    os::unix::fs::MetadataExt,
    time::{Duration, SystemTime},
};

use super::{
    args::{CertsCommand, KubernetesArgs, NodeArgs},
    cluster::{CA, CERTIFICATE, KEY, Plan, PlanError, Reason, Stored, TlsSecret, plan, write},
    run,
};

const HOST: &str = "drivebay-controller.drivebay.svc.cluster.local";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn args(tokens: bool) -> KubernetesArgs {
    KubernetesArgs {
        secret: "drivebay-controller-tls".into(),
        nodes_ca_secret: "drivebay-nodes-ca".into(),
        ca_config_map: tokens.then(|| "drivebay-controller-ca".into()),
        names: vec![
            HOST.parse().unwrap(),
            "drivebay-controller".parse().unwrap(),
        ],
        days: 3650,
        out: "/tls".into(),
    }
}

/// Stores the result of a plan.
fn store(stored: &mut Stored, tokens: bool, plan: &Plan) {
    if plan.nodes_ca.is_some() {
        stored.nodes_ca.clone_from(&plan.nodes_ca);
    }
    stored.controller = Some(plan.controller.clone());
    if tokens {
        stored.published = Some(plan.controller.ca.clone());
    }
}

/// Runs one pod. Returns the reason why it made the controller's certificate.
fn comes(stored: &mut Stored, tokens: bool, now: SystemTime) -> Option<Reason> {
    let made = plan(&args(tokens), stored, now).unwrap();
    store(stored, tokens, &made);
    made.reason
}

fn refused(stored: &Stored, tokens: bool, now: SystemTime) -> String {
    let error = plan(&args(tokens), stored, now).unwrap_err();
    let source = error.source().map(ToString::to_string);
    format!("{error}: {}", source.unwrap_or_default())
}

#[test]
fn certificates_are_made_once_and_kept_by_every_later_pod() {
    let now = SystemTime::now();
    for tokens in [true, false] {
        let mut stored = Stored::default();
        assert_eq!(comes(&mut stored, tokens, now), Some(Reason::Missing));
        let first = stored.clone();
        for later in [Duration::ZERO, DAY, 3649 * DAY] {
            let kept = plan(&args(tokens), &stored, now + later).unwrap();
            assert_eq!(kept.reason, None);
            assert!(kept.nodes_ca.is_none() && !kept.publish);
            assert_eq!(Some(kept.controller), first.controller);
        }
    }
}

#[test]
fn with_tokens_no_secret_holds_the_key_of_the_ca() {
    let mut stored = Stored::default();
    comes(&mut stored, true, SystemTime::now());
    assert!(stored.nodes_ca.is_none());
    let controller = stored.controller.unwrap();
    assert_eq!(stored.published.as_deref(), Some(controller.ca.as_str()));
    let as_ca = Stored {
        nodes_ca: Some(TlsSecret {
            certificate: controller.ca.clone(),
            ..controller
        }),
        ..Stored::default()
    };
    let message = refused(&as_ca, false, SystemTime::now());
    assert!(message.contains("belongs to the key"), "{message}");
}

#[test]
fn what_was_not_published_yet_is_published_by_the_next_pod() {
    let now = SystemTime::now();
    let mut stored = Stored::default();
    comes(&mut stored, true, now);
    for published in [None, Some("another".to_owned())] {
        stored.published = published;
        let next = plan(&args(true), &stored, now).unwrap();
        assert!(next.publish && next.reason.is_none());
    }
}

#[test]
fn the_nodes_ca_signs_certificates_that_go_with_the_controllers() {
    let now = SystemTime::now();
    let mut stored = Stored::default();
    comes(&mut stored, false, now);
    let ca = stored.nodes_ca.clone().unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("ca.pem"), &ca.certificate).unwrap();
    fs::write(dir.path().join("ca-key.pem"), &ca.key).unwrap();
    run(&CertsCommand::Node(NodeArgs {
        name: "node-7.example.org".into(),
        dir: dir.path().into(),
        out: None,
        days: 3650,
        renew: false,
    }))
    .unwrap();
    assert_eq!(stored.controller.unwrap().ca, ca.certificate);
}

#[test]
fn what_agents_would_refuse_is_made_anew() {
    let now = SystemTime::now();
    for tokens in [true, false] {
        let mut stored = Stored::default();
        comes(&mut stored, tokens, now);
        let former = stored.clone();

        let late = comes(&mut stored, tokens, now + 3652 * DAY);
        assert!(
            matches!(late, Some(Reason::Expired(_) | Reason::OtherCa)),
            "{late:?}"
        );
        assert_ne!(stored.controller, former.controller);

        let mut renamed = args(tokens);
        renamed.names = vec!["drivebay-controller.other.svc".parse().unwrap()];
        let made = plan(&renamed, &former, now).unwrap();
        let name = renamed.names[0].clone();
        assert_eq!(made.reason, Some(Reason::Unnamed(name)));

        let mut other = Stored::default();
        comes(&mut other, tokens, now);
        let mut mixed = former.clone();
        let another = other.controller.unwrap().ca;
        mixed.controller.as_mut().unwrap().ca = another;
        assert_eq!(comes(&mut mixed, tokens, now), Some(Reason::OtherCa));
        assert_eq!(comes(&mut mixed, tokens, now), None);
    }
}

#[test]
fn a_ca_whose_key_was_on_the_nodes_is_replaced_when_they_get_tokens() {
    let now = SystemTime::now();
    let mut stored = Stored::default();
    comes(&mut stored, false, now);
    assert_eq!(comes(&mut stored, true, now), Some(Reason::KeyOnNodes));
    assert!(
        stored.nodes_ca.is_some(),
        "the Secret stays, and vouches for nothing"
    );
    assert_eq!(comes(&mut stored, true, now), None);
    // Back to the nodes' CA: the controller's certificate is signed by it again.
    assert_eq!(comes(&mut stored, false, now), Some(Reason::OtherCa));
    assert_eq!(comes(&mut stored, false, now), None);
}

#[test]
fn what_cannot_be_read_is_an_error_and_nothing_is_made() {
    let now = SystemTime::now();
    let mut stored = Stored::default();
    comes(&mut stored, true, now);
    let mut other = Stored::default();
    comes(&mut other, true, now);
    let (good, other) = (stored.controller.unwrap(), other.controller.unwrap());
    let rows = [
        (
            TlsSecret {
                certificate: String::new(),
                ..good.clone()
            },
            "it holds no certificate",
        ),
        (
            TlsSecret {
                certificate: "x".into(),
                ..good.clone()
            },
            "it holds no certificate",
        ),
        (
            TlsSecret {
                key: "x".into(),
                ..good.clone()
            },
            "no private key",
        ),
        (
            TlsSecret {
                key: other.key,
                ..good.clone()
            },
            "not the certificate's",
        ),
    ];
    for (controller, part) in rows {
        let stored = Stored {
            controller: Some(controller),
            ..Stored::default()
        };
        let message = refused(&stored, true, now);
        assert!(
            message.contains("is not overwritten") && message.contains(part),
            "{message}"
        );
    }
    // A clock that is behind must not replace the cluster's CA.
    let stored = Stored {
        controller: Some(good),
        ..Stored::default()
    };
    let error = plan(&args(true), &stored, now - DAY).unwrap_err();
    assert!(matches!(error, PlanError::NotYetValid { .. }), "{error}");
}

/// Output of `helm template` for the chart version that made certificates itself: helm 4.3, in namespace `drivebay`.
macro_rules! of_helm {
    ($file:literal) => {
        include_str!(concat!("fixtures/helm-", $file)).to_owned()
    };
}

#[test]
fn what_an_earlier_chart_has_made_is_kept() {
    let tokens = Stored {
        controller: Some(TlsSecret {
            ca: of_helm!("tokens/ca.crt"),
            certificate: of_helm!("tokens/tls.crt"),
            key: of_helm!("tokens/tls.key"),
        }),
        nodes_ca: None,
        published: Some(of_helm!("tokens/ca.crt")),
    };
    let signed = Stored {
        controller: Some(TlsSecret {
            ca: of_helm!("signed/ca.crt"),
            certificate: of_helm!("signed/tls.crt"),
            key: of_helm!("signed/tls.key"),
        }),
        nodes_ca: Some(TlsSecret {
            ca: of_helm!("signed/ca.crt"),
            certificate: of_helm!("signed/ca.crt"),
            key: of_helm!("signed/ca.key"),
        }),
        published: None,
    };
    // A day after they were made, in November 2026; they are valid until 2036.
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_929_000);
    for (stored, with_tokens) in [(&tokens, true), (&signed, false)] {
        let kept = plan(&args(with_tokens), stored, now).unwrap();
        assert_eq!(kept.reason, None);
        assert!(kept.nodes_ca.is_none() && !kept.publish);
        assert_eq!(Some(&kept.controller), stored.controller.as_ref());
    }
    let mut from_signed = signed;
    assert_eq!(comes(&mut from_signed, true, now), Some(Reason::KeyOnNodes));
}

#[test]
fn a_secret_never_shows_its_key() {
    let secret = TlsSecret {
        ca: "a".into(),
        certificate: "b".into(),
        key: "hidden".into(),
    };
    assert!(!format!("{secret:?}").contains("hidden"));
}

#[test]
fn the_files_are_replaced_and_the_key_is_private() {
    let dir = tempfile::tempdir().unwrap();
    for text in ["1", "2"] {
        let secret = TlsSecret {
            ca: format!("ca {text}"),
            certificate: format!("certificate {text}"),
            key: format!("key {text}"),
        };
        write(dir.path(), &secret).unwrap();
        for (file, expected, mode) in [
            (CA, &secret.ca, 0o644),
            (CERTIFICATE, &secret.certificate, 0o644),
            (KEY, &secret.key, 0o600),
        ] {
            let path = dir.path().join(file);
            assert_eq!(&fs::read_to_string(&path).unwrap(), expected);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, mode, "{file}");
        }
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "no litter");
}
