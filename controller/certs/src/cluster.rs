//! Certificates of a Kubernetes cluster, stored in its Secrets.
//!
//! [`plan`] decides from the stored objects and generates keys; it does no I/O. A stored certificate is kept as long as an agent
//! accepts it. It is replaced if it has expired, lacks the name that agents dial, or is of another CA; and, with tokens, if the
//! key of its CA was given to the nodes. Any other fault is an error, since an administrator may have put the certificate there.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use rustls::{
    CertificateError, Error, RootCertStore,
    client::{verify_server_cert_signed_by_trust_anchor, verify_server_name},
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
    sign::CertifiedKey,
};

use super::{
    args::KubernetesArgs,
    authority::{Authority, Subject, certificates, damaged},
    error::CertsError,
    names::Name,
    place::{self, Pair},
};
use drivebay_common::tls::{self, UtcTime};

/// Keys of a Secret of type `kubernetes.io/tls`; also the names of the files.
pub const CA: &str = "ca.crt";
pub const CERTIFICATE: &str = "tls.crt";
pub const KEY: &str = "tls.key";

/// A certificate, its key, and the certificates of the CAs that go with it, in PEM form.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsSecret {
    pub ca: String,
    pub certificate: String,
    pub key: String,
}

impl fmt::Debug for TlsSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSecret")
            .field("ca", &self.ca)
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// Objects stored in the cluster; None: the object does not exist.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    pub controller: Option<TlsSecret>,
    pub nodes_ca: Option<TlsSecret>,
    /// Published certificates of the CA that agents with tokens trust.
    pub published: Option<String>,
}

/// Objects to be stored. The caller writes Secrets before the published certificate, and the nodes' CA before what it has signed,
/// so that the next run completes one that was interrupted.
#[derive(Debug)]
pub struct Plan {
    /// Certificate of the controller, new or kept.
    pub controller: TlsSecret,
    /// Reason to write it; None if it is the stored one.
    pub reason: Option<Reason>,
    /// New CA of the nodes, if it has to be written.
    pub nodes_ca: Option<TlsSecret>,
    /// True if the CA's certificate has to be published.
    pub publish: bool,
}

/// Reason to make a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    Missing,
    Expired(UtcTime),
    Unnamed(Name),
    OtherCa,
    KeyOnNodes,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("there was none"),
            Self::Expired(until) => write!(f, "the previous one expired at {until}"),
            Self::Unnamed(name) => write!(f, "the previous one is not for {name}"),
            Self::OtherCa => f.write_str("the previous one is of another CA"),
            Self::KeyOnNodes => f.write_str("the key of the previous CA is on the nodes"),
        }
    }
}

/// No plan can be made; the stored certificates stay as they are.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(
        "Secret {secret} cannot be used, and is not overwritten: correct it, or delete it, and a new one is created"
    )]
    Unusable {
        secret: String,
        #[source]
        source: CertsError,
    },
    #[error(
        "the certificate in Secret {secret} is not valid before {from}, which is in the future by this node's clock: set the clock"
    )]
    NotYetValid { secret: String, from: UtcTime },
    #[error(transparent)]
    Make(#[from] CertsError),
}

/// Decides which certificates the cluster gets, and generates the missing ones.
///
/// # Errors
/// [`PlanError`]; the caller must not write anything.
pub fn plan(args: &KubernetesArgs, stored: &Stored, now: SystemTime) -> Result<Plan, PlanError> {
    match args.ca_config_map {
        Some(_) => with_tokens(args, stored, now),
        None => with_nodes_ca(args, stored, now),
    }
}

/// Writes the controller's files into a directory, replacing existing ones. The key's mode is 0600.
///
/// # Errors
/// [`CertsError::Write`]
pub fn write(dir: &Path, controller: &TlsSecret) -> Result<(), CertsError> {
    place::put(&dir.join(KEY), controller.key.as_bytes(), true)?;
    place::put(
        &dir.join(CERTIFICATE),
        controller.certificate.as_bytes(),
        false,
    )?;
    place::put(&dir.join(CA), controller.ca.as_bytes(), false)
}

fn with_tokens(args: &KubernetesArgs, stored: &Stored, now: SystemTime) -> Result<Plan, PlanError> {
    let reason = match &stored.controller {
        None => Some(Reason::Missing),
        Some(there) => match fault(args, there, &there.ca, now)? {
            None if is_on_nodes(args, there, stored.nodes_ca.as_ref())? => Some(Reason::KeyOnNodes),
            fault => fault,
        },
    };
    let controller = match (&stored.controller, &reason) {
        (Some(there), None) => there.clone(),
        // The CA's key is dropped here.
        _ => {
            let ca = new_ca(args, now)?;
            let authority = authority(&ca, now)?;
            signed(args, &authority, ca.certificate, now)?
        }
    };
    let publish = stored.published.as_ref() != Some(&controller.ca);
    Ok(Plan {
        controller,
        reason,
        nodes_ca: None,
        publish,
    })
}

fn with_nodes_ca(
    args: &KubernetesArgs,
    stored: &Stored,
    now: SystemTime,
) -> Result<Plan, PlanError> {
    let kept = match &stored.nodes_ca {
        None => None,
        Some(there) => match authority(there, now) {
            Ok(authority) => Some((authority, there.ca.clone())),
            Err(CertsError::CaExpired { .. }) => None,
            Err(source) => return Err(unusable(&args.nodes_ca_secret)(source)),
        },
    };
    let (authority, trusted, nodes_ca) = match kept {
        Some((authority, trusted)) => (authority, trusted, None),
        None => {
            let ca = new_ca(args, now)?;
            (authority(&ca, now)?, ca.ca.clone(), Some(ca))
        }
    };
    let reason = match &stored.controller {
        None => Some(Reason::Missing),
        Some(there) if !holds(args, there, authority.certificate())? => Some(Reason::OtherCa),
        Some(there) => fault(args, there, &trusted, now)?,
    };
    let controller = match (&stored.controller, &reason) {
        (Some(there), None) => there.clone(),
        _ => signed(args, &authority, trusted, now)?,
    };
    Ok(Plan {
        controller,
        reason,
        nodes_ca,
        publish: false,
    })
}

