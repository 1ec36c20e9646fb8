//! `[controller]`: where the controllers are, and the certificates towards them. Pure.

use std::path::PathBuf;

use drivebay_common::tls::{TlsFiles, TlsSource};

use super::{
    raw::Controller,
    report::{At, Report, entries},
    target::Target,
};

/// The controllers this agent dials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerConfig {
    /// What to dial: every address that each of these leads to.
    pub targets: Vec<Target>,
    /// Certificate files; None: no certificates, and unix sockets only.
    pub tls: Option<TlsSource>,
    /// File of the token that says in a cluster on which node this is.
    pub token: Option<PathBuf>,
}

/// Checks the section; None when it is not there.
pub(super) fn check(raw: &Controller, report: &mut Report) -> Option<ControllerConfig> {
    let Some(addresses) = &raw.addresses else {
        let given = [&raw.ca, &raw.cert, &raw.key, &raw.token]
            .into_iter()
            .flatten()
            .next();
        if let Some(at) = given {
            report.error(
                at,
                "does nothing without `addresses`, which says what to dial",
            );
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
    })
}
