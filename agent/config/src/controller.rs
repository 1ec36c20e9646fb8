//! `[controller]`: addresses of the controllers, and certificates for the connection. Pure.

use std::{collections::BTreeSet, path::PathBuf};

use drivebay_common::tls::{TlsFiles, TlsSource};
use serde::Deserialize;

use super::{
    raw::Controller,
    report::{At, Report, entries},
    target::Target,
};

/// Operation on a drive of this node that a controller may request. All others are available on the node only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveVerb {
    /// Cordon a drive, and uncordon it.
    Cordon,
    /// Switch the locate light of a drive's place in its enclosure, on and off.
    Locate,
    /// Move volumes to other drives of the node, end such moves, and list them.
    Evacuate,
    /// Acknowledge findings, each of which the request must name.
    Acknowledge,
}

/// The controllers that this agent connects to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerConfig {
    /// Targets to connect to: every address that each of them resolves to.
    pub targets: Vec<Target>,
    /// Certificate files; None: no certificates, and unix sockets only.
    pub tls: Option<TlsSource>,
    /// File of the token that proves, in a cluster, which node this is.
    pub token: Option<PathBuf>,
    /// Operations on drives that the controllers may request.
    pub drive_verbs: BTreeSet<DriveVerb>,
}

/// Checks the section; None if it is absent.
pub(super) fn check(raw: &Controller, report: &mut Report) -> Option<ControllerConfig> {
    let Some(addresses) = &raw.addresses else {
        let given = [&raw.ca, &raw.cert, &raw.key, &raw.token]
            .into_iter()
            .flatten()
            .next();
        const ALONE: &str = "does nothing without `addresses`, which says what to dial";
        if let Some(at) = given {
            report.error(at, ALONE);
        } else if let Some(at) = &raw.drive_verbs {
            report.error(at, ALONE);
        }
        return None;
    };
    let targets: Vec<Target> = entries(&raw.addresses)
        .filter_map(|at| report.parse(Some(at), str::parse::<Target>))
        .collect();
    if addresses.value.as_ref().is_some_and(Vec::is_empty) {
        report.error(
            addresses,
            "names no controller; leave the section out if there is none",
        );
    }
    let mut file = |given: &Option<At<String>>| {
        let absolute = |path: &str| path.starts_with('/');
        let path = report.require(given.as_ref(), absolute, "must be an absolute path");
        given.as_ref().map(|_| path.unwrap_or_default().into())
    };
    let files = (file(&raw.ca), file(&raw.cert), file(&raw.key));
    let token: Option<PathBuf> = file(&raw.token);
    let is_unix = |target: &Target| matches!(target, Target::Unix(_));
    let unix_only = !targets.is_empty() && targets.iter().all(is_unix);
    let tls = match files {
        _ if unix_only => {
            let given = [&raw.ca, &raw.cert, &raw.key, &raw.token];
            if let Some(at) = given.into_iter().flatten().next() {
                report.error(
                    at,
                    "does nothing towards a unix socket, where the kernel says who is at the other end; leave it out",
                );
            }
            None
        }
        (Some(ca), None, None) if token.is_some() => Some(TlsSource { ca, own: None }),
        (Some(ca), Some(cert), Some(key)) if token.is_none() => {
            Some(TlsFiles { ca, cert, key }.into())
        }
        _ => {
            report.error(
                addresses,
                "needs ca, cert and key, all three (`drivebay-controller certs node NAME` makes them); in Kubernetes ca and token; on one machine unix:/PATH needs none",
            );
            None
        }
    };
    Some(ControllerConfig {
        targets,
        tls,
        token,
        drive_verbs: match &raw.drive_verbs {
            None => BTreeSet::from([DriveVerb::Cordon, DriveVerb::Locate, DriveVerb::Evacuate]),
            given => entries(given).filter_map(|at| at.value).collect(),
        },
    })
}