/// Returns a new CA, valid for a day longer than what it signs.
fn new_ca(args: &KubernetesArgs, now: SystemTime) -> Result<TlsSecret, CertsError> {
    let ca = Authority::generate(args.days.saturating_add(1), now)?;
    Ok(TlsSecret {
        ca: ca.certificate.clone(),
        certificate: ca.certificate,
        key: ca.key,
    })
}

fn authority(ca: &TlsSecret, now: SystemTime) -> Result<Authority, CertsError> {
    let at = Pair {
        certificate: PathBuf::from(CERTIFICATE),
        key: PathBuf::from(KEY),
    };
    let (bundle, key) = (ca.certificate.clone(), ca.key.clone());
    Authority::of(at, bundle.into_bytes(), key.into_bytes(), now)
}

fn signed(
    args: &KubernetesArgs,
    authority: &Authority,
    ca: String,
    now: SystemTime,
) -> Result<TlsSecret, CertsError> {
    let leaf = authority.issue(&Subject::Controller(&args.names), args.days, now)?;
    Ok(TlsSecret {
        ca,
        certificate: leaf.certificate,
        key: leaf.key,
    })
}

/// Returns the reason why an agent that trusts `ca` would refuse the controller's certificate; None if it accepts it.
///
/// # Errors
/// The certificate is unusable for another reason, or not valid yet.
fn fault(
    args: &KubernetesArgs,
    there: &TlsSecret,
    ca: &str,
    now: SystemTime,
) -> Result<Option<Reason>, PlanError> {
    let unusable = unusable(&args.secret);
    let of_certificate = |why: &dyn fmt::Display| unusable(damaged(Path::new(CERTIFICATE), why));
    let chain = read(CERTIFICATE, &there.certificate).map_err(&unusable)?;
    let Some((leaf, intermediates)) = chain.split_first() else {
        return Err(of_certificate(&"it holds no certificate"));
    };
    check_key(&chain, &there.key).map_err(&unusable)?;
    let validity = tls::validity(leaf).map_err(|error| of_certificate(&error))?;
    if validity.until < now {
        return Ok(Some(Reason::Expired(UtcTime(validity.until))));
    }
    if now < validity.from {
        return Err(PlanError::NotYetValid {
            secret: args.secret.clone(),
            from: UtcTime(validity.from),
        });
    }
    let mut roots = RootCertStore::empty();
    for root in read(CA, ca).map_err(&unusable)? {
        let added = roots.add(root);
        added.map_err(|error| unusable(damaged(Path::new(CA), error)))?;
    }
    let parsed = ParsedCertificate::try_from(leaf).map_err(|error| of_certificate(&error))?;
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    let verified = verify_server_cert_signed_by_trust_anchor(
        &parsed,
        &roots,
        intermediates,
        UnixTime::since_unix_epoch(since.unwrap_or_default()),
        ring::default_provider()
            .signature_verification_algorithms
            .all,
    );
    match verified {
        Ok(()) => {}
        Err(Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => return Ok(Some(Reason::OtherCa)),
        Err(error) => return Err(of_certificate(&error)),
    }
    let is_for = |name: &&Name| {
        ServerName::try_from(name.to_string())
            .is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
    };
    // Agents dial the first name only; the others are for operators and tests.
    let dialled = args.names.first().filter(|name| !is_for(name));
    Ok(dialled.cloned().map(Reason::Unnamed))
}

fn check_key(chain: &[CertificateDer<'static>], key: &str) -> Result<(), CertsError> {
    let of_key = |why: &dyn fmt::Display| damaged(Path::new(KEY), why);
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|_| of_key(&"it holds no private key in PEM form"))?;
    let key = ring::default_provider().key_provider.load_private_key(key);
    let key = key.map_err(|error| of_key(&error))?;
    CertifiedKey::new(chain.to_vec(), key)
        .keys_match()
        .map_err(|_| of_key(&"it is not the certificate's"))
}

/// True if the nodes have the key of a CA that is among those of this certificate.
fn is_on_nodes(
    args: &KubernetesArgs,
    there: &TlsSecret,
    nodes_ca: Option<&TlsSecret>,
) -> Result<bool, PlanError> {
    let Some(nodes_ca) = nodes_ca else {
        return Ok(false);
    };
    let given =
        read(CERTIFICATE, &nodes_ca.certificate).map_err(unusable(&args.nodes_ca_secret))?;
    for ca in &given {
        if holds(args, there, ca)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True if this CA is among those stored with the controller's certificate.
fn holds(
    args: &KubernetesArgs,
    there: &TlsSecret,
    ca: &CertificateDer<'_>,
) -> Result<bool, PlanError> {
    let all = read(CA, &there.ca).map_err(unusable(&args.secret))?;
    Ok(all.iter().any(|one| one.as_ref() == ca.as_ref()))
}

fn read(key: &str, pem: &str) -> Result<Vec<CertificateDer<'static>>, CertsError> {
    certificates(Path::new(key), pem.as_bytes())
}

fn unusable(secret: &str) -> impl Fn(CertsError) -> PlanError {
    move |source| PlanError::Unusable {
        secret: secret.to_owned(),
        source,
    }
}
