//! `[controller]`: where the controllers are, and the certificates towards them. Pure.

use std::path::PathBuf;

use drivebay_common::tls::{TlsFiles, TlsSource};

use super::target::Target;
use super::{check::Notes, raw::RawController, section::At};

/// The controllers this agent dials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerConfig {
    /// What to dial: every address that each of these leads to.
    pub targets: Vec<Target>,
    /// Certificate files; None: no certificates, and loopback addresses only.
    pub tls: Option<TlsSource>,
    /// File of the token that says in a cluster on which node this is.
    pub token: Option<PathBuf>,
}

/// Checks the section; None when it is not there.
pub(super) fn check(raw: &RawController, notes: &mut Notes) -> Option<ControllerConfig> {
    let Some(addresses) = &raw.addresses else {
        let given = [&raw.ca, &raw.cert, &raw.key, &raw.token]
            .into_iter()
            .flatten()
            .next();
        if let Some(at) = given {
            notes.wrong(
                at,
                "does nothing without `addresses`, which says what to dial",
            );
        }
        return None;
    };
    let mut targets = Vec::new();
    for address in &addresses.value {
        match address.value.parse::<Target>() {
            Ok(target) => targets.push(target),
            Err(error) => notes.wrong(address, error.to_string()),
        }
    }
    if addresses.value.is_empty() {
        notes.wrong(
            addresses,
            "names no controller; leave the section out if there is none",
        );
    }
    let insecure = raw.insecure_loopback.as_ref().is_some_and(|at| at.value);
    let mut file = |given: &Option<At<String>>| {
        given.as_ref().map(|at| {
            if !at.value.starts_with('/') {
                notes.wrong(at, format!("{:?} must be an absolute path", at.value));
            }
            at.value.clone().into()
        })
    };
    let files = (file(&raw.ca), file(&raw.cert), file(&raw.key));
    let token: Option<PathBuf> = file(&raw.token);
    let tls = match files {
        (Some(ca), None, None) if token.is_some() => Some(TlsSource { ca, own: None }),
        (Some(ca), Some(cert), Some(key)) if token.is_none() => {
            if let Some(at) = raw.insecure_loopback.as_ref().filter(|_| insecure) {
                notes.wrong(at, "contradicts ca, cert and key; leave one of them out");
            }
            Some(TlsFiles { ca, cert, key }.into())
        }
        (None, None, None) if insecure && token.is_none() => None,
        _ => {
            notes.wrong(
                addresses,
                "needs ca, cert and key, all three (`drivebay-controller certs node NAME` makes them); in Kubernetes ca and token; or insecure-loopback = true on one machine",
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
